import type {
  Context,
  Match,
  OurRequest,
  OurTokens,
  RowGroup,
  StartFit,
  TheirRow,
  Unmatched,
} from "./context.ts";

/*
 * Whether a console row can belong to a record: by its ids, its key, model, stream and tokens, and its time.
 */

/** The gateway told us this request's id, and the row has another one. */
export function idsContradict({ own_id, upgraded }: OurRequest, { main }: RowGroup): boolean {
  return own_id && !upgraded && main.request_id !== null;
}

/** sub2api gives ids only to rows of HTTP requests, so a row with an id did not come through a WebSocket. */
export function mayBeOfSocket({ main }: RowGroup, { hands_out_ids, socket_rows_have_ids }: Context): boolean {
  return main.request_id === null || socket_rows_have_ids || !hands_out_ids;
}

/** Everything but the ids and the time agrees, as far as both sides know it. */
export function isSameCall(record: OurRequest, { main, key }: RowGroup): boolean {
  if (key !== record.key) return false;
  if (record.stream !== null && main.stream !== null && record.stream !== main.stream) return false;
  const knowsModel = record.model !== null || record.model_answered !== null;
  if (knowsModel && main.model !== null && !hasModel(record, main.model)) return false;
  if (main.kind !== "use" || record.tokens === null || !record.exact) return true;
  const theirs = tokensOfRow(main);
  return theirs === null || tokensAgree(record.tokens, theirs);
}

/** The names under which a console may list its model, in lower case: consoles list what was asked for, or what answered. */
export function modelsOf({ model, model_answered }: OurRequest): string[] {
  const names = [model, model_answered].filter((name) => name !== null);
  return [...new Set(names.map((name) => name.toLowerCase()))];
}

export function hasModel(record: OurRequest, name: string): boolean {
  return (
    name === record.model || name === record.model_answered || modelsOf(record).includes(name.toLowerCase())
  );
}

/** A row's tokens. `cache` null: one-api, and some rows of new-api, have cache tokens as part of the input. */
export interface RowTokens {
  readonly input: number;
  readonly cache: { readonly read: number; readonly write: number } | null;
  readonly output: number;
}

/** null: the console does not tell them all. */
export function tokensOfRow(row: TheirRow): RowTokens | null {
  const {
    input_tokens: input,
    output_tokens: output,
    cache_read_tokens: read,
    cache_write_tokens: write,
  } = row;
  if (input === null || output === null) return null;
  if (read !== null && write !== null) return { input, cache: { read, write }, output };
  return { input: input + (read ?? 0) + (write ?? 0), cache: null, output };
}

export function wholeInput({ input, cache_read, cache_write }: OurTokens): number {
  return input + cache_read + cache_write;
}

export function theirWholeInput({ input, cache }: RowTokens): number {
  return cache === null ? input : input + cache.read + cache.write;
}

export function tokensAgree(ours: OurTokens, theirs: RowTokens): boolean {
  if (ours.output !== theirs.output) return false;
  if (theirs.cache === null) return wholeInput(ours) === theirs.input;
  const { read, write } = theirs.cache;
  return ours.input === theirs.input && ours.cache_read === read && ours.cache_write === write;
}

/** Fewer matches by id do not tell how close a row's beginning is to its request. */
const ENOUGH_OFFSETS = 20;
/** Before that is learned: clocks are compared to about a second, and new-api's rows have whole seconds. */
export const UNKNOWN_START: StartFit = { later: 0, within: 3000 };
const LEAST_WITHIN_MS = 150;
/** A connection that has to be opened first takes longer than most. */
const SPREAD_FACTOR = 3;

/**
 * null: too few to tell.
 * @param offsets of requests matched by id: when their rows began, less when they were sent.
 */
export function learnStartFit(offsets: readonly number[]): StartFit | null {
  if (offsets.length < ENOUGH_OFFSETS) return null;
  const later = quantile(offsets, 0.5);
  const distances = offsets.map((offset) => Math.abs(offset - later));
  const within = Math.max(LEAST_WITHIN_MS, SPREAD_FACTOR * quantile(distances, 0.9));
  return { later, within: Math.min(within, UNKNOWN_START.within) };
}

function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.floor((sorted.length - 1) * share)] ?? 0;
}

/** When a row's request was sent, by what the row tells; else when it ended. */
export function timeOfRow({ began, at }: TheirRow, { later }: StartFit): number {
  return began === null ? at : began - later;
}

/** A request whose end keybearer did not see began at the gateway within this time. */
const CONNECT_MS = 10_000;
const SLACK_MS = 1000;
/** new-api and sub2api go on with a request whose client left, for as long as the provider answers. */
const LONGEST_MS = 90 * 60_000;

/** Whether the row began while the request was in flight. Without a beginning, its end must be later than the start. */
export function mayHaveBegun(record: OurRequest, row: TheirRow, start: StartFit): boolean {
  const early = record.sent_at - Math.max(start.within, SLACK_MS);
  if (row.at < early) return false;
  if (row.began === null) return true;
  const sent = timeOfRow(row, start);
  if (record.running) return sent >= early;
  const end = record.ended_at ?? record.sent_at + CONNECT_MS;
  return sent >= early && sent <= end + SLACK_MS && row.at <= end + LONGEST_MS;
}

/** Whether the row began when the request was sent. */
export function beganWith(record: OurRequest, row: TheirRow, start: StartFit): boolean {
  if (row.began === null || !mayHaveBegun(record, row, start)) return false;
  return Math.abs(timeOfRow(row, start) - record.sent_at) <= start.within;
}

/** Where a record stands in time: consoles write at the end of a request. */
export function placeOf({ ended_at, started_at }: OurRequest): number {
  return ended_at ?? started_at;
}

/** Row groups by time, so that those near a moment are found without a look at all of them. */
export class Timeline {
  readonly #groups: readonly RowGroup[];
  readonly #times: readonly number[];

  constructor(groups: readonly RowGroup[], start: StartFit) {
    this.#groups = groups.toSorted((a, b) => timeOfRow(a.main, start) - timeOfRow(b.main, start));
    this.#times = this.#groups.map(({ main }) => timeOfRow(main, start));
  }

  between(from: number, to: number): readonly RowGroup[] {
    const first = this.#firstIndex((time) => time >= from);
    const end = this.#firstIndex((time) => time > to);
    return this.#groups.slice(first, end);
  }

  /** A binary search: what holds for one time holds for all later ones. */
  #firstIndex(holds: (time: number) => boolean): number {
    let low = 0;
    let high = this.#times.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (holds(this.#times[middle] ?? 0)) high = middle;
      else low = middle + 1;
    }
    return low;
  }
}

/** Records and rows that can be taken for each other, directly or through others. */
export interface Cluster {
  readonly records: OurRequest[];
  readonly groups: RowGroup[];
}

/** Records without a possible row are in none. */
export function clustersOf(
  records: readonly OurRequest[],
  rowsNear: (record: OurRequest) => readonly RowGroup[],
  isPossible: (record: OurRequest, group: RowGroup) => boolean,
): Cluster[] {
  const clusterOf = new Map<RowGroup, Cluster>();
  for (const record of records) {
    let own: Cluster = { records: [record], groups: [] };
    for (const group of rowsNear(record)) {
      const other = clusterOf.get(group);
      if (other === own || !isPossible(record, group)) continue;
      if (other === undefined) {
        own.groups.push(group);
        clusterOf.set(group, own);
      } else own = joined(own, other, clusterOf);
    }
  }
  return [...new Set(clusterOf.values())];
}

function joined(a: Cluster, b: Cluster, clusterOf: Map<RowGroup, Cluster>): Cluster {
  const larger = a.groups.length >= b.groups.length ? a : b;
  const smaller = larger === a ? b : a;
  for (const record of smaller.records) larger.records.push(record);
  for (const group of smaller.groups) {
    larger.groups.push(group);
    clusterOf.set(group, larger);
  }
  return larger;
}

/** Which is which does not matter where only the number is compared. Records that are too many stay over, the last ones. */
export function matchCluster({ records, groups }: Cluster, how: Match["how"], reason: string): Match[] {
  const sorted = records.toSorted((a, b) => a.sent_at - b.sent_at || (a.id < b.id ? -1 : 1));
  return groups.flatMap((group, index) => {
    const record = sorted[index];
    return record === undefined ? [] : [{ record, group, how, reason }];
  });
}

/** Map.groupBy, which Node 20 does not have. */
export function groupedBy<T, K>(items: Iterable<T>, nameOf: (item: T) => K): Map<K, T[]> {
  const groups = new Map<K, T[]>();
  for (const item of items) {
    const name = nameOf(item);
    const group = groups.get(name);
    if (group === undefined) groups.set(name, [item]);
    else group.push(item);
  }
  return groups;
}

export function without({ records, groups }: Unmatched, found: readonly Match[]): Unmatched {
  const matchedRecords = new Set(found.map(({ record }) => record));
  const matchedRows = new Set(found.flatMap(({ group }) => group.rows));
  return {
    records: records.filter((record) => !matchedRecords.has(record)),
    groups: groups.filter(({ main }) => !matchedRows.has(main)),
  };
}
