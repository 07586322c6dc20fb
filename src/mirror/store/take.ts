import { NO_TOKENS, type Tokens } from "../../metering/usage.ts";
import { AMENDED } from "../../usage/journal/lines.ts";
import { type Closing, NOT_CLOSED, type UsageRecord } from "../../usage/record.ts";
import type { Theirs } from "../verdict.ts";

/** What a record can take from the console, besides its bill: stored as `ours` before it does. */
export const TAKEN = AMENDED.filter((name) => name !== "billed_microdollars");

export type OwnNumbers = Pick<UsageRecord, (typeof TAKEN)[number]>;

export type PriceOf = (
  record: UsageRecord,
  tokens: Tokens,
) => { readonly list: number; readonly cost: number } | null;

/** A record as it was before it took anything. */
export function withoutTheirs(record: UsageRecord, ours: OwnNumbers | null): UsageRecord {
  if (ours !== null) return { ...record, ...ours, billed_microdollars: null };
  return { ...record, ...(record.tokens_from === "console" ? UNKNOWN : {}), billed_microdollars: null };
}

/** Its own numbers were lost together with mirror.db. */
const UNKNOWN: OwnNumbers = ownNumbers(NOT_CLOSED);

/**
 * The record with the console's money, and with its tokens where its own are not known whole. `hasTokens`: the row is of a
 * use, and not of a failed attempt, whose zeroes say nothing.
 */
export function withTheirs(
  own: UsageRecord,
  theirs: Theirs,
  hasTokens: boolean,
  priceOf: PriceOf,
): UsageRecord {
  const { input_tokens, cache_read_tokens, cache_write_tokens, output_tokens } = theirs;
  const billed = { ...own, billed_microdollars: theirs.billed_microdollars };
  if (!hasTokens || isWhole(own) || input_tokens === null || output_tokens === null) return billed;
  const tokens: Tokens = {
    ...NO_TOKENS,
    input: input_tokens,
    cacheRead: cache_read_tokens ?? 0,
    cacheWrite: cache_write_tokens ?? 0,
    output: output_tokens,
  };
  const price = priceOf(own, tokens);
  return {
    ...billed,
    input_tokens,
    cache_read_tokens,
    cache_write_tokens,
    output_tokens,
    reasoning_tokens: null,
    tokens_from: "console",
    list_microdollars: price?.list ?? null,
    cost_microdollars: price?.cost ?? null,
    counted_tokens: tokens.input + tokens.cacheRead + tokens.cacheWrite + tokens.output,
    counted_microdollars: price?.cost ?? own.counted_microdollars,
  };
}

/** What was reported of an answer that broke off is what there was up to then: the gateway may have gone on. */
function isWhole({ tokens_from, input_tokens, output_tokens, end }: UsageRecord): boolean {
  if (tokens_from !== "reported" || end !== "complete") return false;
  return input_tokens !== null && output_tokens !== null;
}

export function ownNumbers(record: Closing): OwnNumbers {
  return Object.fromEntries(TAKEN.map((name) => [name, record[name]])) as unknown as OwnNumbers;
}

export function isAmended(before: UsageRecord, after: UsageRecord): boolean {
  return (
    before.billed_microdollars !== after.billed_microdollars ||
    TAKEN.some((name) => before[name] !== after[name])
  );
}
