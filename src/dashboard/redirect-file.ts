import { randomBytes } from "node:crypto";
import { lstat, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";

/** As long as a code is valid. */
const REDIRECT_MS = 60_000;
const NAME = /^open-[\w-]{8}\.html$/;

/**
 * Writes a page that redirects to the address, which contains a code. Other users of the machine can read the arguments of
 * the browser's process, but not a file with mode 0600.
 */
export async function writeRedirect(folder: string, address: string): Promise<string> {
  const file = join(folder, `open-${randomBytes(6).toString("base64url")}.html`);
  const to = address.replaceAll("&", "&amp;").replaceAll('"', "&quot;").replaceAll("<", "&lt;");
  const page = `<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><meta http-equiv="refresh" content="0;url=${to}"><title>keybearer</title>\n`;
  await writeFile(file, page, { mode: 0o600, flag: "wx" });
  return file;
}

/** Removes the pages whose code is expired at `now`; without it, all of them. */
export async function removeRedirects(folder: string, now = Number.POSITIVE_INFINITY): Promise<void> {
  const names = await readdir(folder).catch(() => []);
  for (const file of names.filter((name) => NAME.test(name)).map((name) => join(folder, name))) {
    const found = await lstat(file).catch(() => null);
    // A folder of that name is not ours.
    if (found?.isFile() && now - found.mtimeMs >= REDIRECT_MS) await rm(file, { force: true });
  }
}
