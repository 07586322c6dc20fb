import { type FirstBytes, mergeFirstBytes, percentile } from "../ledger/first-bytes.ts";

/** How long the first byte took, half and nineteen of twenty times at most. Milliseconds; null: there was none. */
export interface FirstByte {
  readonly p50: number | null;
  readonly p95: number | null;
}

/** Gathers first bytes: one by one, which is exact, or from the cells' histograms, which is within 5 %. */
export interface FirstByteGatherer {
  add(milliseconds: number): void;
  addCells(text: string): void;
  addHistogram(histogram: FirstBytes): void;
  /** Takes over what this one has gathered, too. */
  addTo(other: FirstByteGatherer): void;
  result(): FirstByte;
}

export function createGatherer(): FirstByteGatherer {
  const times: number[] = [];
  const histogram: FirstBytes = new Map();

  function result(): FirstByte {
    if (times.length === 0) {
      const [p50, p95] = [percentile(histogram, 0.5), percentile(histogram, 0.95)];
      return { p50: p50 === null ? null : Math.round(p50), p95: p95 === null ? null : Math.round(p95) };
    }
    times.sort((a, b) => a - b);
    const at = (share: number) => times[Math.max(1, Math.ceil(times.length * share)) - 1] ?? null;
    return { p50: at(0.5), p95: at(0.95) };
  }

  return {
    add: (milliseconds) => void times.push(milliseconds),
    addCells: (text) => readInto(histogram, text),
    addHistogram: (more) => mergeFirstBytes(histogram, more),
    addTo(other) {
      for (const time of times) other.add(time);
      other.addHistogram(histogram);
    },
    result,
  };
}

const [ZERO, NINE, COLON] = [48, 57, 58];
/** Above this the buckets' own bound lies: a day is bucket 375. */
const MOST_BUCKETS = 1024;

/** The text of many cells has millions of characters, which a regular expression takes ten times as long for. */
function readInto(histogram: FirstBytes, text: string): void {
  const counts = text.length > MOST_BUCKETS ? new Float64Array(MOST_BUCKETS) : null;
  let bucket = 0;
  let number = 0;
  for (let at = 0; at <= text.length; at += 1) {
    const code = at < text.length ? text.charCodeAt(at) : 0;
    if (code >= ZERO && code <= NINE) number = number * 10 + code - ZERO;
    else if (code === COLON) {
      bucket = number;
      number = 0;
    } else {
      if (number > 0 && bucket < MOST_BUCKETS) {
        if (counts === null) histogram.set(bucket, (histogram.get(bucket) ?? 0) + number);
        else counts[bucket] = (counts[bucket] ?? 0) + number;
      }
      number = 0;
    }
  }
  counts?.forEach((count, at) => {
    if (count > 0) histogram.set(at, (histogram.get(at) ?? 0) + count);
  });
}
