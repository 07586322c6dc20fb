import { type JsonObject, parseObject, textsIn } from "../core/json.ts";
import type { Protocol } from "../core/refusal.ts";
import { NO_IDS } from "../metering/gateway-ids.ts";
import { findMetering } from "../metering/protocols.ts";

/**
 * One request in the usage log, with the names under which it is stored and exported. Never a body, never a secret.
 * Times are milliseconds UTC, money is whole micro-dollars; null is unknown, which is not zero.
 */
export interface UsageRecord extends OwnRecord {
  /** The name of the machine that sent it; null: this one. */
  readonly machine: string | null;
  /** That machine's id. It stays the same when the machine gets another name. Not exported. */
  readonly machine_id: string | null;
  /** How many requests it stands for: 1, or those that keybearer refused in a minute beyond the first 20 of a kind. */
  readonly requests: number;
  /** The id of the last of them; null: it is about one request. */
  readonly last_id: string | null;
  /** Another machine's record was signed with the secret that the machines share. null: it is this machine's. Not exported. */
  readonly verified: boolean | null;
}

/** A record of this machine, as its line in the journal has it. */
export interface OwnRecord extends Opening, Closing {
  /** What the gateway's console charged. The mirror fills it in. */
  readonly billed_microdollars: number | null;
}

/** Characters of a user agent that a record has. They distinguish programs and their versions. */
export const MAX_USER_AGENT = 120;

/** Characters of a session's id that a record has. */
export const MAX_SESSION = 100;

/** The fields that the lines of a record that was made here leave out. */
export const OWN_REQUEST = Object.freeze({
  machine: null,
  machine_id: null,
  verified: null,
  requests: 1,
  last_id: null,
});

/** What is known, and on disk, before the first byte goes to the gateway. */
export interface Opening {
  /** A ULID whose time is started_at, so that ids sort by time. */
  readonly id: string;
  readonly started_at: number;
  /** null: the caller is unknown. */
  readonly tool: string | null;
  readonly gateway: string | null;
  readonly group: string | null;
  /** The group's factor on the list price when the request was admitted; 1 without a group. */
  readonly multiplier: number;
  /** The key's fingerprint. */
  readonly key: string | null;
  readonly protocol: Protocol;
  readonly method: string;
  /** The path without query and without a token. */
  readonly endpoint: string;
  /** The model asked for; null: the request does not name it, or only after what was read before sending. */
  readonly model: string | null;
  /** The program that owns the connection; null: it was not looked up. */
  readonly process: string | null;
  /** The client's, up to MAX_USER_AGENT; null: it sent none, or one that is not plain text or holds a secret. */
  readonly user_agent: string | null;
  /** The run of an agent that sent it, as the client names it; see proxy/session.ts. null: unknown. */
  readonly session: string | null;
  /** The name of the token that it showed; null: none. */
  readonly token: string | null;
  /** How long it waited for capacity under a limit. */
  readonly waited_ms: number;
  /** What the tool's limits held for it, and what counts if its real use stays unknown. Not exported. */
  readonly held_tokens: number | null;
  readonly held_microdollars: number | null;
  /** When the limits admitted it. Not exported. */
  readonly admitted_at: number | null;
  /** The session in which its tool's limits count it; null: in none. Not exported. */
  readonly counted_session: string | null;
  /** When it may be sent at the earliest; null: it waits for its gateway, and nothing of it was sent. See Journal.markSending(). */
  readonly sent_at: number | null;
  /** The ids that it was sent with, by the name that the gateway's own have in Closing. */
  readonly gateway_ids: Readonly<Record<string, string>>;
}

/** The names of an opening, for one whose fields are set one by one. */
const NO_OPENING: Opening = Object.freeze({
  id: "",
  started_at: 0,
  tool: null,
  gateway: null,
  group: null,
  multiplier: 1,
  key: null,
  protocol: "openai",
  method: "",
  endpoint: "",
  model: null,
  process: null,
  user_agent: null,
  session: null,
  token: null,
  waited_ms: 0,
  held_tokens: null,
  held_microdollars: null,
  admitted_at: null,
  counted_session: null,
  sent_at: null,
  gateway_ids: NO_IDS,
});

/** What completes a record, exactly once. */
export interface Closing {
  /** When there was a connection to the gateway; null: there was none, so nothing was sent. */
  readonly sent_at: number | null;
  readonly first_byte_at: number | null;
  /** null: in flight, or interrupted by a crash. */
  readonly ended_at: number | null;
  /** The model asked for, if only the rest of the request named it; null leaves the opening's. */
  readonly model: string | null;
  /** The process that sent it, where the client names no session; null leaves the opening's. */
  readonly session: string | null;
  /** The folder that its process works in: the root of a git repository, else the working folder; null: not looked up. */
  readonly project: string | null;
  /** The branch that was checked out there; null: not looked up, or none. */
  readonly branch: string | null;
  readonly model_answered: string | null;
  /** Whether the response was an event stream; null: there was no response. */
  readonly stream: boolean | null;
  readonly status: number | null;
  /** null: in flight. */
  readonly end: RecordEnd | null;
  readonly cause: string | null;
  /** More than the cause says: see CauseDetail in proxy/key-health/cause.ts. */
  readonly cause_detail: string | null;
  readonly refusal: string | null;
  readonly input_tokens: number | null;
  readonly cache_read_tokens: number | null;
  readonly cache_write_tokens: number | null;
  readonly output_tokens: number | null;
  readonly reasoning_tokens: number | null;
  readonly tokens_from: TokensFrom;
  readonly list_microdollars: number | null;
  /** List price times multiplier. */
  readonly cost_microdollars: number | null;
  readonly bytes_in: number;
  readonly bytes_out: number;
  /**
   * Whether it counts under its tool's limits. false: nothing of it can have reached the gateway. null: not decided yet, so
   * it counts. Not exported.
   */
  readonly counts: boolean | null;
  /** What it takes from the limits; null: what was held for it. Not exported. */
  readonly counted_tokens: number | null;
  readonly counted_microdollars: number | null;
  /** Output tokens that arrived before the client left, about; null: it did not leave. Not exported. */
  readonly seen_tokens: number | null;
  /** Every id of the request at the gateway: by header name, `body` for the body's own, `error` for an error text's. */
  readonly gateway_ids: Readonly<Record<string, string>>;
}

/** The second half of a record that is not closed yet. */
export const NOT_CLOSED: Closing = Object.freeze({
  sent_at: null,
  first_byte_at: null,
  ended_at: null,
  model: null,
  session: null,
  project: null,
  branch: null,
  model_answered: null,
  stream: null,
  status: null,
  end: null,
  cause: null,
  cause_detail: null,
  refusal: null,
  input_tokens: null,
  cache_read_tokens: null,
  cache_write_tokens: null,
  output_tokens: null,
  reasoning_tokens: null,
  tokens_from: "none",
  list_microdollars: null,
  cost_microdollars: null,
  bytes_in: 0,
  bytes_out: 0,
  counts: null,
  counted_tokens: null,
  counted_microdollars: null,
  seen_tokens: null,
  gateway_ids: NO_IDS,
});

/**
 * A record from its two halves. Written out, because V8 turns a spread of this many fields into a dictionary: making it and
 * writing it as JSON then takes ten times as long.
 */
export function wholeRecord(opening: Opening, closing: Closing): OwnRecord {
  return {
    id: opening.id,
    started_at: opening.started_at,
    tool: opening.tool,
    gateway: opening.gateway,
    group: opening.group,
    multiplier: opening.multiplier,
    key: opening.key,
    protocol: opening.protocol,
    method: opening.method,
    endpoint: opening.endpoint,
    model: closing.model ?? opening.model,
    process: opening.process,
    user_agent: opening.user_agent,
    session: closing.session ?? opening.session,
    project: closing.project,
    branch: closing.branch,
    token: opening.token,
    waited_ms: opening.waited_ms,
    held_tokens: opening.held_tokens,
    held_microdollars: opening.held_microdollars,
    admitted_at: opening.admitted_at,
    counted_session: opening.counted_session,
    sent_at: closing.end === null ? opening.sent_at : closing.sent_at,
    first_byte_at: closing.first_byte_at,
    ended_at: closing.ended_at,
    model_answered: closing.model_answered,
    stream: closing.stream,
    status: closing.status,
    end: closing.end,
    cause: closing.cause,
    cause_detail: closing.cause_detail,
    refusal: closing.refusal,
    input_tokens: closing.input_tokens,
    cache_read_tokens: closing.cache_read_tokens,
    cache_write_tokens: closing.cache_write_tokens,
    output_tokens: closing.output_tokens,
    reasoning_tokens: closing.reasoning_tokens,
    tokens_from: closing.tokens_from,
    list_microdollars: closing.list_microdollars,
    cost_microdollars: closing.cost_microdollars,
    billed_microdollars: null,
    bytes_in: closing.bytes_in,
    bytes_out: closing.bytes_out,
    counts: closing.counts,
    counted_tokens: closing.counted_tokens,
    counted_microdollars: closing.counted_microdollars,
    seen_tokens: closing.seen_tokens,
    gateway_ids: closing.end === null ? opening.gateway_ids : closing.gateway_ids,
  };
}

export type RecordEnd = "complete" | "client-left" | "gateway-failed" | "refused" | "interrupted";
export type TokensFrom = "reported" | "console" | "estimated" | "none";

/** Whether it asked for something that is billed, and may have reached a gateway. */
export function mayHaveArrived(record: Costing): boolean {
  // 101: a WebSocket, whose contents are not read.
  const billable = findMetering(record.method, record.endpoint) !== null || record.status === 101;
  return billable && record.sent_at !== null;
}

/** Whether it may have reached a gateway that did not refuse it. */
export function mayCost(record: Costing): boolean {
  const { status, refusal } = record;
  // A status beside a refusal of ours is ours: what the gateway did is unknown.
  return mayHaveArrived(record) && (refusal !== null || status === null || status < 400);
}

/** The fields that decide whether a request may have cost something. */
type Costing = Pick<UsageRecord, "method" | "endpoint" | "status" | "refusal" | "sent_at">;

/** How a field is stored: its SQL type, and what stands for a value that is missing or of the wrong type. */
interface Column {
  readonly name: keyof UsageRecord;
  readonly type: "text" | "integer" | "real" | "boolean" | "json";
  /** null: the field may be unknown. */
  readonly fallback: string | number | null;
  /** false: only keybearer itself needs it, so `usage export` leaves it out. */
  readonly exported: boolean;
}

function column(name: Column["name"], type: Column["type"], fallback: Column["fallback"] = null): Column {
  return { name, type, fallback, exported: true };
}

function internal(name: Column["name"], type: Column["type"]): Column {
  return { name, type, fallback: null, exported: false };
}

/**
 * The one definition of a record's fields, in the order of an export. The index's table, its statements, reading a row
 * back, and the export are all made from it.
 */
export const COLUMNS: readonly Column[] = [
  column("id", "text", ""),
  column("started_at", "integer", 0),
  column("first_byte_at", "integer"),
  column("ended_at", "integer"),
  column("tool", "text"),
  column("gateway", "text"),
  column("group", "text"),
  column("multiplier", "real", 1),
  column("key", "text"),
  column("protocol", "text", "openai"),
  column("method", "text", ""),
  column("endpoint", "text", ""),
  column("model", "text"),
  column("model_answered", "text"),
  column("stream", "boolean"),
  column("status", "integer"),
  column("end", "text"),
  column("cause", "text"),
  column("cause_detail", "text"),
  column("refusal", "text"),
  column("input_tokens", "integer"),
  column("cache_read_tokens", "integer"),
  column("cache_write_tokens", "integer"),
  column("output_tokens", "integer"),
  column("reasoning_tokens", "integer"),
  column("tokens_from", "text", "none"),
  column("list_microdollars", "integer"),
  column("cost_microdollars", "integer"),
  column("billed_microdollars", "integer"),
  column("bytes_in", "integer", 0),
  column("bytes_out", "integer", 0),
  column("waited_ms", "integer", 0),
  column("process", "text"),
  column("session", "text"),
  column("project", "text"),
  column("branch", "text"),
  column("token", "text"),
  column("user_agent", "text"),
  column("sent_at", "integer"),
  column("gateway_ids", "json", "{}"),
  column("machine", "text"),
  column("requests", "integer", 1),
  column("last_id", "text"),
  internal("held_tokens", "integer"),
  internal("held_microdollars", "integer"),
  internal("admitted_at", "integer"),
  internal("counted_session", "text"),
  internal("counts", "boolean"),
  internal("counted_tokens", "integer"),
  internal("counted_microdollars", "integer"),
  internal("seen_tokens", "integer"),
  internal("machine_id", "text"),
  internal("verified", "boolean"),
];

/** The fields of a `close` line, and those of an `open` line. */
const OWN_COLUMNS: readonly Column[] = COLUMNS.filter(({ name }) => !(name in OWN_REQUEST));
const OPENING_COLUMNS: readonly Column[] = COLUMNS.filter(({ name }) => name in NO_OPENING);

const SQL_TYPES = {
  text: "TEXT",
  integer: "INTEGER",
  real: "REAL",
  boolean: "INTEGER",
  json: "TEXT",
} as const;

/** The columns of `CREATE TABLE records`, without its key. */
export const COLUMN_DEFINITIONS: string = COLUMNS.map(
  ({ name, type, fallback }) => `"${name}" ${SQL_TYPES[type]}${fallback === null ? "" : " NOT NULL"}`,
).join(", ");

/** For a SELECT or INSERT with the rows of recordOfRow() and rowOfRecord(). */
export const COLUMN_NAMES: string = COLUMNS.map(({ name }) => `"${name}"`).join(", ");

/** The names that `usage export` prints, in its order. */
export const EXPORTED: readonly Column["name"][] = COLUMNS.filter(({ exported }) => exported).map(
  ({ name }) => name,
);

type SqlValue = string | number | null;

/** The fields in the order of COLUMN_NAMES, as SQLite takes them. */
export function rowOfRecord(record: UsageRecord): SqlValue[] {
  return COLUMNS.map(({ name, type }) => {
    const value = record[name];
    if (type === "json") return JSON.stringify(value);
    if (typeof value === "boolean") return Number(value);
    return value as SqlValue;
  });
}

export function recordOfRow(row: unknown): UsageRecord {
  const record = emptyRecord();
  setColumns(record, row as readonly unknown[]);
  return record;
}

function setColumns(record: object, values: readonly unknown[]): void {
  const fields = record as Record<string, unknown>;
  for (const [at, { name, type }] of COLUMNS.entries()) {
    const value = values[at] ?? null;
    if (type === "boolean") fields[name] = value === null ? null : value === 1;
    // An edited row must not prevent the others from being read.
    else fields[name] = type === "json" ? textsIn(parseObject(String(value))) : value;
  }
}

/** Every name is there from the start: V8 turns an object that gets so many one by one into a dictionary, which takes 8 µs more. */
function emptyRecord(): UsageRecord {
  return Object.assign(wholeRecord(NO_OPENING, NOT_CLOSED), OWN_REQUEST);
}

/**
 * A record of this machine from the fields of a line, whatever they are: an edited line must not break the index. Numbers
 * become whole and not negative, texts lose their NULs (libsql would cut them there), and what is missing gets its fallback.
 */
export function recordOfFields(fields: JsonObject): UsageRecord {
  const record = emptyRecord();
  setFields(record, OWN_COLUMNS, fields);
  return record;
}

export function openingOfFields(fields: JsonObject): Opening {
  const opening = { ...NO_OPENING };
  setFields(opening, OPENING_COLUMNS, fields);
  return opening;
}

/** As soon as the limits admitted it. */
export function atOnce({
  admitted_at,
  started_at,
  waited_ms,
}: Pick<Opening, "admitted_at" | "started_at" | "waited_ms">): number {
  return admitted_at ?? started_at + waited_ms;
}

function setFields(record: object, columns: readonly Column[], fields: JsonObject): void {
  const values = record as Record<string, unknown>;
  for (const column of columns) values[column.name] = wellTyped(column, fields[column.name]);
}

/**
 * The same as recordOfFields(), but the fields themselves become the record. In a line that keybearer wrote nearly all of them
 * are as they should be, and copying them takes 3 µs of the index's 40.
 */
export function recordFromLine(fields: JsonObject): UsageRecord {
  const record: object = Object.assign(fields, OWN_REQUEST);
  const values = record as Record<string, unknown>;
  for (const column of OWN_COLUMNS) {
    const value = values[column.name];
    const typed = wellTyped(column, value);
    if (typed !== value) values[column.name] = typed;
  }
  return record as UsageRecord;
}

function wellTyped({ type, fallback }: Column, value: unknown): unknown {
  switch (type) {
    case "text":
      return typeof value === "string" ? withoutNul(value) : fallback;
    case "integer":
      return wholeNumber(value) ?? fallback;
    case "real":
      return Number.isFinite(value) ? value : fallback;
    case "boolean":
      return typeof value === "boolean" ? value : null;
    case "json":
      return textsIn(value);
  }
}

/** A million of these still add up exactly in a double. */
const MAX_NUMBER = 2 ** 33 * 1000;

export function wholeNumber(value: unknown): number | null {
  if (typeof value !== "number" || !Number.isFinite(value)) return null;
  return Math.min(Math.max(Math.round(value), 0), MAX_NUMBER);
}

function withoutNul(text: string): string {
  return text.includes("\0") ? text.replaceAll("\0", "\uFFFD") : text;
}
