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
  splitPeriod,
  type Usage,
  type UsageRow,
  wholeExtent,
} from "./sums.ts";

/* The numbers of the dashboard. */

export interface ChartQuestion {
  readonly selection: Selection;
  /** The length of a bar. */
  readonly unit: Unit;
  readonly by: SelectedName;
}

/** The highest cost first. It has a length that does not grow with the log, because it is sent from thread to thread. */
export interface Chart extends Usage {
  /** The parts of the rows after the first ones, which have none themselves; null: all rows have their own. */
  readonly others: { readonly names: number; readonly parts: UsageRow["parts"] } | null;
  readonly intervals: readonly Interval[];
  /** Whether first bytes are exact, or within 5 %. */
  readonly firstByteExact: boolean;
}

/** null: it would have too many bars. */
export function readChart(
  db: Database,
  { selection: filter, unit, by }: ChartQuestion,
  now: number,
): Chart | null {
  const extent = wholeExtent(db);
  const intervals = chartIntervals(unit, filter.period, extent, now);
  if (intervals === null) return null;
  const firstByteExact = hasFewRecords(db, filter);
  const usage = addUp(db, {
    filter,
    range: splitPeriod(extent, filter.period, now),
    by: [by],
    intervals,
    rowPerInterval: false,
    firstBytes: firstByteExact ? "exact" : "histograms",
  });
  const others = usage.rows.slice(MAX_SERIES);
  return {
    rows: [
      ...usage.rows.slice(0, MAX_SERIES),
      ...others.slice(0, MAX_ROWS - MAX_SERIES).map((row) => ({ ...row, parts: new Map() })),
    ],
    others: others.length === 0 ? null : { names: others.length, parts: combinedParts(others) },
    total: usage.total,
    unpriced: usage.unpriced.slice(0, MAX_ROWS),
    intervals,
    firstByteExact,
  };
}

const MAX_ROWS = 1000;
/** How many rows have parts of their own. */
export const MAX_SERIES = 60;

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
  /** Local midnight. */
  readonly since: number;
  /** By tool; null: unknown callers. */
  readonly tools: ReadonlyMap<string | null, Sums>;
  readonly total: Sums;
}

export function readToday(db: Database, now: number): TodayUsage {
  const since = startOfDay(now);
  // If the clock was set back, there are records from later than now. Whole quarters, so only rollups are read.
  const until = quarterOf(now) * QUARTER_MS + DAY_MS;
  const { rows, total } = totalsOf(db, everythingIn({ since, until }), ["tool"], now);
  return {
    since,
    tools: new Map(rows.map(({ names, sums }) => [names[0] ?? null, sums])),
    total: total.sums,
  };
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
