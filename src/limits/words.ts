import type { Kind } from "./shortage.ts";
import type { Calendar, LocalTime } from "./windows.ts";

/** 400,000 tokens, 60 requests, $5.00. The unit may be left out; money has none. */
export function amountInWords(kind: Kind, amount: number, unit = true): string {
  if (kind === "spend") return dollars(amount);
  const grouped = String(amount).replace(/\B(?=(?:\d{3})+$)/g, ",");
  if (!unit) return grouped;
  return `${grouped} ${amount === 1 ? kind.slice(0, -1) : kind}`;
}

/** In cents; below a cent with all its digits, or a small amount would read as nothing. */
function dollars(microdollars: number): string {
  const exact = (microdollars / 1_000_000).toFixed(6).replace(/0{1,4}$/, "");
  return `$${microdollars >= 10_000 || microdollars === 0 ? (microdollars / 1_000_000).toFixed(2) : exact}`;
}

/** Rounded up: a retry after that time finds capacity. */
export function durationInWords(ms: number): string {
  const seconds = Math.max(1, Math.ceil(ms / 1000));
  if (seconds < 120) return `${seconds} s`;
  const minutes = Math.ceil(seconds / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 === 0 ? `${hours} h` : `${hours} h ${minutes % 60} min`;
  return `${Math.ceil(hours / 24)} days`;
}

/** Local time, as short as it can be: at 14:05, tomorrow at 00:00, on 2026-12-01 at 00:00. */
export function momentInWords(time: number, now: number, calendar: Calendar): string {
  const then = calendar.at(time);
  const today = calendar.at(now);
  const clock = `at ${timeInWords(then)}`;
  if (sameDay(then, today)) return clock;
  const tomorrow = calendar.at(calendar.dayStart(today.year, today.month, today.day + 1));
  if (sameDay(then, tomorrow)) return `tomorrow ${clock}`;
  return `on ${dateInWords(then)} ${clock}`;
}

/**
 * The end of something, local time: 2026-11-15 18:00, or the end of 2026-11-15. A date in config.yaml or on the command line
 * includes that day, so midnight is shown as the end of the day before.
 */
export function endInWords(time: number, calendar: Calendar): string {
  const end = calendar.at(time);
  if (calendar.dayStart(end.year, end.month, end.day) === time)
    return `the end of ${dateInWords(calendar.at(time - 1))}`;
  return `${dateInWords(end)} ${timeInWords(end)}`;
}

/** As Go writes durations: 120ms, 6s, 6m0s, 24h0m0s. */
export function goDuration(ms: number): string {
  if (ms < 1000) return `${Math.max(0, Math.ceil(ms))}ms`;
  const seconds = Math.ceil(ms / 1000);
  const h = Math.floor(seconds / 3600);
  const m = Math.floor(seconds / 60) % 60;
  const s = seconds % 60;
  if (h > 0) return `${h}h${m}m${s}s`;
  return m > 0 ? `${m}m${s}s` : `${s}s`;
}

function dateInWords({ year, month, day }: LocalTime): string {
  return `${year}-${two(month)}-${two(day)}`;
}

function timeInWords({ hour, minute, second }: LocalTime): string {
  return `${two(hour)}:${two(minute)}${second === 0 ? "" : `:${two(second)}`}`;
}

function two(n: number): string {
  return String(n).padStart(2, "0");
}

function sameDay(a: LocalTime, b: LocalTime): boolean {
  return a.year === b.year && a.month === b.month && a.day === b.day;
}
