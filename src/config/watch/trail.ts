import type { BigIntStats } from "node:fs";
import { lstat, readlink, stat } from "node:fs/promises";
import { dirname, parse, resolve, sep } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { errorCode } from "../../core/errors.ts";

/** What lies on the way from a path to the file it means, symlinks and all, at one moment. */
export interface Trail {
  /** Equal for two moments as long as the path leads to the same, unwritten file by the same links. */
  readonly identity: string;
  /** Every entry whose replacement would change where the path leads. */
  readonly steps: readonly Step[];
}

/** One name in one real folder. */
export interface Step {
  readonly folder: string;
  /** Device and inode: a folder that was moved away and made anew is another folder of the same name. */
  readonly folderId: string;
  readonly name: string;
  /** Which file has that name now; null where there is a link, a folder or nothing. */
  readonly fileId: string | null;
}

/** What Linux allows; a longer chain does not open there either. */
const MOST_LINKS = 40;

/**
 * Follows a path the way the kernel does, name by name. realpath would tell only the end, and a chain such as
 * config.yaml -> current/config.yaml, current -> release-7 changes in its middle. Where the way ends early, the
 * last step names the entry that is missing, in the nearest folder that is there.
 */
export async function followTrail(path: string): Promise<Trail> {
  const whole = resolve(path);
  const { root } = parse(whole);
  const steps: Step[] = [];
  const marks: string[] = [];
  const names = namesOf(whole);
  let folder = root;
  let folderId = "root";
  let links = 0;
  for (let name = names.shift(); name !== undefined; name = names.shift()) {
    // A link may lead upwards; folder holds no links any more, so its parent is the one meant.
    if (name === "..") {
      folder = dirname(folder);
      folderId = await identify(folder);
      continue;
    }
    const there = folder === root ? `${root}${name}` : `${folder}${sep}${name}`;
    const entry = await look(there);
    const step = { folder, folderId, name, fileId: entry.kind === "file" ? entry.id : null };
    if (entry.kind === "link") {
      steps.push(step);
      marks.push(`${entry.mark}>${entry.target}`);
      links += 1;
      if (links > MOST_LINKS) return { identity: "too many links", steps };
      names.unshift(...namesOf(entry.target));
      if (entry.target.startsWith(sep)) [folder, folderId] = [root, "root"];
    } else if (entry.kind === "folder" && names.length > 0) {
      folder = there;
      folderId = entry.id;
    } else {
      steps.push(step);
      marks.push(names.length > 0 ? "missing" : entry.mark);
      break;
    }
  }
  return { identity: marks.join(" "), steps };
}

/**
 * What lies at the end of a path, by one question to the system instead of one for each name on the way. Equal for two
 * moments as long as the path leads to the same, unwritten file, by whichever links.
 */
export async function glanceAt(path: string): Promise<string> {
  try {
    return markOf(await stat(path, { bigint: true }));
  } catch (error) {
    return `none: ${errorCode(error)}`;
  }
}

export function sameSteps(one: readonly Step[], other: readonly Step[]): boolean {
  return isDeepStrictEqual(one, other);
}

function namesOf(path: string): string[] {
  return path.split(sep).filter((name) => name !== "" && name !== ".");
}

type Entry =
  | { readonly kind: "link"; readonly mark: string; readonly target: string }
  | { readonly kind: "folder" | "file"; readonly mark: string; readonly id: string }
  | { readonly kind: "none"; readonly mark: string };

async function look(path: string): Promise<Entry> {
  try {
    const stats = await lstat(path, { bigint: true });
    if (stats.isSymbolicLink()) return { kind: "link", mark: markOf(stats), target: await readlink(path) };
    // A folder's times move with every file inside it, which says nothing about the way through it.
    if (stats.isDirectory()) return { kind: "folder", mark: `folder ${idOf(stats)}`, id: idOf(stats) };
    // With its birth: a file written anew right after its deletion is mostly given the same inode.
    return { kind: "file", mark: markOf(stats), id: `${idOf(stats)}:${stats.birthtimeNs}` };
  } catch (error) {
    const code = errorCode(error);
    return { kind: "none", mark: code === "ENOENT" || code === "ENOTDIR" ? "missing" : `no access: ${code}` };
  }
}

async function identify(folder: string): Promise<string> {
  const entry = await look(folder);
  return entry.kind === "folder" ? entry.id : entry.mark;
}

function idOf(stats: BigIntStats): string {
  return `${stats.dev}:${stats.ino}`;
}

/**
 * ctime beside mtime: `cp -p` over a file of the same length puts the old mtime back, and a chmod decides whether
 * the file can be read at all.
 */
function markOf(stats: BigIntStats): string {
  return `${idOf(stats)}:${stats.size}:${stats.mtimeNs}:${stats.ctimeNs}`;
}
