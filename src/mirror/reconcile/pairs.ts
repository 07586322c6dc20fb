import type { Context, Match, OurRequest, OurTokens, RowGroup, Unmatched } from "./context.ts";
import {
  type Cluster,
  clustersOf,
  groupedBy,
  idsContradict,
  isSameCall,
  modelsOf,
  type RowTokens,
  Timeline,
  theirWholeInput,
  tokensAgree,
  tokensOfRow,
  wholeInput,
} from "./fit.ts";

/**
 * How far a request and its row may be apart: their beginnings, or their ends where the console tells no beginning (one-api
 * before it had elapsed_time). Those that are near are counted first, so that one dropped row does not leave all requests
 * around it undecided.
 */
const BEGINNINGS_WITHIN_MS = [50, 500, 5000];
const ENDS_WITHIN_MS = [1000, 5000, 30_000];
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
export function matchPairs(unmatched: Unmatched, context: Context): Match[] {
  const matches: Match[] = [];
  const taken = new Set<OurRequest | RowGroup>();
  const take = (cluster: Cluster, how: "pair" | "sum", reason: string) => {
    for (const match of inOrder(cluster, how, reason)) {
      matches.push(match);
      taken.add(match.record).add(match.group);
    }
  };
  for (const { records, groups, tellsBeginning } of withSameTokens(unmatched)) {
    const clustersWithin = (within: number) => {
      const rows = new Timeline(
        groups.filter((group) => !taken.has(group)),
        context.start,
      );
      const nearRows = (record: OurRequest) => {
        const time = tellsBeginning ? record.sent_at : (record.ended_at ?? 0);
        return rows.between(time - within, time + within);
      };
      const free = records.filter((record) => !taken.has(record));
      return clustersOf(free, nearRows, mayPair);
    };
    const steps = tellsBeginning ? BEGINNINGS_WITHIN_MS : ENDS_WITHIN_MS;
    const widest = steps.at(-1) ?? 0;
    for (const cluster of clustersWithin(widest))
      if (cluster.records.length === 1 && cluster.groups.length === 1) take(cluster, "pair", PAIRED);
    for (const within of steps) {
      for (const cluster of clustersWithin(within)) {
        const surplus = cluster.records.length - cluster.groups.length;
        // A console may drop a row. Whichever it was, the others are listed.
        if (surplus === 0 || (surplus > 0 && within === widest)) take(cluster, "sum", ALIKE);
      }
    }
  }
  return matches;
}

interface SameTokens {
  readonly records: OurRequest[];
  readonly groups: RowGroup[];
  readonly tellsBeginning: boolean;
}

/** Few have the same key and as many tokens, so that everything else is looked at only for those. */
function withSameTokens({ records, groups }: Unmatched): SameTokens[] {
  const sets = new Map<string, SameTokens>();
  const nameOf = (key: string, input: number, output: number, tellsBeginning: boolean) =>
    `${input} ${output} ${tellsBeginning} ${key}`;
  for (const group of groups) {
    const { main, key } = group;
    const tokens = main.kind === "use" ? tokensOfRow(main) : null;
    if (tokens === null || key === null) continue;
    const tellsBeginning = main.began !== null;
    const name = nameOf(key, theirWholeInput(tokens), tokens.output, tellsBeginning);
    const set = sets.get(name);
    if (set === undefined) sets.set(name, { records: [], groups: [group], tellsBeginning });
    else set.groups.push(group);
  }
  for (const record of records) {
    if (!hasExactTokens(record) || record.key === null) continue;
    const { tokens, key } = record;
    for (const tellsBeginning of [true, false])
      sets.get(nameOf(key, wholeInput(tokens), tokens.output, tellsBeginning))?.records.push(record);
  }
  return [...sets.values()].filter((set) => set.records.length > 0);
}

function hasExactTokens(record: OurRequest): record is OurRequest & { readonly tokens: OurTokens } {
  const { ended_at, exact, tokens, billable, running, upgraded } = record;
  return billable && exact && tokens !== null && !running && !upgraded && ended_at !== null;
}

function mayPair(record: OurRequest, group: RowGroup): boolean {
  const isEndNear = Math.abs(group.main.at - (record.ended_at ?? 0)) <= END_WITHIN_MS;
  return isEndNear && isSameCall(record, group) && !idsContradict(record, group);
}

/** Which is which does not matter where only the number is compared. */
function inOrder({ records, groups }: Cluster, how: "pair" | "sum", reason: string): Match[] {
  const sorted = records.toSorted((a, b) => a.sent_at - b.sent_at || (a.id < b.id ? -1 : 1));
  return sorted.slice(0, groups.length).flatMap((record, index): Match[] => {
    const group = groups[index];
    return group === undefined ? [] : [{ record, group, how, reason }];
  });
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
    if (haveSameSum(cluster)) matches.push(...inOrder(cluster, "sum", SUMMED));
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
