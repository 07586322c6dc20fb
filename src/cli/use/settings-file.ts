import { constants, lstatSync, readFileSync, realpathSync, unlinkSync } from "node:fs";
import { lstat, open, realpath } from "node:fs/promises";
import { errorMessage, hasCode } from "../../core/errors.ts";
import { type StagedFile, stageFile } from "../../core/private-file.ts";

/** A client's settings as they were when they were looked at. */
export interface SettingsFile {
  /** As the client names it. */
  readonly path: string;
  /** The file itself: dotfiles managers put a link in its place, which stays. */
  readonly target: string;
  /** null: there is none. */
  readonly found: { readonly text: string; readonly mode: number } | null;
}

export type Looked =
  | { readonly ok: true; readonly file: SettingsFile }
  | { readonly ok: false; readonly reason: string };

export type Replaced = { readonly ok: true } | { readonly ok: false; readonly reason: string };

const MOST_BYTES = 1_000_000;

export async function lookAt(path: string): Promise<Looked> {
  try {
    const entry = await lstat(path).catch(nullIfMissing);
    if (entry === null) return { ok: true, file: { path, target: path, found: null } };
    const target = await realpath(path).catch(nullIfMissing);
    if (target === null) return no(`${path} is a link that leads nowhere: delete it, then run this again`);
    // O_NONBLOCK: opening a fifo would otherwise wait for somebody to write into it.
    const handle = await open(target, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const stat = await handle.stat();
      if (!stat.isFile()) return no(`${path} is not a file`);
      if (stat.uid !== (process.getuid?.() ?? stat.uid)) {
        return no(`${path} belongs to another user, so it is left alone`);
      }
      if (stat.size > MOST_BYTES) return no(`${path} is larger than 1 MB: not read`);
      const bytes = await handle.readFile();
      const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
      return { ok: true, file: { path, target, found: { text, mode: stat.mode & 0o777 } } };
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (error instanceof TypeError) return no(`${path} is not UTF-8 text, so it is left alone`);
    return no(`${path} cannot be read: ${errorMessage(error)}`);
  }
}

/**
 * Puts a text in the place of what was looked at, whole or not at all; null removes the file. Refused where the file is
 * no longer what it was then.
 */
export async function replace(file: SettingsFile, text: string | null, mode: number): Promise<Replaced> {
  const { path, target } = file;
  let staged: StagedFile | null = null;
  try {
    if (text === null) return swapped(file, () => unlinkSync(target));
    const made = await stageFile(target, text, { mode });
    staged = made;
    const done = swapped(file, () => made.commit());
    if (done.ok) staged = null;
    return done;
  } catch (error) {
    return no(`${path} was not changed: ${errorMessage(error)}`);
  } finally {
    // It holds a token.
    await staged?.discard();
  }
}

/** Compares and changes without giving way in between: only the time between two system calls is left to others. */
function swapped(file: SettingsFile, change: () => void): Replaced {
  if (!isUnchanged(file)) {
    return no(`${file.path} was changed by something else meanwhile and was left as it is: run this again`);
  }
  change();
  return { ok: true };
}

function isUnchanged({ path, target, found }: SettingsFile): boolean {
  if (found === null) return lstatSync(path, { throwIfNoEntry: false }) === undefined;
  if (lstatSync(path, { throwIfNoEntry: false }) === undefined) return false;
  return realpathSync(path) === target && readFileSync(target).equals(Buffer.from(found.text));
}

function nullIfMissing(error: unknown): null {
  if (hasCode(error, "ENOENT")) return null;
  throw error;
}

function no(reason: string): { readonly ok: false; readonly reason: string } {
  return { ok: false, reason };
}
