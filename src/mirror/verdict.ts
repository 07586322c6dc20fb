/** What comparing the two logs says of one console row, or of one record. DESIGN.md section 6. */
export type RowVerdict =
  | "matched"
  | "differs"
  /** Too young to be called foreign, or the request it may belong to still runs. */
  | "pending"
  | "foreign"
  | "before"
  | "unwatched"
  | "companion"
  | "duplicate";

export type RecordVerdict = "matched" | "differs" | "pending" | "missing";

/**
 * How a match was found. presumed: a record that never got an id absorbs one row of its key and model in its time. sum:
 * several alike on both sides, of which nobody can say which is which.
 */
export type How = "id" | "pair" | "presumed" | "sum";

export interface JudgedRow {
  readonly identity: string;
  readonly verdict: RowVerdict;
  readonly how: How | null;
  /** Of a foreign row: this gateway hands out ids, and none of ours is this one. */
  readonly certain: boolean;
  /** The record it belongs to. */
  readonly record: string | null;
  /** The fingerprint of the key it was billed to; null: nobody here knows that key. */
  readonly key: string | null;
  /** Why, in a sentence. */
  readonly reason: string;
}

export interface JudgedRecord {
  readonly record: string;
  readonly verdict: RecordVerdict;
  readonly how: How | null;
  /** The row that tells its tokens. */
  readonly row: string | null;
  readonly reason: string;
  /** What the console says of it; null where it says nothing of its own, as in a sum. */
  readonly theirs: Theirs | null;
}

/** A matched record's numbers by the console: all of its rows together. */
export interface Theirs {
  readonly input_tokens: number | null;
  readonly cache_read_tokens: number | null;
  readonly cache_write_tokens: number | null;
  readonly output_tokens: number | null;
  readonly list_microdollars: number | null;
  readonly billed_microdollars: number | null;
  readonly multiplier: number | null;
}
