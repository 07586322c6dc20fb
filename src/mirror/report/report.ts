import type Database from "libsql";
import { DAY_MS, MINUTE_MS } from "../../core/units.ts";
import { blindSiblings, type Sibling } from "../reconcile/siblings.ts";
import { keptFrom } from "../store/coverage-gaps.ts";
import { readTime } from "../store/facts.ts";
import { type HeldBy, heldTimes } from "../store/keys.ts";
import { queryAll, queryNumber } from "../store/query.ts";
import { readWaitingRows } from "../store/rows.ts";
import type { How, RecordVerdict, RowVerdict } from "../verdict.ts";
import type {
  ElsewhereUse,
  MirrorReport,
  ModelFactor,
  ToolMoney,
  UnseenMachine,
  VerdictCounts,
  VerdictDay,
} from "./shape.ts";

/*
 * The numbers of a gateway's report: verdicts, money by tool, price factors by model, and verdicts by day. There may be
 * millions of rows, so SQLite groups them in the order of an index.
 */

/** The part of a gateway's report that is read from the database. */
type StoredReport = Pick<
  MirrorReport,
  "watched_since" | "rows" | "records" | "newest_row" | "tools" | "models" | "elsewhere" | "unseen_machines"
>;

/** The same while the database cannot be read. */
export const NOTHING_STORED: StoredReport = {
  watched_since: null,
  rows: countRows([], new Set()),
  records: countRecords([]),
  newest_row: null,
  tools: [],
  models: [],
  elsewhere: [],
  unseen_machines: [],
};

export interface ReportOptions {
  readonly now: number;
  /** How far the console's clock is ahead. */
  readonly skew: number;
  /** The tools whose keys are used elsewhere on purpose (keys_elsewhere, watch_only), with their key's fingerprint. */
  readonly elsewhere: readonly { readonly tool: string; readonly key: string }[];
  /** The multipliers of the groups in config.yaml. */
  readonly multipliers: Readonly<Record<string, number>>;
  readonly siblings: readonly Sibling[];
}

export function readReport(db: Database.Database, gateway: string, options: ReportOptions): StoredReport {
  const { skew, elsewhere } = options;
  const held = heldTimes(db, gateway);
  const quietKeys = new Set(elsewhere.map(({ key }) => key));
  const rows = readRowSums(db, gateway);
  const records = readRecordSums(db, gateway);
  const newest = "SELECT max(created_at) FROM mirror.console_rows WHERE gateway = ?";
  const newestRow = queryNumber(db, newest, gateway);
  return {
    watched_since: watchedSince(db, gateway, held),
    rows: countRows(rows, quietKeys),
    records: countRecords(records),
    newest_row: newestRow === null ? null : newestRow - skew,
    tools: moneyByTool(records, foreignByTool(rows, held, quietKeys)),
    models: pricesByModel(comparedOnly(records), options.multipliers),
    elsewhere: readElsewhere(db, gateway, options, held),
    unseen_machines: unseenMachines(db, gateway, options, held),
  };
}

/** A machine that is less behind is online, and its records are on their way. */
const BEHIND_MS = MINUTE_MS;

/** The machines that hold a key of this gateway and are behind, and those that a row waits for. */
function unseenMachines(
  db: Database.Database,
  gateway: string,
  { siblings, now, skew }: ReportOptions,
  held: ReadonlyMap<string, HeldBy>,
): UnseenMachine[] {
  if (siblings.length === 0) return [];
  const behind = siblings.filter(
    ({ seenUntil, isStopped, keys }) =>
      now - seenUntil > BEHIND_MS && !isStopped && keys.some((key) => held.has(key)),
  );
  const awaited = readWaitingRows(db, gateway, skew).flatMap(({ key, began }) =>
    blindSiblings(key, began, siblings),
  );
  return [...new Set([...behind, ...awaited])]
    .map(({ name, seenUntil }) => ({ machine: name, since: seenUntil > 0 ? seenUntil : null }))
    .toSorted((a, b) => (a.machine < b.machine ? -1 : 1));
}

/** The first time at which a key was held here and both logs cover it. */
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
  /** null with a match: the row changed since, and is compared again. */
  readonly how: How | null;
  readonly certain: 0 | 1;
  readonly key: string | null;
  readonly count: number;
  readonly billed: number;
}

/** The index console_rows_counted has every column of this. */
function readRowSums(db: Database.Database, gateway: string): RowSum[] {
  return queryAll(
    db,
    `SELECT verdict, how, certain, key, count(*) AS count, coalesce(sum(billed_microdollars), 0) AS billed
     FROM mirror.console_rows WHERE gateway = ? GROUP BY verdict, how, certain, key`,
    gateway,
  );
}

function countRows(
  sums: readonly Omit<RowSum, "billed">[],
  quietKeys: ReadonlySet<string>,
): Record<keyof VerdictCounts, number> {
  const counts = {
    total: 0,
    by_id: 0,
    by_pair: 0,
    by_sum: 0,
    presumed: 0,
    differs: 0,
    pending: 0,
    foreign_certain: 0,
    foreign_suspected: 0,
    elsewhere: 0,
    before: 0,
    unwatched: 0,
    companion: 0,
    duplicate: 0,
  };
  for (const { verdict, how, certain, key, count } of sums) {
    if (!isHeldHere({ verdict, key })) continue;
    counts.total += count;
    if (verdict === null || (verdict === "matched" && how === null)) counts.pending += count;
    else if (verdict === "matched") counts[MATCHED_BY[how ?? "id"]] += count;
    else if (verdict !== "foreign") counts[verdict] += count;
    else if (key !== null && quietKeys.has(key)) counts.elsewhere += count;
    else counts[certain === 1 ? "foreign_certain" : "foreign_suspected"] += count;
  }
  return counts;
}

/** Rows of keys that are unknown here do not count. A row that was not compared yet has no key so far. */
function isHeldHere({ verdict, key }: Pick<RowSum, "verdict" | "key">): boolean {
  return verdict === null || key !== null;
}

function isForeign({ verdict, key }: RowSum, quietKeys: ReadonlySet<string>): boolean {
  return verdict === "foreign" && key !== null && !quietKeys.has(key);
}

function sumBilled(sums: readonly RowSum[]): number {
  return sums.reduce((sum, { billed }) => sum + billed, 0);
}

const MATCHED_BY = { id: "by_id", pair: "by_pair", sum: "by_sum", presumed: "presumed" } as const;

type Foreign = Pick<ToolMoney, "foreign" | "foreign_microdollars" | "suspected" | "suspected_microdollars">;

const NO_FOREIGN: Foreign = {
  foreign: 0,
  foreign_microdollars: 0,
  suspected: 0,
  suspected_microdollars: 0,
};

/** A key that several tools hold counts for each of them. */
function foreignByTool(
  sums: readonly RowSum[],
  held: ReadonlyMap<string, HeldBy>,
  quietKeys: ReadonlySet<string>,
): Map<string, Foreign> {
  const found = new Map<string, Foreign>();
  for (const { verdict, certain, key, count, billed } of sums) {
    if (verdict !== "foreign" || key === null || quietKeys.has(key)) continue;
    for (const tool of held.get(key)?.tools ?? []) {
      const sum = found.get(tool) ?? NO_FOREIGN;
      const more =
        certain === 1
          ? { foreign: sum.foreign + count, foreign_microdollars: sum.foreign_microdollars + billed }
          : { suspected: sum.suspected + count, suspected_microdollars: sum.suspected_microdollars + billed };
      found.set(tool, { ...sum, ...more });
    }
  }
  return found;
}

/** In the order of the index verdicts_counted, so that nothing is sorted. */
function readRecordSums(db: Database.Database, gateway: string): RecordSum[] {
  const prices = `tool, model, "group", tier, their_multiplier, price_factor`;
  return queryAll(
    db,
    `SELECT verdict, ${prices}, count(*) AS requests,
       sum(cost_microdollars) AS ours, sum(their_billed_microdollars) AS theirs,
       sum(their_billed_microdollars - cost_microdollars) AS difference,
       sum(cost_microdollars IS NULL AND their_billed_microdollars > 0) AS ours_unknown,
       sum(their_billed_microdollars IS NULL AND cost_microdollars > 0) AS theirs_unknown
     FROM mirror.verdicts WHERE gateway = ? GROUP BY verdict, ${prices}`,
    gateway,
  );
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
      requests: sumKnown(own.map(({ requests }) => requests)) ?? 0,
      ours_microdollars: sumKnown(own.map(({ ours }) => ours)),
      theirs_microdollars: sumKnown(own.map(({ theirs }) => theirs)),
      ours_unknown: sumKnown(own.map(({ ours_unknown: unknown }) => unknown)) ?? 0,
      theirs_unknown: sumKnown(own.map(({ theirs_unknown: unknown }) => unknown)) ?? 0,
      ...(foreign.get(tool) ?? NO_FOREIGN),
    };
  });
}

function comparedOnly(sums: readonly RecordSum[]): RecordSum[] {
  return sums.filter(({ verdict }) => verdict === "matched" || verdict === "differs");
}

/** null: no value is known. */
function sumKnown(numbers: readonly (number | null)[]): number | null {
  const known = numbers.filter((one) => one !== null);
  return known.length === 0 ? null : known.reduce((sum, one) => sum + one, 0);
}

const USUAL_DAYS = 14;

interface ElsewhereSum {
  readonly key: string;
  readonly recent: 0 | 1;
  readonly count: number;
  readonly billed: number;
}

/** Use of keys that are used elsewhere on purpose: the last day against the two weeks before it. */
function readElsewhere(
  db: Database.Database,
  gateway: string,
  { now, skew, elsewhere }: ReportOptions,
  held: ReadonlyMap<string, HeldBy>,
): ElsewhereUse[] {
  if (elsewhere.length === 0) return [];
  const today = now - DAY_MS;
  const sums = queryAll<ElsewhereSum>(
    db,
    `SELECT key, created_at >= ? AS recent, count(*) AS count, coalesce(sum(billed_microdollars), 0) AS billed
     FROM mirror.console_rows WHERE gateway = ? AND verdict = 'foreign' AND created_at >= ? GROUP BY 1, 2`,
    today + skew,
    gateway,
    today - USUAL_DAYS * DAY_MS + skew,
  );
  const findSum = (key: string, recent: 0 | 1) =>
    sums.find((one) => one.key === key && one.recent === recent) ?? { count: 0, billed: 0 };
  return elsewhere.map(({ tool, key }) => {
    const day = findSum(key, 1);
    const before = findSum(key, 0);
    // A key that was held for less than two weeks is averaged over the days it was held.
    const days = Math.min(USUAL_DAYS, Math.max(1, (today - (held.get(key)?.since ?? 0)) / DAY_MS));
    return {
      tool,
      key,
      day: day.count,
      day_microdollars: day.billed,
      usual: before.count / days,
      usual_microdollars: Math.round(before.billed / days),
    };
  });
}

export interface Day {
  readonly from: number;
  /** Not part of it. */
  readonly to: number;
}

/** Counts verdicts by day. Days without any are left out. */
export function readDays(
  db: Database.Database,
  gateway: string,
  days: readonly Day[],
  skew: number,
  quietKeys: ReadonlySet<string>,
): VerdictDay[] {
  const rows = db.prepare(
    `SELECT verdict, how, certain, key, count(*) AS count, coalesce(sum(billed_microdollars), 0) AS billed
     FROM mirror.console_rows
     WHERE gateway = ? AND created_at >= ? AND created_at < ? GROUP BY verdict, how, certain, key`,
  );
  const records = db.prepare(
    `SELECT verdict, count(*) AS requests FROM mirror.verdicts
     WHERE gateway = ? AND verdict IN ('missing', 'pending') AND started_at >= ? AND started_at < ? GROUP BY verdict`,
  );
  const found: VerdictDay[] = [];
  for (const { from, to } of days) {
    const sums = rows.all(gateway, Math.round(from + skew), Math.round(to + skew)) as RowSum[];
    const theirs = countRows(sums, quietKeys);
    const ours = countRecords(records.all(gateway, from, to) as RecordSum[]);
    if (theirs.total + ours.missing + ours.pending === 0) continue;
    found.push({
      gateway,
      day: from,
      matched: theirs.by_id + theirs.by_pair + theirs.by_sum + theirs.presumed,
      differs: theirs.differs,
      pending: theirs.pending + ours.pending,
      foreign_certain: theirs.foreign_certain,
      foreign_suspected: theirs.foreign_suspected,
      missing: ours.missing,
      other: theirs.elsewhere + theirs.before + theirs.unwatched + theirs.companion + theirs.duplicate,
      billed_microdollars: sumBilled(sums.filter(isHeldHere)),
      foreign_microdollars: sumBilled(sums.filter((sum) => isForeign(sum, quietKeys))),
    });
  }
  return found;
}

/* The console's prices and multipliers against ours. A few rows, or rows that disagree, show nothing. */

/** Records with one verdict, of one tool, model, group and tier, at the same prices. */
interface RecordSum {
  readonly verdict: RecordVerdict;
  readonly tool: string | null;
  readonly model: string | null;
  readonly group: string | null;
  readonly tier: string | null;
  readonly their_multiplier: number | null;
  /** Their price against ours; null: unknown, or the amount is too small. */
  readonly price_factor: number | null;
  readonly requests: number;
  /** Our cost and their bill; null: known of none. */
  readonly ours: number | null;
  readonly theirs: number | null;
  /** Of those that have both; null: none has. */
  readonly difference: number | null;
  readonly ours_unknown: number;
  readonly theirs_unknown: number;
}

/** At least this many rows must agree, and this share of all rows with a value. */
const MIN_ROWS = 5;
const MIN_SHARE = 0.75;
/** Both sides round their prices: factors this close are the same. Multipliers are exact. */
const SAME_PRICE = 0.01;
const SAME_MULTIPLIER = 1e-9;

/** A line for each model, group and tier. @param compared records that were matched with rows */
function pricesByModel(
  compared: readonly RecordSum[],
  multipliers: ReportOptions["multipliers"],
): ModelFactor[] {
  const lines = new Map<string, RecordSum[]>();
  for (const sum of compared) {
    // Records matched by sum have no bill of their own, so they have no price to compare.
    if (sum.model === null || sum.theirs === null) continue;
    const name = JSON.stringify([sum.model, sum.group, sum.tier]);
    const line = lines.get(name);
    if (line === undefined) lines.set(name, [sum]);
    else line.push(sum);
  }
  return [...lines.entries()]
    .toSorted(([one], [other]) => (one < other ? -1 : 1))
    .map(([, sums]) => priceOfLine(sums, multipliers));
}

function priceOfLine(sums: readonly RecordSum[], multipliers: ReportOptions["multipliers"]): ModelFactor {
  const { model, group = null, tier = null } = sums[0] ?? {};
  const price = agreement(sums, ({ price_factor }) => price_factor, SAME_PRICE);
  const multiplier = agreement(sums, ({ their_multiplier }) => their_multiplier, SAME_MULTIPLIER);
  // Without a group it is 1. null: config.yaml no longer has this group.
  const here = group === null ? 1 : (multipliers[group] ?? null);
  const matched = sums.filter(({ verdict }) => verdict === "matched");
  const differs =
    multiplier.value !== null && here !== null && !isSame(multiplier.value, here, SAME_MULTIPLIER);
  return {
    model: model ?? "",
    group,
    tier,
    requests: sums.reduce((total, { requests }) => total + requests, 0),
    factor: price.value,
    factor_rows: price.rows,
    multiplier: multiplier.value,
    multiplier_rows: multiplier.rows,
    multiplier_here: differs ? here : null,
    difference_microdollars: sumKnown(matched.map(({ difference }) => difference)) ?? 0,
  };
}

interface Agreement {
  /** null: too few rows have a value, or too few of them agree. */
  readonly value: number | null;
  /** How many say this. */
  readonly rows: number;
}

function agreement(
  sums: readonly RecordSum[],
  read: (sum: RecordSum) => number | null,
  tolerance: number,
): Agreement {
  const values = sums
    .flatMap((sum) => {
      const value = read(sum);
      return value === null ? [] : [{ value, rows: sum.requests }];
    })
    .toSorted((a, b) => a.value - b.value);
  const all = values.reduce((total, { rows }) => total + rows, 0);
  let before = 0;
  const median = values.find(({ rows }) => {
    before += rows;
    return before * 2 >= all;
  });
  if (median === undefined) return { value: null, rows: 0 };
  const agreeing = values.filter(({ value }) => isSame(value, median.value, tolerance));
  const rows = agreeing.reduce((total, one) => total + one.rows, 0);
  const isEnough = rows >= MIN_ROWS && rows >= all * MIN_SHARE;
  return { value: isEnough ? median.value : null, rows };
}

function isSame(one: number, other: number, tolerance: number): boolean {
  return Math.abs(one - other) <= tolerance * Math.max(Math.abs(one), Math.abs(other));
}
