import type { Database } from "libsql";
import { DAY_MS, QUARTER_MS } from "../../core/units.ts";
import type { RecordEnd } from "../record.ts";
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
import { SELECTED_NAMES, type SelectedName, type Selection } from "./records.ts";
import { addUp, extentOf, hasFewRecords, splitPeriod, stepsOf, type Usage, wholeExtent } from "./sums.ts";

/* The numbers of the dashboard. They are read in steps of a few milliseconds: see sums.ts. */

export interface ChartQuestion {
  readonly selection: Selection;
  /** The length of a bar. */
  readonly unit: Unit;
  readonly by: SelectedName;
}

export interface Chart extends Usage {
  readonly intervals: readonly Interval[];
  /** Whether first bytes are exact, or within 5 %. */
  readonly firstByteExact: boolean;
  /** Every name there is, selected or not. An empty one: there are records without a name. */
  readonly names: Readonly<Record<SelectedName, readonly string[]>>;
}

/** null: it would have too many bars. */
export function* readChart(
  db: Database,
  { selection, unit, by }: ChartQuestion,
  now: number,
): Generator<undefined, Chart | null> {
  const filter = { ...selection, ends: [] };
  const extent = yield* extentOf(db, filter);
  const intervals = chartIntervals(unit, selection.period, extent, now);
  if (intervals === null) return null;
  const firstByteExact = hasFewRecords(db, filter);
  const usage = yield* addUp(db, {
    filter,
    range: splitPeriod(extent, selection.period, now),
    by: [by],
    intervals,
    rowPerInterval: false,
    firstBytes: firstByteExact ? "exact" : "histograms",
  });
  const names = yield* allNames(db);
  return { ...usage, intervals, firstByteExact, names };
}

const MAX_INTERVALS = 2000;
/** In quarter hours; of a month: the shortest. */
const UNIT_LENGTH: Readonly<Record<Unit, number>> = { hour: 4, day: 24 * 4, month: 28 * 24 * 4 };

/**
 * The whole period, empty bars included. If that has too many, only from the first record on, and null if that still has
 * too many.
 */
function chartIntervals(unit: Unit, period: Period, extent: Quarters, now: number): Interval[] | null {
  const first = extent.to === 0 ? quarterOf(now) : extent.from;
  const last = Math.max(quarterOf(now) + 1, extent.to);
  const from = period.since === null ? first : Math.max(0, quarterOf(period.since));
  const to = period.until === null ? last : Math.min(Math.ceil(period.until / QUARTER_MS), last);
  for (const start of [from, Math.max(from, first)]) {
    // Both ends may be parts of a unit.
    if ((to - start) / UNIT_LENGTH[unit] > MAX_INTERVALS + 2) continue;
    const intervals = listIntervals(unit, { from: start, to });
    if (intervals.length <= MAX_INTERVALS) return intervals;
  }
  return null;
}

function* allNames(db: Database): Generator<undefined, Chart["names"]> {
  const names = {
    tool: new Set<string>(),
    model: new Set<string>(),
    group: new Set<string>(),
    key: new Set<string>(),
  };
  const columns = SELECTED_NAMES.map((name) => `"${name}"`).join(", ");
  const statement = db
    .prepare(`SELECT DISTINCT ${columns} FROM rollups WHERE quarter >= ? AND quarter < ?`)
    .raw();
  for (const { from, to } of stepsOf(db, wholeExtent(db))) {
    for (const row of statement.all(from, to) as string[][]) {
      for (const [at, name] of SELECTED_NAMES.entries()) names[name].add(row[at] ?? "");
    }
    yield;
  }
  return {
    tool: [...names.tool].sort(),
    model: [...names.model].sort(),
    group: [...names.group].sort(),
    key: [...names.key].sort(),
  };
}

export interface TodayUsage {
  /** Local midnight. */
  readonly since: number;
  /** By tool; null: unknown callers. */
  readonly tools: ReadonlyMap<string | null, Sums>;
  readonly total: Sums;
}

export function* readToday(db: Database, now: number): Generator<undefined, TodayUsage> {
  const since = startOfDay(now);
  // If the clock was set back, there are records from later than now. Whole quarters, so only rollups are read.
  const until = quarterOf(now) * QUARTER_MS + DAY_MS;
  const { rows, total } = yield* totalsOf(db, everythingIn({ since, until }), ["tool"], now);
  return {
    since,
    tools: new Map(rows.map(({ names, sums }) => [names[0] ?? null, sums])),
    total: total.sums,
  };
}

/** The ends that rollups count. */
const COUNTED_ENDS: Readonly<Partial<Record<RecordEnd, keyof Sums>>> = {
  refused: "refused",
  "client-left": "client_left",
  interrupted: "interrupted",
};

/** How many finished records are selected. null: unknown without reading all of them. */
export function* countSelected(
  db: Database,
  selection: Selection,
  now: number,
): Generator<undefined, number | null> {
  const columns: (keyof Sums)[] = [];
  for (const end of selection.ends) {
    const column = COUNTED_ENDS[end];
    if (column === undefined) return null;
    columns.push(column);
  }
  const { total } = yield* totalsOf(db, { ...selection, ends: [] }, [], now);
  if (columns.length === 0) return total.sums.requests;
  return columns.reduce((count, column) => count + total.sums[column], 0);
}

/** Only sums: no intervals, no first bytes. */
function* totalsOf(
  db: Database,
  filter: Selection,
  by: readonly SelectedName[],
  now: number,
): Generator<undefined, Usage> {
  const range = splitPeriod(wholeExtent(db), filter.period, now);
  const intervals = [{ name: "", ...range.outer }];
  return yield* addUp(db, { filter, range, by, intervals, rowPerInterval: false, firstBytes: "none" });
}

export function everythingIn(period: Period = ALL_TIME): Selection {
  return { period, names: { tool: [], model: [], group: [], key: [] }, ends: [] };
}
