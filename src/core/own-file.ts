import {
  closeSync,
  constants,
  type Dirent,
  fstatSync,
  lstatSync,
  openSync,
  readdirSync,
  readSync,
  renameSync,
  type Stats,
} from "node:fs";
import { join } from "node:path";
import { escapeControlChars } from "./display.ts";
import { errorMessage, hasCode } from "./errors.ts";

/*
 * Files that keybearer writes itself: state, usage log, databases. They are input all the same, because every program of
 * this user can put something else in their place. So no link is followed, no open waits, and the file must be a regular
 * one with a single name that belongs to this user.
 */

/** There is something at the path that keybearer does not write. */
export class ForeignFile extends Error {
  /** @param problem continues a sentence: "is a link" */
  constructor(path: string, problem: string) {
    super(`${escapeControlChars(path)} ${problem}`);
  }
}

/** The names in a folder; none if it does not exist. */
export function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch (error) {
    if (hasCode(error, "ENOENT", "ENOTDIR")) return [];
    throw error;
  }
}

const { O_NOCTTY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;

/** Opens a file of keybearer's own. Throws ForeignFile, or the system's error. */
export function openOwnFile(path: string, flags: number, mode = 0o600): number {
  let descriptor: number;
  try {
    // O_NONBLOCK: opening a named pipe would wait for its other end.
    descriptor = openSync(path, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, mode);
  } catch (error) {
    const found = lstatSync(path, { throwIfNoEntry: false });
    // A folder is harmless, and the system's own error says more.
    const problem = found === undefined || found.isDirectory() ? null : foreignProblem(found);
    throw problem === null ? error : new ForeignFile(path, problem);
  }
  const problem = foreignProblem(fstatSync(descriptor));
  if (problem === null) return descriptor;
  closeSync(descriptor);
  throw new ForeignFile(path, problem);
}

/** The text of a file of keybearer's own; null: there is none. Throws ForeignFile, also if it is larger than this. */
export function readOwnFile(path: string, maxBytes: number): string | null {
  let descriptor: number;
  try {
    descriptor = openOwnFile(path, O_RDONLY);
  } catch (error) {
    if (hasCode(error, "ENOENT")) return null;
    throw error;
  }
  try {
    const { size } = fstatSync(descriptor);
    if (size > maxBytes) throw new ForeignFile(path, `is larger than ${maxBytes} bytes`);
    const bytes = Buffer.alloc(size);
    let length = 0;
    while (length < size) {
      const count = readSync(descriptor, bytes, length, size - length, length);
      if (count === 0) break;
      length += count;
    }
    return bytes.toString("utf8", 0, length);
  } finally {
    closeSync(descriptor);
  }
}

/** What is wrong with an entry that should be a file of keybearer's own, to continue a sentence; null: nothing. */
export function foreignProblem(found: Stats): string | null {
  if (found.isSymbolicLink()) return "is a link";
  if (!found.isFile()) return "is not a regular file";
  // A second name could be that of any file of this user. One that is being deleted has none.
  if (found.nlink > 1) return `has ${found.nlink} names (hard links)`;
  const user = process.geteuid?.() ?? found.uid;
  return found.uid === user || user === 0 ? null : "belongs to another user";
}

/** Gives a file another name, so that keybearer ignores it and a person can examine it. Returns that name. Throws. */
export function setAside(path: string, now: number): string {
  const name = asideName(path, now);
  renameSync(path, name);
  return name;
}

export function asideName(path: string, now: number): string {
  return `${path}.set-aside-${new Date(now).toISOString().replace(/[:.]/g, "-")}`;
}

/** No JSON file in the state folder grows this large. */
const MAX_JSON_BYTES = 64 * 1024 * 1024;

/**
 * Sets aside what is in a folder under a name that keybearer uses and is not a file that it wrote. Called at the start,
 * before the first of them is opened. Returns what was found, for people.
 */
export function setAsideForeign(folder: string, isOurs: (entry: Dirent) => boolean, now: number): string[] {
  const problems: string[] = [];
  for (const { name } of entriesIn(folder).filter(isOurs)) {
    const path = join(folder, name);
    const found = lstatSync(path, { throwIfNoEntry: false });
    if (found === undefined) continue;
    const isLarge = name.endsWith(".json") && found.size > MAX_JSON_BYTES;
    const problem = foreignProblem(found) ?? (isLarge ? `is larger than ${MAX_JSON_BYTES} bytes` : null);
    if (problem === null) continue;
    try {
      problems.push(`${escapeControlChars(path)} ${problem}: it was set aside as ${setAside(path, now)}`);
    } catch (error) {
      problems.push(
        `${escapeControlChars(path)} ${problem}, and cannot be set aside: ${errorMessage(error)}`,
      );
    }
  }
  return problems;
}

function entriesIn(folder: string): Dirent[] {
  try {
    return readdirSync(folder, { withFileTypes: true });
  } catch (error) {
    if (hasCode(error, "ENOENT", "ENOTDIR")) return [];
    throw error;
  }
}
