import { randomBytes } from "node:crypto";
import { type BigIntStats, closeSync, constants, fchmodSync, openSync, renameSync } from "node:fs";
import { link, lstat, mkdir, open, readdir, realpath, stat, unlink } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { hasCode } from "./errors.ts";
import { MINUTE_MS } from "./units.ts";

/** A write takes milliseconds. A temporary file this old was left by a process that was killed. */
const LEFTOVER_AFTER_MS = MINUTE_MS;

interface StageOptions {
  /** Default 0600. */
  readonly mode?: number;
  /**
   * Default false: whatever has the name is replaced, a link too. True: a link stays, and the file it leads to is replaced.
   * Only for config.yaml and the settings of clients, which people keep elsewhere and link to.
   */
  readonly followLinks?: boolean;
  /** The number of the group that the file belongs to. Default: the one that new files here get. */
  readonly group?: number | undefined;
}

/**
 * Replaces a file, or creates it. Readers, and the disk after a power cut, have the old text or the new one, never a part.
 * Returns the identity of the new file. Throws.
 */
export async function writePrivateFile(
  file: string,
  text: string,
  options: StageOptions = {},
): Promise<string> {
  const staged = await stageFile(file, text, options);
  try {
    staged.commit();
  } catch (error) {
    await staged.discard();
    throw error;
  }
  await syncFolder(dirname(staged.target));
  return staged.identity;
}

/** Creates a file with mode 0600, whole or not at all. False if something has that name already. Throws. */
export async function createPrivateFile(file: string, text: string): Promise<boolean> {
  if ((await lstat(file).catch(() => null)) !== null) return false;
  const staged = await stageFile(file, text);
  try {
    // Unlike a rename, a link never replaces a file that appeared in the meantime.
    await link(staged.path, file);
    await syncFolder(dirname(file));
    return true;
  } catch (error) {
    if (hasCode(error, "EEXIST")) return false;
    throw error;
  } finally {
    await staged.discard();
  }
}

/**
 * Creates an empty file with mode 0600 under any umask, for a database: SQLite gives the files that it puts beside it the same
 * mode. False if something has that name already. Throws.
 */
export function createEmptyPrivateFile(file: string): boolean {
  try {
    const descriptor = openSync(file, "wx", 0o600);
    fchmodSync(descriptor, 0o600);
    closeSync(descriptor);
    return true;
  } catch (error) {
    if (hasCode(error, "EEXIST")) return false;
    throw error;
  }
}

/** A complete file on disk, beside the file that it will replace. */
export class StagedFile {
  /** The file to replace. */
  readonly target: string;
  readonly path: string;
  readonly identity: string;

  constructor(target: string, path: string, identity: string) {
    this.target = target;
    this.path = path;
    this.identity = identity;
  }

  /** Synchronous, so that a caller can compare the old text and replace it without yielding. Throws. */
  commit(): void {
    renameSync(this.path, this.target);
  }

  async discard(): Promise<void> {
    // If it cannot be removed now, a later write removes it.
    await unlink(this.path).catch(() => {});
  }
}

/** The first half of a write: everything that can fail for lack of space or permission. Throws. */
export async function stageFile(
  file: string,
  text: string,
  { mode = 0o600, followLinks = false, group }: StageOptions = {},
): Promise<StagedFile> {
  await mkdir(dirname(file), { recursive: true, mode: 0o700 });
  const target = followLinks ? await resolveTarget(file) : file;
  const folder = dirname(target);
  const path = join(folder, `.${basename(target)}.${randomBytes(12).toString("hex")}.tmp`);
  const { O_CREAT, O_EXCL, O_NOFOLLOW, O_WRONLY } = constants;
  const handle = await open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
  let written: BigIntStats;
  try {
    await handle.writeFile(text);
    // A group that this user has left since cannot be given to a file. Then it has the usual one.
    if (group !== undefined) await handle.chown(-1, group).catch(() => {});
    // Not by open(), whose mode the umask restricts.
    await handle.chmod(mode);
    // Under sudo the file would otherwise belong to root, and the daemon could not read it.
    if (process.geteuid?.() === 0) await handle.chown(await ownerFor(target, folder), -1);
    // Before the rename: otherwise a power cut can leave the new name without content.
    await handle.sync();
    written = await handle.stat({ bigint: true });
  } catch (error) {
    await unlink(path).catch(() => {});
    throw error;
  } finally {
    await handle.close();
  }
  await removeOlder(target, Number(written.mtimeMs));
  return new StagedFile(target, path, fileVersion(written));
}

/** Makes the renames in a folder survive a power cut. */
export async function syncFolder(folder: string): Promise<void> {
  // Some file systems cannot sync a folder. The rename is done by now, so that is no failure.
  const handle = await open(folder, constants.O_RDONLY).catch(() => null);
  await handle?.sync().catch(() => {});
  await handle?.close().catch(() => {});
}

/** Differs between two versions of a file. */
export function fileVersion(stats: BigIntStats): string {
  return [stats.dev, stats.ino, stats.size, stats.mtimeNs].join(":");
}

async function resolveTarget(file: string): Promise<string> {
  try {
    await lstat(file);
  } catch (error) {
    if (hasCode(error, "ENOENT")) return file;
    throw error;
  }
  return realpath(file);
}

async function ownerFor(target: string, folder: string): Promise<number> {
  const existing = await stat(target).catch(() => null);
  return (existing ?? (await stat(folder))).uid;
}

/** Removes what writes of this file that were killed have left beside it. */
export async function removeLeftovers(file: string, now: number): Promise<void> {
  await removeOlder(await realpath(file).catch(() => file), now);
}

/** Compares with the new file's time, because the disk may be another machine's, with another clock. */
async function removeOlder(target: string, now: number): Promise<void> {
  const folder = dirname(target);
  const prefix = `.${basename(target)}.`;
  // A folder that can be written but not listed is no reason to fail.
  const names = await readdir(folder).catch(() => []);
  for (const name of names) {
    if (!name.startsWith(prefix) || !/^[0-9a-f]{24}\.tmp$/.test(name.slice(prefix.length))) continue;
    const path = join(folder, name);
    const entry = await lstat(path).catch(() => null);
    if (!entry?.isFile() || now - entry.mtimeMs < LEFTOVER_AFTER_MS) continue;
    await unlink(path).catch(() => {});
  }
}
