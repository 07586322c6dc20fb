import { constants, lstatSync, readFileSync, realpathSync, type Stats, unlinkSync } from "node:fs";
import { lstat, open, realpath } from "node:fs/promises";
import { dirname, isAbsolute, relative, sep } from "node:path";
import { type Failed, failed } from "../core/display.ts";
import { errorMessage, hasCode } from "../core/errors.ts";
import { type StagedFile, stageFile } from "../core/private-file.ts";

/* How a file of a client is read and replaced. Such a file is the person's own, so whatever is unusual is left alone. */

/** A client's settings as they were when they were read. */
export interface SettingsFile {
  /** As the client names it. */
  readonly path: string;
  /** The file itself. Dotfiles managers put a link in its place, which is kept. */
  readonly target: string;
  /** The folder that a link may not lead out of. */
  readonly within: string;
  /** null: the file does not exist. */
  readonly found: { readonly text: string; readonly mode: number; readonly group: number } | null;
}

export type ReadResult = { readonly ok: true; readonly file: SettingsFile } | Failed;

type Replaced = { readonly ok: true } | Failed;

const MAX_BYTES = 1_000_000;

/** @param within the home folder, or for a project's file its folder. */
export async function readSettings(path: string, within: string): Promise<ReadResult> {
  try {
    const entry = await lstat(path).catch(nullIfMissing);
    const target = await realpath(path).catch(nullIfMissing);
    if (entry !== null && target === null)
      return failed(`${path} is a link to a file that does not exist`, "delete it, then run this again");
    const problem = placeProblem(path, target ?? path, within);
    if (problem !== null) return failed(`${path} ${problem}, so keybearer does not touch it`);
    if (entry === null || target === null)
      return { ok: true, file: { path, target: target ?? path, within, found: null } };
    // Checked before it is opened: to open some devices has an effect.
    if (!(await lstat(target)).isFile()) return failed(`${path} is not a file`);
    // Without O_NONBLOCK opening a fifo would wait for a writer.
    const handle = await open(target, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW);
    try {
      const stat = await handle.stat();
      if (!stat.isFile()) return failed(`${path} is not a file`);
      const owner = ownerProblem(stat);
      if (owner !== null) return failed(`${path} ${owner}, so keybearer does not touch it`);
      if (stat.size > MAX_BYTES) return failed(`${path} is larger than 1 MB: not read`);
      const bytes = await handle.readFile();
      const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
      const found = { text, mode: stat.mode & 0o777, group: stat.gid };
      return { ok: true, file: { path, target, within, found } };
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (error instanceof TypeError)
      return failed(`${path} is not UTF-8 text, so keybearer does not touch it`);
    return failed(`${path} cannot be read: ${errorMessage(error)}`);
  }
}

/**
 * Reads a file that is only searched: it may be another user's, or a link to anywhere. null: there is none, or it is not a text of
 * at most 1 MB.
 */
export async function readForSearch(path: string): Promise<string | null> {
  try {
    const target = await realpath(path);
    if (!(await lstat(target)).isFile()) return null;
    const handle = await open(target, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW);
    try {
      const stat = await handle.stat();
      if (!stat.isFile() || stat.size > MAX_BYTES) return null;
      return (await handle.readFile()).toString("utf8");
    } finally {
      await handle.close();
    }
  } catch {
    // What cannot be read is reported with the reason that readSettings gave.
    return null;
  }
}

/** Why a file is not to be touched where it is, to continue a sentence; null: it may be. */
function placeProblem(path: string, target: string, within: string): string | null {
  const root = existingPath(within);
  const leads = realpathOf(path, target);
  // A file elsewhere may be named by a variable, such as CODEX_HOME. Only a link there could lead anywhere.
  const isElsewhere = !isInside(path, within) && leads === path;
  if (!isElsewhere && !isInside(leads, root)) return `is a link that leads out of ${within}`;
  // Who can write to a folder on the way can put another one in its place.
  for (let folder = dirname(leads); ; folder = dirname(folder)) {
    const found = lstatSync(folder, { throwIfNoEntry: false });
    const isOthers = found !== undefined && mayOthersWrite(found) && (found.mode & STICKY) === 0;
    if (isOthers) return `is in ${folder}, which another user can write to`;
    if (folder === dirname(folder) || !isInside(dirname(folder), root)) return null;
  }
}

const STICKY = 0o1000;

/** Where a path leads, also one whose last parts do not exist yet. */
function realpathOf(path: string, target: string): string {
  if (target !== path || lstatSync(path, { throwIfNoEntry: false }) !== undefined) return target;
  return existingPath(path);
}

/** With the links resolved in as much of a path as exists. */
function existingPath(path: string): string {
  const missing: string[] = [];
  for (let folder = path; ; folder = dirname(folder)) {
    if (lstatSync(folder, { throwIfNoEntry: false }) !== undefined)
      return [realpathSync(folder), ...missing].join(sep).replace(/\/{2,}/g, "/");
    if (folder === dirname(folder)) return path;
    missing.unshift(folder.slice(dirname(folder).length).replace(/^[/\\]+/, ""));
  }
}

function isInside(path: string, folder: string): boolean {
  const below = relative(folder, path);
  return below === "" || (below !== ".." && !below.startsWith(`..${sep}`) && !isAbsolute(below));
}

function ownerProblem(found: Stats): string | null {
  if (found.uid !== (process.getuid?.() ?? found.uid)) return "belongs to another user";
  return mayOthersWrite(found) ? "can be written by other users" : null;
}

/** A group with the number of its user has no other members: many systems give each user one, and let it write. */
function mayOthersWrite({ mode, uid, gid }: Stats): boolean {
  return (mode & 0o002) !== 0 || ((mode & 0o020) !== 0 && gid !== uid);
}

/** Replaces the file as a whole or not at all; null removes it. Refused if the file has changed since it was read. */
export async function replaceSettings(
  file: SettingsFile,
  text: string | null,
  mode: number,
): Promise<Replaced> {
  const { path, target, found } = file;
  let staged: StagedFile | null = null;
  try {
    if (text === null) return swapIfUnchanged(file, () => unlinkSync(target));
    const group = found?.group;
    const made = await stageFile(target, text, { mode, group, followLinks: true });
    staged = made;
    const done = swapIfUnchanged(file, () => made.commit());
    if (done.ok) staged = null;
    return done;
  } catch (error) {
    return failed(`${path} was not changed: ${errorMessage(error)}`);
  } finally {
    // The staged file holds a token.
    await staged?.discard();
  }
}

/** Synchronous, so that only the time between two system calls is left for another program to change the file. */
function swapIfUnchanged(file: SettingsFile, change: () => void): Replaced {
  if (!isUnchanged(file)) {
    const problem = `${file.path} was changed by another program meanwhile and was left as it is`;
    return failed(problem, "run this again");
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
  if (hasCode(error, "ENOENT", "ENOTDIR")) return null;
  throw error;
}
