import type { Database } from "libsql";
import { emptySums } from "../rollups.ts";
import { combined, type Interval, listIntervals, type Quarters } from "./calendar.ts";
import { csvLine, plainDollars } from "./format.ts";
import { countOtherModels, type OtherModel } from "./other-models.ts";
import { buildConditions, type Filter, type SeriesName } from "./records.ts";
import {
  addUp,
  extentOf,
  hasFewRecords,
  rangeOf,
  shownSums,
  splitPeriod,
  type Usage,
  type UsageRow,
} from "./sums.ts";

/* The report of `keybearer usage`. */

export const DIMENSIONS = [
  "tool",
  "model",
  "day",
  "hour",
  "key",
  "group",
  "gateway",
  "machine",
  "project",
  "branch",
  "session",
  "token",
] as const;
export type Dimension = (typeof DIMENSIONS)[number];

export interface Question extends Filter {
  /** There is a row for each combination of these. */
  readonly by: readonly Dimension[];
}

export interface Report extends Usage {
  readonly question: Question;
  /** They have a name for each dimension of the question; null: unknown. */
  readonly rows: readonly UsageRow[];
  /** The intervals of a row's trend; empty if the rows themselves are days or hours. */
  readonly trend: readonly Interval[];
  /** Answers of models with another name than was asked for. */
  readonly otherModels: readonly OtherModel[];
  /** Requests that have not ended, or had not when keybearer was killed. They are in no row. */
  readonly inFlight: number;
  /** Whether first bytes are exact, or within 5 %. */
  readonly firstByteExact: boolean;
  /** When the last record of all began, for a report without rows; null: there is none. */
  readonly lastRecord: number | null;
}

const MAX_TREND = 16;
/** In quarter hours: the trend of a longer period is by day. */
const MAX_TREND_BY_HOUR = 2 * 24 * 4;

/** Reads in one transaction, so that all numbers are from the same state of the index. */
export function readReport(db: Database, question: Question, now: number): Report {
  db.exec("BEGIN");
  try {
    return read(db, question, now);
  } finally {
    db.exec("COMMIT");
  }
}

function read(db: Database, question: Question, now: number): Report {
  const { by } = question;
  const extent = extentOf(db, question);
  const range = splitPeriod(extent, question.period, now);
  const rowPerInterval = by.some(isTime);
  const intervals = intervalsFor(by, range.outer);
  const firstByteExact = hasFewRecords(db, question);
  const usage = addUp(db, {
    filter: question,
    range,
    by: by.filter(isSeries),
    intervals,
    rowPerInterval,
    firstBytes: firstByteExact ? "exact" : "histograms",
  });
  return {
    ...usage,
    question,
    rows: usage.rows.map((row) => ({ ...row, names: listNames(row, by, intervals) })),
    trend: rowPerInterval ? [] : intervals,
    otherModels: countOtherModels(db, question, rangeOf(question, range)),
    inFlight: countInFlight(db, question),
    firstByteExact,
    lastRecord: lastRecordTime(db),
  };
}

/** The report with a name for this machine, which has none in the index. */
export function withThisMachine(report: Report, name: string): Report {
  const at = report.question.by.indexOf("machine");
  if (at === -1) return report;
  const rows = report.rows.map((row) => ({ ...row, names: row.names.with(at, row.names[at] ?? name) }));
  return { ...report, rows };
}

/** The report of a log without records. */
export function emptyReport(question: Question): Report {
  const firstByte = { p50: null, p95: null };
  return {
    question,
    rows: [],
    total: { names: [], interval: 0, sums: emptySums(), parts: new Map(), firstByte },
    unpriced: [],
    trend: [],
    otherModels: [],
    inFlight: 0,
    firstByteExact: true,
    lastRecord: null,
  };
}

export function isTime(dimension: Dimension): boolean {
  return !isSeries(dimension);
}

function isSeries(dimension: Dimension): dimension is SeriesName & Dimension {
  return dimension !== "day" && dimension !== "hour";
}

function intervalsFor(by: readonly Dimension[], quarters: Quarters): Interval[] {
  if (by.includes("hour")) return listIntervals("hour", quarters);
  if (by.includes("day")) return listIntervals("day", quarters);
  const isLong = quarters.to - quarters.from > MAX_TREND_BY_HOUR;
  return combined(listIntervals(isLong ? "day" : "hour", quarters), MAX_TREND);
}

function listNames(row: UsageRow, by: readonly Dimension[], intervals: readonly Interval[]) {
  const series = by.filter(isSeries);
  return by.map((dimension) => {
    if (isSeries(dimension)) return row.names[series.indexOf(dimension)] ?? null;
    return intervals[row.interval]?.name ?? null;
  });
}

function countInFlight(db: Database, question: Question): number {
  const { sql, values } = buildConditions(question, "records");
  const statement = db.prepare(`SELECT count(*) FROM records WHERE "end" IS NULL${sql}`).raw();
  const [count] = statement.get(...values) as [number];
  return count;
}

function lastRecordTime(db: Database): number | null {
  const row = db.prepare("SELECT started_at FROM records ORDER BY id DESC LIMIT 1").raw().get();
  return row === undefined ? null : (row as [number])[0];
}

/** `keybearer usage --json`. Unknown numbers are in no sum, but counted. */
export function reportJson(report: Report, zone: string): object {
  const { by, period } = report.question;
  return {
    since: period.since,
    until: period.until,
    zone,
    by,
    rows: report.rows.map((row) => ({
      ...Object.fromEntries(by.map((dimension, at) => [dimension, row.names[at] ?? null])),
      ...shownSums(row),
    })),
    total: shownSums(report.total),
    running: report.inFlight,
    first_byte_exact: report.firstByteExact,
    models_without_price: report.unpriced,
    other_models: report.otherModels,
  };
}

/** `keybearer usage --csv`: the numbers of --json, then the amounts in dollars. */
export function reportCsv(report: Report): string {
  const names = Object.keys({ ...shownSums(report.total), ...listDollars(report.total) });
  const lines = report.rows.map((row) =>
    csvLine([...row.names, ...Object.values({ ...shownSums(row), ...listDollars(row) })]),
  );
  return csvLine([...report.question.by, ...names]) + lines.join("");
}

function listDollars(row: UsageRow): Record<string, number | null> {
  const { list_microdollars, cost_microdollars, billed_microdollars } = shownSums(row);
  return {
    list_dollars: plainDollars(list_microdollars),
    cost_dollars: plainDollars(cost_microdollars),
    billed_dollars: plainDollars(billed_microdollars),
  };
}
