import { createHash } from "node:crypto";
import { closeSync, constants, readSync } from "node:fs";
import { openOwnFile } from "../../core/own-file.ts";
import { type JournalFile, journalFiles } from "./files.ts";

/* Where a reader of the journal stands, and where it continues. */

/** A position in the journal: every line before it was read. */
export interface Position {
  readonly day: string;
  readonly offset: number;
  /** The file was read to its end, and a newer one follows. */
  readonly passed: boolean;
  /** A hash of the bytes before it. If they change, the file is another one, and is read from its beginning. */
  readonly mark: string;
}

export function positionIn(file: JournalFile, offset: number, passed: boolean): Position {
  return { day: file.day, offset, passed, mark: file.gzipped ? "" : markAt(file.path, offset) };
}

export function isSamePosition(a: Position, b: Position | null): boolean {
  return a.day === b?.day && a.offset === b.offset && a.passed === b.passed && a.mark === b.mark;
}

interface NextLines {
  readonly file: JournalFile;
  readonly offset: number;
  /** A newer file follows, so nothing more is appended to this one. */
  readonly finished: boolean;
}

/** Where to continue reading; null: there is nothing more. */
export function nextLines(folder: string, position: Position | null): NextLines | null {
  const files = journalFiles(folder);
  const at = files.findIndex(({ day }) =>
    position === null ? true : position.passed ? day > position.day : day >= position.day,
  );
  const file = files[at];
  if (file === undefined) return null;
  return { file, offset: offsetIn(file, position), finished: at < files.length - 1 };
}

/** 0: the file is not the one that was read, or it was cut off before that position. */
function offsetIn(file: JournalFile, position: Position | null): number {
  if (position === null || position.day !== file.day) return 0;
  // A day is gzipped only after it was read whole. If the position is not at its end, a rebuild was interrupted.
  if (file.gzipped) return position.offset;
  return holdsMark(file, position) ? position.offset : 0;
}

/** Whether a plain file still has the same bytes before a position. */
export function holdsMark(file: JournalFile, { offset, mark }: Position): boolean {
  return markAt(file.path, offset) === mark;
}

/** Long enough to hold the id of the last record. */
const MARK_BYTES = 8192;

/**
 * A hash of what is in a file before an offset. (An inode would not do: a file that replaces a deleted one often gets the
 * same number.)
 */
function markAt(path: string, offset: number): string {
  const length = Math.min(MARK_BYTES, offset);
  const bytes = Buffer.alloc(length);
  const descriptor = openOwnFile(path, constants.O_RDONLY);
  try {
    if (readSync(descriptor, bytes, 0, length, offset - length) !== length) return "too short";
  } finally {
    closeSync(descriptor);
  }
  return createHash("sha256").update(bytes).digest("hex").slice(0, 16);
}
