import type Database from "libsql";
import type { Opening } from "../../record.ts";
import { LedgerFault } from "../fault.ts";
import { Kinds } from "./kinds.ts";

const KIND = [
  "tool",
  "gateway",
  "group",
  "multiplier",
  "key",
  "protocol",
  "method",
  "endpoint",
  "model",
  "process",
] as const satisfies readonly (keyof Opening)[];

/** What is each record's own, in the order in which it is handed over, after the number of its kind. */
const OWN = [
  "id",
  "started_at",
  "waited_ms",
  "held_tokens",
  "held_microdollars",
  "admitted_at",
] as const satisfies readonly (keyof Opening)[];

/** So many fit into one statement. */
export const MOST_AT_ONCE = 64;

type Value = string | number | null;

/** Writes the openings of a turn of the event loop with one statement, inside the caller's transaction. */
export class OpeningWriter {
  readonly #db: Database.Database;
  readonly #kinds: Kinds<Opening>;
  /** By the number of rows, a power of two: a statement for each number of rows would be a lot of them. */
  readonly #statements = new Map<number, Database.Statement>();

  constructor(db: Database.Database) {
    this.#db = db;
    this.#kinds = new Kinds(db, "opening_kinds", KIND, isSameKind, (opening) =>
      KIND.map((name) => opening[name]),
    );
  }

  /** Those from `first` up to, and without, `end`, at most MOST_AT_ONCE: all of them or none. */
  write(entries: readonly { readonly opening: Opening }[], first: number, end: number): void {
    this.#kinds.begin();
    const count = end - first;
    const values: Value[] = [];
    for (let at = first; at < end; at += 1) {
      const opening = entries[at]?.opening;
      if (opening === undefined) continue;
      values.push(
        this.#kinds.numberOf(opening),
        opening.id,
        opening.started_at,
        opening.waited_ms,
        opening.held_tokens,
        opening.held_microdollars,
        opening.admitted_at,
      );
    }
    const size = 2 ** Math.ceil(Math.log2(count));
    // What is of no kind is no row.
    for (let left = (size - count) * (OWN.length + 1); left > 0; left -= 1) values.push(null);
    const { changes } = this.#statementFor(size).run(values);
    if (changes !== count) throw new LedgerFault("broken", `${changes} of ${count} openings were written`);
  }

  /** A transaction was undone. */
  forget(): void {
    this.#kinds.forget();
  }

  #statementFor(size: number): Database.Statement {
    const found = this.#statements.get(size);
    if (found !== undefined) return found;
    const row = `(?${", ?".repeat(OWN.length)})`;
    // CROSS JOIN: in the order in which they are handed over, so that seq goes on telling the order in which they began.
    const made = this.#db.prepare(
      `INSERT INTO log.records (${[...OWN, ...KIND].map((name) => `"${name}"`).join(", ")})
       SELECT ${OWN.map((_, at) => `column${at + 2}`).join(", ")}, ${KIND.map((name) => `kind."${name}"`).join(", ")}
       FROM (VALUES ${Array(size).fill(row).join(", ")}) CROSS JOIN main.opening_kinds AS kind
       WHERE kind.number = column1`,
    );
    this.#statements.set(size, made);
    return made;
  }
}

/** What differs most often comes first. */
function isSameKind(one: Opening, other: Opening): boolean {
  return (
    one.model === other.model &&
    one.tool === other.tool &&
    one.endpoint === other.endpoint &&
    one.key === other.key &&
    one.method === other.method &&
    one.process === other.process &&
    one.protocol === other.protocol &&
    one.group === other.group &&
    one.gateway === other.gateway &&
    one.multiplier === other.multiplier
  );
}
