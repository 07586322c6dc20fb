import type { Closing } from "../../record.ts";
import type { Value } from "./row-statements.ts";

/** What many records have in common when they are completed. */
export const CLOSING_KIND = [
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
export const CLOSING_OWN = [
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

export function pushClosing(closing: Closing, values: Value[]): void {
  values.push(
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

export function closingKind(closing: Closing): Value[] {
  return CLOSING_KIND.map((name) => {
    const value = closing[name];
    return typeof value === "boolean" ? Number(value) : value;
  });
}

/** What differs most often comes first. */
export function isSameClosingKind(one: Closing, other: Closing): boolean {
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

/** What a record says of its end while it runs. */
export const RUNNING: Closing = Object.freeze({
  first_byte_at: null,
  ended_at: null,
  model: null,
  model_answered: null,
  stream: null,
  status: null,
  end: null,
  cause: null,
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
