import type Database from "libsql";
import { LedgerFault } from "../fault.ts";

export type Value = string | number | null;

/**
 * A statement for several rows at once: to run one takes libsql longer than SQLite takes to write a row. There is one for
 * each power of two; what is left over is filled up with nulls, of which the statement makes no rows.
 */
export class RowStatements {
  readonly #db: Database.Database;
  readonly #width: number;
  readonly #most: number;
  readonly #text: (rows: string) => string;
  readonly #prepared = new Map<number, Database.Statement>();

  /** `width`: how many values a row has. `most`: rows at once. `text`: the statement, given what stands for the rows' values. */
  constructor(db: Database.Database, width: number, most: number, text: (rows: string) => string) {
    this.#db = db;
    this.#width = width;
    this.#most = most;
    this.#text = text;
  }

  /** All of them, so many at once; a fault of the kind `row`, in these words, where one changes nothing. */
  runAll<T>(all: readonly T[], push: (one: T, values: Value[]) => void, words: string): void {
    for (let first = 0; first < all.length; first += this.#most) {
      const end = Math.min(first + this.#most, all.length);
      const values: Value[] = [];
      for (let at = first; at < end; at += 1) push(all[at] as T, values);
      if (this.#run(values, end - first) !== end - first) throw new LedgerFault("row", words);
    }
  }

  /** Answers how many rows were changed. Fills the values up. */
  #run(values: Value[], rows: number): number {
    const size = 2 ** Math.ceil(Math.log2(rows));
    for (let left = (size - rows) * this.#width; left > 0; left -= 1) values.push(null);
    return this.#statementFor(size).run(values).changes;
  }

  #statementFor(size: number): Database.Statement {
    const found = this.#prepared.get(size);
    if (found !== undefined) return found;
    const row = `(?${", ?".repeat(this.#width - 1)})`;
    const made = this.#db.prepare(this.#text(Array(size).fill(row).join(", ")));
    this.#prepared.set(size, made);
    return made;
  }
}
