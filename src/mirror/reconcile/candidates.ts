import type { Match, OurRequest, RowGroup, StartFit, Unmatched } from "./context.ts";
import { idsContradict, listModels, timeOfRow } from "./fit.ts";

/*
 * Finds the rows that a record may own, by time. Thousands of similar requests can be close together, so nothing here
 * compares every record with every row: 20,000 similar requests and rows take less than a second.
 */

/** Items in the order of time. */
export class Timeline<T> {
  readonly items: readonly T[];
  readonly #times: readonly number[];

  constructor(items: readonly T[], timeOf: (item: T) => number) {
    this.items = items.toSorted((a, b) => timeOf(a) - timeOf(b));
    this.#times = this.items.map(timeOf);
  }

  /** The index of the first item at or after a time. */
  indexAt(time: number): number {
    let low = 0;
    let high = this.#times.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#times[middle] ?? 0) >= time) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  get whole(): Range<T> {
    return { timeline: this, first: 0, end: this.items.length };
  }

  between(from: number, to: number): Range<T> {
    // Times are whole milliseconds.
    return { timeline: this, first: this.indexAt(from), end: this.indexAt(to + 1) };
  }

  /** The two items of a range that are nearest to a time and pass the test, found from there outward. */
  nearest({ first, end }: Range<T>, time: number, isPossible: (item: T) => boolean): Nearest<T> | null {
    let found: Nearest<T> | null = null;
    let after = Math.min(Math.max(this.indexAt(time), first), end);
    let before = after - 1;
    while (before >= first || after < end) {
      const distanceBefore = before >= first ? Math.abs(time - (this.#times[before] ?? 0)) : Infinity;
      const distanceAfter = after < end ? Math.abs((this.#times[after] ?? 0) - time) : Infinity;
      const isBefore = distanceBefore <= distanceAfter;
      const item = this.items[isBefore ? before : after];
      if (isBefore) before -= 1;
      else after += 1;
      if (item === undefined || !isPossible(item)) continue;
      const distance = Math.min(distanceBefore, distanceAfter);
      if (found !== null) return { ...found, second: distance };
      found = { item, distance, second: Infinity };
    }
    return found;
  }
}

/** Part of a timeline: from `first` up to, without, `end`. */
export interface Range<T> {
  readonly timeline: Timeline<T>;
  readonly first: number;
  readonly end: number;
}

/** The nearest item, its distance, and the distance of the second nearest. */
export interface Nearest<T> {
  readonly item: T;
  readonly distance: number;
  readonly second: number;
}

/** Where a record's row must be: its start, or its end where the console lists no start. */
interface Window {
  readonly start: TimeSpan;
  readonly end: TimeSpan;
}

/** Both ends are part of it. */
interface TimeSpan {
  readonly from: number;
  readonly to: number;
}

/** Rows of one key, model and kind that all have an id, or none has; the same for starts. */
interface AlikeRows {
  readonly first: RowGroup;
  /** In lower case. */
  readonly model: string | undefined;
  readonly timeline: Timeline<RowGroup>;
}

export class RowIndex {
  readonly #alike: AlikeRows[] = [];

  constructor(groups: readonly RowGroup[], start: StartFit) {
    const alike = groupedBy(groups, ({ key, main }) =>
      JSON.stringify([
        key,
        main.model?.toLowerCase(),
        main.kind,
        main.request_id === null,
        main.began === null,
      ]),
    );
    for (const list of alike.values()) {
      const [first] = list;
      if (first === undefined) continue;
      const timeline = new Timeline(list, ({ main }) => timeOfRow(main, start));
      this.#alike.push({ first, model: first.main.model?.toLowerCase(), timeline });
    }
  }

  /** The rows in a window that have the record's key and model, and no id that contradicts the record's. */
  near(record: OurRequest, window: Window): Range<RowGroup>[] {
    const models = listModels(record);
    const ranges: Range<RowGroup>[] = [];
    for (const { first, model, timeline } of this.#alike) {
      const isOtherModel = models.length > 0 && model !== undefined && !models.includes(model);
      if (first.key !== record.key || isOtherModel || idsContradict(record, first)) continue;
      const { from, to } = first.main.began === null ? window.end : window.start;
      const range = timeline.between(from, to);
      if (range.first < range.end) ranges.push(range);
    }
    return ranges;
  }
}

/** Records and rows that may belong together, directly or through others. */
export interface Cluster {
  readonly records: OurRequest[];
  readonly groups: RowGroup[];
}

/** Records without a possible row are in no cluster. */
export function findClusters(
  records: readonly OurRequest[],
  near: (record: OurRequest) => readonly Range<RowGroup>[],
  isPossible: (record: OurRequest, group: RowGroup) => boolean,
): Cluster[] {
  const clusterOf = new Map<RowGroup, Cluster>();
  const runs = new Runs(clusterOf);
  for (const record of records) {
    let own: Cluster = { records: [record], groups: [] };
    for (const { timeline, first, end } of near(record)) {
      let at = first;
      while (at < end) {
        const group = timeline.items[at];
        if (group === undefined) break;
        const other = clusterOf.get(group);
        if (other === own) {
          at = runs.endAt(timeline, at);
          continue;
        }
        at += 1;
        if (!isPossible(record, group)) continue;
        if (other === undefined) {
          own.groups.push(group);
          clusterOf.set(group, own);
        } else own = joined(own, other, clusterOf);
      }
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

/** Where runs of neighbors in one cluster end, so that a record skips the rows it already shares a cluster with. */
class Runs {
  readonly #clusterOf: ReadonlyMap<RowGroup, Cluster>;
  readonly #ends = new Map<Timeline<RowGroup>, number[]>();

  constructor(clusterOf: ReadonlyMap<RowGroup, Cluster>) {
    this.#clusterOf = clusterOf;
  }

  /** The index behind the run that begins here. Clusters only grow, so a run that was found stays one. */
  endAt(timeline: Timeline<RowGroup>, at: number): number {
    const ends = this.#ends.get(timeline) ?? [];
    this.#ends.set(timeline, ends);
    const clusterAt = (index: number) => {
      const group = timeline.items[index];
      return group === undefined ? undefined : this.#clusterOf.get(group);
    };
    const own = clusterAt(at);
    const passed = [at];
    let end = ends[at] ?? at + 1;
    while (end < timeline.items.length && clusterAt(end) === own) {
      passed.push(end);
      end = ends[end] ?? end + 1;
    }
    // Every run on the way ends here too, so that the next record passes them in one step.
    for (const index of passed) ends[index] = end;
    return end;
  }
}

/** Matches records and rows by number alone: which is which does not matter. If there are more records, the last have no row. */
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
