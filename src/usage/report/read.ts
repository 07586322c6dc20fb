import type { Database } from "libsql";
import { type Cell, cellOf, FOLDED_SLOT, type Lane, SLOT_MS, slotOf } from "../ledger/cells.ts";
import { KEPT_FROM } from "../ledger/upkeep/prune.ts";
import { type Bin, daysOf, hoursOf, stretchesOf } from "./calendar.ts";
import { sumsOfCalendar } from "./calendar-sums.ts";
import { COLUMNS, recordOf } from "./fields.ts";
import { matches } from "./glob.ts";
import { binOf, type Extent, extentOf, lanesOf, sumsOfLanes, unpricedIn } from "./lanes.ts";
import type { Period } from "./period.ts";
import { idsOf } from "./records.ts";
import {
  createGathering,
  type Dimension,
  type Gathering,
  isTime,
  type Question,
  type Report,
} from "./report.ts";

/** Up to so many records, percentiles are taken from each of them. */
export const MOST_EXACT = 20_000;
/** How many characters wide a trend is at most. */
const MOST_STRETCHES = 16;
const HOUR_SLOTS = 4;
const DAY_SLOTS = 24 * HOUR_SLOTS;
/** Up to two days, a trend goes by hours. */
const SHORT_SLOTS = 2 * DAY_SLOTS;
const FOLDED: Bin = { name: "earlier", from: FOLDED_SLOT, to: FOLDED_SLOT + 1 };

/** All from one state of the log, which a transaction holds still for the moment it takes. */
export function readReport(db: Database, question: Question, now: number): Report {
  db.exec("BEGIN");
  try {
    return gather(db, question, now);
  } finally {
    db.exec("COMMIT");
  }
}

function gather(db: Database, question: Question, now: number): Report {
  const { by, period } = question;
  const lanes = lanesOf(db).filter((lane) => asksFor(question, lane));
  const extent = extentOf(db, lanes);
  const range = rangeOf(extent, period, now);
  const bins = binsOf(by, range.outer);
  const trended = by.some(isTime) ? [] : bins;
  const gathering = createGathering(by, trended);
  const kept = extent.folded ? keptFrom(db, extent) : null;
  const folded = kept !== null && period.since === null && (period.until ?? kept) >= kept;
  // Of what is folded there are no records left: its first bytes are only in its cells.
  const few = !folded && isFew(db, period);

  const inner = clipped(bins, range.inner);
  const whole = folded ? [FOLDED, ...inner] : inner;
  if (by.some(isTime)) {
    const found = sumsOfCalendar(db, lanes, whole, by.filter(isLane), few ? null : gathering.firstBytes);
    for (const { lane, bin, sums } of found) gathering.add(lane, bin, sums);
  } else {
    for (const { lane, bin, sums, firstBytes } of sumsOfLanes(db, lanes, whole, !few)) {
      const gatherer = gathering.add(lane, bin, sums);
      if (firstBytes !== "") gatherer.addCells(firstBytes);
    }
  }
  const edges = range.edges.flatMap((edge) => cellsOf(db, question, edge));
  for (const cell of edges) {
    const bin = bins[binOf(bins, cell.slot)];
    if (bin === undefined) continue;
    const gatherer = gathering.add(cell, bin, cell.sums);
    if (!few) gatherer.addHistogram(cell.firstBytes);
  }
  if (few) addExactly(db, question, bins, gathering);

  const total = gathering.total();
  return {
    question,
    rows: gathering.rows(),
    total,
    bins: trended,
    running: runningOf(db, question),
    unpriced: total.sums.unpriced === 0 ? [] : unpricedOf(db, lanes, whole, edges),
    firstByte: few ? "exact" : "within 5 %",
    lastRecord: numberOf(db, "SELECT started_at FROM records ORDER BY id DESC LIMIT 1"),
    prunedBefore: kept !== null && !folded && (period.since ?? 0) < kept ? kept : null,
  };
}

function isLane(dimension: Dimension): dimension is Exclude<Dimension, "day" | "hour"> {
  return !isTime(dimension);
}

function unpricedOf(
  db: Database,
  lanes: readonly Lane[],
  bins: readonly Bin[],
  edges: readonly Cell[],
): Report["unpriced"] {
  const found = unpricedIn(db, lanes, bins[0]?.from ?? 0, bins.at(-1)?.to ?? 0);
  for (const { model, sums } of edges) {
    if (sums.unpriced > 0) found.set(model, (found.get(model) ?? 0) + sums.unpriced);
  }
  return [...found]
    .map(([model, requests]) => ({ model, requests }))
    .sort((a, b) => b.requests - a.requests || (a.model < b.model ? -1 : 1));
}

function asksFor(question: Question, { tool, model }: Pick<Lane, "tool" | "model">): boolean {
  return matches(question.tools, tool) && matches(question.models, model);
}

export interface Slots {
  readonly from: number;
  readonly to: number;
}

export interface Range {
  /** Every slot the period touches. */
  readonly outer: Slots;
  /** Those that lie in it whole: their cells say it all. */
  readonly inner: Slots;
  /** What is left over at its ends, less than a slot each, to be read from the records. */
  readonly edges: readonly Period[];
}

/** The period in slots, cut to where there is something. */
export function rangeOf(extent: Extent, { since, until }: Period, now: number): Range {
  // Where the clock was set back, there are records from later than now.
  const last = extent.to === 0 ? 0 : Math.max(slotOf(now) + 1, extent.to);
  // A period that reaches back to before the first record begins with it: there may be thousands of empty days before.
  const from = Math.max(extent.from, (since ?? 0) / SLOT_MS);
  const to = Math.min(last, (until ?? Number.POSITIVE_INFINITY) / SLOT_MS);
  if (from >= to) return { outer: { from: 0, to: 0 }, inner: { from: 0, to: 0 }, edges: [] };
  const outer = { from: Math.floor(from), to: Math.ceil(to) };
  const inner = { from: Math.ceil(from), to: Math.floor(to) };
  if (inner.from > inner.to) return { outer, inner: { from: 0, to: 0 }, edges: [{ since, until }] };
  const edges: Period[] = [];
  if (outer.from < inner.from) edges.push({ since, until: inner.from * SLOT_MS });
  if (inner.to < outer.to) edges.push({ since: inner.to * SLOT_MS, until });
  return { outer, inner, edges };
}

/** Lines of days or hours, or the stretches of a trend. */
function binsOf(by: Question["by"], { from, to }: Slots): Bin[] {
  if (by.includes("hour")) return hoursOf(from, to);
  if (by.includes("day")) return daysOf(from, to);
  return stretchesOf(to - from > SHORT_SLOTS ? daysOf(from, to) : hoursOf(from, to), MOST_STRETCHES);
}

export function clipped(bins: readonly Bin[], { from, to }: Slots): Bin[] {
  return bins
    .map((bin) => ({ name: bin.name, from: Math.max(bin.from, from), to: Math.min(bin.to, to) }))
    .filter((bin) => bin.from < bin.to);
}

/** What each record that began in this piece of time adds up to. */
function cellsOf(db: Database, question: Question, edge: Period): Cell[] {
  const rows = db
    .prepare(`SELECT ${COLUMNS} FROM records WHERE id >= ? AND id < ? AND "end" IS NOT NULL`)
    .raw()
    .all(...idsOf(edge)) as unknown[][];
  return rows.map((row) => cellOf(recordOf(row))).filter((cell) => asksFor(question, cell));
}

/** The percentiles from each record, instead of from the cells. */
function addExactly(db: Database, question: Question, bins: readonly Bin[], gathering: Gathering): void {
  const rows = db
    .prepare(
      `SELECT started_at, first_byte_at, coalesce(tool, ''), coalesce(gateway, ''), coalesce("group", ''),
         coalesce(key, ''), coalesce(model, model_answered, '')
       FROM records WHERE id >= ? AND id < ? AND "end" IS NOT NULL AND first_byte_at IS NOT NULL`,
    )
    .raw()
    .all(...idsOf(question.period)) as [number, number, string, string, string, string, string][];
  for (const [startedAt, firstByteAt, tool, gateway, group, key, model] of rows) {
    const lane = { tool, gateway, group, key, model };
    const bin = bins[binOf(bins, slotOf(startedAt))];
    if (bin === undefined || !asksFor(question, lane)) continue;
    gathering.firstBytes(lane, bin).add(firstByteAt - startedAt);
  }
}

export function isFew(db: Database, period: Period): boolean {
  const sql = `SELECT count(*) FROM (SELECT 1 FROM records WHERE id >= ? AND id < ? LIMIT ${MOST_EXACT + 1})`;
  return (numberOf(db, sql, ...idsOf(period)) ?? 0) <= MOST_EXACT;
}

function runningOf(db: Database, question: Question): number {
  const rows = db
    .prepare(`SELECT coalesce(tool, ''), coalesce(model, '') FROM records WHERE "end" IS NULL`)
    .raw()
    .all() as [string, string][];
  return rows.filter(([tool, model]) => asksFor(question, { tool, model })).length;
}

/** Everything that is folded began before this. */
export function keptFrom(db: Database, { from }: Extent): number {
  const row = db.prepare("SELECT value FROM facts WHERE name = ?").raw().get(KEPT_FROM);
  const fact = Array.isArray(row) ? Number(row[0]) : Number.NaN;
  // Without the fact nothing was pruned: a clock that stood at 1970 put records there.
  return Number.isFinite(fact) ? fact : from * SLOT_MS;
}

function numberOf(db: Database, sql: string, ...values: readonly string[]): number | null {
  const row = db
    .prepare(sql)
    .raw()
    .get(...values) as [number | null] | undefined;
  return row?.[0] ?? null;
}
