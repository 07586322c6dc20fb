import type { Database } from "libsql";
import { QUARTER_MS } from "../../core/units.ts";
import {
  addToBucket,
  emptySums,
  type Histogram,
  millisecondsOf,
  parseHistogram,
  quarterOf,
  SUMS,
  type Sums,
} from "../rollups.ts";
import { type Interval, intervalAt, type Period, type Quarters } from "./calendar.ts";
import { idSteps, prepareSums } from "./record-sums.ts";
import {
  buildConditions,
  type Filter,
  idRange,
  MAX_CLOCK_DIFFERENCE_MS,
  RECORD_SERIES,
  type Selection,
  type SeriesName,
} from "./records.ts";

/* Adds up the index's rollups and, at the ends of a period, its records, for reports, charts and today's sums. */

/** How a period is read: whole quarter hours from the rollups, the rest from the records. */
export interface Range {
  /** Every quarter hour the period touches. */
  readonly outer: Quarters;
  /** The quarter hours that are in it as a whole. */
  readonly inner: Quarters;
  /** What remains at its ends, each less than a quarter hour. */
  readonly edges: readonly Period[];
}

const NOTHING: Quarters = { from: 0, to: 0 };

/** @param extent the quarter hours with rollups. A period is cut to them, because it may begin thousands of days earlier. */
export function splitPeriod(extent: Quarters, { since, until }: Period, now: number): Range {
  // Records may be later than now if the clock was set back.
  const last = extent.to === 0 ? 0 : Math.max(quarterOf(now) + 1, extent.to);
  const from = Math.max(extent.from, (since ?? 0) / QUARTER_MS);
  const to = Math.min(last, (until ?? Number.POSITIVE_INFINITY) / QUARTER_MS);
  if (from >= to) return { outer: NOTHING, inner: NOTHING, edges: [] };
  const outer = { from: Math.floor(from), to: Math.ceil(to) };
  const inner = { from: Math.ceil(from), to: Math.floor(to) };
  if (inner.from > inner.to) return { outer, inner: NOTHING, edges: [{ since, until }] };
  const edges: Period[] = [];
  if (outer.from < inner.from) edges.push({ since, until: inner.from * QUARTER_MS });
  if (inner.to < outer.to) edges.push({ since: inner.to * QUARTER_MS, until });
  return { outer, inner, edges };
}

interface SumsQuery {
  readonly filter: Filter | Selection;
  readonly range: Range;
  /** There is a row for each combination of these. */
  readonly by: readonly SeriesName[];
  /** They cover the range. */
  readonly intervals: readonly Interval[];
  /** Each interval has its own rows. */
  readonly rowPerInterval: boolean;
  /** exact: from every record. histograms: within 5 %, from the rollups. */
  readonly firstBytes: "exact" | "histograms" | "none";
}

export interface Usage {
  /** By time, then the highest cost first. */
  readonly rows: readonly UsageRow[];
  readonly total: UsageRow;
  /** Models without a known price, sorted by requests. */
  readonly unpriced: readonly { readonly model: string; readonly requests: number }[];
}

export interface UsageRow {
  /** One for each column of `by`; null: unknown. */
  readonly names: readonly (string | null)[];
  /** The number of its interval; 0 if it is about all of them. */
  readonly interval: number;
  readonly sums: Sums;
  readonly firstByte: FirstByte;
  /** The sums of each interval, by its number. Those without requests are missing. Empty if the row is about one interval. */
  readonly parts: ReadonlyMap<number, Sums>;
}

/** The numbers of a row as JSON and CSV have them. */
export interface ShownSums extends Omit<Sums, "billed_microdollars"> {
  /** null: no console lists any of the requests, which is not the same as zero. */
  readonly billed_microdollars: number | null;
  /** The share of input that was read from a cache, 0 to 1; null: there was no input. */
  readonly cache_share: number | null;
  readonly first_byte_p50_ms: number | null;
  readonly first_byte_p95_ms: number | null;
}

export function shownSums({ sums, firstByte }: Pick<UsageRow, "sums" | "firstByte">): ShownSums {
  const share = cacheShare(sums);
  return {
    ...sums,
    billed_microdollars: sums.billed_requests === 0 ? null : sums.billed_microdollars,
    cache_share: share === null ? null : Math.round(share * 10_000) / 10_000,
    first_byte_p50_ms: firstByte.p50,
    first_byte_p95_ms: firstByte.p95,
  };
}

/** Percentiles of the time to the first byte, in milliseconds; null: there were no requests. */
interface FirstByte {
  readonly p50: number | null;
  readonly p95: number | null;
}

export function addUp(db: Database, asked: SumsQuery): Usage {
  const query = needsRecords(asked) ? { ...asked, range: withoutRollups(asked) } : asked;
  const rows = new Rows(query);
  const unpriced = new Map<string, number>();
  addRollups(db, query, rows, unpriced);
  addEdges(db, query, rows, unpriced);
  if (query.firstBytes === "exact") addFirstBytes(db, query, rows);
  return {
    ...rows.result(),
    unpriced: [...unpriced]
      .map(([model, requests]) => ({ model, requests }))
      .sort((a, b) => b.requests - a.requests || (a.model < b.model ? -1 : 1)),
  };
}

/** The range as it is read: from the records as a whole, where the rollups do not have what a filter selects. */
export function rangeOf(filter: Filter, range: Range): Range {
  return selectsRecords(filter) ? withoutRollups({ filter, range }) : range;
}

function needsRecords({ filter, by }: Pick<SumsQuery, "filter" | "by">): boolean {
  return by.includes("session") || selectsRecords(filter);
}

/** By what rollups do not know. */
function selectsRecords(filter: Filter | Selection): boolean {
  if (!("names" in filter)) return filter.sessions.length > 0;
  const { names, ends, search } = filter;
  return names.session.length > 0 || ends.length > 0 || search !== "";
}

/** What a range selects, read from the records as a whole. */
function withoutRollups({
  filter: { period },
  range: { outer },
}: Pick<SumsQuery, "filter" | "range">): Range {
  const since = Math.max(period.since ?? 0, outer.from * QUARTER_MS);
  const until = Math.min(period.until ?? Number.POSITIVE_INFINITY, outer.to * QUARTER_MS);
  return { outer, inner: NOTHING, edges: since < until ? [{ since, until }] : [] };
}

/** Adds the quarter hours that are in the period as a whole, from the rollups. */
function addRollups(
  db: Database,
  { filter, range, by, intervals, firstBytes }: SumsQuery,
  rows: Rows,
  unpriced: Map<string, number>,
): void {
  if (range.inner.from === range.inner.to) return;
  const conditions = buildConditions(filter, "rollups");
  const columns = by.map((name) => `, "${name}"`).join("");
  const sums = db
    .prepare(
      `WITH intervals AS MATERIALIZED (
         SELECT value ->> 0 AS number, value ->> 1 AS first, value ->> 2 AS after FROM json_each(?)
       )
       SELECT number, ${firstBytes === "histograms" ? "group_concat(first_bytes, ' ')" : "''"},
         ${SUMS.map((name) => `sum(${name})`).join(", ")}${columns}
       FROM intervals CROSS JOIN rollups ON quarter >= first AND quarter < after${conditions.sql}
       GROUP BY number${columns}`,
    )
    .raw();
  const models = db
    .prepare(
      `SELECT model, sum(unpriced) FROM rollups
       WHERE quarter >= ? AND quarter < ? AND unpriced > 0${conditions.sql} GROUP BY model`,
    )
    .raw();
  for (const step of stepsOf(db, range.inner)) {
    const within = JSON.stringify(numberedWithin(intervals, step));
    for (const row of sums.all(within, ...conditions.values) as unknown[][]) {
      const names = row.slice(2 + SUMS.length) as string[];
      rows.add(names, Number(row[0]), sumsOfColumns(row, 2), parseHistogram(String(row[1])));
    }
    const found = models.all(step.from, step.to, ...conditions.values) as [string, number][];
    for (const [model, requests] of found) unpriced.set(model, (unpriced.get(model) ?? 0) + requests);
  }
}

/** Adds what remains at the ends of the period, from the records. */
function addEdges(
  db: Database,
  { filter, range, by, intervals, firstBytes }: SumsQuery,
  rows: Rows,
  unpriced: Map<string, number>,
): void {
  const { sql, values } = buildConditions(filter, "records");
  const readSums = prepareSums(
    db,
    {
      by: [`started_at / ${QUARTER_MS}`, ...by.map((name) => RECORD_SERIES[name])],
      firstBytes: firstBytes === "histograms",
    },
    `id >= ? AND id < ? AND started_at >= ? AND started_at < ? AND "end" IS NOT NULL${sql}`,
  );
  for (const period of range.edges) {
    const { since, until } = period;
    for (const ids of idSteps(db, ...idRange(widened(period)))) {
      const times = [since ?? 0, until ?? Number.MAX_SAFE_INTEGER];
      for (const part of readSums([...ids, ...times, ...values])) {
        const [quarter, ...names] = part.values;
        rows.add(names as string[], intervalAt(intervals, Number(quarter)), part.sums, part.firstBytes);
        if (part.sums.unpriced > 0)
          unpriced.set(part.model, (unpriced.get(part.model) ?? 0) + part.sums.unpriced);
      }
    }
  }
}

export function widened({ since, until }: Period): Period {
  return {
    since: since === null ? null : since - MAX_CLOCK_DIFFERENCE_MS,
    until: until === null ? null : until + MAX_CLOCK_DIFFERENCE_MS,
  };
}

/** Up to this many records, percentiles are exact. */
const MAX_EXACT = 20_000;
const STEP_RECORDS = 1000;

/** Whether a period has so few records that each of them can be read. */
export function hasFewRecords(db: Database, filter: Filter | Selection): boolean {
  const [count] = db
    .prepare(`SELECT count(*) FROM (SELECT 1 FROM records WHERE id >= ? AND id < ? LIMIT ${MAX_EXACT + 1})`)
    .raw()
    .get(...idRange(filter.period)) as [number];
  return count <= MAX_EXACT;
}

function addFirstBytes(db: Database, { filter, by, intervals }: SumsQuery, rows: Rows): void {
  const { sql, values } = buildConditions(filter, "records");
  const statement = db
    .prepare(
      `SELECT id, started_at, first_byte_at${by.map((name) => `, ${RECORD_SERIES[name]}`).join("")}
       FROM records WHERE id > ? AND id < ? AND "end" IS NOT NULL AND first_byte_at IS NOT NULL${sql}
       ORDER BY id LIMIT ${STEP_RECORDS}`,
    )
    .raw();
  let [after, before] = idRange(filter.period);
  for (;;) {
    const found = statement.all(after, before, ...values) as [string, number, number, ...string[]][];
    for (const [id, startedAt, firstByteAt, ...names] of found) {
      rows.addFirstByte(names, intervalAt(intervals, quarterOf(startedAt)), firstByteAt - startedAt);
      after = id;
    }
    if (found.length < STEP_RECORDS) return;
  }
}

const STEP_ROLLUPS = 1000;

/** Parts of a range with few rollups each. */
export function* stepsOf(db: Database, { from, to }: Quarters): Generator<Quarters> {
  const statement = db
    .prepare(
      `SELECT quarter FROM rollups WHERE quarter >= ? AND quarter < ? ORDER BY quarter LIMIT 1 OFFSET ${STEP_ROLLUPS}`,
    )
    .raw();
  for (let at = from; at < to; ) {
    const row = statement.get(at, to) as [number] | undefined;
    const end = row === undefined ? to : Math.max(at + 1, row[0]);
    yield { from: at, to: end };
    at = end;
  }
}

/** The quarter hours of all rollups; 0 to 0: there are none. */
export function wholeExtent(db: Database): Quarters {
  const first = db.prepare("SELECT min(quarter) FROM rollups").raw().get() as [number | null];
  const last = db.prepare("SELECT max(quarter) FROM rollups").raw().get() as [number | null];
  return first[0] === null || last[0] === null ? { from: 0, to: 0 } : { from: first[0], to: last[0] + 1 };
}

/** The quarter hours of the rollups that a filter selects, at any time; 0 to 0: there are none. */
export function extentOf(db: Database, filter: Filter | Selection): Quarters {
  if (selectsRecords(filter)) return extentOfRecords(db, filter);
  const { sql, values } = buildConditions(filter, "rollups");
  if (sql === "") return wholeExtent(db);
  const statement = db
    .prepare(`SELECT min(quarter), max(quarter) FROM rollups WHERE quarter >= ? AND quarter < ?${sql}`)
    .raw();
  let extent: Quarters = { from: 0, to: 0 };
  for (const { from, to } of stepsOf(db, wholeExtent(db))) {
    const [first, last] = statement.get(from, to, ...values) as [number | null, number | null];
    if (first !== null && last !== null)
      extent = { from: extent.to === 0 ? first : extent.from, to: last + 1 };
  }
  return extent;
}

/** The quarter hours of the finished records that a filter selects. */
function extentOfRecords(db: Database, filter: Filter | Selection): Quarters {
  const { sql, values } = buildConditions(filter, "records");
  const [first, last] = db
    .prepare(`SELECT min(started_at), max(started_at) FROM records WHERE "end" IS NOT NULL${sql}`)
    .raw()
    .get(...values) as [number | null, number | null];
  if (first === null || last === null) return NOTHING;
  return { from: quarterOf(first), to: quarterOf(last) + 1 };
}

/** The intervals that a range touches, cut to it, each with its number. */
function numberedWithin(intervals: readonly Interval[], { from, to }: Quarters): [number, number, number][] {
  const found: [number, number, number][] = [];
  for (let number = intervalAt(intervals, from); number < intervals.length; number += 1) {
    const interval = intervals[number];
    if (interval === undefined || interval.from >= to) break;
    found.push([number, Math.max(from, interval.from), Math.min(to, interval.to)]);
  }
  return found;
}

function sumsOfColumns(row: readonly unknown[], first: number): Sums {
  const sums = emptySums();
  for (const [at, name] of SUMS.entries()) sums[name] = Number(row[first + at]);
  return sums;
}

/** A row that still grows. */
interface GrowingRow {
  readonly names: readonly string[];
  readonly interval: number;
  readonly sums: Sums;
  readonly parts: Map<number, Sums>;
  histogram: Histogram;
  readonly times: number[];
}

class Rows {
  readonly #query: SumsQuery;
  readonly #rows = new Map<string, GrowingRow>();

  constructor(query: SumsQuery) {
    this.#query = query;
  }

  add(names: readonly string[], interval: number, sums: Readonly<Sums>, histogram: Histogram): void {
    const row = this.#findRow(names, interval);
    if (row === null) return;
    addSums(row.sums, sums);
    if (!this.#query.rowPerInterval) addPart(row.parts, interval, sums);
    if (row.histogram.size === 0) row.histogram = histogram;
    else addHistogram(row.histogram, histogram);
  }

  addFirstByte(names: readonly string[], interval: number, milliseconds: number): void {
    this.#findRow(names, interval)?.times.push(milliseconds);
  }

  result(): Pick<Usage, "rows" | "total"> {
    const rows: UsageRow[] = [];
    const sums = emptySums();
    const allTimes: number[] = [];
    const wholeHistogram: Histogram = new Map();
    for (const row of this.#rows.values()) {
      const names = row.names.map((name) => (name === "" ? null : name));
      const firstByte = percentiles(row.times, row.histogram);
      rows.push({ names, interval: row.interval, sums: row.sums, parts: row.parts, firstByte });
      addSums(sums, row.sums);
      for (const time of row.times) allTimes.push(time);
      addHistogram(wholeHistogram, row.histogram);
    }
    const firstByte = percentiles(allTimes, wholeHistogram);
    const total = { names: [], interval: 0, sums, parts: combinedParts(rows), firstByte };
    return { rows: rows.sort(compareRows), total };
  }

  /** null: the time of a record is not the one in its id, and is outside the period. */
  #findRow(names: readonly string[], at: number): GrowingRow | null {
    if (at >= this.#query.intervals.length) return null;
    const interval = this.#query.rowPerInterval ? at : 0;
    const key = JSON.stringify([interval, ...names]);
    let row = this.#rows.get(key);
    if (row === undefined) {
      row = { names, interval, sums: emptySums(), parts: new Map(), histogram: new Map(), times: [] };
      this.#rows.set(key, row);
    }
    return row;
  }
}

/** The parts of several rows as if they were one row. */
export function combinedParts(rows: Iterable<Pick<UsageRow, "parts">>): Map<number, Sums> {
  const combined = new Map<number, Sums>();
  for (const { parts } of rows) for (const [interval, sums] of parts) addPart(combined, interval, sums);
  return combined;
}

function addPart(parts: Map<number, Sums>, interval: number, sums: Readonly<Sums>): void {
  const part = parts.get(interval);
  if (part === undefined) parts.set(interval, { ...sums });
  else addSums(part, sums);
}

function addHistogram(to: Histogram, more: Histogram): void {
  for (const [bucket, count] of more) addToBucket(to, bucket, count);
}

function compareRows(a: UsageRow, b: UsageRow): number {
  return (
    a.interval - b.interval ||
    b.sums.cost_microdollars - a.sums.cost_microdollars ||
    sumTokens(b.sums) - sumTokens(a.sums) ||
    b.sums.requests - a.sums.requests ||
    (JSON.stringify(a.names) < JSON.stringify(b.names) ? -1 : 1)
  );
}

/** From single times if there are any, else from a histogram. */
function percentiles(times: number[], histogram: Histogram): FirstByte {
  if (times.length > 0) {
    times.sort((a, b) => a - b);
    const at = (share: number) => times[Math.ceil(times.length * share) - 1] ?? null;
    return { p50: at(0.5), p95: at(0.95) };
  }
  const buckets = Uint16Array.from(histogram.keys()).sort();
  let total = 0;
  for (const count of histogram.values()) total += count;
  const at = (share: number) => {
    let missing = Math.ceil(total * share);
    for (const bucket of buckets) {
      missing -= histogram.get(bucket) ?? 0;
      if (missing <= 0) return Math.round(millisecondsOf(bucket));
    }
    return null;
  };
  return { p50: at(0.5), p95: at(0.95) };
}

function addSums(to: Sums, more: Readonly<Sums>): void {
  for (const name of SUMS) to[name] += more[name];
}

/** All tokens; reasoning is part of the output. */
export function sumTokens(
  sums: Pick<Sums, "input_tokens" | "cache_read_tokens" | "cache_write_tokens" | "output_tokens">,
): number {
  return sums.input_tokens + sums.cache_read_tokens + sums.cache_write_tokens + sums.output_tokens;
}

/** How much of the input came from a cache; null: there was no input. */
export function cacheShare(
  sums: Pick<Sums, "input_tokens" | "cache_read_tokens" | "cache_write_tokens">,
): number | null {
  const all = sums.input_tokens + sums.cache_read_tokens + sums.cache_write_tokens;
  return all === 0 ? null : sums.cache_read_tokens / all;
}

/** Requests whose cost is unknown, which is not the same as 0. */
export function unknownCost(sums: Readonly<Sums>): number {
  return sums.unmetered + sums.unpriced;
}
