import { randomBytes } from "node:crypto";
import {
  lstatSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  renameSync,
  symlinkSync,
  unlinkSync,
} from "node:fs";
import { stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { advice } from "../core/advice.ts";
import { type Clock, systemClock } from "../core/clock.ts";
import { type Failed, failed, type Problem } from "../core/display.ts";
import { errorCode, errorMessage, hasCode } from "../core/errors.ts";
import { createPrivateFile, type StagedFile, stageFile, syncFolder } from "../core/private-file.ts";
import { readText } from "./load.ts";

/** Writing config.yaml: in one step, and never over what another program saved in the meantime. */

export interface Edited<Result> {
  readonly ok: true;
  readonly result: Result;
  /** False: the file said so already. */
  readonly changed: boolean;
}

type Edit<Result> = (text: string) => Result | Failed;
interface NewText {
  readonly ok: true;
  readonly text: string;
}

/** Each failed attempt means that another process has saved, so this many do not come together. */
const MAX_ATTEMPTS = 50;

/** Changes config.yaml by an edit of its text. If another program saves it meanwhile, the edit is made again from the new text. */
export async function editFile<Result extends NewText>(
  file: string,
  edit: Edit<Result>,
  clock: Clock = systemClock,
): Promise<Edited<Result> | Failed> {
  for (let attempt = 1; ; attempt += 1) {
    const prepared = await prepareEdit(file, edit);
    if (!prepared.ok) return prepared;
    const { before, result } = prepared;
    if (result.text === before) return { ok: true, result, changed: false };
    const written = await writeConfig(file, before, result.text, clock);
    if (written.ok) return { ok: true, result, changed: true };
    if (!written.isStale || attempt === MAX_ATTEMPTS) return written;
  }
}

/**
 * The same after a person has confirmed it; null if they did not. Refused if another program saves it meanwhile, because the
 * person agreed to another text.
 */
export async function editFileIfConfirmed<Result extends NewText>(
  file: string,
  edit: Edit<Result>,
  confirm: () => Promise<boolean>,
): Promise<Edited<Result> | Failed | null> {
  const prepared = await prepareEdit(file, edit);
  if (!prepared.ok) return prepared;
  if (!(await confirm())) return null;
  const { before, result } = prepared;
  const changed = result.text !== before;
  const written = changed ? await writeConfig(file, before, result.text) : null;
  return written?.ok === false ? written : { ok: true, result, changed };
}

async function prepareEdit<Result extends NewText>(file: string, edit: Edit<Result>) {
  const read = await readText(file);
  if (read.text === null) {
    return read.found ? failed(`${read.problem}. nothing was changed`) : failed(read.problem, advice.init());
  }
  const result = edit(read.text);
  return result.ok ? ({ ok: true, before: read.text, result } as const) : result;
}

export type Written =
  | { readonly ok: true }
  /** isStale: the file no longer holds the expected text. */
  | (Failed & { readonly isStale: boolean });

/** Replaces config.yaml, if it still holds the expected text. It is 0600 afterwards, or as said. A link to it stays. */
export async function writeConfig(
  file: string,
  expected: string,
  text: string,
  clock: Clock = systemClock,
  access: { readonly mode?: number; readonly group?: number } = {},
): Promise<Written> {
  let staged: StagedFile | null = null;
  try {
    // Throws for a file that has vanished: it is not created again.
    const { uid } = await stat(file);
    const user = process.geteuid?.();
    if (user !== undefined && user !== 0 && user !== uid)
      return { ...failed(`${file} was not changed: it belongs to another user`), isStale: false };
    const ready = await stageFile(file, text, { ...access, followLinks: true });
    staged = ready;
    const lock = join(dirname(ready.target), `.${basename(ready.target)}.lock`);
    const isReplaced = await underLock(lock, () => replaceIfSame(file, ready, expected), clock);
    if (!isReplaced) {
      const problem = `${file} was changed by something else meanwhile and was left as it is`;
      return { ...failed(problem, "run the command again"), isStale: true };
    }
    staged = null;
    await syncFolder(dirname(ready.target));
    return { ok: true };
  } catch (error) {
    const { problem, next } = explainError(error, file);
    return { ...failed(`${file} was not changed: ${problem}`, next), isStale: false };
  } finally {
    await staged?.discard();
  }
}

/** Creates config.yaml with mode 0600. Never replaces a file. */
export async function createConfig(file: string, text: string): Promise<Written> {
  try {
    if (await createPrivateFile(file, text)) return { ok: true };
    return { ...failed(`${file} exists already and was left as it is`), isStale: true };
  } catch (error) {
    const { problem, next } = explainError(error, file);
    return { ...failed(`${file} was not created: ${problem}`, next), isStale: false };
  }
}

/**
 * Synchronous and under the lock: of two commands that expect the same text only one finds it. An editor knows no lock; for
 * its save only the time between two system calls is left.
 */
function replaceIfSame(file: string, staged: StagedFile, expected: string): boolean {
  // As bytes: two texts that are not UTF-8 can be equal after decoding.
  const isSame =
    realpathSync(file) === staged.target && readFileSync(staged.target).equals(Buffer.from(expected));
  if (isSame) staged.commit();
  return isSame;
}

function explainError(error: unknown, file: string): Problem {
  const code = errorCode(error);
  switch (code) {
    case "ENOENT":
      return { problem: "it no longer exists", next: null };
    case "EACCES":
    case "EPERM":
      return { problem: "no permission for it or its folder", next: `ls -la ${dirname(file)}` };
    case "EROFS":
      return { problem: "its disk is read-only", next: null };
    case "ENOSPC":
    case "EDQUOT":
      return { problem: "there is no space left on its disk", next: null };
    case "unknown":
      return { problem: errorMessage(error), next: null };
    default:
      return { problem: code, next: null };
  }
}

/** Work under the lock takes less than a millisecond. A process that holds it this long is gone, or hangs. */
const STALE_AFTER_MS = 10_000;
const MAX_WAIT_MS = 15_000;

/**
 * Runs short synchronous work that no other keybearer process runs at the same time. The lock is a symlink to the holder's
 * process id, because a link is created together with its content and a file is not. Only a kill during the work can
 * leave it behind.
 */
export async function underLock<T>(path: string, work: () => T, clock: Clock): Promise<T> {
  const deadline = clock.elapsed() + MAX_WAIT_MS;
  while (!tryLock(path)) {
    if (clock.elapsed() >= deadline) throw new Error(`another keybearer command has held ${path} for 15 s`);
    if (!breakStaleLock(path, clock)) await wait(2 + Math.random() * 10);
  }
  try {
    return work();
  } finally {
    unlock(path);
  }
}

function tryLock(path: string): boolean {
  try {
    symlinkSync(String(process.pid), path);
    return true;
  } catch (error) {
    if (hasCode(error, "EEXIST")) return false;
    // Some file systems have no symlinks. There the comparison right before the rename has to be enough.
    if (hasCode(error, "EPERM", "ENOTSUP")) return true;
    throw error;
  }
}

function unlock(path: string): void {
  try {
    if (readlinkSync(path) === String(process.pid)) unlinkSync(path);
  } catch {
    // Another process took it for a dead one's, or there are no symlinks here.
  }
}

/** Removes the lock of a process that is gone or hangs. True: try again at once. */
function breakStaleLock(path: string, clock: Clock): boolean {
  const moved = `${path}.${randomBytes(12).toString("hex")}.tmp`;
  try {
    const seen = lstatSync(path);
    if (isAlive(readlinkSync(path)) && clock.now() - seen.mtimeMs < STALE_AFTER_MS) return false;
    renameSync(path, moved);
    const { ino, mtimeMs } = lstatSync(moved);
    // Another process may have broken it first and locked again: that lock is put back.
    if (ino === seen.ino && mtimeMs === seen.mtimeMs) unlinkSync(moved);
    else renameSync(moved, path);
    return true;
  } catch (error) {
    if (hasCode(error, "ENOENT")) return true;
    // EINVAL: not a symlink, so not ours.
    if (hasCode(error, "EINVAL")) return false;
    throw error;
  }
}

function isAlive(pid: string): boolean {
  try {
    process.kill(Number(pid), 0);
    return true;
  } catch (error) {
    return !hasCode(error, "ESRCH");
  }
}
