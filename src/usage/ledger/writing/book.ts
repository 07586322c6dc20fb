import type { Closing, Opening, UsageRecord } from "../../record.ts";
import { createTally, type Tally } from "../cells.ts";
import { type Connection, openForWriting } from "../connect.ts";
import { columnsOf } from "../raw-row.ts";
import { createRows, type Rows, transact } from "../rows.ts";
import { EntryWriter } from "./entry-writer.ts";
import { type Place, placeOf } from "./place.ts";

/** Something that waits to be written. */
export type Entry = Opened | Finished;

export interface Opened {
  readonly kind: "open";
  readonly opening: Opening;
}

export interface Finished {
  /** add: it was never opened. */
  readonly kind: "close" | "add";
  readonly opening: Opening;
  readonly closing: Closing;
}

/** A record under way, and whether its opening was committed. */
export interface Running {
  readonly opening: Opening;
  onDisk: boolean;
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
   * What nobody runs any more is interrupted, and what this process runs is there, also when it was opened in another
   * file. Answers how many were interrupted.
   */
  takeOver(running: ReadonlyMap<string, Running>): number;
  transact<T>(work: (rows: Rows, tally: Tally) => T): T;
  readonly place: Place;
  /** Everything taken over into the one file, the WAL emptied where nobody reads. false: a reader is in the way. */
  checkpoint(): boolean;
  /** Closes it, in whatever state it is. Never throws; false: what its WAL held may not be in the file. */
  abandon(): boolean;
}

export function openBook(file: string, sync: "normal" | "full"): Book {
  const connection = openForWriting(file, { sync });
  const { db } = connection;
  const rows = createRows(db);
  const writer = new EntryWriter(db, rows);

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
    takeOver: (running) => inTransaction((rows, tally) => takeOver(rows, tally, running)),
    transact: inTransaction,
    place: placeOf(file),
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
      connection.close();
      return whole;
    },
  };
}

function takeOver(rows: Rows, tally: Tally, running: ReadonlyMap<string, Running>): number {
  let count = 0;
  for (const record of rows.running()) {
    if (running.has(record.id)) continue;
    const closing: UsageRecord = { ...record, end: "interrupted" };
    if (!rows.complete(record.id, closing)) continue;
    tally.count(closing);
    count += 1;
  }
  for (const { opening, onDisk } of running.values()) {
    if (onDisk && !rows.has(opening.id)) rows.open(opening);
  }
  return count;
}
