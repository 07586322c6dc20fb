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

/** What a reason is made of. The dashboard finds the parts of a reason, and says them in the reader's language. */
export const REASONS = {
  "same-id": "the same request id",
  "same-id-behind": "the same id, of the gateway behind",
  "only-row": "the only row with this key, model and these tokens at that time",
  alike: "several requests and rows are alike at that time: which is which is unknown, their number agrees",
  "alike-without-id":
    "several requests without an id and their rows began together: which is which is unknown, their number agrees",
  "same-sum": "the rows of this key, model and hour are as many as the requests, with the same tokens in all",
  stopped: "keybearer never saw an id, because it was stopped during the request",
  "ended-early": "keybearer never saw an id, because the request ended before the answer began",
  "no-known-id": "the answer had no id that the console knows",
  "hands-out-no-ids": "this gateway hands out no ids",
  "began-then": "this row of its key and model began when it did",
  "ended-then": "this row of its key and model ended when it did",
  "in-socket": "it was billed to the key of a WebSocket in its time, which can hold any number of requests",
  "still-runs": "the request with its id still runs",
  "listed-twice": "the same request was listed twice",
  "same-foreign-request": "another row of the same request, which is foreign",
  "same-request": "another row of the same request",
  refund: "a refund of a request that is not listed",
  "key-unknown": "the key it was billed to is not known here",
  "never-held": "its key was never held here",
  "not-held": "its key is no longer held here",
  "before-held": "it is from before this key was held here",
  "before-log": "it is older than what the usage log keeps",
  "log-gap": "the usage log may lack records of that time",
  ahead: "it is more than a day ahead of this machine's clock: one of the clocks is wrong",
  "may-run": "a request with this key still runs, and it may be its own",
  "too-recent": "it is too recent to be called foreign",
  rotated: "the key was rotated here and is still in use",
  "no-such-id": "no request that passed here has this id",
  "none-fits": "no request that passed here fits it",
  "no-ids": "without ids this is a suspicion",
  "other-key": "it has the id of request {request}, which was sent with another key",
  "other-time": "it has the id of request {request}, but did not begin while that was in flight",
  "own-row-missing": "no row is listed for that request itself, so a clock may have been wrong",
  "began-soon": "it began so soon after that request that a clock may explain it",
  "no-whole-answer": "that request got no whole answer, and the gateway may have worked on it later",
  unsigned: "records of other machines are not signed (shared.secret)",
  "of-machine": "it may be request {request} of another machine",
  "machine-has-key": "{machine} has this key, and may have sent it",
  "machine-stopped":
    "{machine} has this key and was stopped: it may run again where it cannot reach the store",
  "may-be": "it may be request {request}, which got no id: they cannot be distinguished",
  "other-address": "the row has another address: {address}",
  "answered-without-id": "request {request} was answered without an id at that time, so ids prove nothing",
  "other-id": "request {request} began with it and is not listed: the gateway may have sent another id",
  exchanged: "it began with request {request}, which got no id and took another row: they may be exchanged",
  "not-listed-yet": "the console does not list it yet",
  "not-listed": "the console should list it, but does not: a row was dropped, or logging is off",
  /** LiteLLM names a row by the id of the provider's answer. */
  "repeated-id":
    "the provider gave its answer the id of another one, and the console keeps one row for both; the key's spend counts both",
  "other-model": "the console lists model {model}, asked for was {asked}",
  "tokens.input": "input tokens are {here} here and {there} in the console",
  "tokens.input-with-cache": "input with cache tokens are {here} here and {there} in the console",
  "tokens.cache-read": "cache read tokens are {here} here and {there} in the console",
  "tokens.cache-write": "cache write tokens are {here} here and {there} in the console",
  "tokens.output": "output tokens are {here} here and {there} in the console",
  billed: "list price {list} × {multiplier} is {due}, and {billed} was billed",
} as const;

/** A reason with what it is about. */
export function reasonWith(code: keyof typeof REASONS, values: Readonly<Record<string, string>>): string {
  return REASONS[code].replace(/\{(\w+)\}/g, (_, name: string) => values[name] ?? "");
}

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
