/** The result of comparing the two logs, for one console row or one record. docs/mirror.md explains them. */
export type RowVerdict =
  | "matched"
  | "differs"
  /** Too young to be called foreign, or the request it may belong to is still running. */
  | "pending"
  | "foreign"
  | "before"
  | "unwatched"
  | "companion"
  | "duplicate";

/** The verdicts of rows as metrics name them: a foreign row is certain, or only suspected. A row that is pending has none yet. */
export type ShownVerdict = Exclude<RowVerdict, "pending"> | "suspected";

export function shownVerdict(row: {
  readonly verdict: RowVerdict | null;
  readonly certain: boolean;
}): ShownVerdict | null {
  const { verdict, certain } = row;
  if (verdict === "pending") return null;
  return verdict === "foreign" && !certain ? "suspected" : verdict;
}

export type RecordVerdict = "matched" | "differs" | "pending" | "missing";

/**
 * How a match was found. presumed: a record that never got an id absorbs one row of its key and model in its time. sum:
 * several are alike on both sides, and only their number was compared.
 */
export type How = "id" | "pair" | "presumed" | "sum";

/** Reasons without a name or a number in them. The dashboard finds them in a reason, and says them in the reader's language. */
export const REASONS = {
  "same-id": "the same request id",
  rotated: "the key was rotated here and is still in use",
  "no-such-id": "no request that passed here has this id",
  "none-fits": "no request that passed here fits it",
  "no-ids": "without ids this is a suspicion",
  "not-listed-yet": "the console does not list it yet",
  "not-listed": "the console should list it, but does not: a row was dropped, or logging is off",
  /** LiteLLM names a row by the id of the provider's answer. */
  "repeated-id":
    "the provider gave its answer the id of another one, and the console keeps one row for both; the key's spend counts both",
} as const;

export interface JudgedRow {
  readonly identity: string;
  readonly verdict: RowVerdict;
  readonly how: How | null;
  /** For a foreign row: this gateway sends ids, and no request of ours has this one. */
  readonly certain: boolean;
  /** The record it belongs to. */
  readonly record: string | null;
  /** Fingerprint of the key it was billed to; null: unknown here. */
  readonly key: string | null;
  /** Why, in a sentence. */
  readonly reason: string;
}

export interface JudgedRecord {
  readonly record: string;
  readonly verdict: RecordVerdict;
  readonly how: How | null;
  /** The row that has its tokens. */
  readonly row: string | null;
  readonly reason: string;
  /** null: the console has no numbers for this record alone, as in a sum. */
  readonly theirs: Theirs | null;
}

/** The console's numbers for a matched record: all of its rows together. */
export interface Theirs {
  readonly input_tokens: number | null;
  readonly cache_read_tokens: number | null;
  readonly cache_write_tokens: number | null;
  readonly output_tokens: number | null;
  readonly list_microdollars: number | null;
  readonly billed_microdollars: number | null;
  readonly multiplier: number | null;
  readonly service_tier: string | null;
}
