import type Database from "libsql";
import type { Closing } from "../../record.ts";
import { LedgerFault } from "../fault.ts";
import type { Finished } from "./book.ts";
import { Kinds } from "./kinds.ts";
import { RowStatements } from "./row-statements.ts";

const KIND = [
  "model",
  "model_answered",
  "stream",
  "status",
  "end",
  "cause",
  "refusal",
  "tokens_from",
  "counts",
] as const satisfies readonly (keyof Closing)[];

/** What is each record's own, in the order in which it is handed over, after the number of its kind and its id. */
const OWN = [
  "first_byte_at",
  "ended_at",
  "input_tokens",
  "cache_read_tokens",
  "cache_write_tokens",
  "output_tokens",
  "reasoning_tokens",
  "list_microdollars",
  "cost_microdollars",
  "bytes_in",
  "bytes_out",
  "counted_tokens",
  "counted_microdollars",
  "gateway_ids",
] as const satisfies readonly (keyof Closing)[];

/** So many fit into one statement. */
const MOST_AT_ONCE = 16;

/** Completes records that were opened, many with one statement, inside the caller's transaction. */
export class ClosingWriter {
  readonly #kinds: Kinds<Closing>;
  readonly #statements: RowStatements;

  constructor(db: Database.Database) {
    this.#kinds = new Kinds(db, "closing_kinds", KIND, isSameKind, kindValues);
    this.#statements = new RowStatements(db, OWN.length + 2, statement);
  }

  /** All of them; a fault of the kind `row` where one is complete already, or not there. */
  write(entries: readonly Finished[]): void {
    this.#kinds.begin();
    for (let first = 0; first < entries.length; first += MOST_AT_ONCE) {
      const end = Math.min(first + MOST_AT_ONCE, entries.length);
      const values: (string | number | null)[] = [];
      for (let at = first; at < end; at += 1) {
        const entry = entries[at];
        if (entry !== undefined) this.#push(entry, values);
      }
      if (this.#statements.run(values, end - first) !== end - first)
        throw new LedgerFault("row", "not every record could be completed");
    }
  }

  #push({ opening, closing }: Finished, values: (string | number | null)[]): void {
    values.push(
      this.#kinds.numberOf(closing),
      opening.id,
      closing.first_byte_at,
      closing.ended_at,
      closing.input_tokens,
      closing.cache_read_tokens,
      closing.cache_write_tokens,
      closing.output_tokens,
      closing.reasoning_tokens,
      closing.list_microdollars,
      closing.cost_microdollars,
      closing.bytes_in,
      closing.bytes_out,
      closing.counted_tokens,
      closing.counted_microdollars,
      JSON.stringify(closing.gateway_ids),
    );
  }

  /** A transaction was undone. */
  forget(): void {
    this.#kinds.forget();
  }
}

/** The index is named: whatever SQLite learns about the file, it must not look through all that runs for each of them. */
function statement(rows: string): string {
  const taken = KIND.map((name) =>
    name === "model" ? "model = coalesce(kind.model, records.model)" : `"${name}" = kind."${name}"`,
  );
  return `UPDATE log.records INDEXED BY sqlite_autoindex_records_1
    SET ${OWN.map((name, at) => `"${name}" = one.column${at + 3}`).join(", ")}, ${taken.join(", ")}
    FROM (VALUES ${rows}) AS one CROSS JOIN main.closing_kinds AS kind
    WHERE kind.number = one.column1 AND records.id = one.column2 AND records.end IS NULL`;
}

function kindValues(closing: Closing): (string | number | null)[] {
  return KIND.map((name) => {
    const value = closing[name];
    return typeof value === "boolean" ? Number(value) : value;
  });
}

/** What differs most often comes first. */
function isSameKind(one: Closing, other: Closing): boolean {
  return (
    one.model === other.model &&
    one.model_answered === other.model_answered &&
    one.status === other.status &&
    one.end === other.end &&
    one.stream === other.stream &&
    one.tokens_from === other.tokens_from &&
    one.cause === other.cause &&
    one.refusal === other.refusal &&
    one.counts === other.counts
  );
}
