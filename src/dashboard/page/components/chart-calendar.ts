import type { Bin } from "../../api.ts";

/** Bins that cover a whole period, and where each of the given ones belongs among them. */
export interface Frame {
  readonly bins: readonly number[];
  readonly end: number;
  /** For each given bin, its place. */
  readonly paths: readonly number[];
}

export interface Given {
  readonly bins: readonly number[];
  readonly end: number | null;
}

/** A list this long is a mistake, not a period. */
const MOST = 2400;

/**
 * The daemon's bins begin with the first record and its first quarter of an hour. A chart of a week shows the whole week,
 * so they are put into the week's own bins. `own` says whether this browser goes by the daemon's time zone: where it
 * does not, whole days here are none there, and the daemon's bins stay as they are.
 */
export function framed(given: Given, span: { since: number; until: number }, bin: Bin, own: boolean): Frame {
  const bins = own ? calendarBins(span.since, span.until, bin) : given.bins;
  if (!own || bins.length === 0) {
    const end = given.end ?? span.until;
    return { bins: given.bins, end, paths: given.bins.map((_, at) => at) };
  }
  return { bins, end: span.until, paths: given.bins.map((at) => placeOf(bins, at)) };
}

/** One number for each bin of the frame. */
export function spread(values: readonly number[], { bins, paths }: Frame): number[] {
  const all = bins.map(() => 0);
  for (const [at, value] of values.entries()) {
    const place = paths[at] ?? -1;
    if (place >= 0) all[place] = (all[place] ?? 0) + value;
  }
  return all;
}

/** The local hours, days or months from one time to another, the first one cut. */
export function calendarBins(since: number, until: number, bin: Bin): number[] {
  const bins: number[] = [];
  for (let at = since; at < until && bins.length < MOST; at = nextOf(at, bin)) bins.push(at);
  return bins;
}

/** Where the next one begins. Where the clocks go back an hour is there twice, so hours are added, not counted. */
function nextOf(at: number, bin: Bin): number {
  const date = new Date(at);
  if (bin === "hour") {
    // In a zone that is half an hour off, an hour begins at half past by UTC.
    const into = date.getMinutes() * 60_000 + date.getSeconds() * 1000 + date.getMilliseconds();
    return at + 3_600_000 - into;
  }
  const next =
    bin === "day"
      ? new Date(date.getFullYear(), date.getMonth(), date.getDate() + 1)
      : new Date(date.getFullYear(), date.getMonth() + 1, 1);
  // A day that a zone left out (Samoa, 2011) ends no earlier than it begins.
  return Math.max(next.getTime(), at + 3_600_000);
}

/** The last bin that begins no later. */
function placeOf(bins: readonly number[], at: number): number {
  let low = 0;
  let high = bins.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((bins[middle] ?? 0) <= at) low = middle + 1;
    else high = middle;
  }
  return Math.max(0, low - 1);
}

/** Which bins get a label below the axis, so that they do not touch: every one, or every second, or so. */
export function labelled(count: number, width: number, each: number): number[] {
  const room = Math.max(1, Math.floor(width / each));
  const step = STEPS.find((one) => Math.ceil(count / one) <= room) ?? Math.ceil(count / room);
  return Array.from({ length: Math.ceil(count / step) }, (_, at) => at * step);
}

/** What divides hours, weeks and years without a rest. */
const STEPS = [1, 2, 3, 4, 6, 7, 12, 14, 24, 28, 48, 84, 168];
