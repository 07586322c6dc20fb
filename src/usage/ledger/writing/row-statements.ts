import type Database from "libsql";

/**
 * A statement for several rows at once: to run one takes libsql longer than SQLite takes to write a row. There is one for
 * each power of two; what is left over is filled up with nulls, of which the statement makes no rows.
 */
export class RowStatements {
  readonly #db: Database.Database;
  readonly #width: number;
  readonly #text: (rows: string) => string;
  readonly #prepared = new Map<number, Database.Statement>();

  /** `width`: how many values a row has. `text`: the statement, given what stands for the rows' values. */
  constructor(db: Database.Database, width: number, text: (rows: string) => string) {
    this.#db = db;
    this.#width = width;
    this.#text = text;
  }

  /** Answers how many rows were changed. Fills the values up, which belong to it from here on. */
  run(values: (string | number | null)[], rows: number): number {
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
