import type { Database } from "libsql";
import { dayName, QUARTER_MS } from "../../core/units.ts";
import { quarterOf, type Sums } from "../rollups.ts";
import { listIntervals, type Period, startOfDay } from "./calendar.ts";
import type { Filter } from "./records.ts";
import { addUp, extentOf, splitPeriod, sumTokens, type Usage, unknownCost } from "./sums.ts";

/* Today's usage beside that of other days, for `keybearer usage --today` and the dashboard. */

interface Amounts {
  readonly requests: number;
  readonly tokens: number;
  readonly cost_microdollars: number;
}

export interface TodayComparison {
  /** From local midnight until now. */
  readonly today: Amounts & {
    readonly since: number;
    readonly until: number;
    /** Requests whose cost is not known. */
    readonly unknown_cost: number;
  };
  /**
   * The medians of the last seven days, each until this time of day. Days before the first record do not count. null: there
   * are no others.
   */
  readonly usual: (Amounts & { readonly days: number }) | null;
  /** null: no day before today has requests. */
  readonly forecast: Forecast | null;
}

/**
 * What the month will have cost: what it cost so far and, for each day that remains, the median of the last days with
 * requests, times how many of all days had requests meanwhile. So a weekend without any is not counted as work. Today
 * becomes such a day, too.
 */
interface Forecast {
  /** 2026-11 */
  readonly month: string;
  readonly spent_microdollars: number;
  readonly usual_day_microdollars: number;
  /** How many days the median is of. */
  readonly days: number;
  readonly cost_microdollars: number;
}

const USUAL_DAYS = 7;
/** The forecast is from this many days with requests, which are searched for in the last 60 days. */
const ACTIVE_DAYS = 14;
const SEARCHED_DAYS = 60;

/** @param filter its period does not matter */
export function compareToday(db: Database, filter: Filter, now: number): TodayComparison {
  const since = startOfDay(now);
  const sums = totalIn(db, filter, { since, until: now + 1 }, now).total.sums;
  return {
    today: { since, until: now, ...amounts(sums), unknown_cost: unknownCost(sums) },
    usual: usualUntilNow(db, filter, now),
    forecast: forecast(db, filter, sums.cost_microdollars, now),
  };
}

/** Of a log without records. */
export function emptyComparison(now: number): TodayComparison {
  const nothing = { requests: 0, tokens: 0, cost_microdollars: 0, unknown_cost: 0 };
  return { today: { since: startOfDay(now), until: now, ...nothing }, usual: null, forecast: null };
}

function usualUntilNow(db: Database, filter: Filter, now: number): TodayComparison["usual"] {
  const extent = extentOf(db, filter);
  if (extent.to === 0) return null;
  const firstDay = startOfDay(extent.from * QUARTER_MS);
  const found: Amounts[] = [];
  for (let back = 1; back <= USUAL_DAYS; back += 1) {
    const until = daysBefore(now, back);
    const since = startOfDay(until);
    if (since < firstDay) break;
    found.push(amounts(totalIn(db, filter, { since, until: until + 1 }, now).total.sums));
  }
  if (found.length === 0) return null;
  return {
    days: found.length,
    requests: median(found.map(({ requests }) => requests)),
    tokens: median(found.map(({ tokens }) => tokens)),
    cost_microdollars: median(found.map(({ cost_microdollars: cost }) => cost)),
  };
}

function forecast(db: Database, filter: Filter, spentToday: number, now: number): Forecast | null {
  const today = startOfDay(now);
  const from = quarterOf(startOfDay(daysBefore(now, SEARCHED_DAYS)));
  const days = listIntervals("day", { from, to: quarterOf(today) });
  const period = { since: from * QUARTER_MS, until: today };
  const { total } = totalIn(db, filter, period, now, days);
  const active = [...total.parts.keys()].sort((a, b) => b - a).slice(0, ACTIVE_DAYS);
  const first = active.at(-1);
  if (first === undefined) return null;
  const costs = active.map((day) => total.parts.get(day)?.cost_microdollars ?? 0);
  const usual = median(costs);
  const share = active.length / (days.length - first);
  const month = dayName(now).slice(0, "2026-11".length);
  let spent = spentToday;
  for (const [at, { cost_microdollars: cost }] of total.parts)
    if (days[at]?.name.startsWith(month)) spent += cost;
  const rest = Math.max(0, usual - spentToday) + usual * share * remainingDays(now);
  return {
    month,
    spent_microdollars: spent,
    usual_day_microdollars: usual,
    days: active.length,
    cost_microdollars: Math.round(spent + rest),
  };
}

/** Of this month, after today. */
function remainingDays(now: number): number {
  const date = new Date(now);
  return new Date(date.getFullYear(), date.getMonth() + 1, 0).getDate() - date.getDate();
}

/** The same time of day, also if the clocks changed since. */
function daysBefore(now: number, days: number): number {
  const date = new Date(now);
  date.setDate(date.getDate() - days);
  return date.getTime();
}

function totalIn(
  db: Database,
  filter: Filter,
  period: Period,
  now: number,
  intervals: ReturnType<typeof listIntervals> | null = null,
): Usage {
  const selected = { ...filter, period };
  const range = splitPeriod(extentOf(db, selected), period, now);
  return addUp(db, {
    filter: selected,
    range,
    by: [],
    intervals: intervals ?? [{ name: "", ...range.outer }],
    rowPerInterval: false,
    firstBytes: "none",
  });
}

function amounts(sums: Readonly<Sums>): Amounts {
  return {
    requests: sums.requests,
    tokens: sumTokens(sums),
    cost_microdollars: sums.cost_microdollars,
  };
}

/** Of at least one value, rounded. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const half = sorted.length / 2;
  const low = sorted[Math.ceil(half) - 1] ?? 0;
  const high = sorted[Math.floor(half)] ?? 0;
  return Math.round((low + high) / 2);
}
