import type { Closing, Opening, UsageRecord } from "../../record.ts";
import { createTally, type Tally } from "../cells.ts";
import { type Connection, openForWriting } from "../connect.ts";
import { faultOf, type LedgerFault } from "../fault.ts";
import { columnsOf } from "../raw-row.ts";
import { createRows, type Rows, transact } from "../rows.ts";
import { EntryWriter } from "./entry-writer.ts";
import { type Place, placeOf } from "./place.ts";
import { Slips } from "./slips.ts";

/**
 * Something that waits to be written. open: a record that runs · whole: one that ended before it was in the log · close:
 * the end of one that is in it · add: one that was never opened.
 */
export interface Entry {
  readonly kind: "open" | "whole" | "close" | "add";
  readonly opening: Opening;
  /** null: it runs. */
  readonly closing: Closing | null;
}

export interface Finished extends Entry {
  readonly kind: "close" | "add";
  readonly closing: Closing;
}

/** A record under way, and whether it is in the log. */
export interface Running {
  readonly opening: Opening;
  readonly inBook: boolean;
}

/** All that this process runs. */
export interface RunningRecords {
  has(id: string): boolean;
  values(): Iterable<Running>;
}

/** An entry that the log does not take, whatever is tried. */
export interface Poisoned {
  readonly entry: Entry;
  readonly words: string;
}

/** One usage log, opened. Every method throws what faultOf can judge. */
export interface Book {
  readonly connection: Connection;
  readonly rows: Rows;
  /** All of them in one transaction, less those that alone are at fault. */
  write(entries: readonly Entry[]): Poisoned[];
  /**
   * What nobody runs any more is interrupted, also what was only noted, and what this process runs is there, also when it
   * was opened in another file. Answers how many were interrupted.
   */
  takeOver(running: RunningRecords): number;
  transact<T>(work: (rows: Rows, tally: Tally) => T): T;
  readonly place: Place;
  /** null: what is written is to survive a power cut, or nothing can be noted, or is not wanted to be. */
  readonly slips: Slips | null;
  /** Lets go of them, where others go on reading the rest. */
  leaveSlips(): void;
  /** Everything taken over into the one file, the WAL emptied where nobody reads. false: a reader is in the way. */
  checkpoint(): boolean;
  /** Closes it, in whatever state it is. Never throws; false: what its WAL held may not be in the file. */
  abandon(): boolean;
}

/** With slips for whoever wants to be told why there are none. */
export function openBook(
  file: string,
  sync: "normal" | "full",
  onNoSlips?: (fault: LedgerFault) => void,
): Book {
  const connection = openForWriting(file, { sync });
  const { db } = connection;
  const rows = createRows(db);
  const writer = new EntryWriter(db, rows);
  const synced = sync === "full";
  // What an earlier run noted is entered also where nothing more is noted.
  const wanted = onNoSlips !== undefined && (!synced || Slips.lieBy(file));
  const slips = wanted ? openSlips(file, onNoSlips) : null;

  function inTransaction<T>(work: (rows: Rows, tally: Tally) => T): T {
    return transact(db, () => {
      const tally = createTally();
      const result = work(rows, tally);
      rows.count(tally);
      return result;
    });
  }

  function checkpoint(): boolean {
    const row = db.prepare("PRAGMA log.wal_checkpoint(TRUNCATE)").raw().get();
    const [, frames, taken] = columnsOf(row);
    return frames === taken;
  }

  return {
    connection,
    rows,
    write: (entries) => writer.write(entries),
    takeOver: (running) => {
      const noted = slips?.read() ?? [];
      const interrupted = inTransaction((rows, tally) => takeOver(rows, tally, running, noted));
      if (synced) slips?.clear();
      return interrupted;
    },
    transact: inTransaction,
    place: placeOf(file),
    slips: synced ? null : slips,
    leaveSlips: () => slips?.close(),
    checkpoint,
    abandon() {
      let whole = false;
      try {
        // Where only the WAL was taken away, what it holds would be lost with it. SQLite itself does this when it
        // closes, but neither while somebody reads nor where the file is no longer the one at its path.
        whole = checkpoint();
      } catch {
        // Then it is lost.
      }
      slips?.close();
      connection.close();
      return whole;
    },
  };
}

function openSlips(file: string, onNoSlips: (fault: LedgerFault) => void): Slips | null {
  try {
    return Slips.open(file);
  } catch (error) {
    onNoSlips(faultOf(error));
    return null;
  }
}

function takeOver(rows: Rows, tally: Tally, running: RunningRecords, noted: readonly Opening[]): number {
  // Those that this process noted are still to be written by it.
  for (const opening of noted) {
    if (!running.has(opening.id) && !rows.has(opening.id)) rows.open(opening);
  }
  let count = 0;
  for (const record of rows.running()) {
    if (running.has(record.id)) continue;
    const closing: UsageRecord = { ...record, end: "interrupted" };
    if (!rows.complete(record.id, closing)) continue;
    tally.count(closing);
    count += 1;
  }
  for (const { opening, inBook } of running.values()) {
    if (inBook && !rows.has(opening.id)) rows.open(opening);
  }
  return count;
}
