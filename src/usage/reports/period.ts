import { QUARTER_MS, quarterOf } from "../rollups.ts";
import type { Quarters } from "./calendar.ts";

/** From one time to another, in milliseconds UTC; `until` is not part of it. null: no bound on that side. */
export interface Period {
  readonly since: number | null;
  readonly until: number | null;
}

export const ALL_TIME: Period = { since: null, until: null };

/** How a period is read: whole quarter hours from the rollups, the rest from the records. */
export interface Range {
  /** Every quarter hour the period touches. */
  readonly outer: Quarters;
  /** Those that are in it as a whole. */
  readonly inner: Quarters;
  /** What remains at its ends, each less than a quarter hour. */
  readonly edges: readonly Period[];
}

const NOTHING: Quarters = { from: 0, to: 0 };

/** `extent` is where there are rollups. A period that begins earlier is cut to it: it may have thousands of empty days. */
export function rangeOf(extent: Quarters, { since, until }: Period, now: number): Range {
  // Records may be later than now if the clock was set back.
  const last = extent.to === 0 ? 0 : Math.max(quarterOf(now) + 1, extent.to);
  const from = Math.max(extent.from, (since ?? 0) / QUARTER_MS);
  const to = Math.min(last, (until ?? Number.POSITIVE_INFINITY) / QUARTER_MS);
  if (from >= to) return { outer: NOTHING, inner: NOTHING, edges: [] };
  const outer = { from: Math.floor(from), to: Math.ceil(to) };
  const inner = { from: Math.ceil(from), to: Math.floor(to) };
  if (inner.from > inner.to) return { outer, inner: NOTHING, edges: [{ since, until }] };
  const edges: Period[] = [];
  if (outer.from < inner.from) edges.push({ since, until: inner.from * QUARTER_MS });
  if (inner.to < outer.to) edges.push({ since: inner.to * QUARTER_MS, until });
  return { outer, inner, edges };
}

/* How people write a time: --since and --until. */

export type ParsedTime =
  | { readonly ok: true; readonly at: number }
  | { readonly ok: false; readonly reason: string };

const EXAMPLES =
  "write for example 7d, 12h, 30m, 2w, today, yesterday, monday, 10:07, 2026-11-01, 2026-11, 2026-11-01T10:07 or now";
const WEEKDAYS = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];
const ISO =
  /^(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?\s?(Z|[+-]\d\d(?::?\d\d)?)?$/i;

/** What a text stands for. A time begins and ends at the same millisecond; a day or a month does not. */
interface Named {
  readonly from: number;
  readonly to: number;
}

/** Where a period begins. Calendar words mean this machine's time zone. */
export function parseSince(text: string, now: number): ParsedTime {
  const named = parse(text.trim().toLowerCase(), now);
  return named === null ? unreadable("--since", text) : { ok: true, at: named.from };
}

/** Where a period ends. A day or a month belongs to it as a whole. */
export function parseUntil(text: string, now: number): ParsedTime {
  const named = parse(text.trim().toLowerCase(), now);
  return named === null ? unreadable("--until", text) : { ok: true, at: named.to };
}

function unreadable(option: string, text: string): ParsedTime {
  return { ok: false, reason: `${option}: "${text}" is no time. ${EXAMPLES}` };
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
  if (unit === "m" || unit === "min") return time(now - number * 60_000);
  if (unit === "h") return time(now - number * 3_600_000);
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

/** Date itself would take 2026-02-30 for the 2nd of March. */
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

/** From midnight to midnight. Where the clocks skip midnight, a Date begins with the first time there is. */
function day(year: number, month: number, date: number): Named {
  return { from: new Date(year, month, date).getTime(), to: new Date(year, month, date + 1).getTime() };
}
