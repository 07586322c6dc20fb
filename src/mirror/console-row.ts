/**
 * One row of a gateway's own usage log, as it is kept: what every kind of console has in common, by a list of allowed
 * fields. A console can answer with whole keys, names and texts of others; nothing that is not named here is stored.
 * Times are milliseconds UTC by the console's clock, money is whole micro-dollars; null is unknown, which is not zero.
 */
export interface ConsoleRow {
  /** What makes it this row and no other at its gateway, however often and in whatever order it is read. */
  readonly identity: string;
  /** error: a failed attempt; refund: money that came back. What is no usage at all, such as a top-up, is not kept. */
  readonly kind: "use" | "error" | "refund";
  /** When it was written: the end of the request. */
  readonly created_at: number;
  /** When the gateway began with the request, as exactly as the console tells; null: it does not. */
  readonly began_at: number | null;
  /** The console's name for the key: `id:12`, or `name:codex` where it tells nothing better. */
  readonly key_ref: string | null;
  /** The id that the gateway handed out with the answer; null where the row's own id was never handed out. */
  readonly request_id: string | null;
  /** The id of a gateway behind this one, which some versions hand out by mistake instead of their own. */
  readonly upstream_id: string | null;
  /** The model asked for. */
  readonly model: string | null;
  readonly group: string | null;
  /** The factor on the list price that was applied. */
  readonly multiplier: number | null;
  readonly stream: boolean | null;
  readonly endpoint: string | null;
  /** Never includes what was read from or written to a cache, where the console tells that apart. */
  readonly input_tokens: number | null;
  /** null: this console does not tell cache tokens apart; then input_tokens includes them. */
  readonly cache_read_tokens: number | null;
  readonly cache_write_tokens: number | null;
  readonly output_tokens: number | null;
  readonly list_microdollars: number | null;
  /** What was taken from the account. */
  readonly billed_microdollars: number | null;
  readonly duration_ms: number | null;
  /** From where it was called, where the console tells. */
  readonly ip: string | null;
}

/** The columns under which a row is stored, in the order in which they are written. */
export const ROW_FIELDS = [
  "identity",
  "kind",
  "created_at",
  "began_at",
  "key_ref",
  "request_id",
  "upstream_id",
  "model",
  "group",
  "multiplier",
  "stream",
  "endpoint",
  "input_tokens",
  "cache_read_tokens",
  "cache_write_tokens",
  "output_tokens",
  "list_microdollars",
  "billed_microdollars",
  "duration_ms",
  "ip",
] as const satisfies readonly (keyof ConsoleRow)[];
