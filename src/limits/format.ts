import type { Kind } from "./counters.ts";
import type { Calendar, LocalTime } from "./windows.ts";

/* Amounts, durations and times as people read them. */

/** 400,000 tokens, 60 requests, $5.00. The unit may be left out; money has none. */
export function amountInWords(kind: Kind, amount: number, unit = true): string {
  if (kind === "spend") return dollars(amount);
  const grouped = String(amount).replace(/\B(?=(?:\d{3})+$)/g, ",");
  if (!unit) return grouped;
  return `${grouped} ${amount === 1 ? kind.slice(0, -1) : kind}`;
}

/** An amount as an option of a command: 60, or dollars without the sign, rounded up to a cent. */
export function amountToType(kind: Kind, amount: number): string {
  return String(kind === "spend" ? Math.ceil(amount / 10_000) / 100 : amount);
}

/** In cents; below a cent with all its digits, or a small amount would read as nothing. */
function dollars(microdollars: number): string {
  const value = microdollars / 1_000_000;
  const isBelowCent = microdollars > 0 && microdollars < 10_000;
  return `$${isBelowCent ? value.toFixed(6).replace(/0{1,4}$/, "") : value.toFixed(2)}`;
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

/** In local time, as short as possible: at 14:05, tomorrow at 00:00, on 2026-12-01 at 00:00. */
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

/** Anything may have been sent as a model's name, and a terminal may show it. */
export function printableModel(model: string): string {
  const plain = model.replace(/[^\x20-\x7e]/g, "?");
  return plain.length > 100 ? `${plain.slice(0, 100)}…` : plain;
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
