import { type Failed, failed } from "../../core/display.ts";
import { dayName, HOUR_MS, MINUTE_MS, QUARTER_MS, twoDigits } from "../../core/units.ts";

/* Periods, and the hours, days and months of this machine's time zone. */

/** From one time to another, in milliseconds UTC; `until` is not part of it. null: no bound on that side. */
export interface Period {
  readonly since: number | null;
  readonly until: number | null;
}

export const ALL_TIME: Period = { since: null, until: null };

/** Quarter hours since 1970; `to` is not part of them. */
export interface Quarters {
  readonly from: number;
  readonly to: number;
}

/** An hour, a day, a month or several of them, in this machine's time zone. */
export interface Interval extends Quarters {
  /** 2026-11, 2026-11-01, or 2026-11-01T02:00+01:00. When clocks go back, one hour occurs twice, with two offsets. */
  readonly name: string;
}

export type Unit = "hour" | "day" | "month";

/** All units that these quarters touch; the first and the last are cut to them. */
export function listIntervals(unit: Unit, { from, to }: Quarters): Interval[] {
  const intervals: Interval[] = [];
  for (let quarter = from; quarter < to; ) {
    const end = Math.min(to, Math.max(quarter + 1, findEnd(unit, quarter)));
    intervals.push({ name: formatName(unit, quarter * QUARTER_MS), from: quarter, to: end });
    quarter = end;
  }
  return intervals;
}

/** Combines intervals into at most `max`, each of the same number of them; only the first may have fewer. */
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

function findEnd(unit: Unit, quarter: number): number {
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
  // The clocks change within this hour.
  let end = quarter + 1;
  while (hourAt(end) === hour) end += 1;
  return end;
}

/** A number that changes with every local hour, and when the clocks change. */
function hourAt(quarter: number): number {
  const date = new Date(quarter * QUARTER_MS);
  return date.getHours() + date.getTimezoneOffset() * 24;
}

function formatName(unit: Unit, at: number): string {
  if (unit === "hour") return `${dayName(at)}T${twoDigits(new Date(at).getHours())}:00${offsetName(at)}`;
  return unit === "day" ? dayName(at) : dayName(at).slice(0, 7);
}

/** +01:00 */
export function offsetName(at: number): string {
  const minutes = -new Date(at).getTimezoneOffset();
  const size = Math.abs(minutes);
  return `${minutes < 0 ? "-" : "+"}${twoDigits(Math.floor(size / 60))}:${twoDigits(size % 60)}`;
}

/** The local midnight at or before this time. */
export function startOfDay(at: number): number {
  const date = new Date(at);
  return new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime();
}

/* How people write a time: --since and --until. */

type ParsedTime = { readonly ok: true; readonly at: number } | Failed;

const EXAMPLES =
  "write for example 7d, 12h, 30m, 2w, today, yesterday, monday, 10:07, 2026-11-01, 2026-11, 2026-11-01T10:07 or now";
const WEEKDAYS = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];
const ISO =
  /^(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?\s?(Z|[+-]\d\d(?::?\d\d)?)?$/i;

/** A time, whose two ends are the same, or a whole day or month. */
interface Named {
  readonly from: number;
  readonly to: number;
}

/** The start of a period. Days and months are those of this machine's time zone. */
export function parseSince(text: string, now: number): ParsedTime {
  const named = parse(text.trim().toLowerCase(), now);
  return named === null ? unreadable("--since", text) : { ok: true, at: named.from };
}

/** The end of a period. A day or a month is included as a whole. */
export function parseUntil(text: string, now: number): ParsedTime {
  const named = parse(text.trim().toLowerCase(), now);
  return named === null ? unreadable("--until", text) : { ok: true, at: named.to };
}

function unreadable(option: string, text: string): ParsedTime {
  return failed(`${option}: "${text}" is not a time`, EXAMPLES);
}

function parse(text: string, now: number): Named | null {
  if (text === "now") return time(now);
  return (
    parseAgo(text, now) ??
    parseDayWord(text, now) ??
    parseTimeOfDay(text, now) ??
    parseDate(text) ??
    parseIso(text)
  );
}

/** Days and weeks go by the calendar: a day ago is the same time of day, even if the clocks changed since. */
function parseAgo(text: string, now: number): Named | null {
  const [, count, unit] = /^(\d{1,6})\s?(m|min|h|d|w)$/.exec(text) ?? [];
  if (count === undefined) return null;
  const number = Number(count);
  if (unit === "m" || unit === "min") return time(now - number * MINUTE_MS);
  if (unit === "h") return time(now - number * HOUR_MS);
  const date = new Date(now);
  date.setDate(date.getDate() - number * (unit === "w" ? 7 : 1));
  return time(date.getTime());
}

function parseDayWord(text: string, now: number): Named | null {
  const date = new Date(now);
  const weekday = WEEKDAYS.findIndex((name) => name === text || name.slice(0, 3) === text);
  const back = weekday === -1 ? ["today", "yesterday"].indexOf(text) : (date.getDay() - weekday + 7) % 7;
  if (back === -1) return null;
  return day(date.getFullYear(), date.getMonth(), date.getDate() - back);
}

function parseTimeOfDay(text: string, now: number): Named | null {
  const [, hours, minutes] = /^([01]?\d|2[0-3]):([0-5]\d)$/.exec(text) ?? [];
  if (hours === undefined) return null;
  return time(new Date(now).setHours(Number(hours), Number(minutes), 0, 0));
}

function parseDate(text: string): Named | null {
  const [, year, month, dayOfMonth] = /^(\d{4})-(\d\d)(?:-(\d\d))?$/.exec(text) ?? [];
  if (year === undefined || !isDate(year, month, dayOfMonth ?? "01")) return null;
  const monthIndex = Number(month) - 1;
  if (dayOfMonth !== undefined) return day(Number(year), monthIndex, Number(dayOfMonth));
  return {
    from: new Date(Number(year), monthIndex, 1).getTime(),
    to: new Date(Number(year), monthIndex + 1, 1).getTime(),
  };
}

function parseIso(text: string): Named | null {
  const [, year, month, dayOfMonth, hours, minutes, seconds = "00", fraction = "0", zone] =
    ISO.exec(text) ?? [];
  if (year === undefined || !isDate(year, month, dayOfMonth)) return null;
  if (Number(hours) > 23 || Number(minutes) > 59 || Number(seconds) > 59) return null;
  const milliseconds = fraction.padEnd(3, "0").slice(0, 3);
  const local = `${year}-${month}-${dayOfMonth}T${hours}:${minutes}:${seconds}.${milliseconds}`;
  const at = new Date(`${local}${isoZone(zone)}`).getTime();
  return Number.isNaN(at) ? null : time(at);
}

function isoZone(zone: string | undefined): string {
  if (zone === undefined) return "";
  if (zone === "z") return "Z";
  return `${zone.slice(0, 3)}:${zone.slice(3).replace(":", "").padEnd(2, "0")}`;
}

/** Date would read 2026-02-30 as the 2nd of March. */
function isDate(year: string, month: string | undefined, dayOfMonth: string | undefined): boolean {
  const date = new Date(Date.UTC(Number(year), Number(month) - 1, Number(dayOfMonth)));
  return (
    Number(year) >= 1970 &&
    date.getUTCMonth() + 1 === Number(month) &&
    date.getUTCDate() === Number(dayOfMonth)
  );
}

function time(at: number): Named {
  return { from: at, to: at };
}

/** From midnight to midnight. If the clocks skip midnight, Date gives the first time that exists. */
function day(year: number, month: number, date: number): Named {
  return { from: new Date(year, month, date).getTime(), to: new Date(year, month, date + 1).getTime() };
}
