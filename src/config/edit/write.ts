import { randomBytes } from "node:crypto";
import { constants, readFileSync, realpathSync, renameSync } from "node:fs";
import { link, lstat, mkdir, open, readdir, realpath, stat, unlink } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { type Clock, systemClock } from "../../core/clock.ts";
import { errorCode, errorMessage, hasCode } from "../../core/errors.ts";
import { underLock } from "./lock.ts";

export type Written =
  | { readonly ok: true }
  /** changed: it no longer holds what was expected, so that the edit can be made anew from what it holds now. */
  | { readonly ok: false; readonly reason: string; readonly changed: boolean };

/** A write takes milliseconds; a temporary file this old belongs to a process that was killed. */
const LEFTOVER_AFTER_MS = 60_000;

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
  let temporary: string | null = null;
  try {
    const target = await realpath(file);
    await removeLeftovers(target, clock);
    const { uid } = await stat(target);
    temporary = join(dirname(target), `.${basename(target)}.${randomBytes(12).toString("hex")}.tmp`);
    await writeDurably(temporary, text, uid);
    const made = temporary;
    const lock = join(dirname(target), `.${basename(target)}.lock`);
    const fault = await underLock(lock, () => swap(file, target, expected, made), clock);
    if (fault !== null) return { ok: false, reason: fault, changed: true };
    temporary = null;
    await syncFolder(dirname(target));
    return { ok: true };
  } catch (error) {
    return { ok: false, reason: `${file} was not changed: ${causeOf(error, file)}`, changed: false };
  } finally {
    // It may not have come into being; and where it cannot be removed now, a later write will do it.
    if (temporary !== null) await unlink(temporary).catch(() => {});
  }
}

/**
 * Makes config.yaml, 0600, where there is none, whole or not at all. Never in the place of another: a link, unlike a
 * rename, fails where something has that name.
 */
export async function createConfig(file: string, text: string): Promise<Written> {
  const temporary = join(dirname(file), `.${basename(file)}.${randomBytes(12).toString("hex")}.tmp`);
  try {
    await mkdir(dirname(file), { recursive: true, mode: 0o700 });
    const { uid } = await stat(dirname(file));
    await writeDurably(temporary, text, uid);
    const free = await link(temporary, file).then(() => true, whetherTaken);
    if (!free) return { ok: false, reason: `${file} is there already and was left as it is`, changed: true };
    await syncFolder(dirname(file));
    return { ok: true };
  } catch (error) {
    return { ok: false, reason: `${file} was not made: ${causeOf(error, file)}`, changed: false };
  } finally {
    await unlink(temporary).catch(() => {});
  }
}

function whetherTaken(error: unknown): false {
  if (hasCode(error, "EEXIST")) return false;
  throw error;
}

async function writeDurably(path: string, text: string, uid: number): Promise<void> {
  const { O_CREAT, O_EXCL, O_NOFOLLOW, O_WRONLY } = constants;
  const handle = await open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
  try {
    // The umask may have taken bits away.
    await handle.chmod(0o600);
    const { uid: own } = await handle.stat();
    // Run with sudo, the file would become root's, and the daemon could not read it any more.
    if (own !== uid) await handle.chown(uid, -1);
    await handle.writeFile(text);
    // Before the rename: without it, a power cut can leave the new name with no content.
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/**
 * Compares and renames without giving way in between, under the lock: of two commands, in one process or in two, not
 * both can find what they expected. An editor knows no lock, and has only the time between two system calls.
 */
function swap(file: string, target: string, expected: string, temporary: string): string | null {
  // Bytes, because a text that is not UTF-8 would compare equal after both sides lost the same characters.
  const same = realpathSync(file) === target && readFileSync(target).equals(Buffer.from(expected));
  if (!same)
    return `${file} was changed by something else meanwhile and was left as it is: run the command again`;
  renameSync(temporary, target);
  return null;
}

/** Makes the rename itself outlast a power cut. Some file systems cannot, and the new text is in place by now. */
async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, constants.O_RDONLY).catch(() => null);
  await handle?.sync().catch(() => {});
  await handle?.close().catch(() => {});
}

async function removeLeftovers(target: string, clock: Clock): Promise<void> {
  const folder = dirname(target);
  const prefix = `.${basename(target)}.`;
  // A folder that can be written but not listed is no reason to fail.
  const names = await readdir(folder).catch(() => []);
  for (const name of names) {
    if (!name.startsWith(prefix) || !/^[0-9a-f]{24}\.tmp$/.test(name.slice(prefix.length))) continue;
    const path = join(folder, name);
    const entry = await lstat(path).catch(() => null);
    if (!entry?.isFile() || clock.now() - entry.mtimeMs < LEFTOVER_AFTER_MS) continue;
    await unlink(path).catch(() => {});
  }
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
