import { type FirstBytes, millisecondsOf } from "../ledger/first-bytes.ts";

/** How long the first byte took, half and nineteen of twenty times at most. Milliseconds; null: there was none. */
export interface FirstByte {
  readonly p50: number | null;
  readonly p95: number | null;
}

/** Gathers first bytes: one by one, which is exact, or from the cells' histograms, which is within 5 %. */
export interface FirstByteGatherer {
  add(milliseconds: number): void;
  /** So many in a bucket of a histogram. */
  addBucket(bucket: number, count: number): void;
  addCells(text: string): void;
  addHistogram(histogram: FirstBytes): void;
  /** Takes over what this one has gathered, too. */
  addTo(other: FirstByteGatherer): void;
  result(): FirstByte;
}

/** Below this the buckets' own bound lies: a day is bucket 376. */
const MOST_BUCKETS = 512;

/** @param scratch all zero, to count in and to be left so: the gatherers of one report share one. */
export function createGatherer(scratch: Float64Array = scratchCounts()): FirstByteGatherer {
  return new Gatherer(scratch);
}

export function scratchCounts(): Float64Array {
  return new Float64Array(MOST_BUCKETS);
}

class Gatherer implements FirstByteGatherer {
  readonly #scratch: Float64Array;
  #times: number[] | null = null;
  /**
   * Each a bucket and, times MOST_BUCKETS, its count: a long report has thousands of lines, most of which hold little.
   * Where they are more than buckets, these take less room.
   */
  #pairs: number[] = [];
  #counts: Float64Array | null = null;

  constructor(scratch: Float64Array) {
    this.#scratch = scratch;
  }

  add(milliseconds: number): void {
    this.#times ??= [];
    this.#times.push(milliseconds);
  }

  addBucket(bucket: number, count: number): void {
    if (bucket >= MOST_BUCKETS) return;
    if (this.#counts !== null) {
      this.#counts[bucket] = (this.#counts[bucket] ?? 0) + count;
      return;
    }
    this.#pairs.push(count * MOST_BUCKETS + bucket);
    if (this.#pairs.length < MOST_BUCKETS) return;
    const counts = scratchCounts();
    addPairs(counts, this.#pairs);
    this.#counts = counts;
    this.#pairs = [];
  }

  /** The text of many cells has millions of characters, which a regular expression takes ten times as long for. */
  addCells(text: string): void {
    let bucket = 0;
    let number = 0;
    for (let at = 0; at <= text.length; at += 1) {
      const code = at < text.length ? text.charCodeAt(at) : 0;
      if (code >= ZERO && code <= NINE) number = number * 10 + code - ZERO;
      else if (code === COLON) {
        bucket = number;
        number = 0;
      } else {
        if (number > 0) this.addBucket(bucket, number);
        number = 0;
      }
    }
  }

  addHistogram(histogram: FirstBytes): void {
    for (const [bucket, count] of histogram) this.addBucket(bucket, count);
  }

  addTo(other: FirstByteGatherer): void {
    for (const time of this.#times ?? []) other.add(time);
    for (const pair of this.#pairs) other.addBucket(pair % MOST_BUCKETS, Math.floor(pair / MOST_BUCKETS));
    this.#counts?.forEach((count, bucket) => {
      if (count > 0) other.addBucket(bucket, count);
    });
  }

  result(): FirstByte {
    const times = this.#times;
    if (times === null) return this.#fromHistogram();
    times.sort((a, b) => a - b);
    const at = (share: number) => times[Math.max(1, Math.ceil(times.length * share)) - 1] ?? null;
    return { p50: at(0.5), p95: at(0.95) };
  }

  #fromHistogram(): FirstByte {
    if (this.#counts !== null) return percentilesOf(this.#counts, MOST_BUCKETS - 1);
    const last = addPairs(this.#scratch, this.#pairs);
    const found = percentilesOf(this.#scratch, last);
    this.#scratch.fill(0, 0, last + 1);
    return found;
  }
}

/** The last bucket there was. */
function addPairs(counts: Float64Array, pairs: readonly number[]): number {
  let last = 0;
  for (const pair of pairs) {
    const bucket = pair % MOST_BUCKETS;
    counts[bucket] = (counts[bucket] ?? 0) + Math.floor(pair / MOST_BUCKETS);
    if (bucket > last) last = bucket;
  }
  return last;
}

function percentilesOf(counts: Float64Array, last: number): FirstByte {
  let total = 0;
  for (let bucket = 0; bucket <= last; bucket += 1) total += counts[bucket] ?? 0;
  if (total === 0) return { p50: null, p95: null };
  const at = (share: number) => {
    const rank = Math.max(1, Math.ceil(total * share));
    let bucket = 0;
    for (let seen = counts[0] ?? 0; seen < rank && bucket < last; seen += counts[bucket] ?? 0) bucket += 1;
    return Math.round(millisecondsOf(bucket));
  };
  return { p50: at(0.5), p95: at(0.95) };
}

const [ZERO, NINE, COLON] = [48, 57, 58];
