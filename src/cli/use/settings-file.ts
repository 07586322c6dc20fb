import { constants, lstatSync, readFileSync, realpathSync, unlinkSync } from "node:fs";
import { lstat, open, realpath } from "node:fs/promises";
import { errorMessage, hasCode } from "../../core/errors.ts";
import { type StagedFile, stageFile } from "../../core/private-file.ts";

/** A client's settings as they were when they were read. */
export interface SettingsFile {
  /** As the client names it. */
  readonly path: string;
  /** The file itself. Dotfiles managers put a link in its place, which is kept. */
  readonly target: string;
  /** null: the file does not exist. */
  readonly found: { readonly text: string; readonly mode: number } | null;
}

export type ReadResult =
  | { readonly ok: true; readonly file: SettingsFile }
  | { readonly ok: false; readonly problem: string };

type Replaced = { readonly ok: true } | { readonly ok: false; readonly problem: string };

const MAX_BYTES = 1_000_000;

export async function readSettings(path: string): Promise<ReadResult> {
  try {
    const entry = await lstat(path).catch(nullIfMissing);
    if (entry === null) return { ok: true, file: { path, target: path, found: null } };
    const target = await realpath(path).catch(nullIfMissing);
    if (target === null)
      return refused(`${path} is a link to a file that does not exist: delete it, then run this again`);
    // Without O_NONBLOCK opening a fifo would wait for a writer.
    const handle = await open(target, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const stat = await handle.stat();
      if (!stat.isFile()) return refused(`${path} is not a file`);
      if (stat.uid !== (process.getuid?.() ?? stat.uid)) {
        return refused(`${path} belongs to another user, so keybearer does not touch it`);
      }
      if (stat.size > MAX_BYTES) return refused(`${path} is larger than 1 MB: not read`);
      const bytes = await handle.readFile();
      const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
      return { ok: true, file: { path, target, found: { text, mode: stat.mode & 0o777 } } };
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (error instanceof TypeError)
      return refused(`${path} is not UTF-8 text, so keybearer does not touch it`);
    return refused(`${path} cannot be read: ${errorMessage(error)}`);
  }
}

/** Replaces the file as a whole or not at all; null removes it. Refused if the file has changed since it was read. */
export async function replaceSettings(
  file: SettingsFile,
  text: string | null,
  mode: number,
): Promise<Replaced> {
  const { path, target } = file;
  let staged: StagedFile | null = null;
  try {
    if (text === null) return swapIfUnchanged(file, () => unlinkSync(target));
    const made = await stageFile(target, text, { mode, followLinks: true });
    staged = made;
    const done = swapIfUnchanged(file, () => made.commit());
    if (done.ok) staged = null;
    return done;
  } catch (error) {
    return refused(`${path} was not changed: ${errorMessage(error)}`);
  } finally {
    // The staged file holds a token.
    await staged?.discard();
  }
}

/** Synchronous, so that only the time between two system calls is left for another program to change the file. */
function swapIfUnchanged(file: SettingsFile, change: () => void): Replaced {
  if (!isUnchanged(file)) {
    return refused(
      `${file.path} was changed by another program meanwhile and was left as it is: run this again`,
    );
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

function refused(problem: string): { readonly ok: false; readonly problem: string } {
  return { ok: false, problem };
}
