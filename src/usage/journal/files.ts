import { closeSync, constants as fs, fstatSync, lstatSync, readFileSync, readSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { constants, gunzipSync, type ZlibOptions, gunzip as zlibGunzip } from "node:zlib";
import { namesIn, openOwnFile, setAside } from "../../core/own-file.ts";
import { DAY_MS } from "../../core/units.ts";

/* The journal on disk: one file per UTC day, named 2026-11-16.jsonl, or 2026-11-16.jsonl.gz once it is compressed. */

/** The UTC day that names a file: 2026-11-16. */
export function dayOf(time: number): string {
  return new Date(time).toISOString().slice(0, 10);
}

/** When the day begins, milliseconds UTC. */
export function startOfDay(day: string): number {
  return Date.parse(`${day}T00:00:00.000Z`);
}

export function endOfDay(day: string): number {
  return startOfDay(day) + DAY_MS;
}

/** The name of its file while it is not compressed. */
export function dayFileName(day: string): string {
  return `${day}.jsonl`;
}

export interface JournalFile {
  readonly day: string;
  readonly path: string;
  readonly gzipped: boolean;
}

const NAME = /^(\d{4}-\d\d-\d\d)\.jsonl(\.gz)?$/;

/** The files of a journal, oldest first. If a day is there both plain and gzipped, the plain file counts. */
export function journalFiles(folder: string): JournalFile[] {
  const files = new Map<string, JournalFile>();
  for (const name of namesIn(folder)) {
    const [, day, gzipped] = NAME.exec(name) ?? [];
    if (day === undefined || Number.isNaN(startOfDay(day))) continue;
    if (gzipped !== undefined && files.has(day)) continue;
    files.set(day, { day, path: join(folder, name), gzipped: gzipped !== undefined });
  }
  return [...files.values()].sort((a, b) => (a.day < b.day ? -1 : 1));
}

/**
 * Sets aside files that are dated more than a day ahead, unless keybearer wrote them while the clock was wrong, and every
 * file after the open one. Returns what was found, for people.
 * @param open the day of the open file, which is the newest one of ours; null: none is open
 * @param indexed the newest day that the index has read; null: none
 */
export function setAsideFuture(
  folder: string,
  now: number,
  open: string | null,
  indexed: () => string | null,
): string[] {
  const after = open ?? dayOf(now + DAY_MS);
  const ahead = journalFiles(folder).filter(({ day }) => day > after);
  const ours = ahead.length === 0 ? null : (open ?? indexed());
  return ahead
    .filter(({ day }) => ours === null || day > ours)
    .map(({ path }) => {
      const kept = setAside(path, now);
      const problem = open === null ? "is dated more than a day ahead" : "was not made by keybearer";
      return `another program writes to the usage log: ${path} ${problem}, and was set aside as ${kept}`;
    });
}

/** Whether there are requests to another gateway than this one. If a file cannot be read, the answer is yes. */
export function hasRequestsBeside(gateway: string, folder: string): boolean {
  const other = new RegExp(`"gateway":"(?!${gateway}")`);
  try {
    for (const file of journalFiles(folder)) {
      for (const { texts } of readLines(file, 0, true)) {
        if (texts.some((text) => other.test(text))) return true;
      }
    }
    return false;
  } catch {
    // The journal reports it when it is opened.
    return true;
  }
}

/** The size of a file, and an identity that a file in its place does not have; null: there is none. */
export function readStat(path: string): { readonly size: number; readonly identity: string } | null {
  const found = lstatSync(path, { throwIfNoEntry: false });
  return found === undefined ? null : { size: found.size, identity: identityOf(found) };
}

export function identityOf({ dev, ino }: { readonly dev: number; readonly ino: number }): string {
  return `${dev}:${ino}`;
}

/** Whole lines of a file, and where they end. */
export interface Lines {
  readonly texts: readonly string[];
  /** The offset after the last of them, in the plain file. */
  readonly end: number;
  /** Nothing follows in this file now. */
  readonly last: boolean;
}

/** The same as bytes. */
export interface Chunk extends Omit<Lines, "texts"> {
  readonly bytes: Buffer;
}

/** Bytes read at a time: about a thousand lines. */
export const CHUNK_BYTES = 1024 * 1024;
export const NEWLINE = 0x0a;

/**
 * Reads lines from an offset on, a chunk at a time.
 * @param finished nothing more is appended to this file. What follows its last line break was cut off, and is returned
 *   as a line, for the reader to count as damaged.
 */
export function* readLines(file: JournalFile, offset: number, finished: boolean): Generator<Lines> {
  const chunks = file.gzipped
    ? chunksOf(gunzip(readPacked(file.path)), offset, CHUNK_BYTES)
    : readChunks(file.path, offset, finished, CHUNK_BYTES);
  for (const { bytes, end, last } of chunks) {
    const texts = bytes.toString("utf8").split("\n");
    yield { texts: texts.filter((text) => text !== ""), end, last };
  }
}

/** The same for a thread that must not wait: a gzipped file is unpacked elsewhere, and a chunk takes about a millisecond. */
export async function* readLater(
  file: JournalFile,
  offset: number,
  finished: boolean,
): AsyncGenerator<Chunk> {
  if (file.gzipped) yield* chunksOf(await gunzipLater(readPacked(file.path)), offset, SMALL_CHUNK_BYTES);
  else yield* readChunks(file.path, offset, finished, SMALL_CHUNK_BYTES);
}

const SMALL_CHUNK_BYTES = 64 * 1024;
/** The longest line we write has a few kilobytes. */
const MAX_LINE_BYTES = 4 * 1024 * 1024;
const TOO_LONG = Buffer.from("(too long)\n");
/** A gzipped day is unpacked in memory. That is 400,000 requests; a larger day stays as it is. */
export const MAX_UNPACKED_BYTES = 512 * 1024 * 1024;

/** The chunks of a plain file. */
function* readChunks(path: string, offset: number, finished: boolean, chunkBytes: number): Generator<Chunk> {
  const descriptor = openOwnFile(path, fs.O_RDONLY);
  try {
    let position = offset;
    let size = chunkBytes;
    for (;;) {
      const buffer = Buffer.allocUnsafe(size);
      const length = readSync(descriptor, buffer, 0, size, position);
      const atEnd = length < size;
      const lineEnd = buffer.subarray(0, length).lastIndexOf(NEWLINE) + 1;
      if (lineEnd === 0 && !atEnd && size < MAX_LINE_BYTES) {
        // A line longer than the buffer.
        size *= 2;
        continue;
      }
      if (lineEnd === 0 && !atEnd) {
        // No line of ours is this long. Its pieces are lines that are not JSON, so that they are counted as damaged.
        position += length;
        yield { bytes: TOO_LONG, end: position, last: false };
        continue;
      }
      const end = atEnd && finished ? length : lineEnd;
      position += end;
      if (end > 0 || atEnd) yield { bytes: buffer.subarray(0, end), end: position, last: atEnd };
      if (atEnd) return;
      size = chunkBytes;
    }
  } finally {
    closeSync(descriptor);
  }
}

/** A whole gzipped file; nothing if it is larger than any of ours, so that it counts as damaged. */
function readPacked(path: string): Buffer {
  const descriptor = openOwnFile(path, fs.O_RDONLY);
  try {
    return fstatSync(descriptor).size > MAX_UNPACKED_BYTES / 4 ? Buffer.alloc(0) : readFileSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/** The chunks of a file that was unpacked. */
function* chunksOf(content: Buffer, offset: number, chunkBytes: number): Generator<Chunk> {
  let position = offset;
  while (position < content.length) {
    const lineEnd = content.indexOf(NEWLINE, Math.min(position + chunkBytes, content.length - 1)) + 1;
    const end = lineEnd === 0 ? content.length : lineEnd;
    const isTooLong = end - position > chunkBytes + MAX_LINE_BYTES;
    const bytes = isTooLong ? TOO_LONG : content.subarray(position, end);
    yield { bytes, end, last: end === content.length };
    position = end;
  }
  if (offset >= content.length) yield { bytes: Buffer.alloc(0), end: offset, last: true };
}

function gunzip(packed: Buffer): Buffer {
  try {
    return gunzipSync(packed, { maxOutputLength: MAX_UNPACKED_BYTES });
  } catch {
    return damaged(packed);
  }
}

async function gunzipLater(packed: Buffer): Promise<Buffer> {
  try {
    return await gunzipAsync(packed, { maxOutputLength: MAX_UNPACKED_BYTES });
  } catch {
    return damaged(packed);
  }
}

const gunzipAsync: (packed: Buffer, options: ZlibOptions) => Promise<Buffer> = promisify(zlibGunzip);

/** The unreadable rest of a damaged file becomes one line that is not JSON, so that it is counted. */
function damaged(packed: Buffer): Buffer {
  return Buffer.concat([readablePart(packed), Buffer.from("\n(damaged)\n")]);
}

function readablePart(packed: Buffer): Buffer {
  try {
    return gunzipSync(packed, {
      finishFlush: constants.Z_SYNC_FLUSH,
      maxOutputLength: MAX_UNPACKED_BYTES,
    });
  } catch {
    // Z_SYNC_FLUSH reads a file that was cut off. One that is damaged elsewhere cannot be read at all.
    return Buffer.alloc(0);
  }
}
