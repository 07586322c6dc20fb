import type { CallTokens } from "../limits/estimate.ts";
import type { Closing } from "../usage/record.ts";
import type { Outcome } from "./exchange.ts";

type Used = Pick<
  Closing,
  "input_tokens" | "cache_read_tokens" | "cache_write_tokens" | "output_tokens" | "cost_microdollars"
>;
type Counted = Pick<Closing, "counts" | "counted_tokens" | "counted_microdollars">;

/**
 * What a finished request takes from its tool's limits. Decided here once: the counters are settled by it, and it stands in
 * the record, from which they are counted anew at the next start.
 *
 * Nothing, not even a request, where nothing of it can have reached the gateway. No tokens and no money where the gateway
 * itself answered with an error. What was reported where it was reported. Else null, which is what was held for it: nobody
 * told, and to take it for nothing would open the limit to whoever hangs up early.
 */
export function countedBy(outcome: Outcome, used: Used): Counted {
  const { arrived, status, refusal } = outcome;
  const failed = refusal === null && status !== null && status >= 400;
  const call = callOf(used);
  return {
    counts: arrived,
    counted_tokens: call === null ? (failed ? 0 : null) : call.input + call.output,
    counted_microdollars: used.cost_microdollars ?? (failed ? 0 : null),
  };
}

/** All that was used; null: not all of it is known. */
export function callOf(used: Used): CallTokens | null {
  const { input_tokens, cache_read_tokens, cache_write_tokens, output_tokens } = used;
  if (input_tokens === null || output_tokens === null) return null;
  return {
    input: input_tokens + (cache_read_tokens ?? 0) + (cache_write_tokens ?? 0),
    output: output_tokens,
  };
}
