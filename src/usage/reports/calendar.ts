import { QUARTER_MS } from "../rollups.ts";

/** Quarter hours since 1970; `to` is not part of them. */
export interface Quarters {
  readonly from: number;
  readonly to: number;
}

/** An hour, a day, a month or several of them, in this machine's time zone. */
export interface Interval extends Quarters {
  /** 2026-11, 2026-11-01, or 2026-11-01T02:00+01:00: the offset tells apart the hour that an autumn night has twice. */
  readonly name: string;
}

export type Unit = "hour" | "day" | "month";

/** Unit by unit; the first and the last are cut to the given quarters. */
export function intervalsOf(unit: Unit, { from, to }: Quarters): Interval[] {
  const intervals: Interval[] = [];
  for (let quarter = from; quarter < to; ) {
    const end = Math.min(to, Math.max(quarter + 1, endOf(unit, quarter)));
    intervals.push({ name: nameOf(unit, quarter * QUARTER_MS), from: quarter, to: end });
    quarter = end;
  }
  return intervals;
}

/** At most `max` intervals, each of equally many of the given ones. Only the first may have fewer. */
export function combined(intervals: readonly Interval[], max: number): Interval[] {
  const size = Math.ceil(intervals.length / max);
  const result: Interval[] = [];
  for (let end = intervals.length; end > 0; end -= size) {
    const first = intervals[Math.max(0, end - size)];
    const last = intervals[end - 1];
    if (first !== undefined && last !== undefined)
      result.unshift({ name: first.name, from: first.from, to: last.to });
  }
  return result;
}

/** The number of the first interval that ends after this quarter. */
export function intervalAt(intervals: readonly Quarters[], quarter: number): number {
  let low = 0;
  let high = intervals.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((intervals[middle]?.to ?? 0) <= quarter) low = middle + 1;
    else high = middle;
  }
  return low;
}

function endOf(unit: Unit, quarter: number): number {
  if (unit === "hour") return endOfHour(quarter);
  const date = new Date(quarter * QUARTER_MS);
  const year = date.getFullYear();
  const month = date.getMonth();
  const next = unit === "day" ? new Date(year, month, date.getDate() + 1) : new Date(year, month + 1, 1);
  return Math.ceil(next.getTime() / QUARTER_MS);
}

function endOfHour(quarter: number): number {
  const hour = hourAt(quarter);
  const minutes = new Date(quarter * QUARTER_MS).getMinutes();
  const usual = quarter + 4 - Math.floor(minutes / 15);
  if (hourAt(usual - 1) === hour) return usual;
  // The clocks change within it.
  let end = quarter + 1;
  while (hourAt(end) === hour) end += 1;
  return end;
}

/** A number that changes with every local hour, and when the clocks change. */
function hourAt(quarter: number): number {
  const date = new Date(quarter * QUARTER_MS);
  return date.getHours() + date.getTimezoneOffset() * 24;
}

function nameOf(unit: Unit, at: number): string {
  if (unit === "hour") return `${dayName(at)}T${two(new Date(at).getHours())}:00${offsetName(at)}`;
  return unit === "day" ? dayName(at) : dayName(at).slice(0, 7);
}

/** 2026-11-01 */
export function dayName(at: number): string {
  const date = new Date(at);
  return `${String(date.getFullYear()).padStart(4, "0")}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

/** +01:00 */
export function offsetName(at: number): string {
  const minutes = -new Date(at).getTimezoneOffset();
  const size = Math.abs(minutes);
  return `${minutes < 0 ? "-" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}

/** 2026-11-01 02:03:04, in local time. */
export function localTime(at: number): string {
  const date = new Date(at);
  return `${dayName(at)} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** The local midnight at or before this time. */
export function startOfDay(at: number): number {
  const date = new Date(at);
  return new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime();
}

function two(number: number): string {
  return String(number).padStart(2, "0");
}
