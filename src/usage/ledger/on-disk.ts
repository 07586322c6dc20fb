import { type Stats, statSync } from "node:fs";
import { LedgerFault, systemFault } from "./fault.ts";

/** What lies at a path; null: nothing. Throws a LedgerFault where that cannot be told. */
export function statOf(path: string): Stats | null {
  try {
    return statSync(path, { throwIfNoEntry: false }) ?? null;
  } catch (error) {
    throw systemFault(error);
  }
}

/** null: there is none. */
export function sizeOf(path: string): number | null {
  return statOf(path)?.size ?? null;
}

/** SQLite would wait for ever on a pipe, and nobody's folder is ours to change. */
export function refuseOtherThanFile(path: string): Stats | null {
  const found = statOf(path);
  if (found === null || found.isFile()) return found;
  const what = found.isDirectory() ? "a folder" : "a device or a pipe";
  throw new LedgerFault("foreign", `there is ${what} in its place, which was left as it is`);
}

/** The same for a file that is another user's. Root may write it all the same, and leaves it with its owner. */
export function refuseForeign(path: string): Stats | null {
  const found = refuseOtherThanFile(path);
  if (found === null || isOurs(found) || process.geteuid?.() === 0) return found;
  throw new LedgerFault("foreign", "it belongs to another user, and was left as it is");
}

/** Whether it belongs to the user this runs as, where there are users. */
export function isOurs({ uid }: Stats): boolean {
  const user = process.geteuid?.();
  return user === undefined || user === uid;
}
