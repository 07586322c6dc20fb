import { DAY_MS, dayName, HOUR_MS, QUARTER_MS } from "../../../../core/units.ts";
import type { Bin } from "../../../api.ts";

/** A piece of time, milliseconds UTC; `until` is not part of it. */
export interface Span {
  readonly since: number;
  readonly until: number;
}

/** What a person chooses. Days are named as on the wall calendar, so that a link means the same days tomorrow. */
export type Period =
  | { readonly kind: "today" | "7d" | "30d" | "month" }
  | { readonly kind: "custom"; readonly from: string; readonly to: string };

export const PRESETS = ["today", "7d", "30d", "month"] as const;
export const BINS: readonly Bin[] = ["hour", "day", "month"];

/** More bars than this are too thin to distinguish. */
const MAX_BINS = 800;
const LENGTH_MS: Readonly<Record<Bin, number>> = { hour: HOUR_MS, day: DAY_MS, month: 28 * DAY_MS };

/**
 * Where a period begins and ends by this machine's calendar. The current day or month belongs to it as a whole, so that
 * bars do not jump as time goes on.
 */
export function spanOf(period: Period, now: number): Span {
  if (period.kind === "custom") return { since: midnight(period.from), until: nextDay(midnight(period.to)) };
  if (period.kind !== "month") return daysUntil(now, DAYS[period.kind]);
  const today = new Date(now);
  const begin = (month: number) => new Date(today.getFullYear(), month, 1).getTime();
  return { since: begin(today.getMonth()), until: begin(today.getMonth() + 1) };
}

const DAYS = { today: 1, "7d": 7, "30d": 30 } as const;

function daysUntil(now: number, days: number): Span {
  const until = nextDay(midnight(dayName(now)));
  return { since: moved(until, -days), until };
}

/** Where the clocks skip midnight, Date gives the first moment there is. */
function midnight(name: string): number {
  return new Date(`${name}T00:00`).getTime();
}

function nextDay(at: number): number {
  return midnight(dayName(moved(at, 1)));
}

/** The same time of another day, also if the clocks change in between. */
function moved(at: number, days: number): number {
  const date = new Date(at);
  date.setDate(date.getDate() + days);
  return date.getTime();
}

/** A day of the calendar, which 2026-02-30 is not. */
export function isDate(name: string): boolean {
  const at = Date.parse(`${name}T00:00Z`);
  return (
    /^(?:19[7-9]|[2-9]\d\d)\d-\d\d-\d\d$/.test(name) && at >= 0 && new Date(at).toISOString().startsWith(name)
  );
}

/** The days of a span, as two date fields show it. */
export function datesOf({ since, until }: Span): { readonly from: string; readonly to: string } {
  return { from: dayName(since), to: dayName(until - 1) };
}

/** The same number of days before or after. */
export function shifted(span: Span, direction: -1 | 1): Period {
  const days = daysIn(span) * direction;
  const { from, to } = datesOf(span);
  return {
    kind: "custom",
    from: dayName(moved(midnight(from), days)),
    to: dayName(moved(midnight(to), days)),
  };
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
  if (period.kind !== "month") {
    const days = -daysIn(span);
    return { since: moved(span.since, days), until: moved(passed, days) };
  }
  const first = new Date(span.since);
  first.setMonth(first.getMonth() - 1);
  const since = first.getTime();
  return { since, until: Math.min(span.since, since + passed - span.since) };
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
