import type { Context, Match, OurRequest, OurTokens, RowGroup, StartFit, Unmatched } from "./context.ts";
import {
  type Cluster,
  clustersOf,
  groupedBy,
  idsContradict,
  isSameCall,
  matchCluster,
  modelsOf,
  type RowTokens,
  Timeline,
  theirWholeInput,
  tokensAgree,
  tokensOfRow,
  wholeInput,
  without,
} from "./fit.ts";

/** How far apart a request and its row may be: their beginnings, or their ends where the row tells no beginning. */
interface Window {
  readonly beginnings: number;
  readonly ends: number;
}

const PAIRED_WITHIN: Window = { beginnings: 5000, ends: 30_000 };
/** Those this close are counted first, so that one dropped row does not leave all requests around it undecided. */
const COUNTED_FIRST: Window = { beginnings: 50, ends: 1000 };
const COUNTED_BEGINNINGS_MS = 500;
/** How far apart their ends may be where their beginnings agree. */
const END_WITHIN_MS = 60 * 60_000;

const PAIRED = "the only row with this key, model and these tokens at that time";
const ALIKE =
  "several requests and rows are alike at that time: which is which cannot be told, their number agrees";

/**
 * Step 2: the only record and row with the same key, model, stream and exact tokens at one time are a pair. It is for gateways
 * that hand out no ids, or another gateway's, as new-api v0.13.2 does with plain responses. Of several alike only the number
 * is compared. Where there are more rows than requests none is taken, because one of the rows is not ours.
 */
export function matchPairs(unmatched: Unmatched, { start }: Context): Match[] {
  return withSameTokens(unmatched).flatMap((same) => {
    const pairs = clustersWithin(PAIRED_WITHIN, same, start)
      .filter(({ records, groups }) => records.length === 1 && groups.length === 1)
      .flatMap((cluster) => matchCluster(cluster, "pair", PAIRED));
    return [...pairs, ...countAlike(without(same, pairs), start)];
  });
}

function countAlike(alike: Unmatched, start: StartFit): Match[] {
  const near = clustersWithin(COUNTED_FIRST, alike, start)
    .filter(({ records, groups }) => records.length === groups.length)
    .flatMap((cluster) => matchCluster(cluster, "sum", ALIKE));
  const beginnings = Math.max(COUNTED_BEGINNINGS_MS, start.within);
  const far = clustersWithin({ ...PAIRED_WITHIN, beginnings }, without(alike, near), start)
    // A console may drop a row. Whichever it was, the others are listed.
    .filter(({ records, groups }) => records.length >= groups.length)
    .flatMap((cluster) => matchCluster(cluster, "sum", ALIKE));
  return [...near, ...far];
}

/** Few have the same key and as many tokens, so that everything else is looked at only for those. */
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

function clustersWithin(window: Window, { records, groups }: Unmatched, start: StartFit): Cluster[] {
  const rows = new Timeline(groups, start);
  const { beginnings, ends } = window;
  const rowsNear = ({ sent_at, ended_at }: OurRequest) => {
    const end = ended_at ?? sent_at;
    return [
      ...rows.between(sent_at - beginnings, sent_at + beginnings).filter(({ main }) => main.began !== null),
      ...rows.between(end - ends, end + ends).filter(({ main }) => main.began === null),
    ];
  };
  return clustersOf(records, rowsNear, mayPair);
}

function hasExactTokens(record: OurRequest): record is OurRequest & { readonly tokens: OurTokens } {
  const { ended_at, exact, tokens, billable, running, upgraded } = record;
  return billable && exact && tokens !== null && !running && !upgraded && ended_at !== null;
}

function mayPair(record: OurRequest, group: RowGroup): boolean {
  const isEndNear = Math.abs(group.main.at - (record.ended_at ?? 0)) <= END_WITHIN_MS;
  const isModelKnown = group.main.model !== null && (record.model ?? record.model_answered) !== null;
  return isEndNear && isModelKnown && isSameCall(record, group) && !idsContradict(record, group);
}

const HOUR = 3_600_000;
const SUMMED =
  "the rows of this key, model and hour are as many as the requests, with the same tokens in all";

/**
 * Step 3: the rows of a key, model and hour are as many as our requests, with the same tokens in all. It is for consoles that
 * tell no beginnings and write late, or count the tokens of two requests differently from us.
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
    const names = modelsOf(record).map((model) => hourOf(record.key, model, record.ended_at ?? 0));
    return names.find((name) => rowsByHour.has(name));
  });
  const matches: Match[] = [];
  for (const [hour, rows] of rowsByHour) {
    const cluster = { records: recordsByHour.get(hour) ?? [], groups: rows };
    if (haveSameSum(cluster)) matches.push(...matchCluster(cluster, "sum", SUMMED));
  }
  return matches;
}

function hourOf(key: string | null, model: string, at: number): string {
  return `${key}|${model.toLowerCase()}|${Math.floor(at / HOUR)}`;
}

function haveSameSum({ records, groups }: Cluster): boolean {
  if (records.length !== groups.length) return false;
  const withId = groups.find(({ main }) => main.request_id !== null);
  if (withId !== undefined && records.some((record) => idsContradict(record, withId))) return false;
  // One whose tokens are not known leaves the sum unknown.
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

/** Where one row has cache and input in one, the parts of the sum cannot be compared. */
function addTheirs(a: RowTokens, b: RowTokens): RowTokens {
  const output = a.output + b.output;
  if (a.cache === null || b.cache === null)
    return { input: theirWholeInput(a) + theirWholeInput(b), cache: null, output };
  const cache = { read: a.cache.read + b.cache.read, write: a.cache.write + b.cache.write };
  return { input: a.input + b.input, cache, output };
}
