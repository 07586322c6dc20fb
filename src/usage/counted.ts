import { countUsed, type Used } from "../limits/counters.ts";
import type { CallTokens } from "../limits/estimate.ts";
import type { Counted } from "../limits/windows.ts";
import type { Closing, Opening, OwnRecord } from "./record.ts";

/* What a finished request takes from its tool's limits, by its record. */

/** A record that was just closed does not say yet what the console billed. */
type CountedFields = Pick<
  Closing,
  "tokens_from" | "output_tokens" | "cost_microdollars" | "counted_tokens" | "counted_microdollars"
> &
  Partial<Pick<OwnRecord, "billed_microdollars">>;

type HeldFields = Pick<Opening, "held_tokens" | "held_microdollars">;

type ReportedFields = Pick<
  Closing,
  "tokens_from" | "input_tokens" | "cache_read_tokens" | "cache_write_tokens" | "output_tokens"
>;

/** A record without its output has no complete report, so what it counts is an estimate. */
export function usedBy(record: CountedFields): Used {
  const { tokens_from, output_tokens, cost_microdollars } = record;
  const billed = record.billed_microdollars ?? null;
  const isText = tokens_from === "estimated";
  return {
    tokens: record.counted_tokens,
    spend: billed ?? record.counted_microdollars,
    areTokensEstimated: isText || output_tokens === null,
    isSpendEstimated: billed === null && (isText || cost_microdollars === null),
  };
}

/** The console's numbers, else ours, else what was reserved. */
export function countedBy(record: CountedFields & HeldFields): Counted {
  const held = { tokens: record.held_tokens ?? 0, spend: record.held_microdollars };
  return countUsed(usedBy(record), held);
}

/** What a call used, as reported; null: not all of it is known. */
export function reportedCall(record: ReportedFields): CallTokens | null {
  const { tokens_from, input_tokens, cache_read_tokens, cache_write_tokens, output_tokens } = record;
  if (tokens_from !== "reported" || input_tokens === null || output_tokens === null) return null;
  const input = input_tokens + (cache_read_tokens ?? 0) + (cache_write_tokens ?? 0);
  return { input, output: output_tokens };
}
