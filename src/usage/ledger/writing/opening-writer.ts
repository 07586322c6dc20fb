import type Database from "libsql";
import type { Opening } from "../../record.ts";
import { LedgerFault } from "../fault.ts";
import type { Opened } from "./book.ts";
import { Kinds } from "./kinds.ts";
import { RowStatements } from "./row-statements.ts";

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
const MOST_AT_ONCE = 64;

/** Opens records, those of a turn of the event loop with one statement, inside the caller's transaction. */
export class OpeningWriter {
  readonly #kinds: Kinds<Opening>;
  readonly #statements: RowStatements;

  constructor(db: Database.Database) {
    this.#kinds = new Kinds(db, "opening_kinds", KIND, isSameKind, (opening) =>
      KIND.map((name) => opening[name]),
    );
    this.#statements = new RowStatements(db, OWN.length + 1, statement);
  }

  write(entries: readonly Opened[]): void {
    this.#kinds.begin();
    for (let first = 0; first < entries.length; first += MOST_AT_ONCE) {
      const end = Math.min(first + MOST_AT_ONCE, entries.length);
      const values: (string | number | null)[] = [];
      for (let at = first; at < end; at += 1) {
        const opening = entries[at]?.opening;
        if (opening !== undefined) this.#push(opening, values);
      }
      if (this.#statements.run(values, end - first) !== end - first)
        throw new LedgerFault("row", "not every record could be opened");
    }
  }

  #push(opening: Opening, values: (string | number | null)[]): void {
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

  /** A transaction was undone. */
  forget(): void {
    this.#kinds.forget();
  }
}

/** CROSS JOIN: in the order in which they are handed over, so that seq goes on telling the order in which they began. */
function statement(rows: string): string {
  return `INSERT INTO log.records (${[...OWN, ...KIND].map((name) => `"${name}"`).join(", ")})
    SELECT ${OWN.map((_, at) => `one.column${at + 2}`).join(", ")}, ${KIND.map((name) => `kind."${name}"`).join(", ")}
    FROM (VALUES ${rows}) AS one CROSS JOIN main.opening_kinds AS kind WHERE kind.number = one.column1`;
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
