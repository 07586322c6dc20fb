import { emptySums, SUMS, type Sums } from "../ledger/cells.ts";

/** From a row that begins with SUMS. */
export function sumsFrom(row: readonly unknown[]): Sums {
  const sums = emptySums();
  let at = 0;
  for (const name of SUMS) {
    sums[name] = Number(row[at] ?? 0);
    at += 1;
  }
  return sums;
}

/**
 * For the sum of many lines. To V8 it is an object of another make than those of the lines: of these it would make each
 * one anew, as soon as a number in one of them exceeds 2^31.
 */
export function emptyTotal(): Sums {
  const sums: Partial<Sums> = {};
  for (const name of SUMS) sums[name] = 0;
  return sums as Sums;
}

/** Name by name: a loop over SUMS takes ten times as long, and a report adds thousands. */
export function addSums(to: Sums, more: Readonly<Sums>): void {
  to.requests += more.requests;
  to.refused += more.refused;
  to.failed += more.failed;
  to.client_left += more.client_left;
  to.interrupted += more.interrupted;
  to.unmetered += more.unmetered;
  to.unpriced += more.unpriced;
  to.input_tokens += more.input_tokens;
  to.cache_read_tokens += more.cache_read_tokens;
  to.cache_write_tokens += more.cache_write_tokens;
  to.output_tokens += more.output_tokens;
  to.reasoning_tokens += more.reasoning_tokens;
  to.list_microdollars += more.list_microdollars;
  to.cost_microdollars += more.cost_microdollars;
  to.billed_microdollars += more.billed_microdollars;
  to.billed_requests += more.billed_requests;
  to.counted_microdollars += more.counted_microdollars;
}

/** All tokens; reasoning is part of the output. */
export function tokensOf(sums: Readonly<Sums>): number {
  return sums.input_tokens + sums.cache_read_tokens + sums.cache_write_tokens + sums.output_tokens;
}

/** How much of what went in came out of a cache; null: nothing went in. */
export function cacheShare(sums: Readonly<Sums>): number | null {
  const all = sums.input_tokens + sums.cache_read_tokens + sums.cache_write_tokens;
  return all === 0 ? null : sums.cache_read_tokens / all;
}

/** Requests whose cost is not known, which is not the same as none. */
export function unknownCost(sums: Readonly<Sums>): number {
  return sums.unmetered + sums.unpriced;
}
