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
  /** The text of one cell, which lies there and stays as it is. */
  addCell(bytes: Uint8Array, from: number, to: number): void;
  addHistogram(histogram: FirstBytes): void;
  /** Takes over what this one has gathered, too. */
  addTo(other: FirstByteGatherer): void;
  result(): FirstByte;
}

/** @param scratch empty, to count in and to be left so: the gatherers of one report share one. */
export function createGatherer(scratch: Counts = new Counts()): FirstByteGatherer {
  return new Gatherer(scratch);
}

/** Below this the buckets' own bound lies: a day is bucket 376. */
const MOST_BUCKETS = 512;
/** Bytes of text: about as many as counts take. */
const MOST_HELD = MOST_BUCKETS * 8;

/** So many in each bucket. */
export class Counts {
  // No Float64Array: until a loop is compiled, each number read from one is an object, and a report is over soon after.
  readonly #counts: number[] = Array(MOST_BUCKETS).fill(0);
  #first = MOST_BUCKETS;
  #last = -1;

  add(bucket: number, count: number): void {
    if (bucket >= MOST_BUCKETS) return;
    this.#counts[bucket] = (this.#counts[bucket] ?? 0) + count;
    if (bucket < this.#first) this.#first = bucket;
    if (bucket > this.#last) this.#last = bucket;
  }

  /** As it stands in a cell: `bucket:count bucket:count …`. */
  addText(bytes: Uint8Array, from: number, to: number): void {
    let bucket = 0;
    let number = 0;
    for (let at = from; at < to; at += 1) {
      const code = bytes[at] ?? 0;
      if (code >= ZERO && code <= NINE) number = number * 10 + code - ZERO;
      else {
        if (code === COLON) bucket = number;
        else if (number > 0) this.add(bucket, number);
        number = 0;
      }
    }
    if (number > 0) this.add(bucket, number);
  }

  addTo(other: FirstByteGatherer): void {
    for (let bucket = this.#first; bucket <= this.#last; bucket += 1) {
      const count = this.#counts[bucket] ?? 0;
      if (count > 0) other.addBucket(bucket, count);
    }
  }

  clear(): void {
    if (this.#last >= 0) this.#counts.fill(0, this.#first, this.#last + 1);
    this.#first = MOST_BUCKETS;
    this.#last = -1;
  }

  percentiles(): FirstByte {
    const [counts, last] = [this.#counts, this.#last];
    let total = 0;
    for (let bucket = this.#first; bucket <= last; bucket += 1) total += counts[bucket] ?? 0;
    if (total === 0) return { p50: null, p95: null };
    let bucket = this.#first;
    let seen = counts[bucket] ?? 0;
    const upTo = (share: number) => {
      const rank = Math.max(1, Math.ceil(total * share));
      while (seen < rank && bucket < last) {
        bucket += 1;
        seen += counts[bucket] ?? 0;
      }
      return Math.round(millisecondsOf(bucket));
    };
    return { p50: upTo(0.5), p95: upTo(0.95) };
  }
}

interface Text {
  readonly bytes: Uint8Array;
  readonly from: number;
  readonly to: number;
}

class Gatherer implements FirstByteGatherer {
  readonly #scratch: Counts;
  #times: number[] | null = null;
  #counts: Counts | null = null;
  /** Not counted yet: a long report has thousands of lines, most of which hold less than counts would take. */
  #texts: Text[] = [];
  #held = 0;
  /** What the texts alone amount to, where they were counted. */
  #counted: FirstByte | null = null;

  constructor(scratch: Counts) {
    this.#scratch = scratch;
  }

  add(milliseconds: number): void {
    this.#times ??= [];
    this.#times.push(milliseconds);
  }

  addBucket(bucket: number, count: number): void {
    this.#ownCounts().add(bucket, count);
  }

  addCell(bytes: Uint8Array, from: number, to: number): void {
    this.#counted = null;
    this.#texts.push({ bytes, from, to });
    this.#held += to - from;
    if (this.#held > MOST_HELD) this.#ownCounts();
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
    if (this.#counts !== null) this.#ownCounts().addTo(other);
    else this.#countTexts(other);
  }

  result(): FirstByte {
    const times = this.#times;
    if (times === null) {
      if (this.#counts !== null) return this.#ownCounts().percentiles();
      return this.#counted ?? this.#countTexts(null);
    }
    times.sort((a, b) => a - b);
    const at = (share: number) => times[Math.max(1, Math.ceil(times.length * share)) - 1] ?? null;
    return { p50: at(0.5), p95: at(0.95) };
  }

  /** With the texts in them. */
  #ownCounts(): Counts {
    this.#counts ??= new Counts();
    if (this.#texts.length === 0) return this.#counts;
    for (const { bytes, from, to } of this.#texts) this.#counts.addText(bytes, from, to);
    this.#texts = [];
    this.#held = 0;
    return this.#counts;
  }

  /** To count them takes longest, so that who asks for the sum of all lines first has the percentiles of each as well. */
  #countTexts(other: FirstByteGatherer | null): FirstByte {
    for (const { bytes, from, to } of this.#texts) this.#scratch.addText(bytes, from, to);
    const found = this.#scratch.percentiles();
    if (other !== null) this.#scratch.addTo(other);
    this.#scratch.clear();
    this.#counted = found;
    return found;
  }
}

const [ZERO, NINE, COLON] = [48, 57, 58];
