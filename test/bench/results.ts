/** Everything one run measured: for each measure and candidate one value a round, in the order of the rounds. */
export class Results {
  readonly #series = new Map<string, Series>();

  add(measure: string, candidate: string, value: number, failed = 0): void {
    const key = `${measure}\n${candidate}`;
    const series = this.#series.get(key) ?? { measure, candidate, rounds: [], failed: 0 };
    series.rounds.push(value);
    series.failed += failed;
    this.#series.set(key, series);
  }

  /** In the order in which they were measured first. */
  all(): readonly Series[] {
    return [...this.#series.values()];
  }

  /** Empty when it was not measured. */
  rounds(measure: string, candidate: string): readonly number[] {
    return this.#series.get(`${measure}\n${candidate}`)?.rounds ?? [];
  }
}

export interface Series {
  readonly measure: string;
  readonly candidate: string;
  readonly rounds: number[];
  /** Requests or streams that were not answered completely. */
  failed: number;
}

export interface Spread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

/** null without values. */
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

/** Nearest rank: the smallest value that this share of all values does not exceed. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = Float64Array.from(values).sort();
  const rank = Math.max(1, Math.ceil(share * sorted.length));
  return sorted[rank - 1] ?? Number.NaN;
}
