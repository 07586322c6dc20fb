import type Database from "libsql";
import type { UsageRecord } from "../../record.ts";
import type { Tally } from "../cells.ts";
import type { Rows } from "../rows.ts";
import { writeLifts } from "./lifts.ts";
import type { Piece } from "./progress.ts";

/** Writes what was found in an old log into the new one, and answers how many records were not there yet. */
export function takeOver(piece: Piece, db: Database.Database, rows: Rows, tally: Tally): number {
  const { records, folded, lifts } = piece;
  // Below everything else, so that seq goes on telling the order in which records began.
  let seq = Math.min(rows.lowestSeq() ?? 1, 1);
  let saved = 0;
  for (const record of records) {
    seq -= 1;
    const finished: UsageRecord = record.end === null ? { ...record, end: "interrupted" } : record;
    // Already there: it was still under way when the damage was found.
    if (!rows.insert(finished, seq)) continue;
    tally.count(finished);
    saved += 1;
  }
  for (const cell of folded) tally.add(cell);
  writeLifts(db, lifts);
  return saved;
}
