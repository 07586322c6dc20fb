import { statSync } from "node:fs";
import type { RememberedBrowser } from "../../control/browsers.ts";
import { type Failed, failed, quoteForShell } from "../../core/display.ts";
import { errorMessage } from "../../core/errors.ts";
import { isObject, listAt, parseObject, textAt, wholeAt } from "../../core/json.ts";
import { readOwnFile } from "../../core/own-file.ts";
import { writePrivateFile } from "../../core/private-file.ts";

export type StoredBrowser = Omit<RememberedBrowser, "fingerprint">;

export type ReadBrowsers = { readonly ok: true; readonly browsers: readonly StoredBrowser[] } | Failed;

const MAX_BYTES = 64 * 1024;

/** Who can write this file can open the dashboard, so of one that is not as it was written nothing is used. */
export function readBrowsers(file: string): ReadBrowsers {
  try {
    const text = readOwnFile(file, MAX_BYTES);
    if (text === null) return { ok: true, browsers: [] };
    if ((statSync(file).mode & 0o077) !== 0)
      return failed(`others can read or change ${file}`, `chmod 600 ${quoteForShell(file)}`);
    const browsers = listAt(parseObject(text), "browsers");
    if (browsers === null || !browsers.every(isStoredBrowser))
      return failed(`${file} is not as keybearer wrote it`, `rm ${quoteForShell(file)}`);
    return { ok: true, browsers };
  } catch (error) {
    return failed(`the list of remembered browsers cannot be read: ${errorMessage(error)}`);
  }
}

export async function writeBrowsers(file: string, browsers: readonly StoredBrowser[]): Promise<void> {
  await writePrivateFile(file, `${JSON.stringify({ browsers }, null, 2)}\n`);
}

function isStoredBrowser(value: unknown): value is StoredBrowser {
  return (
    isObject(value) &&
    ["name", "public_key", "origin"].every((name) => textAt(value, name) !== null) &&
    ["made_at", "used_at"].every((name) => wholeAt(value, name) !== null)
  );
}
