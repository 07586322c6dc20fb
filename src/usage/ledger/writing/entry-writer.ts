import type Database from "libsql";
import { wholeRecord } from "../../record.ts";
import { createTally, type Tally } from "../cells.ts";
import { faultOf } from "../fault.ts";
import { type Rows, transact } from "../rows.ts";
import type { Entry, Finished, Poisoned } from "./book.ts";
import { ClosingWriter } from "./closing-writer.ts";
import { MOST_AT_ONCE, OpeningWriter } from "./opening-writer.ts";

/** Writes what waits: openings, for which somebody waits, by few statements; what is finished with its cells. */
export class EntryWriter {
  readonly #db: Database.Database;
  readonly #rows: Rows;
  readonly #openings: OpeningWriter;
  readonly #closings: ClosingWriter;

  constructor(db: Database.Database, rows: Rows) {
    this.#db = db;
    this.#rows = rows;
    this.#openings = new OpeningWriter(db);
    this.#closings = new ClosingWriter(db);
  }

  /** All of them in one transaction, less those that alone are at fault. */
  write(entries: readonly Entry[]): Poisoned[] {
    if (entries.length === 0 || !entries.every(({ kind }) => kind === "open"))
      return this.#writeEach(entries);
    try {
      this.#open(entries);
      return [];
    } catch (error) {
      this.#openings.forget();
      if (faultOf(error).kind !== "row") throw error;
      // One of them, but which?
      return this.#writeEach(entries);
    }
  }

  /**
   * In a transaction although one statement would be one of its own: where somebody else has the lock, libsql leaves a
   * prepared statement half begun, and nothing can be committed until that ends. BEGIN is not prepared.
   */
  #open(entries: readonly Entry[]): void {
    transact(this.#db, () => {
      for (let at = 0; at < entries.length; at += MOST_AT_ONCE)
        this.#openings.write(entries, at, Math.min(at + MOST_AT_ONCE, entries.length));
    });
    this.#rows.wroteRecords(entries.length);
  }

  #writeEach(entries: readonly Entry[]): Poisoned[] {
    const poisoned: Poisoned[] = [];
    const tally = createTally();
    try {
      transact(this.#db, () => {
        this.#rows.rememberCells();
        this.#closings.begin();
        for (const entry of entries) this.#writeOne(entry, tally, poisoned);
        this.#rows.count(tally);
      });
    } catch (error) {
      this.#rows.forgetCells();
      this.#closings.forget();
      throw error;
    }
    return poisoned;
  }

  #writeOne(entry: Entry, tally: Tally, poisoned: Poisoned[]): void {
    try {
      if (entry.kind === "open") this.#rows.open(entry.opening);
      else if (this.#finish(entry)) tally.countHalves(entry.opening, entry.closing);
    } catch (error) {
      // SQLite has undone this one statement only.
      const { kind, message } = faultOf(error);
      if (kind !== "row") throw error;
      poisoned.push({ entry, words: message });
    }
  }

  #finish({ kind, opening, closing }: Finished): boolean {
    if (kind === "close") {
      if (this.#closings.complete(opening.id, closing)) return true;
      // Not there: it was opened in a file that is gone since.
      if (this.#rows.has(opening.id)) return false;
    }
    return this.#rows.insert(wholeRecord(opening, closing));
  }
}
