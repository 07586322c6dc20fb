/**
 * One row of a gateway's own usage log. Consoles can answer with whole keys, and with names and texts of others, so only
 * these fields are stored. Times are milliseconds UTC by the console's clock, money is whole micro-dollars, null is unknown.
 */
export interface ConsoleRow {
  /** Unique at its gateway, and the same however often and in whatever order the row is read. */
  readonly identity: string;
  /** error: a failed attempt. refund: money returned. Rows that are not usage, such as top-ups, are not stored. */
  readonly kind: "use" | "error" | "refund";
  /** When the row was written: the end of the request. */
  readonly created_at: number;
  /** When the gateway began the request, as precisely as the console says. */
  readonly began_at: number | null;
  /** The console's name for the key: `id:12`, or `name:codex` where the row has no id. */
  readonly key_ref: string | null;
  /** The id that the gateway sent with its response; null also where the row's id was never sent. */
  readonly request_id: string | null;
  /** The id of another gateway behind this one, which some versions send by mistake instead of their own. */
  readonly upstream_id: string | null;
  /** The requested model. */
  readonly model: string | null;
  readonly group: string | null;
  /** The factor applied to the list price. */
  readonly multiplier: number | null;
  /** The maker's tier that was billed, such as priority or flex; null: standard, or the console does not say. */
  readonly service_tier: string | null;
  readonly stream: boolean | null;
  readonly endpoint: string | null;
  /** Excludes cached tokens, unless cache_read_tokens is null. */
  readonly input_tokens: number | null;
  /** null: this console does not separate cached tokens, so input_tokens includes them. */
  readonly cache_read_tokens: number | null;
  readonly cache_write_tokens: number | null;
  readonly output_tokens: number | null;
  readonly list_microdollars: number | null;
  /** What the account was charged. */
  readonly billed_microdollars: number | null;
  readonly duration_ms: number | null;
  /** The address that called. */
  readonly ip: string | null;
  /** The program that called. */
  readonly user_agent: string | null;
}

/** How a row is stored: the type of each column, in the order in which they are written. */
const COLUMN_TYPES = {
  identity: "TEXT NOT NULL",
  kind: "TEXT NOT NULL",
  created_at: "INTEGER NOT NULL",
  began_at: "INTEGER",
  key_ref: "TEXT",
  request_id: "TEXT",
  upstream_id: "TEXT",
  model: "TEXT",
  group: "TEXT",
  multiplier: "REAL",
  service_tier: "TEXT",
  stream: "INTEGER",
  endpoint: "TEXT",
  input_tokens: "INTEGER",
  cache_read_tokens: "INTEGER",
  cache_write_tokens: "INTEGER",
  output_tokens: "INTEGER",
  list_microdollars: "INTEGER",
  billed_microdollars: "INTEGER",
  duration_ms: "INTEGER",
  ip: "TEXT",
  user_agent: "TEXT",
} as const satisfies Record<keyof ConsoleRow, string>;

export const ROW_FIELDS = Object.keys(COLUMN_TYPES) as (keyof ConsoleRow)[];

/** For `CREATE TABLE`. */
export const ROW_DEFINITIONS: string = ROW_FIELDS.map((name) => `"${name}" ${COLUMN_TYPES[name]}`).join(", ");
