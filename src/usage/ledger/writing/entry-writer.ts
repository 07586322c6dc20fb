import type Database from "libsql";
import { type Closing, type Opening, wholeRecord } from "../../record.ts";
import { createTally, type Tally } from "../cells.ts";
import { faultOf } from "../fault.ts";
import { type Rows, transact } from "../rows.ts";
import type { Entry, Finished, Poisoned } from "./book.ts";
import { CLOSING_KIND, closingKind, isSameClosingKind } from "./closing-parts.ts";
import { ClosingWriter } from "./closing-writer.ts";
import { InsertingWriter } from "./inserting-writer.ts";
import { Kinds } from "./kinds.ts";
import { isSameOpeningKind, OPENING_KIND, openingKind } from "./opening-parts.ts";

/** Writes what waits: all together, and one by one where that fails because of one of them. */
export class EntryWriter {
  readonly #db: Database.Database;
  readonly #rows: Rows;
  readonly #openingKinds: Kinds<Opening>;
  readonly #closingKinds: Kinds<Closing>;
  readonly #inserts: InsertingWriter;
  readonly #closings: ClosingWriter;

  constructor(db: Database.Database, rows: Rows) {
    this.#db = db;
    this.#rows = rows;
    this.#openingKinds = new Kinds(db, "opening_kinds", OPENING_KIND, isSameOpeningKind, openingKind);
    this.#closingKinds = new Kinds(db, "closing_kinds", CLOSING_KIND, isSameClosingKind, closingKind);
    this.#inserts = new InsertingWriter(db, this.#openingKinds, this.#closingKinds);
    this.#closings = new ClosingWriter(db, this.#closingKinds);
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
    this.#openingKinds.forget();
    this.#closingKinds.forget();
  }

  /**
   * In a transaction although one statement would be one of its own: where somebody else has the lock, libsql leaves a
   * prepared statement half begun, and nothing can be committed until that ends. BEGIN is not prepared.
   */
  #writeTogether(entries: readonly Entry[]): void {
    const inserted: Entry[] = [];
    const closed: Finished[] = [];
    let finishes = false;
    for (const entry of entries) {
      if (isClose(entry)) closed.push(entry);
      else inserted.push(entry);
      finishes ||= entry.closing !== null;
    }
    transact(this.#db, () => {
      if (finishes) this.#rows.rememberCells();
      this.#openingKinds.begin();
      this.#closingKinds.begin();
      this.#inserts.write(inserted);
      this.#closings.write(closed);
      if (finishes) this.#count(entries);
    });
    if (!finishes) this.#rows.wroteRecords(inserted.length);
  }

  #count(entries: readonly Entry[]): void {
    const tally = createTally();
    for (const { opening, closing } of entries) if (closing !== null) tally.countHalves(opening, closing);
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
      const { opening, closing } = entry;
      if (closing === null) this.#rows.open(opening);
      else if (this.#finish(entry.kind, opening, closing)) tally.countHalves(opening, closing);
    } catch (error) {
      // SQLite has undone this one statement only.
      const { kind, message } = faultOf(error);
      if (kind !== "row") throw error;
      poisoned.push({ entry, words: message });
    }
  }

  /** false: it is there already, and over. */
  #finish(kind: Entry["kind"], opening: Opening, closing: Closing): boolean {
    if (kind !== "add" && this.#rows.complete(opening.id, closing)) return true;
    // Not there: it was never in the log, or opened in a file that is gone since.
    return this.#rows.insert(wholeRecord(opening, closing));
  }
}

function isClose(entry: Entry): entry is Finished {
  return entry.kind === "close";
}
