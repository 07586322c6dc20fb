import { DAY_MS, dayName, HOUR_MS, QUARTER_MS } from "../../../../core/units.ts";
import type { Bin } from "../../../api.ts";

/** A piece of time, milliseconds UTC; `until` is not part of it. */
export interface Span {
  readonly since: number;
  readonly until: number;
}

export const PRESETS = ["today", "7d", "30d", "month"] as const;
/** What a person chooses. Days are named as on the wall calendar, so that a link means the same days tomorrow. */
export type Period = (typeof PRESETS)[number] | `${string}..${string}`;

export const BINS: readonly Bin[] = ["hour", "day", "month"];

/** More bars than this are too thin to distinguish. */
const MAX_BINS = 800;
const LENGTH_MS: Readonly<Record<Bin, number>> = { hour: HOUR_MS, day: DAY_MS, month: 28 * DAY_MS };

/** Of the address; what cannot be read is the last seven days. */
export function readPeriod(text: string | null): Period {
  const preset = PRESETS.find((each) => each === text);
  if (preset !== undefined) return preset;
  const [from = "", to = "", ...more] = (text ?? "").split("..");
  if (more.length > 0 || !isDate(from) || !isDate(to)) return "7d";
  return from <= to ? `${from}..${to}` : `${to}..${from}`;
}

/**
 * Where a period begins and ends by this machine's calendar. The current day or month belongs to it as a whole, so that
 * bars do not jump as time goes on.
 */
export function spanOf(period: Period, now: number): Span {
  const today = dayName(now);
  if (period === "month") {
    const since = midnight(`${today.slice(0, "2026-11".length)}-01`);
    return { since, until: movedByMonths(since, 1) };
  }
  const days = DAYS[period];
  const [from = "", to = ""] = days === undefined ? period.split("..") : [dayAfter(today, 1 - days), today];
  return { since: midnight(from), until: midnight(dayAfter(to, 1)) };
}

const DAYS: Readonly<Partial<Record<Period, number>>> = { today: 1, "7d": 7, "30d": 30 };

/** Where the clocks skip midnight, Date gives the first moment there is. */
function midnight(name: string): number {
  return new Date(`${name}T00:00`).getTime();
}

function dayAfter(name: string, days: number): string {
  return dayName(moved(midnight(name), days));
}

/** The same time of another day, also if the clocks change in between. */
function moved(at: number, days: number): number {
  const date = new Date(at);
  return date.setDate(date.getDate() + days);
}

function movedByMonths(at: number, months: number): number {
  const date = new Date(at);
  return date.setMonth(date.getMonth() + months);
}

/** A day of the calendar, which 2026-02-30 is not. */
export function isDate(name: string): boolean {
  return name >= "1970-01-02" && dayName(midnight(name)) === name;
}

/** The days of a span, as two date fields show it. */
export function datesOf({ since, until }: Span): { readonly from: string; readonly to: string } {
  return { from: dayName(since), to: dayName(until - 1) };
}

/** Days at a change of the clocks are an hour shorter or longer. */
function daysIn({ since, until }: Span): number {
  return Math.round((until - since) / DAY_MS);
}

/**
 * The period before, as far as this one has passed, so that half a day is compared with half a day. null: too little has
 * passed. It ends at a quarter of an hour, so that it stays the same for a while.
 */
export function spanBefore(period: Period, span: Span, now: number): Span | null {
  const passed = Math.min(span.until, Math.floor(now / QUARTER_MS) * QUARTER_MS);
  if (passed <= span.since) return null;
  if (period === "month") {
    const since = movedByMonths(span.since, -1);
    return { since, until: Math.min(span.since, since + passed - span.since) };
  }
  const days = -daysIn(span);
  return { since: moved(span.since, days), until: moved(passed, days) };
}

/** The bins that a span of this length can be cut into without being too many, or only one. */
export function binsFor({ since, until }: Span): readonly Bin[] {
  const length = until - since;
  const fit = BINS.filter((bin) => length / LENGTH_MS[bin] <= MAX_BINS);
  return fit.filter((bin) => bin === fit[0] || length > LENGTH_MS[bin] * 1.1);
}

/** What is wished for, where it fits. Otherwise a day by its hours, and a year by its months. */
export function binFor(span: Span, wished: Bin | null): Bin {
  if (wished !== null && binsFor(span).includes(wished)) return wished;
  const days = daysIn(span);
  if (days <= 2) return "hour";
  return days < 100 ? "day" : "month";
}
