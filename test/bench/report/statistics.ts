/** One number a round, as it is told. */
export interface Spread {
  readonly median: number;
  readonly least: number;
  readonly most: number;
}

/** The value below which that share lies; NaN of nothing. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  const at = Math.min(sorted.length - 1, Math.max(0, Math.ceil(share * sorted.length) - 1));
  return sorted[at] ?? Number.NaN;
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  const [low, high] = [sorted[middle - 1] ?? Number.NaN, sorted[middle] ?? Number.NaN];
  return sorted.length % 2 === 1 ? high : (low + high) / 2;
}

/** null of nothing. */
export function spread(values: readonly number[]): Spread | null {
  if (values.length === 0) return null;
  return { median: median(values), least: Math.min(...values), most: Math.max(...values) };
}

/** Each round's own quotient: what slows the whole machine down for a while slows both down. */
export function quotients(above: readonly number[], below: readonly number[]): number[] {
  return above.slice(0, below.length).map((value, round) => value / (below[round] ?? Number.NaN));
}
