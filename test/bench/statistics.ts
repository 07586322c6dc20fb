/** The middle of several rounds, and how far the rounds lie apart. */
export interface Spread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

/** null when nothing was measured. */
export function spreadOf(values: readonly number[]): Spread | null {
  if (values.length === 0) return null;
  return { median: median(values), min: Math.min(...values), max: Math.max(...values) };
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  const upper = sorted[middle] ?? Number.NaN;
  if (sorted.length % 2 === 1) return upper;
  return ((sorted[middle - 1] ?? Number.NaN) + upper) / 2;
}

/** Nearest rank: percentile(values, 0.99) is the smallest value that 99 % of all values do not exceed. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = Float64Array.from(values).sort();
  const rank = Math.max(1, Math.ceil(share * sorted.length));
  return sorted[rank - 1] ?? Number.NaN;
}

/** Combines the values of the same round, so that a slow minute of the machine counts for both sides. */
export function pairRounds(
  ours: readonly number[],
  theirs: readonly number[],
  combine: (our: number, their: number) => number,
): number[] {
  const paired: number[] = [];
  for (const [round, our] of ours.entries()) {
    const their = theirs[round];
    if (their === undefined) continue;
    const value = combine(our, their);
    if (Number.isFinite(value)) paired.push(value);
  }
  return paired;
}
