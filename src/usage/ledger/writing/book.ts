import { type Closing, type Opening, type UsageRecord, wholeRecord } from "../../record.ts";
import { createTally, type Tally } from "../cells.ts";
import { type Connection, openForWriting } from "../connect.ts";
import { faultOf } from "../fault.ts";
import { columnsOf } from "../raw-row.ts";
import { createRows, type Rows, transact } from "../rows.ts";
import { type Place, placeOf } from "./place.ts";

/** Something that waits to be written. */
export type Entry =
  | { readonly kind: "open"; readonly opening: Opening }
  | { readonly kind: "close"; readonly opening: Opening; readonly closing: Closing }
  | { readonly kind: "add"; readonly opening: Opening; readonly closing: Closing };

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

  function write(entries: readonly Entry[]): Poisoned[] {
    const poisoned: Poisoned[] = [];
    const writeAll = (rows: Rows, tally: Tally) => {
      rows.rememberCells();
      for (const entry of entries) {
        try {
          apply(entry, rows, tally);
        } catch (error) {
          // SQLite has undone this one statement only.
          const { kind, message } = faultOf(error);
          if (kind !== "row") throw error;
          poisoned.push({ entry, words: message });
        }
      }
    };
    try {
      inTransaction(writeAll);
    } catch (error) {
      rows.forgetCells();
      throw error;
    }
    return poisoned;
  }

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
    write,
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

function apply(entry: Entry, rows: Rows, tally: Tally): void {
  const { opening } = entry;
  if (entry.kind === "open") {
    rows.open(opening);
    return;
  }
  const { closing } = entry;
  const insert = () => rows.insert(wholeRecord(opening, closing));
  const changed =
    entry.kind === "close"
      ? // Not there: it was opened in a file that is gone since.
        rows.complete(opening.id, closing) || (!rows.has(opening.id) && insert())
      : insert();
  if (changed) tally.countHalves(opening, closing);
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
