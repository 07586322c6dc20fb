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

export function addSums(to: Sums, more: Readonly<Sums>): void {
  for (const name of SUMS) to[name] += more[name];
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
