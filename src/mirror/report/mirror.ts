import type Database from "libsql";
import { keptFrom } from "../store/coverage-gaps.ts";
import { readTime } from "../store/facts.ts";
import { type HeldBy, heldTimes } from "../store/keys.ts";
import { columnsOf, numberIn } from "../store/query.ts";
import type { How, RecordVerdict, RowVerdict } from "../verdict.ts";
import type { ElsewhereUse, MirrorReport, ModelFactor, ToolMoney, VerdictCounts } from "./shape.ts";

/*
 * The sums of a gateway's report: verdicts, money by tool, price factors by model, and verdicts by day. All of it is
 * grouped by SQLite from an index, because there may be millions of rows and this runs on the daemon's main thread.
 */

/** The part of a gateway's report that is read from the database. */
export type StoredMirror = Pick<
  MirrorReport,
  "watched_since" | "rows" | "records" | "newest_row" | "tools" | "models" | "elsewhere"
>;

/** The same while the database cannot be read. */
export const NOTHING_STORED: StoredMirror = {
  watched_since: null,
  rows: countRows([], new Set()),
  records: countRecords([]),
  newest_row: null,
  tools: [],
  models: [],
  elsewhere: [],
};

export interface MirrorOptions {
  readonly now: number;
  /** How far the console's clock is ahead. */
  readonly skew: number;
  /** The tools whose keys are used elsewhere on purpose (keys_elsewhere, watch_only), with their key's fingerprint. */
  readonly elsewhere: readonly { readonly tool: string; readonly key: string }[];
}

export function readMirror(db: Database.Database, gateway: string, options: MirrorOptions): StoredMirror {
  const held = heldTimes(db, gateway);
  const onPurpose = new Set(options.elsewhere.map(({ key }) => key));
  const rows = readRowSums(db, gateway);
  const records = readRecordSums(db, gateway);
  const newest = db.prepare("SELECT max(created_at) FROM mirror.console_rows WHERE gateway = ?").raw();
  const newestRow = numberIn(newest.get(gateway));
  return {
    watched_since: watchedSince(db, gateway, held),
    rows: countRows(rows, onPurpose),
    records: countRecords(records),
    newest_row: newestRow === null ? null : newestRow - options.skew,
    tools: moneyByTool(records, foreignByTool(rows, held, onPurpose)),
    models: factorsByModel(records),
    elsewhere: readElsewhere(db, gateway, options, held),
  };
}

/** From then on there is a key to compare, and both logs cover it. */
function watchedSince(
  db: Database.Database,
  gateway: string,
  held: ReadonlyMap<string, HeldBy>,
): number | null {
  const since = [...held.values()].filter(({ until }) => until === null).map((one) => one.since);
  if (since.length === 0) return null;
  return Math.max(Math.min(...since), keptFrom(db), readTime(db, gateway, "covered_from") ?? 0);
}

/** Console rows with one verdict on one key. */
interface RowSum {
  /** null: not compared yet. */
  readonly verdict: RowVerdict | null;
  readonly how: How | null;
  readonly certain: boolean;
  readonly key: string | null;
  readonly count: number;
  readonly billed: number;
}

/** The index console_rows_counted has every column of this. */
function readRowSums(db: Database.Database, gateway: string): RowSum[] {
  const rows = db
    .prepare(
      `SELECT verdict, how, certain, key, count(*), coalesce(sum(billed_microdollars), 0) FROM mirror.console_rows
       WHERE gateway = ? GROUP BY verdict, how, certain, key`,
    )
    .raw();
  return rows.all(gateway).map((row) => {
    const [verdict, how, certain, key, count, billed] = columnsOf(row);
    return {
      verdict: verdict as RowVerdict | null,
      how: how as How | null,
      certain: certain === 1,
      key: key === null ? null : String(key),
      count: Number(count),
      billed: Number(billed),
    };
  });
}

function countRows(sums: readonly RowSum[], onPurpose: ReadonlySet<string>): VerdictCounts {
  // Rows of keys that are not known here are not counted. A row that was not compared yet has no key so far.
  const counted = sums.filter(({ verdict, key }) => verdict === null || key !== null);
  const count = (holds: (sum: RowSum) => boolean) =>
    counted.filter(holds).reduce((total, sum) => total + sum.count, 0);
  const matched = (how: How) => count((sum) => sum.verdict === "matched" && sum.how === how);
  const isForeign = ({ verdict, key }: RowSum) =>
    verdict === "foreign" && (key === null || !onPurpose.has(key));
  const withVerdict = (verdict: RowVerdict) => count((sum) => sum.verdict === verdict);
  return {
    total: count(() => true),
    by_id: matched("id"),
    by_pair: matched("pair"),
    by_sum: matched("sum"),
    presumed: matched("presumed"),
    differs: withVerdict("differs"),
    pending: count(({ verdict }) => verdict === null || verdict === "pending"),
    foreign_certain: count((sum) => isForeign(sum) && sum.certain),
    foreign_suspected: count((sum) => isForeign(sum) && !sum.certain),
    elsewhere: count((sum) => sum.verdict === "foreign" && !isForeign(sum)),
    before: withVerdict("before"),
    unwatched: withVerdict("unwatched"),
    companion: withVerdict("companion"),
    duplicate: withVerdict("duplicate"),
  };
}

interface Foreign {
  readonly count: number;
  readonly billed: number;
}

/** A key that several tools hold counts for each of them. */
function foreignByTool(
  sums: readonly RowSum[],
  held: ReadonlyMap<string, HeldBy>,
  onPurpose: ReadonlySet<string>,
): Map<string, Foreign> {
  const foreign = new Map<string, Foreign>();
  for (const { verdict, key, count, billed } of sums) {
    if (verdict !== "foreign" || key === null || onPurpose.has(key)) continue;
    for (const tool of held.get(key)?.tools ?? []) {
      const sum = foreign.get(tool) ?? { count: 0, billed: 0 };
      foreign.set(tool, { count: sum.count + count, billed: sum.billed + billed });
    }
  }
  return foreign;
}

/** Records with one verdict, of one tool and model, under the same multipliers. */
interface RecordSum {
  readonly verdict: RecordVerdict;
  readonly tool: string | null;
  readonly model: string | null;
  readonly multiplier: number | null;
  readonly theirMultiplier: number | null;
  readonly requests: number;
  /** Our cost and their bill; null: known of none. */
  readonly ours: number | null;
  readonly theirs: number | null;
  /** List prices of both sides, over the records of which both are known. */
  readonly list: number;
  readonly theirList: number;
}

/** In the order of the index verdicts_counted, so that nothing is sorted. */
function readRecordSums(db: Database.Database, gateway: string): RecordSum[] {
  const rows = db
    .prepare(
      `SELECT verdict, tool, model, multiplier, their_multiplier, count(*), sum(cost_microdollars),
         sum(their_billed_microdollars), total(iif(their_list_microdollars IS NULL, 0, list_microdollars)),
         total(iif(list_microdollars IS NULL, 0, their_list_microdollars))
       FROM mirror.verdicts WHERE gateway = ? GROUP BY verdict, tool, model, multiplier, their_multiplier`,
    )
    .raw();
  return rows.all(gateway).map((row) => {
    const [verdict, tool, model, ...numbers] = columnsOf(row);
    const [multiplier, theirMultiplier, requests, ours, theirs, list, theirList] = numbers.map((one) =>
      typeof one === "number" ? one : null,
    );
    return {
      verdict: verdict as RecordVerdict,
      tool: tool === null ? null : String(tool),
      model: model === null ? null : String(model),
      multiplier: multiplier ?? null,
      theirMultiplier: theirMultiplier ?? null,
      requests: requests ?? 0,
      ours: ours ?? null,
      theirs: theirs ?? null,
      list: list ?? 0,
      theirList: theirList ?? 0,
    };
  });
}

function countRecords(sums: readonly RecordSum[]): Record<RecordVerdict, number> {
  const counts = { matched: 0, differs: 0, pending: 0, missing: 0 };
  for (const { verdict, requests } of sums) counts[verdict] += requests;
  return counts;
}

function moneyByTool(sums: readonly RecordSum[], foreign: ReadonlyMap<string, Foreign>): ToolMoney[] {
  const compared = comparedOnly(sums);
  const names = [...compared.flatMap(({ tool }) => tool ?? []), ...foreign.keys()];
  return [...new Set(names)].toSorted().map((tool) => {
    const own = compared.filter((one) => one.tool === tool);
    return {
      tool,
      requests: totalOf(own.map(({ requests }) => requests)) ?? 0,
      ours_microdollars: totalOf(own.map(({ ours }) => ours)),
      theirs_microdollars: totalOf(own.map(({ theirs }) => theirs)),
      foreign: foreign.get(tool)?.count ?? 0,
      foreign_microdollars: foreign.get(tool)?.billed ?? 0,
    };
  });
}

function factorsByModel(sums: readonly RecordSum[]): ModelFactor[] {
  // Records matched by sum have no bill of their own, so they have no price to compare.
  const compared = comparedOnly(sums).filter(({ theirs }) => theirs !== null);
  const names = new Set(compared.flatMap(({ model }) => model ?? []));
  return [...names].toSorted().map((model) => {
    const own = compared.filter((one) => one.model === model);
    const list = totalOf(own.map((one) => one.list)) ?? 0;
    const theirList = totalOf(own.map((one) => one.theirList)) ?? 0;
    const theirs = onlyValue(own.map(({ theirMultiplier }) => theirMultiplier));
    const here = onlyValue(own.map(({ multiplier }) => multiplier));
    return {
      model,
      requests: totalOf(own.map(({ requests }) => requests)) ?? 0,
      factor: list > 0 ? theirList / list : null,
      multiplier: theirs,
      multiplier_here: theirs !== null && here !== null && here !== theirs ? here : null,
    };
  });
}

function comparedOnly(sums: readonly RecordSum[]): RecordSum[] {
  return sums.filter(({ verdict }) => verdict === "matched" || verdict === "differs");
}

/** null: none of them is known. */
function totalOf(numbers: readonly (number | null)[]): number | null {
  const known = numbers.filter((one) => one !== null);
  return known.length === 0 ? null : known.reduce((sum, one) => sum + one, 0);
}

/** null: they are not all the same. */
function onlyValue(numbers: readonly (number | null)[]): number | null {
  const [first, ...more] = new Set(numbers);
  return more.length > 0 ? null : (first ?? null);
}

const DAY_MS = 86_400_000;
const USUAL_DAYS = 14;

/** Use of keys that are used elsewhere on purpose: the last day against the two weeks before it. */
function readElsewhere(
  db: Database.Database,
  gateway: string,
  { now, skew, elsewhere }: MirrorOptions,
  held: ReadonlyMap<string, HeldBy>,
): ElsewhereUse[] {
  if (elsewhere.length === 0) return [];
  const today = now - DAY_MS;
  const rows = db
    .prepare(
      `SELECT key, created_at >= ?, count(*), coalesce(sum(billed_microdollars), 0) FROM mirror.console_rows
       WHERE gateway = ? AND verdict = 'foreign' AND created_at >= ? GROUP BY 1, 2`,
    )
    .raw();
  const sums = rows.all(today + skew, gateway, today - USUAL_DAYS * DAY_MS + skew).map(columnsOf);
  return elsewhere.map(({ tool, key }) => {
    const [, , day, dayBilled] = sums.find(([of, recent]) => of === key && recent === 1) ?? [];
    const [, , past, pastBilled] = sums.find(([of, recent]) => of === key && recent === 0) ?? [];
    // A key that was held for less than two weeks is averaged over the days it was held.
    const days = Math.min(USUAL_DAYS, Math.max(1, (today - (held.get(key)?.since ?? 0)) / DAY_MS));
    return {
      tool,
      key,
      day: Number(day ?? 0),
      day_microdollars: Number(dayBilled ?? 0),
      usual: Number(past ?? 0) / days,
      usual_microdollars: Math.round(Number(pastBilled ?? 0) / days),
    };
  });
}

/** The verdicts of one day, by our clock: of console rows, and of records without one. */
export interface VerdictDay {
  readonly gateway: string;
  /** When it begins. */
  readonly day: number;
  readonly matched: number;
  readonly differs: number;
  readonly pending: number;
  readonly foreign_certain: number;
  readonly foreign_suspected: number;
  /** Ours alone. */
  readonly missing: number;
  /** before, unwatched, companion, duplicate, and rows of keys that are used elsewhere on purpose: never an alarm. */
  readonly other: number;
}

export interface Day {
  readonly from: number;
  /** Not part of it. */
  readonly to: number;
}

export interface DaysOptions {
  /** How far the console's clock is ahead. */
  readonly skew: number;
  readonly quiet: (key: string) => boolean;
}

type DayCount = [verdict: string | null, certain: number, key: string | null, count: number];

/** One day a step, for a caller with other work in between. Days without rows are left out. */
export function* readDays(
  db: Database.Database,
  gateway: string,
  days: readonly Day[],
  { skew, quiet }: DaysOptions,
): Generator<undefined, VerdictDay[]> {
  const rows = db
    .prepare(
      `SELECT verdict, certain, key, count(*) FROM mirror.console_rows
       WHERE gateway = ? AND created_at >= ? AND created_at < ? GROUP BY verdict, certain, key`,
    )
    .raw();
  const alone = db
    .prepare(
      `SELECT verdict, 0, NULL, count(*) FROM mirror.verdicts
       WHERE gateway = ? AND verdict IN ('missing', 'pending') AND started_at >= ? AND started_at < ? GROUP BY verdict`,
    )
    .raw();
  const found: VerdictDay[] = [];
  for (const { from, to } of days) {
    const counts = [
      ...rows.all(gateway, Math.round(from + skew), Math.round(to + skew)),
      ...alone.all(gateway, from, to),
    ] as DayCount[];
    yield;
    if (counts.length === 0) continue;
    const sums = {
      matched: 0,
      differs: 0,
      pending: 0,
      foreign_certain: 0,
      foreign_suspected: 0,
      missing: 0,
      other: 0,
    };
    for (const [verdict, certain, key, count] of counts) {
      const isQuiet = key !== null && quiet(key);
      sums[dayField(verdict ?? "pending", certain === 1, isQuiet)] += count;
    }
    found.push({ gateway, day: from, ...sums });
  }
  return found;
}

function dayField(
  verdict: string,
  certain: boolean,
  isQuiet: boolean,
): keyof Omit<VerdictDay, "gateway" | "day"> {
  switch (verdict) {
    case "matched":
    case "differs":
    case "pending":
    case "missing":
      return verdict;
    case "foreign":
      if (isQuiet) return "other";
      return certain ? "foreign_certain" : "foreign_suspected";
    default:
      return "other";
  }
}
