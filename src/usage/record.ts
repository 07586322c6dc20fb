import type { Protocol } from "../core/refusal.ts";
import { meteringOf } from "../metering/protocols.ts";

/**
 * One row of the usage log, with the names under which it is stored and exported. Never a body, never a secret.
 * Times are milliseconds UTC, money is whole micro-dollars; null is unknown, which is not zero.
 */
export interface UsageRecord extends Opening, Closing {
  /** What the gateway's console says it cost. Filled in by the mirror. */
  readonly billed_microdollars: number | null;
}

/** What is known, and on disk, before the first byte goes to the gateway. */
export interface Opening {
  /** A ULID whose time is started_at, so that ids sort by time. */
  readonly id: string;
  readonly started_at: number;
  /** null: the caller is unknown. */
  readonly tool: string | null;
  readonly gateway: string | null;
  readonly group: string | null;
  /** The group's factor on the list price when the request was let in; 1 without a group. */
  readonly multiplier: number;
  /** The key's fingerprint. */
  readonly key: string | null;
  readonly protocol: Protocol;
  readonly method: string;
  /** The path without query and without a token. */
  readonly endpoint: string;
  /** The model asked for, where the request's beginning told it. */
  readonly model: string | null;
  /** The program that owns the connection, where it was looked for. */
  readonly process: string | null;
  /** How long it waited for room under a limit. */
  readonly waited_ms: number;
  /** What the tool's limits held for it, and what counts if its real use stays unknown. Not exported. */
  readonly held_tokens: number | null;
  readonly held_microdollars: number | null;
  /** When it was let in under them. Not exported. */
  readonly admitted_at: number | null;
}

/** What completes a record, exactly once. */
export interface Closing {
  readonly first_byte_at: number | null;
  /** null: in flight, or interrupted by a crash. */
  readonly ended_at: number | null;
  /** The model asked for, where only the rest of the request told it; null leaves the opening's. */
  readonly model: string | null;
  readonly model_answered: string | null;
  /** Whether the answer was an event stream; null where there was none. */
  readonly stream: boolean | null;
  readonly status: number | null;
  /** null: still running. */
  readonly end: RecordEnd | null;
  readonly cause: string | null;
  /** More than the cause says, where it is known: see CauseDetail in proxy/cause.ts. */
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
   * Whether it counts under its tool's limits: not where nothing of it can have reached the gateway. Not exported; null: not
   * decided yet, and so it does.
   */
  readonly counts: boolean | null;
  /** What it takes from them; null: what was held for it. Not exported. */
  readonly counted_tokens: number | null;
  readonly counted_microdollars: number | null;
  /** Every id the gateway gave the request: by header name, `body` for the body's own, `error` for an error text's. */
  readonly gateway_ids: Readonly<Record<string, string>>;
}

/** Of a record that is not closed yet. */
export const NOT_CLOSED: Closing = Object.freeze({
  first_byte_at: null,
  ended_at: null,
  model: null,
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
  gateway_ids: Object.freeze({}),
});

/**
 * A record from its two halves. Written out: to spread two objects of so many fields into one takes V8 longer than to
 * write the record to disk.
 */
export function wholeRecord(opening: Opening, closing: Closing): UsageRecord {
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
    waited_ms: opening.waited_ms,
    held_tokens: opening.held_tokens,
    held_microdollars: opening.held_microdollars,
    admitted_at: opening.admitted_at,
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
    gateway_ids: closing.gateway_ids,
  };
}

export type RecordEnd = "complete" | "client-left" | "gateway-failed" | "refused" | "interrupted";
export type TokensFrom = "reported" | "console" | "estimated" | "none";

/** It asked for something that is billed, and reached a gateway, or may have. */
export function mayHaveArrived(record: Costing): boolean {
  const { status, end, refusal } = record;
  // What a WebSocket carries is not read.
  const billable = meteringOf(record.method, record.endpoint) !== null || status === 101;
  if (!billable || end === "refused" || refusal === "gateway-unreachable") return false;
  // The client left before anything was sent.
  return end !== "client-left" || record.bytes_in > 0 || record.first_byte_at !== null;
}

/** The same, and the gateway did not refuse it. */
export function mayCost(record: Costing): boolean {
  const { status, refusal } = record;
  // A status beside a refusal of ours is ours: what the gateway did is unknown.
  return mayHaveArrived(record) && (refusal !== null || status === null || status < 400);
}

/** What tells whether a request may have cost something. */
export type Costing = Pick<
  UsageRecord,
  "method" | "endpoint" | "status" | "end" | "refusal" | "bytes_in" | "first_byte_at"
>;
