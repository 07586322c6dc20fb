import type Database from "libsql";

/** So many are known at most before all are forgotten: whoever calls can invent paths and models without end. */
const MOST = 64;

/**
 * What many records have in common, in a table in the memory of the connection. A statement takes it from there by a
 * number: to hand a text over takes libsql about as long as SQLite takes to write a row, and a record has a dozen.
 */
export class Kinds<T> {
  readonly #isSame: (one: T, other: T) => boolean;
  readonly #valuesOf: (one: T) => (string | number | null)[];
  readonly #empties: Database.Statement;
  readonly #adds: Database.Statement;
  #known: T[] = [];
  /** The number of the first that is known. None is given twice. */
  #first = 1;

  constructor(
    db: Database.Database,
    table: string,
    columns: readonly string[],
    isSame: (one: T, other: T) => boolean,
    valuesOf: (one: T) => (string | number | null)[],
  ) {
    this.#isSame = isSame;
    this.#valuesOf = valuesOf;
    const names = columns.map((name) => `"${name}"`).join(", ");
    db.exec(`CREATE TABLE main.${table} (number INTEGER PRIMARY KEY, ${names})`);
    this.#empties = db.prepare(`DELETE FROM main.${table}`);
    this.#adds = db.prepare(`INSERT INTO main.${table} VALUES (?${", ?".repeat(columns.length)})`);
  }

  /** Before numbers are asked for that are used together. */
  begin(): void {
    if (this.#known.length > MOST) this.forget();
  }

  numberOf(one: T): number {
    const known = this.#known;
    for (let at = 0; at < known.length; at += 1) {
      const kind = known[at];
      if (kind !== undefined && this.#isSame(kind, one)) return this.#first + at;
    }
    if (known.length === 0) this.#empties.run();
    const number = this.#first + known.length;
    this.#adds.run([number, ...this.#valuesOf(one)]);
    known.push(one);
    return number;
  }

  /** A transaction was undone, and with it what was added in it. */
  forget(): void {
    this.#first += this.#known.length;
    this.#known = [];
  }
}
