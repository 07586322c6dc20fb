import { readFileSync, realpathSync } from "node:fs";
import { stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { type Clock, systemClock } from "../../core/clock.ts";
import { errorCode, errorMessage } from "../../core/errors.ts";
import { createPrivateFile, type StagedFile, stageFile, syncFolder } from "../../core/private-file.ts";
import { underLock } from "./lock.ts";

export type Written =
  | { readonly ok: true }
  /** changed: it no longer holds what was expected, so that the edit can be made anew from what it holds now. */
  | { readonly ok: false; readonly reason: string; readonly changed: boolean };

/**
 * Replaces config.yaml by a new text in one step: whoever reads it, and whenever the power fails, there is the old
 * text or the new one. Refused when the file no longer holds `expected`, the text that the new one was made from.
 * The file is 0600 afterwards. A symlink stays, and the file that it leads to is replaced.
 */
export async function writeConfig(
  file: string,
  expected: string,
  text: string,
  clock: Clock = systemClock,
): Promise<Written> {
  let staged: StagedFile | null = null;
  try {
    // A file that vanished is not made again.
    const { uid } = await stat(file);
    if (uid !== process.geteuid?.() && process.geteuid?.() !== 0)
      return { ok: false, reason: `${file} was not changed: it belongs to another user`, changed: false };
    staged = await stageFile(file, text);
    const made = staged;
    const lock = join(dirname(made.target), `.${basename(made.target)}.lock`);
    const fault = await underLock(lock, () => swap(file, made, expected), clock);
    if (fault !== null) return { ok: false, reason: fault, changed: true };
    staged = null;
    await syncFolder(dirname(made.target));
    return { ok: true };
  } catch (error) {
    return { ok: false, reason: `${file} was not changed: ${causeOf(error, file)}`, changed: false };
  } finally {
    await staged?.discard();
  }
}

/** Makes config.yaml, 0600, where there is none, whole or not at all. Never in the place of another. */
export async function createConfig(file: string, text: string): Promise<Written> {
  try {
    if (await createPrivateFile(file, text)) return { ok: true };
    return { ok: false, reason: `${file} is there already and was left as it is`, changed: true };
  } catch (error) {
    return { ok: false, reason: `${file} was not made: ${causeOf(error, file)}`, changed: false };
  }
}

/**
 * Compares and renames without giving way in between, under the lock: of two commands, in one process or in two, not
 * both can find what they expected. An editor knows no lock, and has only the time between two system calls.
 */
function swap(file: string, made: StagedFile, expected: string): string | null {
  // Bytes, because a text that is not UTF-8 would compare equal after both sides lost the same characters.
  const same = realpathSync(file) === made.target && readFileSync(made.target).equals(Buffer.from(expected));
  if (!same)
    return `${file} was changed by something else meanwhile and was left as it is: run the command again`;
  made.commit();
  return null;
}

function causeOf(error: unknown, file: string): string {
  const code = errorCode(error);
  switch (code) {
    case "ENOENT":
      return "it is not there any more";
    case "EACCES":
    case "EPERM":
      return `no permission for it or its folder: see \`ls -la ${dirname(file)}\``;
    case "EROFS":
      return "its disk is read-only";
    case "ENOSPC":
    case "EDQUOT":
      return "there is no space left on its disk";
    case "unknown":
      return errorMessage(error);
    default:
      return code;
  }
}
