import type Database from "libsql";
import type { Closing } from "../../record.ts";
import { Kinds } from "./kinds.ts";

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

/** What is each record's own, in the order in which it is handed over. */
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

/** Completes records that were opened, inside the caller's transaction. */
export class ClosingWriter {
  readonly #kinds: Kinds<Closing>;
  readonly #completes: Database.Statement;

  constructor(db: Database.Database) {
    this.#kinds = new Kinds(db, "closing_kinds", KIND, isSameKind, kindValues);
    const taken = KIND.map((name) =>
      name === "model" ? "coalesce(kind.model, records.model)" : `kind."${name}"`,
    );
    this.#completes = db.prepare(
      `UPDATE log.records SET ${OWN.map((name) => `"${name}" = ?`).join(", ")},
         (${KIND.map((name) => `"${name}"`).join(", ")}) =
         (SELECT ${taken.join(", ")} FROM main.closing_kinds AS kind WHERE kind.number = ?)
       WHERE id = ? AND end IS NULL`,
    );
  }

  begin(): void {
    this.#kinds.begin();
  }

  /** false: it is complete already, or not there. */
  complete(id: string, closing: Closing): boolean {
    const { changes } = this.#completes.run([
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
      this.#kinds.numberOf(closing),
      id,
    ]);
    return changes > 0;
  }

  /** A transaction was undone. */
  forget(): void {
    this.#kinds.forget();
  }
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
