import type Database from "libsql";
import { readTime } from "../store/facts.ts";
import { type HeldBy, heldTimes } from "../store/held.ts";
import { columnsOf, numberIn } from "../store/raw-row.ts";
import { keptFrom } from "../store/unwatched.ts";
import type { How, RecordVerdict, RowVerdict } from "../verdict.ts";
import type { ElsewhereUse, MirrorReport, ModelFactor, ToolMoney, VerdictCounts } from "./shape.ts";

/** What of a gateway's report stands in the database. */
export type StoredMirror = Pick<
  MirrorReport,
  "watched_since" | "rows" | "records" | "newest_row" | "tools" | "models" | "elsewhere"
>;

/** As long as the database cannot be asked. */
export const NOTHING_STORED: StoredMirror = {
  watched_since: null,
  rows: countsOf([], new Set()),
  records: recordsOf([]),
  newest_row: null,
  tools: [],
  models: [],
  elsewhere: [],
};

export interface MirrorMeans {
  readonly now: number;
  /** How far the console's clock is ahead. */
  readonly skew: number;
  /** The tools whose keys are used elsewhere on purpose (keys_elsewhere, watch_only), with their key's fingerprint. */
  readonly elsewhere: readonly { readonly tool: string; readonly key: string }[];
}

export function readMirror(db: Database.Database, gateway: string, means: MirrorMeans): StoredMirror {
  const held = heldTimes(db, gateway);
  const onPurpose = new Set(means.elsewhere.map(({ key }) => key));
  const groups = rowGroups(db, gateway);
  const sums = comparedSums(db, gateway);
  const newest = db.prepare("SELECT max(created_at) FROM mirror.console_rows WHERE gateway = ?").raw();
  const newestRow = numberIn(newest.get(gateway));
  return {
    watched_since: watchedSince(db, gateway, held),
    rows: countsOf(groups, onPurpose),
    records: recordsOf(sums),
    newest_row: newestRow === null ? null : newestRow - means.skew,
    tools: toolsOf(sums, foreignByTool(groups, held, onPurpose)),
    models: modelsOf(sums),
    elsewhere: elsewhereOf(db, gateway, means, held),
  };
}

/** Both logs are there from then on, and a key to compare. */
function watchedSince(
  db: Database.Database,
  gateway: string,
  held: ReadonlyMap<string, HeldBy>,
): number | null {
  const since = [...held.values()].filter(({ until }) => until === null).map((one) => one.since);
  if (since.length === 0) return null;
  return Math.max(Math.min(...since), keptFrom(db), readTime(db, gateway, "covered_from") ?? 0);
}

interface RowGroup {
  /** null: nobody has judged them yet. */
  readonly verdict: RowVerdict | null;
  readonly how: How | null;
  readonly certain: boolean;
  readonly key: string | null;
  readonly count: number;
  readonly billed: number;
}

/** All of it stands in one index. */
function rowGroups(db: Database.Database, gateway: string): RowGroup[] {
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

function countsOf(groups: readonly RowGroup[], onPurpose: ReadonlySet<string>): VerdictCounts {
  // Whose key is not known here is nobody's business here. What was not judged yet has none so far.
  const mine = groups.filter(({ verdict, key }) => verdict === null || key !== null);
  const count = (holds: (group: RowGroup) => boolean) =>
    mine.filter(holds).reduce((sum, group) => sum + group.count, 0);
  const matched = (how: How) => count((group) => group.verdict === "matched" && group.how === how);
  const isForeign = ({ verdict, key }: RowGroup) =>
    verdict === "foreign" && (key === null || !onPurpose.has(key));
  const being = (verdict: RowVerdict) => count((group) => group.verdict === verdict);
  return {
    total: count(() => true),
    by_id: matched("id"),
    by_pair: matched("pair"),
    by_sum: matched("sum"),
    presumed: matched("presumed"),
    differs: being("differs"),
    pending: count(({ verdict }) => verdict === null || verdict === "pending"),
    foreign_certain: count((group) => isForeign(group) && group.certain),
    foreign_suspected: count((group) => isForeign(group) && !group.certain),
    elsewhere: count((group) => group.verdict === "foreign" && !isForeign(group)),
    before: being("before"),
    unwatched: being("unwatched"),
    companion: being("companion"),
    duplicate: being("duplicate"),
  };
}

/** A key that several tools hold is told with each of them. */
function foreignByTool(
  groups: readonly RowGroup[],
  held: ReadonlyMap<string, HeldBy>,
  onPurpose: ReadonlySet<string>,
): Map<string, { count: number; billed: number }> {
  const foreign = new Map<string, { count: number; billed: number }>();
  for (const { verdict, key, count, billed } of groups) {
    if (verdict !== "foreign" || key === null || onPurpose.has(key)) continue;
    for (const tool of held.get(key)?.tools ?? []) {
      const sum = foreign.get(tool) ?? { count: 0, billed: 0 };
      foreign.set(tool, { count: sum.count + count, billed: sum.billed + billed });
    }
  }
  return foreign;
}

/** In the order of the index, so that nothing is sorted. */
function comparedSums(db: Database.Database, gateway: string): ComparedSums[] {
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

const DAY_MS = 86_400_000;
const USUAL_DAYS = 14;

function elsewhereOf(
  db: Database.Database,
  gateway: string,
  { now, skew, elsewhere }: MirrorMeans,
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
    // A key that is not held for so long has no two weeks to be averaged over.
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

/** Records with one verdict, of one tool and model, under the same factors. */
interface ComparedSums {
  readonly verdict: RecordVerdict;
  readonly tool: string | null;
  readonly model: string | null;
  readonly multiplier: number | null;
  readonly theirMultiplier: number | null;
  readonly requests: number;
  /** What we reckon, and what they took; null: not known of any. */
  readonly ours: number | null;
  readonly theirs: number | null;
  /** List prices of both sides, over those of which both are known. */
  readonly list: number;
  readonly theirList: number;
}

function recordsOf(sums: readonly ComparedSums[]): Record<RecordVerdict, number> {
  const counts = { matched: 0, differs: 0, pending: 0, missing: 0 };
  for (const { verdict, requests } of sums) counts[verdict] += requests;
  return counts;
}

function toolsOf(
  sums: readonly ComparedSums[],
  foreign: ReadonlyMap<string, { readonly count: number; readonly billed: number }>,
): ToolMoney[] {
  const compared = comparedOf(sums);
  const names = [...compared.flatMap(({ tool }) => tool ?? []), ...foreign.keys()];
  return [...new Set(names)].toSorted().map((tool) => {
    const mine = compared.filter((one) => one.tool === tool);
    return {
      tool,
      requests: totalOf(mine.map(({ requests }) => requests)) ?? 0,
      ours_microdollars: totalOf(mine.map(({ ours }) => ours)),
      theirs_microdollars: totalOf(mine.map(({ theirs }) => theirs)),
      foreign: foreign.get(tool)?.count ?? 0,
      foreign_microdollars: foreign.get(tool)?.billed ?? 0,
    };
  });
}

function modelsOf(sums: readonly ComparedSums[]): ModelFactor[] {
  // In a sum nobody can say which is which, and so not what one of them cost.
  const compared = comparedOf(sums).filter(({ theirs }) => theirs !== null);
  const names = new Set(compared.flatMap(({ model }) => model ?? []));
  return [...names].toSorted().map((model) => {
    const mine = compared.filter((one) => one.model === model);
    const list = totalOf(mine.map((one) => one.list)) ?? 0;
    const theirList = totalOf(mine.map((one) => one.theirList)) ?? 0;
    const theirs = onlyOf(mine.map(({ theirMultiplier }) => theirMultiplier));
    const here = onlyOf(mine.map(({ multiplier }) => multiplier));
    return {
      model,
      requests: totalOf(mine.map(({ requests }) => requests)) ?? 0,
      factor: list > 0 ? theirList / list : null,
      multiplier: theirs,
      multiplier_here: theirs !== null && here !== null && here !== theirs ? here : null,
    };
  });
}

function comparedOf(sums: readonly ComparedSums[]): ComparedSums[] {
  return sums.filter(({ verdict }) => verdict === "matched" || verdict === "differs");
}

/** null: none of them is known. */
function totalOf(numbers: readonly (number | null)[]): number | null {
  const known = numbers.filter((one) => one !== null);
  return known.length === 0 ? null : known.reduce((sum, one) => sum + one, 0);
}

/** null: they are not all the same. */
function onlyOf(numbers: readonly (number | null)[]): number | null {
  const [first, ...more] = new Set(numbers);
  return more.length > 0 ? null : (first ?? null);
}

/** What comparing came to on one day, by our clock: of the rows, and of the records that have none. */
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

export interface DaysMeans {
  /** How far the console's clock is ahead. */
  readonly skew: number;
  readonly quiet: (key: string) => boolean;
}

type Counted = [verdict: string | null, certain: number, key: string | null, count: number];

/** One day a step. Days with nothing in them are left out. */
export function* readDays(
  db: Database.Database,
  gateway: string,
  days: readonly Day[],
  { skew, quiet }: DaysMeans,
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
    const counted = [
      ...rows.all(gateway, Math.round(from + skew), Math.round(to + skew)),
      ...alone.all(gateway, from, to),
    ] as Counted[];
    yield;
    if (counted.length === 0) continue;
    const sums = {
      matched: 0,
      differs: 0,
      pending: 0,
      foreign_certain: 0,
      foreign_suspected: 0,
      missing: 0,
      other: 0,
    };
    for (const [verdict, certain, key, count] of counted) {
      const loud = key === null || !quiet(key);
      sums[fieldOf(verdict ?? "pending", certain === 1, loud)] += count;
    }
    found.push({ gateway, day: from, ...sums });
  }
  return found;
}

function fieldOf(
  verdict: string,
  certain: boolean,
  loud: boolean,
): keyof Omit<VerdictDay, "gateway" | "day"> {
  switch (verdict) {
    case "matched":
    case "differs":
    case "pending":
    case "missing":
      return verdict;
    case "foreign":
      if (!loud) return "other";
      return certain ? "foreign_certain" : "foreign_suspected";
    default:
      return "other";
  }
}
