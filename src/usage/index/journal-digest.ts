import { closeSync, constants, readSync, statSync } from "node:fs";
import { crc32 } from "node:zlib";
import type Database from "libsql";
import { advice } from "../../core/advice.ts";
import { errorMessage } from "../../core/errors.ts";
import { openOwnFile } from "../../core/own-file.ts";
import { dollars, exact } from "../../core/units.ts";
import { CHUNK_BYTES, dayFileName, type JournalFile, journalFiles, readLines } from "../journal/files.ts";
import { parseLine } from "../journal/lines.ts";
import { holdsMark, type Position } from "../journal/position.ts";
import { IndexError, queryIndex } from "./database.ts";

/*
 * Notices that the journal was changed while keybearer did not run. The index keeps a checksum of what it has read of the
 * newest file, because the limits take from that file what was used. A checksum is enough: a program that could forge it could
 * as well delete the index. SHA-256 takes 5 µs of each record, which is a tenth of what the index costs.
 */

/** Covers the file up to `offset`. */
export interface JournalDigest {
  readonly day: string;
  readonly offset: number;
  readonly value: number;
}

/** Continues a digest to an offset. `from` null, or of another file: from the beginning. */
export function extendDigest(from: JournalDigest | null, file: JournalFile, offset: number): JournalDigest {
  const isContinued = from !== null && from.day === file.day && from.offset <= offset;
  let { offset: at, value } = isContinued ? from : { offset: 0, value: 0 };
  if (at === offset || file.gzipped) return { day: file.day, offset: at, value };
  const descriptor = openOwnFile(file.path, constants.O_RDONLY);
  try {
    const chunk = Buffer.allocUnsafe(Math.min(CHUNK_BYTES, offset - at));
    while (at < offset) {
      const length = readSync(descriptor, chunk, 0, Math.min(chunk.length, offset - at), at);
      if (length === 0) break;
      value = crc32(chunk.subarray(0, length), value);
      at += length;
    }
  } finally {
    closeSync(descriptor);
  }
  return { day: file.day, offset: at, value };
}

/** Without the device, whose number may change with a boot. */
export function folderIdentity(folder: string): string {
  return String(statSync(folder, { throwIfNoEntry: false })?.ino ?? "");
}

/**
 * What happened to the journal since the index last read it, for people; null: nothing that can be seen. To be called
 * before the journal is opened.
 * @param timeoutMs how long this thread may wait for a lock.
 */
export function findChange(index: string, folder: string, timeoutMs: number): string | null {
  try {
    const change = queryIndex(index, (db) => findChangeSince(db, folder), timeoutMs);
    // An index that is missing, damaged or locked knows nothing.
    return change instanceof IndexError ? null : change;
  } catch (error) {
    // The index and the journal are input. Whatever is in them must not prevent the start.
    return `it is not known whether the usage log was changed while keybearer did not run (${errorMessage(error)}) → ${advice.usageRebuild()}`;
  }
}

function findChangeSince(db: Database.Database, folder: string): string | null {
  const meta = new Map(db.prepare("SELECT name, value FROM usage.meta").raw().all() as [string, string][]);
  const position = JSON.parse(meta.get("position") ?? "null") as Position | null;
  const digest = JSON.parse(meta.get("digest") ?? "null") as JournalDigest | null;
  // The limits do not read a day that was passed.
  if (position === null || digest === null || position.passed) return null;
  const file = journalFiles(folder).find(({ day }) => day === position.day);
  if (file !== undefined && (file.gzipped || isSame(file, digest, position))) return null;

  const [requests, cost] = db
    .prepare(
      `SELECT count(*), coalesce(sum(cost_microdollars), 0) FROM usage.records
       WHERE day = ? AND machine_id IS NULL AND last_id IS NULL AND "end" IS NOT NULL`,
    )
    .raw()
    .get(position.day) as [number, number];
  return describeChange(position.day, file === undefined ? null : totalsIn(file), { requests, cost });
}

function isSame(file: JournalFile, digest: JournalDigest, position: Position): boolean {
  if (!holdsMark(file, position)) return false;
  const { offset, value } = extendDigest(null, file, digest.offset);
  return offset === digest.offset && value === digest.value;
}

interface Totals {
  readonly requests: number;
  /** Micro-dollars. */
  readonly cost: number;
}

/** Of the finished requests in a file. A line may be there twice. */
function totalsIn(file: JournalFile): Totals {
  const costs = new Map<string, number>();
  for (const { texts } of readLines(file, 0, true)) {
    for (const text of texts) {
      const line = parseLine(text);
      if (line?.kind === "close" || (line?.kind === "amend" && costs.has(line.id)))
        costs.set(line.id, line.cost_microdollars ?? 0);
    }
  }
  return { requests: costs.size, cost: [...costs.values()].reduce((sum, cost) => sum + cost, 0) };
}

/** @param has null: the file is gone. */
function describeChange(day: string, has: Totals | null, had: Totals): string {
  const file = dayFileName(day);
  const before = `${exact(had.requests)} requests, ${dollars(had.cost)}`;
  let change = `${file} has other lines than before`;
  if (has === null) change = `${file} is gone (it had ${before})`;
  else if (has.requests < had.requests || has.cost < had.cost)
    change = `${file} has ${exact(has.requests)} requests, ${dollars(has.cost)}, and had ${before}`;
  return (
    `the usage log was changed while keybearer did not run: ${change}. ` +
    "Limits count what is in it now. Another program did it, an older copy was restored, or a power cut lost its end"
  );
}
