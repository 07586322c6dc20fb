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

export const BINS = ["hour", "day", "month"] as const;
export type BinSize = (typeof BINS)[number];

/** More bars than this are too thin to distinguish, and the response would be long. */
const MOST_BINS = 800;
const LENGTH_MS: Readonly<Record<BinSize, number>> = {
  hour: 3_600_000,
  day: 86_400_000,
  month: 28 * 86_400_000,
};

/**
 * Where a period begins and ends by this machine's calendar. A day is from midnight to midnight, which at the change of
 * the clocks are 23 or 25 hours; the current day or month belongs to it whole, so that bars do not jump as time goes on.
 */
export function spanOf(period: Period, now: number): Span {
  const today = new Date(now);
  const year = today.getFullYear();
  const month = today.getMonth();
  const day = today.getDate();
  switch (period.kind) {
    case "today":
      return { since: midnight(year, month, day), until: midnight(year, month, day + 1) };
    case "7d":
      return { since: midnight(year, month, day - 6), until: midnight(year, month, day + 1) };
    case "30d":
      return { since: midnight(year, month, day - 29), until: midnight(year, month, day + 1) };
    case "month":
      return { since: midnight(year, month, 1), until: midnight(year, month + 1, 1) };
    case "custom": {
      const from = dateOf(period.from);
      const to = dateOf(period.to);
      if (from === null || to === null) return spanOf({ kind: "7d" }, now);
      const [first, last] = period.from <= period.to ? [from, to] : [to, from];
      return { since: midnight(...first), until: midnight(last[0], last[1], last[2] + 1) };
    }
  }
}

/** The first moment of a day: where the clocks skip midnight, Date gives the first one there is. */
function midnight(year: number, month: number, day: number): number {
  return new Date(year, month, day).getTime();
}

/** 2026-11-01 as year, month from 0, day; null: there is no such day, as 2026-02-30. */
function dateOf(name: string): readonly [number, number, number] | null {
  const [, year, month, day] = /^(\d{4})-(\d\d)-(\d\d)$/.exec(name) ?? [];
  if (year === undefined) return null;
  const parts = [Number(year), Number(month) - 1, Number(day)] as const;
  const date = new Date(Date.UTC(...parts));
  const isSame = date.getUTCMonth() === parts[1] && date.getUTCDate() === parts[2];
  return parts[0] >= 1970 && isSame ? parts : null;
}

export function isDate(name: string): boolean {
  return dateOf(name) !== null;
}

/** 2026-11-01, local. */
export function dayName(at: number): string {
  const date = new Date(at);
  const two = (number: number) => String(number).padStart(2, "0");
  return `${String(date.getFullYear()).padStart(4, "0")}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

/** The days of a span, as two date fields show it. */
export function datesOf({ since, until }: Span): { readonly from: string; readonly to: string } {
  return { from: dayName(since), to: dayName(until - 1) };
}

/** The same number of days before or after. */
export function shifted(span: Span, direction: -1 | 1): Period {
  const { from, to } = datesOf(span);
  const days = daysBetween(from, to) * direction;
  return { kind: "custom", from: addDays(from, days), to: addDays(to, days) };
}

/** Both ends are part of it. Counted in UTC, where every day has 24 hours. */
function daysBetween(from: string, to: string): number {
  return Math.round((Date.parse(`${to}T00:00Z`) - Date.parse(`${from}T00:00Z`)) / 86_400_000) + 1;
}

function addDays(name: string, days: number): string {
  return new Date(Date.parse(`${name}T00:00Z`) + days * 86_400_000).toISOString().slice(0, 10);
}

/** The bins that a span of this length can be cut into without being too many, or only one. */
export function binsFor({ since, until }: Span): readonly BinSize[] {
  const length = until - since;
  const fit = BINS.filter((bin) => length / LENGTH_MS[bin] <= MOST_BINS);
  return fit.filter((bin) => bin === "hour" || bin === fit[0] || length > LENGTH_MS[bin] * 1.1);
}

/** What is shown unless a person says otherwise: a day by its hours, a year by its months. */
export function usualBin({ since, until }: Span): BinSize {
  const days = (until - since) / LENGTH_MS.day;
  if (days < 2.1) return "hour";
  return days < 100 ? "day" : "month";
}

export function fittingBin(span: Span, wished: BinSize | null): BinSize {
  return wished !== null && binsFor(span).includes(wished) ? wished : usualBin(span);
}

/** From a bin's beginning to that of the next, and the last one to the end of the whole. */
export function binSpan(bins: readonly number[], at: number, whole: Span): Span | null {
  const place = bins.indexOf(at);
  if (place === -1) return null;
  const end = bins[place + 1] ?? whole.until;
  return { since: Math.max(at, whole.since), until: Math.min(end, whole.until) };
}
