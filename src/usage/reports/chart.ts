import type { Database } from "libsql";
import { DAY_MS, QUARTER_MS } from "../../core/units.ts";
import { quarterOf, type Sums } from "../rollups.ts";
import {
  ALL_TIME,
  type Interval,
  listIntervals,
  type Period,
  type Quarters,
  startOfDay,
  type Unit,
} from "./calendar.ts";
import type { SelectedName } from "./names.ts";
import type { Selection } from "./records.ts";
import {
  addUp,
  combinedParts,
  hasFewRecords,
  type ShownSums,
  shownSums,
  splitPeriod,
  sumTokens,
  type Usage,
  type UsageRow,
  unknownCost,
  wholeExtent,
} from "./sums.ts";

/* The numbers of the dashboard. */

export interface ChartQuestion {
  readonly selection: Selection;
  /** The length of a bar. */
  readonly unit: Unit;
  readonly by: SelectedName;
}

/** It has a length that does not grow with the log, because it is sent from thread to thread and to a page. */
export interface UsageChart {
  /** As in the question; null: no bound on that side. */
  readonly since: number | null;
  readonly until: number | null;
  readonly bin: Unit;
  readonly by: SelectedName;
  /** This machine's time zone, such as Asia/Shanghai. */
  readonly zone: string;
  /**
   * The start of each bar in this machine's calendar, without gaps, from `since` to `until`. Without `since` they begin at the
   * first record, without `until` they end now.
   */
  readonly bins: readonly number[];
  /** The end of the last bar; null: there is none. */
  readonly bins_end: number | null;
  /** By cost, the highest first; at most 60. Each list has one number for each bar. */
  readonly series: readonly UsageSeries[];
  /** The sum of all further series, and of how many names; null: there are no more. */
  readonly others: (UsageSeries & { readonly names: number }) | null;
  readonly total: UsageSums;
  /** All names, in the order of `series`; at most 1,000. */
  readonly rows: readonly (UsageSums & { readonly name: string | null })[];
  readonly unpriced: Usage["unpriced"];
  /** true: percentiles of all records; false: of sums, within 5 %. */
  readonly first_byte_exact: boolean;
}

export interface UsageSeries {
  /** null: unknown, such as the tool of an unknown caller. */
  readonly name: string | null;
  readonly requests: readonly number[];
  /** In all. */
  readonly tokens: readonly number[];
  readonly cost_microdollars: readonly number[];
  /** Requests of unknown cost, which the sums lack. */
  readonly unknown_cost: readonly number[];
}

export interface UsageSums extends ShownSums {
  /** Input, cache read, cache write and output together. */
  readonly tokens: number;
}

/** null: it would have too many bars. */
export function readChart(
  db: Database,
  { selection: filter, unit, by }: ChartQuestion,
  now: number,
): UsageChart | null {
  const extent = wholeExtent(db);
  const intervals = chartIntervals(unit, filter.period, extent, now);
  if (intervals === null) return null;
  const firstByteExact = hasFewRecords(db, filter);
  const { rows, total, unpriced } = addUp(db, {
    filter,
    range: splitPeriod(extent, filter.period, now),
    by: [by],
    intervals,
    rowPerInterval: false,
    firstBytes: firstByteExact ? "exact" : "histograms",
  });
  const series = (name: string | null, { parts }: Pick<UsageRow, "parts">) =>
    seriesOf(name, parts, intervals.length);
  const others = rows.slice(MAX_SERIES);
  const last = intervals.at(-1);
  return {
    ...filter.period,
    bin: unit,
    by,
    zone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    bins: intervals.map(({ from }) => from * QUARTER_MS),
    bins_end: last === undefined ? null : last.to * QUARTER_MS,
    series: rows.slice(0, MAX_SERIES).map((row) => series(row.names[0] ?? null, row)),
    others:
      others.length === 0
        ? null
        : { ...series(null, { parts: combinedParts(others) }), names: others.length },
    total: sumsOf(total),
    rows: rows.slice(0, MAX_ROWS).map((row) => ({ name: row.names[0] ?? null, ...sumsOf(row) })),
    unpriced: unpriced.slice(0, MAX_ROWS),
    first_byte_exact: firstByteExact,
  };
}

function seriesOf(name: string | null, parts: UsageRow["parts"], length: number): UsageSeries {
  const list = (value: (sums: Sums) => number) =>
    Array.from({ length }, (_, at) => {
      const sums = parts.get(at);
      return sums === undefined ? 0 : value(sums);
    });
  return {
    name,
    requests: list((sums) => sums.requests),
    tokens: list(sumTokens),
    cost_microdollars: list((sums) => sums.cost_microdollars),
    unknown_cost: list(unknownCost),
  };
}

function sumsOf(row: UsageRow): UsageSums {
  return { ...shownSums(row), tokens: sumTokens(row.sums) };
}

const MAX_ROWS = 1000;
const MAX_SERIES = 60;

const MAX_INTERVALS = 2000;
/** In quarter hours; of a month: the shortest. */
const UNIT_LENGTH: Readonly<Record<Unit, number>> = { hour: 4, day: 24 * 4, month: 28 * 24 * 4 };

/**
 * The whole period, empty bars and those to come included. If that has too many, only from the first record and until now,
 * and null if that still has too many.
 */
function chartIntervals(unit: Unit, period: Period, extent: Quarters, now: number): Interval[] | null {
  const first = extent.to === 0 ? quarterOf(now) : extent.from;
  const last = Math.max(quarterOf(now) + 1, extent.to);
  const from = period.since === null ? first : Math.max(0, quarterOf(period.since));
  const to = period.until === null ? last : Math.ceil(period.until / QUARTER_MS);
  const known = { from: Math.max(from, first), to: Math.min(to, last) };
  for (const quarters of [{ from, to }, { from, to: known.to }, known]) {
    // Both ends may be parts of a unit.
    if ((quarters.to - quarters.from) / UNIT_LENGTH[unit] > MAX_INTERVALS + 2) continue;
    const intervals = listIntervals(unit, quarters);
    if (intervals.length <= MAX_INTERVALS) return intervals;
  }
  return null;
}

export interface TodayUsage {
  readonly total: DaySums;
  /** The tool of unknown callers is null. */
  readonly tools: readonly (DaySums & { readonly tool: string | null })[];
}

export interface DaySums {
  readonly requests: number;
  readonly refused: number;
  /** By our calculation. */
  readonly cost_microdollars: number;
  /** Requests of unknown cost. No sum contains them. */
  readonly unknown_cost: number;
}

export function readToday(db: Database, now: number): TodayUsage {
  // If the clock was set back, there are records from later than now. Whole quarters, so only rollups are read.
  const until = quarterOf(now) * QUARTER_MS + DAY_MS;
  const { rows, total } = totalsOf(db, everythingIn({ since: startOfDay(now), until }), ["tool"], now);
  return {
    total: daySums(total),
    tools: rows.map((row) => ({ tool: row.names[0] ?? null, ...daySums(row) })),
  };
}

function daySums({ sums }: UsageRow): DaySums {
  const { requests, refused, cost_microdollars } = sums;
  return { requests, refused, cost_microdollars, unknown_cost: unknownCost(sums) };
}

/** Only sums: no intervals, no first bytes. */
function totalsOf(db: Database, filter: Selection, by: readonly SelectedName[], now: number): Usage {
  const range = splitPeriod(wholeExtent(db), filter.period, now);
  const intervals = [{ name: "", ...range.outer }];
  return addUp(db, { filter, range, by, intervals, rowPerInterval: false, firstBytes: "none" });
}

const NO_NAMES: Selection["names"] = {
  tool: [],
  model: [],
  project: [],
  session: [],
  group: [],
  key: [],
  machine: [],
};

export function everythingIn(period: Period = ALL_TIME): Selection {
  return { period, names: NO_NAMES, ends: [], search: "" };
}
