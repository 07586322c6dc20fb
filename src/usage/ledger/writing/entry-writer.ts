import type Database from "libsql";
import { wholeRecord } from "../../record.ts";
import { createTally, type Tally } from "../cells.ts";
import { faultOf, LedgerFault } from "../fault.ts";
import { type Rows, transact } from "../rows.ts";
import type { Entry, Finished, Opened, Poisoned } from "./book.ts";
import { ClosingWriter } from "./closing-writer.ts";
import { OpeningWriter } from "./opening-writer.ts";

/** Writes what waits: all together, and one by one where that fails because of one of them. */
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
    try {
      this.#writeTogether(entries);
      return [];
    } catch (error) {
      this.#forget();
      // One of them is not taken, or was complete already, or is not there any more: but which?
      if (faultOf(error).kind !== "row") throw error;
    }
    try {
      return this.#writeEach(entries);
    } catch (error) {
      this.#forget();
      throw error;
    }
  }

  #forget(): void {
    this.#rows.forgetCells();
    this.#openings.forget();
    this.#closings.forget();
  }

  /**
   * In a transaction although one statement would be one of its own: where somebody else has the lock, libsql leaves a
   * prepared statement half begun, and nothing can be committed until that ends. BEGIN is not prepared.
   */
  #writeTogether(entries: readonly Entry[]): void {
    const opened: Opened[] = [];
    const closed: Finished[] = [];
    const added: Finished[] = [];
    for (const entry of entries) {
      if (entry.kind === "open") opened.push(entry);
      else (entry.kind === "close" ? closed : added).push(entry);
    }
    const finishes = closed.length + added.length > 0;
    transact(this.#db, () => {
      if (finishes) this.#rows.rememberCells();
      this.#openings.write(opened);
      this.#closings.write(closed);
      for (const entry of added) {
        if (!this.#add(entry)) throw new LedgerFault("row", "it is there already");
      }
      if (finishes) this.#count(closed, added);
    });
    if (!finishes) this.#rows.wroteRecords(opened.length);
  }

  #count(closed: readonly Finished[], added: readonly Finished[]): void {
    const tally = createTally();
    for (const { opening, closing } of closed) tally.countHalves(opening, closing);
    for (const { opening, closing } of added) tally.countHalves(opening, closing);
    this.#rows.count(tally);
  }

  #writeEach(entries: readonly Entry[]): Poisoned[] {
    const poisoned: Poisoned[] = [];
    const tally = createTally();
    transact(this.#db, () => {
      for (const entry of entries) this.#writeOne(entry, tally, poisoned);
      this.#rows.count(tally);
    });
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

  #finish(entry: Finished): boolean {
    const { kind, opening, closing } = entry;
    if (kind === "add") return this.#add(entry);
    // Not there: it was opened in a file that is gone since.
    return this.#rows.complete(opening.id, closing) || (!this.#rows.has(opening.id) && this.#add(entry));
  }

  /** false: it is there already. */
  #add({ opening, closing }: Finished): boolean {
    return this.#rows.insert(wholeRecord(opening, closing));
  }
}
