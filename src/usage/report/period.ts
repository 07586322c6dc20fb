/** A piece of time, milliseconds UTC; `until` is not part of it. null: no bound on that side. */
export interface Period {
  readonly since: number | null;
  readonly until: number | null;
}

export type Moment =
  | { readonly ok: true; readonly at: number }
  | { readonly ok: false; readonly reason: string };

const EXAMPLES =
  "write for example 7d, 12h, 30m, 2w, today, yesterday, monday, 10:07, 2026-11-01, 2026-11, 2026-11-01T10:07 or now";
const WEEKDAYS = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];
const ISO =
  /^(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?\s?(Z|[+-]\d\d(?::?\d\d)?)?$/i;

interface Span {
  readonly from: number;
  /** Where a whole day or month was named: its end. */
  readonly to: number;
}

/** Where a period begins. Calendar words mean this machine's time zone. */
export function parseSince(text: string, now: number): Moment {
  const span = spanOf(text.trim().toLowerCase(), now);
  return span === null ? unreadable("--since", text) : { ok: true, at: span.from };
}

/** Where a period ends: a time is its end, a day or a month belongs to it whole. */
export function parseUntil(text: string, now: number): Moment {
  const span = spanOf(text.trim().toLowerCase(), now);
  return span === null ? unreadable("--until", text) : { ok: true, at: span.to };
}

function unreadable(option: string, text: string): Moment {
  return { ok: false, reason: `${option}: "${text}" is no time. ${EXAMPLES}` };
}

function spanOf(text: string, now: number): Span | null {
  if (text === "now") return moment(now);
  return agoOf(text, now) ?? dayWord(text, now) ?? timeToday(text, now) ?? dateOf(text) ?? isoOf(text);
}

/** Days and weeks go by the calendar: at the change of the clocks, a day ago is the same time of day. */
function agoOf(text: string, now: number): Span | null {
  const [, count, unit] = /^(\d{1,6})\s?(m|min|h|d|w)$/.exec(text) ?? [];
  if (count === undefined) return null;
  const number = Number(count);
  if (unit === "m" || unit === "min") return moment(now - number * 60_000);
  if (unit === "h") return moment(now - number * 3_600_000);
  const date = new Date(now);
  date.setDate(date.getDate() - number * (unit === "w" ? 7 : 1));
  return moment(date.getTime());
}

function dayWord(text: string, now: number): Span | null {
  const date = new Date(now);
  const weekday = WEEKDAYS.findIndex((name) => name === text || name.slice(0, 3) === text);
  const back = weekday === -1 ? ["today", "yesterday"].indexOf(text) : (date.getDay() - weekday + 7) % 7;
  if (back === -1) return null;
  return day(date.getFullYear(), date.getMonth(), date.getDate() - back);
}

function timeToday(text: string, now: number): Span | null {
  const [, hours, minutes] = /^([01]?\d|2[0-3]):([0-5]\d)$/.exec(text) ?? [];
  if (hours === undefined) return null;
  const date = new Date(now);
  return moment(date.setHours(Number(hours), Number(minutes), 0, 0));
}

function dateOf(text: string): Span | null {
  const [, year, month, dayOfMonth] = /^(\d{4})-(\d\d)(?:-(\d\d))?$/.exec(text) ?? [];
  if (year === undefined || !isDate(year, month, dayOfMonth ?? "01")) return null;
  const [y, m] = [Number(year), Number(month) - 1];
  if (dayOfMonth !== undefined) return day(y, m, Number(dayOfMonth));
  return { from: new Date(y, m, 1).getTime(), to: new Date(y, m + 1, 1).getTime() };
}

function isoOf(text: string): Span | null {
  const [, year, month, dayOfMonth, hours, minutes, seconds = "00", fraction = "0", zone] =
    ISO.exec(text) ?? [];
  if (year === undefined || !isDate(year, month, dayOfMonth)) return null;
  if (Number(hours) > 23 || Number(minutes) > 59 || Number(seconds) > 59) return null;
  const local = `${year}-${month}-${dayOfMonth}T${hours}:${minutes}:${seconds}.${fraction.padEnd(3, "0").slice(0, 3)}`;
  const at = new Date(`${local}${zoneOf(zone)}`).getTime();
  return Number.isNaN(at) ? null : moment(at);
}

function zoneOf(zone: string | undefined): string {
  if (zone === undefined) return "";
  if (zone === "z") return "Z";
  return `${zone.slice(0, 3)}:${zone.slice(3).replace(":", "").padEnd(2, "0")}`;
}

/** 2026-02-30 would quietly become the 2nd of March. */
function isDate(year: string, month: string | undefined, dayOfMonth: string | undefined): boolean {
  const date = new Date(Date.UTC(Number(year), Number(month) - 1, Number(dayOfMonth)));
  return (
    Number(year) >= 1970 &&
    date.getUTCMonth() + 1 === Number(month) &&
    date.getUTCDate() === Number(dayOfMonth)
  );
}

function moment(at: number): Span {
  return { from: at, to: at };
}

/** From midnight to midnight, or where the clocks skip midnight, from the first moment there is. */
function day(year: number, month: number, date: number): Span {
  return { from: new Date(year, month, date).getTime(), to: new Date(year, month, date + 1).getTime() };
}
