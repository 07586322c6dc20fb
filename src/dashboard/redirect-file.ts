import { randomBytes } from "node:crypto";
import { lstat, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";

/** As long as a code is good. */
export const REDIRECT_MS = 60_000;
const NAME = /^open-[\w-]{8}\.html$/;

/**
 * A page that leads on to the address. What stands in a file of 0600 no other user of the machine reads, and what
 * stands in the arguments of a program they all do.
 */
export async function writeRedirect(folder: string, address: string): Promise<string> {
  const file = join(folder, `open-${randomBytes(6).toString("base64url")}.html`);
  const to = address.replaceAll("&", "&amp;").replaceAll('"', "&quot;").replaceAll("<", "&lt;");
  const page = `<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><meta http-equiv="refresh" content="0;url=${to}"><title>keybearer</title>\n`;
  await writeFile(file, page, { mode: 0o600, flag: "wx" });
  return file;
}

/** Those whose code is no longer good, at the time `now`; all of them without one. */
export async function removeRedirects(folder: string, now = Number.POSITIVE_INFINITY): Promise<void> {
  const names = await readdir(folder).catch(() => []);
  for (const file of names.filter((name) => NAME.test(name)).map((name) => join(folder, name))) {
    const found = await lstat(file).catch(() => null);
    // Only a file is a page of ours: a folder of that name is left alone.
    if (found?.isFile() && now - found.mtimeMs >= REDIRECT_MS) await rm(file, { force: true });
  }
}
