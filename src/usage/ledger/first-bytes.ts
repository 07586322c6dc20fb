/**
 * How long first bytes took, as a sparse histogram: so many per bucket, buckets 5 % apart, which is as exact as a
 * percentile of a summary has to be. Kept as text: `bucket:count bucket:count …`, smallest first.
 */
export type FirstBytes = Map<number, number>;

const STEP = Math.log(1.05);
/** Above a day is a day: keeps the number of buckets bounded whatever a clock does. */
const LONGEST_MS = 86_400_000;

export function bucketOf(milliseconds: number): number {
  if (!(milliseconds >= 1)) return 0;
  return 1 + Math.round(Math.log(Math.min(milliseconds, LONGEST_MS)) / STEP);
}

/** The middle of a bucket. */
export function millisecondsOf(bucket: number): number {
  return bucket <= 0 ? 0 : Math.exp((bucket - 1) * STEP);
}

/** What cannot be read is left out: a summary is no reason to fail. */
export function readFirstBytes(text: string): FirstBytes {
  const found: FirstBytes = new Map();
  for (const [, bucket, count] of text.matchAll(/(\d{1,4}):(\d{1,15})/g)) {
    addTo(found, Number(bucket), Number(count));
  }
  return found;
}

export function writeFirstBytes(histogram: FirstBytes): string {
  return [...histogram]
    .filter(([, count]) => count > 0)
    .sort(([a], [b]) => a - b)
    .map(([bucket, count]) => `${bucket}:${count}`)
    .join(" ");
}

/** Adds one to the other, which it changes; `times` -1 takes it out again. */
export function mergeFirstBytes(into: FirstBytes, from: ReadonlyMap<number, number>, times = 1): void {
  for (const [bucket, count] of from) addTo(into, bucket, count * times);
}

/** The value below which this share lies (0.5 for the median); null where nothing was counted. */
export function percentile(histogram: ReadonlyMap<number, number>, share: number): number | null {
  const buckets = [...histogram].filter(([, count]) => count > 0).sort(([a], [b]) => a - b);
  const total = buckets.reduce((sum, [, count]) => sum + count, 0);
  const rank = Math.max(1, Math.ceil(total * share));
  let seen = 0;
  for (const [bucket, count] of buckets) {
    seen += count;
    if (seen >= rank) return millisecondsOf(bucket);
  }
  return null;
}

/** Counts so many into a bucket. */
export function addTo(histogram: FirstBytes, bucket: number, count: number): void {
  histogram.set(bucket, (histogram.get(bucket) ?? 0) + count);
}
