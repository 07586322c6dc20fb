import { HOUR_MS } from "../../core/units.ts";
import { REASONS } from "../verdict.ts";
import { type Cluster, findClusters, groupedBy, matchCluster, RowIndex, without } from "./candidates.ts";
import type {
  Context,
  Match,
  OurRequest,
  OurTokens,
  RepeatedId,
  RowGroup,
  StartFit,
  TheirRow,
  Unmatched,
} from "./context.ts";
import {
  endOf,
  findOwnRows,
  idsContradict,
  isSameCall,
  listModels,
  type RowTokens,
  theirWholeInput,
  tokensAgree,
  tokensOfRow,
  wholeInput,
} from "./fit.ts";

/** Both lists in the order of time, with the rows of one request together. */
export function sortByTime(ours: readonly OurRequest[], theirs: readonly TheirRow[]): Unmatched {
  const records = ours.toSorted((a, b) => endOf(a) - endOf(b) || (a.id < b.id ? -1 : 1));
  const withId = theirs.filter(({ request_id }) => request_id !== null);
  const broughtBy = new Map(records.toReversed().map((record) => [record.brought_id, record]));
  const groups = [...groupedBy(withId, ({ request_id }) => request_id)].flatMap(([id, rows]) => {
    const record = broughtBy.get(id);
    return record === undefined ? [makeGroup(rows)] : withoutRepeats(rows, record);
  });
  for (const row of theirs) if (row.request_id === null) groups.push(makeGroup([row]));
  groups.sort((a, b) => a.main.at - b.main.at || (a.main.identity < b.main.identity ? -1 : 1));
  return { records, groups };
}

/** The rows of the request that brought their id, and apart from them those of others that sent it again. */
function withoutRepeats(rows: readonly TheirRow[], record: OurRequest): RowGroup[] {
  const own = findOwnRows(record, rows);
  const repeats = { record, isListed: own.length > 0 };
  const others = rows.filter((row) => !own.includes(row)).map((row) => makeGroup([row], repeats));
  return own.length > 0 ? [makeGroup(own), ...others] : others;
}

function makeGroup(rows: readonly TheirRow[], repeats: RepeatedId | null = null): RowGroup {
  const sorted = rows.length === 1 ? rows : rows.toSorted(mainFirst);
  const [main] = sorted;
  if (main === undefined) throw new Error("a request without rows");
  return { main, rows: sorted, key: sorted.find(({ key }) => key !== null)?.key ?? null, repeats };
}

const KIND_ORDER = { use: 0, error: 1, refund: 2 } as const;

/** A use before errors before refunds. The most expensive use comes first; errors and refunds come in the order of time. */
function mainFirst(a: TheirRow, b: TheirRow): number {
  return (
    KIND_ORDER[a.kind] - KIND_ORDER[b.kind] ||
    (a.kind === "use" ? (b.billed_microdollars ?? 0) - (a.billed_microdollars ?? 0) : a.at - b.at) ||
    (a.identity < b.identity ? -1 : 1)
  );
}

/**
 * Step 1: both logs have the id that the gateway sent, however far apart in time. Some versions of new-api send the id of the
 * gateway behind them, which the row has too.
 */
export function matchIds({ records, groups }: Unmatched): Match[] {
  const recordsById = new Map<string, OurRequest>();
  // No two requests have one id. If two seem to, it belongs to the one that ended first.
  const ended = records.filter(({ ended_at }) => ended_at !== null);
  const others = records.filter(({ ended_at }) => ended_at === null);
  for (const record of [...ended, ...others].toReversed()) {
    for (const id of record.ids) recordsById.set(id, record);
  }
  const found = new Map<OurRequest, { readonly own: TheirRow[]; readonly behind: TheirRow[] }>();
  for (const { main, rows } of groups) {
    const owner = recordsById.get(main.request_id ?? "");
    const upstream = rows.find(({ upstream_id }) => upstream_id !== null && recordsById.has(upstream_id));
    const record = owner ?? recordsById.get(upstream?.upstream_id ?? "");
    if (record === undefined) continue;
    const parts = found.get(record) ?? { own: [], behind: [] };
    found.set(record, parts);
    for (const row of rows) parts[owner === undefined ? "behind" : "own"].push(row);
  }
  return [...found].map(([record, { own, behind }]): Match => {
    if (own.length === 0)
      return { record, group: makeGroup(behind), how: "id", reason: REASONS["same-id-behind"] };
    const group = makeGroup(own);
    // The row with the record's own id has its tokens.
    const rows = [...group.rows, ...behind];
    return { record, group: { ...group, rows }, how: "id", reason: REASONS["same-id"] };
  });
}

/** How far apart a request and its row may be: their starts, or their ends where the row has no start. */
interface Distance {
  readonly starts: number;
  readonly ends: number;
}

const PAIRED_WITHIN: Distance = { starts: 5000, ends: 30_000 };
/** The closest are counted first, so that one dropped row does not leave all requests around it undecided. */
const COUNTED_FIRST: Distance = { starts: 50, ends: 1000 };
const COUNTED_STARTS_MS = 500;
/** How far apart their ends may be where their starts agree. */
const END_WITHIN_MS = HOUR_MS;

/**
 * Step 2: the only record and row with the same key, model, stream and exact tokens at one time are a pair. This is for
 * gateways that send no ids, or another gateway's, as new-api v0.13.2 does with plain responses. If several are alike, only
 * their number is compared. Where there are more rows than requests no row is taken, because one of the rows is not ours.
 */
export function matchPairs(unmatched: Unmatched, { start }: Context): Match[] {
  return withSameTokens(unmatched).flatMap((same) => {
    const pairs = clustersWithin(PAIRED_WITHIN, same, start)
      .filter(({ records, groups }) => records.length === 1 && groups.length === 1)
      .flatMap((cluster) => matchCluster(cluster, "pair", REASONS["only-row"]));
    return [...pairs, ...countAlike(without(same, pairs), start)];
  });
}

function countAlike(alike: Unmatched, start: StartFit): Match[] {
  const near = clustersWithin(COUNTED_FIRST, alike, start)
    .filter(({ records, groups }) => records.length === groups.length)
    .flatMap((cluster) => matchCluster(cluster, "sum", REASONS.alike));
  const starts = Math.max(COUNTED_STARTS_MS, start.within);
  const far = clustersWithin({ ...PAIRED_WITHIN, starts }, without(alike, near), start)
    // A console may drop a row. The others are listed all the same.
    .filter(({ records, groups }) => records.length >= groups.length)
    .flatMap((cluster) => matchCluster(cluster, "sum", REASONS.alike));
  return [...near, ...far];
}

/** Few records and rows have the same key and number of tokens. Only those are compared further. */
function withSameTokens({ records, groups }: Unmatched): Unmatched[] {
  const paired = groups.filter(({ main, key }) => key !== null && main.kind === "use");
  const groupsByTokens = groupedBy(paired, ({ main, key }) => {
    const tokens = tokensOfRow(main);
    return tokens && `${key} ${theirWholeInput(tokens)} ${tokens.output}`;
  });
  const recordsByTokens = groupedBy(
    records.filter(hasExactTokens),
    ({ key, tokens }) => `${key} ${wholeInput(tokens)} ${tokens.output}`,
  );
  return [...recordsByTokens].flatMap(([name, same]) => {
    const rows = groupsByTokens.get(name);
    return rows === undefined ? [] : [{ records: same, groups: rows }];
  });
}

function clustersWithin(distance: Distance, { records, groups }: Unmatched, start: StartFit): Cluster[] {
  const rows = new RowIndex(groups, start);
  const { starts, ends } = distance;
  const near = (record: OurRequest) =>
    rows.near(record, {
      start: { from: record.sent_at - starts, to: record.sent_at + starts },
      end: { from: endOf(record) - ends, to: endOf(record) + ends },
    });
  return findClusters(records, near, mayPair);
}

function hasExactTokens(record: OurRequest): record is OurRequest & { readonly tokens: OurTokens } {
  const { ended_at, exact, tokens, billable, running, upgraded } = record;
  return billable && exact && tokens !== null && !running && !upgraded && ended_at !== null;
}

function mayPair(record: OurRequest, group: RowGroup): boolean {
  const isEndNear = Math.abs(group.main.at - endOf(record)) <= END_WITHIN_MS;
  const isModelKnown = group.main.model !== null && (record.model ?? record.model_answered) !== null;
  return isEndNear && isModelKnown && isSameCall(record, group) && !idsContradict(record, group);
}

/**
 * Step 3: the rows of a key, model and hour are as many as our requests, with the same tokens in all. This is for consoles
 * that list no starts and write late, or count the tokens of two requests differently from us.
 */
export function matchSums({ records, groups }: Unmatched): Match[] {
  const summable = groups.filter(
    ({ key, main }) => key !== null && main.model !== null && main.kind === "use" && main.began === null,
  );
  const rowsByHour = groupedBy(summable, ({ key, main }) => hourOf(key, main.model ?? "", main.at));
  const expected = records.filter(
    ({ expected, running, ended_at }) => expected && !running && ended_at !== null,
  );
  const recordsByHour = groupedBy(expected, (record) => {
    const names = listModels(record).map((model) => hourOf(record.key, model, record.ended_at ?? 0));
    return names.find((name) => rowsByHour.has(name));
  });
  const matches: Match[] = [];
  for (const [hour, rows] of rowsByHour) {
    const cluster = { records: recordsByHour.get(hour) ?? [], groups: rows };
    if (haveSameSum(cluster)) matches.push(...matchCluster(cluster, "sum", REASONS["same-sum"]));
  }
  return matches;
}

function hourOf(key: string | null, model: string, at: number): string {
  return `${key}|${model.toLowerCase()}|${Math.floor(at / HOUR_MS)}`;
}

function haveSameSum({ records, groups }: Cluster): boolean {
  if (records.length !== groups.length) return false;
  const withId = groups.find(({ main }) => main.request_id !== null);
  if (withId !== undefined && records.some((record) => idsContradict(record, withId))) return false;
  // If the tokens of one are unknown, so is the sum.
  const ours = records.flatMap((record) => (hasExactTokens(record) ? [record.tokens] : []));
  const theirs = groups.flatMap(({ main }) => tokensOfRow(main) ?? []);
  if (ours.length < records.length || theirs.length < groups.length) return false;
  return tokensAgree(ours.reduce(addOurs), theirs.reduce(addTheirs));
}

function addOurs(a: OurTokens, b: OurTokens): OurTokens {
  return {
    input: a.input + b.input,
    cache_read: a.cache_read + b.cache_read,
    cache_write: a.cache_write + b.cache_write,
    output: a.output + b.output,
  };
}

/** If one row has cache and input together, the parts of the sum cannot be compared. */
function addTheirs(a: RowTokens, b: RowTokens): RowTokens {
  const output = a.output + b.output;
  if (a.cache === null || b.cache === null)
    return { input: theirWholeInput(a) + theirWholeInput(b), cache: null, output };
  const cache = { read: a.cache.read + b.cache.read, write: a.cache.write + b.cache.write };
  return { input: a.input + b.input, cache, output };
}
