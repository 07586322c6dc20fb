import { constants } from "node:fs";
import { open, stat } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";

/* What git knows of a folder, read from its files. They can contain anything: they come with the folder. */

export interface Repository {
  /** The folder with `.git` in it. */
  readonly root: string;
  /** Where HEAD is; null: `.git` does not say. */
  readonly gitFolder: string | null;
}

/** Of a path, so that a search ends. */
const MAX_FOLDERS = 64;

/** The repository that a folder belongs to: the nearest parent with `.git`; null: none. */
export async function findRepository(folder: string): Promise<Repository | null> {
  let root = folder;
  for (let tried = 0; tried < MAX_FOLDERS; tried += 1) {
    const path = join(root, ".git");
    const found = await stat(path).catch(() => null);
    if (found?.isDirectory()) return { root, gitFolder: path };
    // In a worktree or a submodule it is a file that names the folder.
    if (found?.isFile()) return { root, gitFolder: parseGitFile((await readStart(path)) ?? "", root) };
    const parent = dirname(root);
    if (parent === root) return null;
    root = parent;
  }
  return null;
}

/** The branch that is checked out, or the first 12 digits of the commit; null: HEAD says neither. */
export async function readBranch(gitFolder: string): Promise<string | null> {
  return parseHead((await readStart(join(gitFolder, "HEAD"))) ?? "");
}

/** @param text the file `.git` of a worktree or a submodule. @param folder where that is. */
export function parseGitFile(text: string, folder: string): string | null {
  const named = /^gitdir: ([^\n\0]+)\r?\n?$/.exec(text)?.[1]?.trimEnd() ?? "";
  return named === "" ? null : resolve(folder, named);
}

const DETACHED_DIGITS = 12;
/** With references in one table, HEAD is a file for older versions of git, which must find one. */
const NO_BRANCH = ".invalid";

/** @param text the file HEAD. */
export function parseHead(text: string): string | null {
  const [, branch = null, commit = null] =
    /^(?:ref: refs\/heads\/([^\n\0]+?)|([\da-f]{40}|[\da-f]{64}))\s*$/.exec(text) ?? [];
  if (branch !== null) return branch === NO_BRANCH ? null : branch;
  return commit === null ? null : commit.slice(0, DETACHED_DIGITS);
}

/** Both files are a line. */
const MAX_BYTES = 4096;

/** null: it is longer, no regular file, or cannot be read. */
async function readStart(path: string): Promise<string | null> {
  // O_NONBLOCK: opening a named pipe would otherwise wait for its writer.
  const flags = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY;
  const handle = await open(path, flags).catch(() => null);
  if (handle === null) return null;
  try {
    if (!(await handle.stat()).isFile()) return null;
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(MAX_BYTES + 1), 0, MAX_BYTES + 1, 0);
    return bytesRead > MAX_BYTES ? null : buffer.toString("utf8", 0, bytesRead);
  } catch {
    // A broken disk or a file of another user: the caller knows no branch then.
    return null;
  } finally {
    await handle.close();
  }
}
