import type { Context, Match, OurRequest, RowGroup, StartFit, TheirRow, Unmatched } from "./context.ts";
import {
  beganWith,
  clustersOf,
  groupedBy,
  isSameCall,
  matchCluster,
  mayBeOfSocket,
  Timeline,
  timeOfRow,
} from "./fit.ts";

/** Clocks are compared to about a second. */
const EARLY_MS = 2000;
/** Where a console does not tell when a request began, its row must end this soon after the request. */
const LATE_MS = 30_000;
/** Two starts that are closer than this cannot be told apart. */
const CLOSE_MS = 50;

const ALIKE =
  "several requests without an id and their rows began together: which is which cannot be told, their number agrees";

/**
 * Step 4: a record that never got an id takes the row of its key and model that began when it did. Its client left before
 * the response began, it timed out, or keybearer crashed; new-api and sub2api bill many of those. Where there are more rows
 * than requests near each other, none is taken: one of the rows is not ours, and nothing says which.
 */
export function matchPresumed({ records, groups }: Unmatched, context: Context): Match[] {
  const seekers = records.filter((record) => mayOwnWithoutId(record) && !isUnlisted(record, context));
  const possibleRows = rowFinder(groups, context);
  const near = clustersOf(seekers, possibleRows, () => true);
  const accounted = near.filter((cluster) => cluster.groups.length <= cluster.records.length);
  const candidates = accounted.flatMap((cluster) => cluster.records);
  const presumed = clearlyNearest(candidates, possibleRows, context.start).map(({ record, group }): Match => {
    const reason = presumedReason(record, group, context);
    return { record, group, how: "presumed", reason };
  });
  const taken = new Set(presumed.flatMap(({ record, group }) => [record, group]));
  const rest = clustersOf(
    candidates.filter((record) => !taken.has(record)),
    possibleRows,
    (_, group) => !taken.has(group),
  );
  // Too close together to tell apart. If their number agrees, all of them are ours.
  const counted = rest.filter((cluster) => cluster.records.length === cluster.groups.length);
  return [...presumed, ...counted.flatMap((cluster) => matchCluster(cluster, "sum", ALIKE))];
}

function mayOwnWithoutId({ billable, running, upgraded, key, own_id }: OurRequest): boolean {
  return billable && !running && !upgraded && key !== null && !own_id;
}

/** Whether a row of this kind may belong to a record without an id. new-api, one-api and sub2api do not bill failures. */
export function mayTake(
  record: OurRequest,
  kind: TheirRow["kind"],
  { bills_failures }: Pick<Context, "bills_failures">,
): boolean {
  return mayOwnWithoutId(record) && (kind !== "use" || !record.failed || bills_failures);
}

type FitContext = Pick<Context, "start" | "bills_failures">;
type RowFinder = (record: OurRequest) => readonly RowGroup[];

/** Finds the rows that a record without an id may own. */
function rowFinder(groups: readonly RowGroup[], context: FitContext): RowFinder {
  const { start } = context;
  const timelines = new Map<string | null, Timeline>();
  for (const [key, ofKey] of groupedBy(groups, (group) => group.key))
    timelines.set(key, new Timeline(ofKey, start));
  return (record) => {
    const first = record.sent_at - Math.max(EARLY_MS, start.within);
    const near = timelines.get(record.key)?.between(first, endOf(record) + LATE_MS) ?? [];
    return near.filter((group) => {
      const { main } = group;
      if (main.kind === "refund" || !mayTake(record, main.kind, context)) return false;
      return isSameCall(record, group) && (main.began === null || beganWith(record, main, start));
    });
  };
}

function endOf({ ended_at, sent_at }: OurRequest): number {
  return ended_at ?? sent_at;
}

/** The nearest on the other side, and how far away it and the second nearest are. */
interface Nearest<T> {
  nearest: T;
  distance: number;
  second: number;
}

/** Records and rows that are nearest to each other, where no other is nearly as close to either. */
function clearlyNearest(
  records: readonly OurRequest[],
  possibleRows: RowFinder,
  start: StartFit,
): { readonly record: OurRequest; readonly group: RowGroup }[] {
  const ofRecord = new Map<OurRequest, Nearest<RowGroup>>();
  const ofGroup = new Map<RowGroup, Nearest<OurRequest>>();
  for (const record of records) {
    for (const group of possibleRows(record)) {
      const expectedAt = group.main.began === null ? endOf(record) : record.sent_at;
      const distance = Math.abs(timeOfRow(group.main, start) - expectedAt);
      note(ofRecord, record, group, distance);
      note(ofGroup, group, record, distance);
    }
  }
  const close = Math.max(CLOSE_MS, start.within / 2);
  const isClear = ({ distance, second }: Nearest<unknown>) => second > 2 * distance + close;
  return [...ofRecord].flatMap(([record, ours]) => {
    const group = ours.nearest;
    const theirs = ofGroup.get(group);
    if (theirs?.nearest !== record || !isClear(ours) || !isClear(theirs)) return [];
    return [{ record, group }];
  });
}

function note<T, Other>(nearest: Map<T, Nearest<Other>>, item: T, other: Other, distance: number): void {
  const before = nearest.get(item);
  if (before === undefined) {
    nearest.set(item, { nearest: other, distance, second: Number.POSITIVE_INFINITY });
  } else if (distance < before.distance) {
    before.second = before.distance;
    before.distance = distance;
    before.nearest = other;
  } else if (distance < before.second) before.second = distance;
}

function presumedReason(
  { ended_at, status }: OurRequest,
  { main }: RowGroup,
  { hands_out_ids }: Context,
): string {
  const when = main.began === null ? "ended" : "began";
  const fits = `this row of its key and model ${when} when it did`;
  if (ended_at === null) return `keybearer never saw an id: it was stopped while this ran; ${fits}`;
  if (status === null) return `keybearer never saw an id: it was left before the answer began; ${fits}`;
  if (hands_out_ids) return `the answer had no id that the console knows; ${fits}`;
  return `this gateway hands out no ids; ${fits}`;
}

/** Fewer requests than this say nothing about what a console lists. */
const ENOUGH = 5;

/**
 * Whether a console lists requests whose client left before the response began depends on the gateway, its version and the
 * endpoint: sub2api 0.1.27 lists none of them, 0.1.135 lists streams. Where most of them have no row that began with them,
 * a row that did proves nothing. Returns the names of those keys and models, streams apart.
 */
export function findUnlisted({ records, groups }: Unmatched, context: FitContext): Set<string> {
  const uses = groups.filter(({ main }) => main.kind === "use");
  const left = records.filter((record) => record.status === null && mayTake(record, "use", context));
  const possibleRows = rowFinder(uses, context);
  const unlisted = new Set<string>();
  for (const [name, requests] of groupedBy(left, (record) => callName(record, record.stream))) {
    const count = requests.filter((record) => possibleRows(record).length > 0).length;
    if (requests.length >= ENOUGH && count < requests.length / 2) unlisted.add(name);
  }
  return unlisted;
}

/** After a crash it is not known whether a stream was asked for: then both must be listed. */
function isUnlisted(record: OurRequest, { unlisted }: Context): boolean {
  if (record.status !== null) return false;
  const streams = record.stream === null ? [null, true, false] : [record.stream];
  return streams.some((stream) => unlisted.has(callName(record, stream)));
}

function callName({ key, model }: OurRequest, stream: boolean | null): string {
  return `${key}|${model?.toLowerCase()}|${stream}`;
}

/** A socket's row may seem a little early, because clocks are compared to about a second, and consoles write late. */
const SOCKET_EARLY_MS = 5000;
const SOCKET_LATE_MS = 10 * 60_000;
const IN_SOCKET =
  "it was billed to the key of a WebSocket in its time, which can hold any number of requests";

/**
 * Step 5: a WebSocket takes every row of its key in its time. It has one record and any number of billed requests, whose ids
 * its client never sees.
 */
export function matchSockets({ records, groups }: Unmatched, context: Context): Match[] {
  const ended = records.filter(({ upgraded, running, key }) => upgraded && !running && key !== null);
  ended.sort((a, b) => a.started_at - b.started_at || (a.id < b.id ? -1 : 1));
  const socketsByKey = groupedBy(ended, ({ key }) => key);
  const rowsBySocket = groupedBy(groups, (group) => {
    if (!mayBeOfSocket(group, context)) return undefined;
    const { at } = group.main;
    // Of several the one that was opened last.
    return socketsByKey
      .get(group.key)
      ?.findLast(
        ({ started_at, ended_at }) =>
          started_at <= at + SOCKET_EARLY_MS && at <= (ended_at ?? started_at) + SOCKET_LATE_MS,
      );
  });
  return [...rowsBySocket].flatMap(([record, parts]): Match[] => {
    const [first] = parts;
    if (record === undefined || first === undefined) return [];
    const rows = parts.flatMap((part) => part.rows);
    const group = { ...first, rows: [first.main, ...rows.filter((row) => row !== first.main)] };
    return [{ record, group, how: "presumed", reason: IN_SOCKET }];
  });
}
