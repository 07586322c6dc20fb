import type { Database } from "libsql";
import { cellOf, FOLDED_SLOT, type Lane, SUMS } from "../ledger/cells.ts";
import type { Bin } from "./calendar.ts";
import { type ChartBin, chartBins, chartStretches } from "./chart-bins.ts";
import { type ChartLine, type ChartLines, createChartLines } from "./chart-lines.ts";
import {
  binOf,
  type Extent,
  eachLane,
  extentOf,
  IS_LANE,
  namesOf,
  TOTALS,
  textsOf,
  unpricedIn,
} from "./lanes.ts";
import { oldestFirst } from "./pieces.ts";
import { isFew, keptFrom, type Range, rangeOf, type Slots } from "./read.ts";
import { idsOf } from "./records.ts";
import { isSelected, type LaneName, type Selection } from "./selection.ts";
import { sumsFrom } from "./sums.ts";

export interface ChartQuestion {
  readonly selection: Selection;
  readonly bin: ChartBin;
  readonly by: LaneName;
}

/** What was used, by name and in time. */
export interface Chart {
  readonly bins: readonly Bin[];
  /** What cost most comes first. */
  readonly lines: readonly ChartLine[];
  readonly total: ChartLine;
  readonly unpriced: readonly { readonly model: string; readonly requests: number }[];
  /** Before this, only one sum of everything is kept; null: nothing of the period lies there. */
  readonly prunedBefore: number | null;
  /** Whether first bytes come from each record; else from sums, within 5 %. */
  readonly exact: boolean;
  /** Every name there is, selected or not; empty: none. */
  readonly names: Readonly<Record<LaneName, readonly string[]>>;
}

const STEP_LANES = 20;
const STEP_RECORDS = 1000;

/**
 * The same numbers as readReport's, in steps of a few milliseconds each: whoever runs it does other things between two
 * of them. null: there are too many bins.
 */
export function* readChart(
  db: Database,
  question: ChartQuestion,
  now: number,
): Generator<undefined, Chart | null> {
  const { selection } = question;
  const all = yield* lanesIn(db);
  const lanes = all.filter((lane) => isSelected(selection, lane));
  const extent = yield* wholeExtent(db, lanes);
  const bins = chartBins(question.bin, selection.period, extent, now);
  if (bins === null) return null;
  const range = rangeOf(extent, selection.period, now);
  const kept = extent.folded ? keptFrom(db, extent) : null;
  const { since, until } = selection.period;
  const folded = kept !== null && since === null && (until ?? kept) >= kept;
  const exact = !folded && isFew(db, selection.period);
  const lines = createChartLines();

  const scene = { db, question, lanes, bins, lines, exact };
  yield* addCells(scene, range.inner, folded);
  const models = yield* addEdges(scene, range);
  if (exact) yield* addFirstBytes(scene);
  const total = lines.total();
  const from = folded ? FOLDED_SLOT : range.inner.from;
  const to = folded ? Math.max(range.inner.to, FOLDED_SLOT + 1) : range.inner.to;
  for (const few of inSteps(total.sums.unpriced === 0 ? [] : lanes)) {
    for (const [model, requests] of unpricedIn(db, few, from, to))
      models.set(model, (models.get(model) ?? 0) + requests);
    yield;
  }
  return {
    ...{ bins, total, exact },
    lines: lines.lines(),
    unpriced: [...models]
      .map(([model, requests]) => ({ model, requests }))
      .sort((a, b) => b.requests - a.requests || (a.model < b.model ? -1 : 1)),
    prunedBefore: kept !== null && (since ?? 0) < kept ? kept : null,
    names: namesIn(all),
  };
}

/** Every lane there is, found in steps. */
export function* lanesIn(db: Database): Generator<undefined, Lane[]> {
  const lanes: Lane[] = [];
  for (const lane of eachLane(db)) {
    lanes.push(lane);
    if (lanes.length % STEP_LANES === 0) yield;
  }
  return lanes;
}

/** As many as are asked for in one step. */
export function* inSteps(lanes: readonly Lane[]): Generator<Lane[]> {
  for (let at = 0; at < lanes.length; at += STEP_LANES) yield lanes.slice(at, at + STEP_LANES);
}

export function* wholeExtent(db: Database, lanes: readonly Lane[]): Generator<undefined, Extent> {
  let whole: Extent = { from: 0, to: 0, folded: false };
  for (const few of inSteps(lanes)) {
    const { from, to, folded } = extentOf(db, few);
    const first = whole.to === 0 ? from : to === 0 ? whole.from : Math.min(whole.from, from);
    whole = { from: first, to: Math.max(whole.to, to), folded: whole.folded || folded };
    yield;
  }
  return whole;
}

interface Scene {
  readonly db: Database;
  readonly question: ChartQuestion;
  readonly lanes: readonly Lane[];
  readonly bins: readonly Bin[];
  readonly lines: ChartLines;
  readonly exact: boolean;
}

function* addCells(scene: Scene, { from, to }: Slots, folded: boolean): Generator<undefined> {
  const { db, question, lanes, bins, lines, exact } = scene;
  const statement = db
    .prepare(
      `SELECT ${TOTALS}, ${textsOf(!exact)}, min(slot) FROM cells WHERE ${IS_LANE} AND slot >= ? AND slot < ?
       GROUP BY (slot + CAST(? AS INTEGER)) / CAST(? AS INTEGER)`,
    )
    .raw();
  const stretches = chartStretches(bins, question.bin, { from, to });
  if (folded) stretches.push({ from: FOLDED_SLOT, to: FOLDED_SLOT + 1, shift: 0, slots: 1 });
  for (const lane of lanes) {
    for (const { from, to, shift, slots } of stretches) {
      for (const row of statement.all(...namesOf(lane), from, to, shift, slots) as unknown[][]) {
        const slot = Number(row[SUMS.length + 1]);
        const bin = slot === FOLDED_SLOT ? null : binOf(bins, slot);
        const gatherer = lines.add(lane[question.by], bin, sumsFrom(row));
        if (row[SUMS.length]) gatherer.addCells(String(row[SUMS.length]));
      }
      yield;
    }
  }
}

/** What is left over at the ends of the period, from the records. How many of each model have no price. */
function* addEdges(
  { db, question, bins, lines, exact }: Scene,
  { edges }: Range,
): Generator<undefined, Map<string, number>> {
  const unpriced = new Map<string, number>();
  for (const period of edges) {
    for (const records of oldestFirst(db, { ...question.selection, period, ends: [] })) {
      for (const cell of records.map(cellOf)) {
        const gatherer = lines.add(cell[question.by], binOf(bins, cell.slot), cell.sums);
        if (!exact) gatherer.addHistogram(cell.firstBytes);
        if (cell.sums.unpriced > 0) unpriced.set(cell.model, (unpriced.get(cell.model) ?? 0) + 1);
      }
      yield;
    }
  }
  return unpriced;
}

type Timed = [
  id: string,
  startedAt: number,
  firstByteAt: number,
  tool: string,
  group: string,
  key: string,
  model: string,
];

function* addFirstBytes({ db, question, lines }: Scene): Generator<undefined> {
  const { selection, by } = question;
  const statement = db
    .prepare(
      `SELECT id, started_at, first_byte_at, coalesce(tool, ''), coalesce("group", ''), coalesce(key, ''),
         coalesce(model, model_answered, '')
       FROM records WHERE id > ? AND id < ? AND "end" IS NOT NULL AND first_byte_at IS NOT NULL
       ORDER BY id LIMIT ${STEP_RECORDS}`,
    )
    .raw();
  let [after, before] = idsOf(selection.period);
  for (;;) {
    const rows = statement.all(after, before) as Timed[];
    for (const [, startedAt, firstByteAt, tool, group, key, model] of rows) {
      const lane = { tool, group, key, model };
      if (isSelected(selection, lane)) lines.firstBytes(lane[by]).add(firstByteAt - startedAt);
    }
    yield;
    if (rows.length < STEP_RECORDS) return;
    after = rows.at(-1)?.[0] ?? before;
  }
}

function namesIn(lanes: readonly Lane[]): Chart["names"] {
  const of = (name: LaneName) => [...new Set(lanes.map((lane) => lane[name]))].sort();
  return { tool: of("tool"), model: of("model"), group: of("group"), key: of("key") };
}
