import type { Context, Match, OurRequest, RowGroup, TheirRow, Unmatched } from "./context.ts";
import { beganWith, clustersOf, groupedBy, isSameCall, mayBeOfSocket, Timeline, timeOfRow } from "./fit.ts";

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
 * the response began, it timed out, or keybearer crashed; new-api and sub2api bill many of those. Where several are too
 * close together, only their number is compared; and where that differs none is taken, because a row may not be ours.
 */
export function matchPresumed({ records, groups }: Unmatched, context: Context): Match[] {
  const seekers = records.filter((record) => mayOwnWithoutId(record) && !isUnlisted(record, context));
  const possible = possibleRows(seekers, groups, context);
  const nearest = nearestOf(possible);
  const close = Math.max(CLOSE_MS, context.start.within / 2);
  const matches: Match[] = [];
  const taken = new Set<OurRequest | RowGroup>();
  for (const candidate of [...possible.values()].flat()) {
    if (!isClear(candidate, nearest, close)) continue;
    const { record, group } = candidate;
    taken.add(record).add(group);
    matches.push({ record, group, how: "presumed", reason: presumedReason(record, group, context) });
  }
  const clusters = clustersOf(
    seekers.filter((record) => !taken.has(record)),
    (record) => (possible.get(record) ?? []).map(({ group }) => group),
    (_, group) => !taken.has(group),
  );
  for (const cluster of clusters) {
    // As many rows as records: all of them are ours.
    if (cluster.records.length !== cluster.groups.length) continue;
    for (const [index, record] of cluster.records.entries()) {
      const group = cluster.groups[index];
      if (group !== undefined) matches.push({ record, group, how: "sum", reason: ALIKE });
    }
  }
  return matches;
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

interface Candidate {
  readonly record: OurRequest;
  readonly group: RowGroup;
  /** How far apart they are in time. */
  readonly distance: number;
}

type FitContext = Pick<Context, "start" | "bills_failures">;

/** The rows that each record may own. */
function possibleRows(
  records: readonly OurRequest[],
  groups: readonly RowGroup[],
  context: FitContext,
): Map<OurRequest, Candidate[]> {
  const { start } = context;
  const found = new Map<OurRequest, Candidate[]>();
  const rowsByKey = groupedBy(groups, ({ key }) => key);
  for (const [key, ofKey] of groupedBy(records, (record) => record.key)) {
    const rows = new Timeline(rowsByKey.get(key) ?? [], start);
    for (const record of ofKey) {
      const end = record.ended_at ?? record.sent_at;
      const candidates: Candidate[] = [];
      for (const group of rows.between(record.sent_at - Math.max(EARLY_MS, start.within), end + LATE_MS)) {
        const { main } = group;
        if (main.kind === "refund" || !mayTake(record, main.kind, context)) continue;
        if (!isSameCall(record, group) || (main.began !== null && !beganWith(record, main, start))) continue;
        const expectedAt = main.began === null ? end : record.sent_at;
        candidates.push({ record, group, distance: Math.abs(timeOfRow(main, start) - expectedAt) });
      }
      if (candidates.length > 0) found.set(record, candidates);
    }
  }
  return found;
}

type Nearest = ReadonlyMap<OurRequest | RowGroup, { readonly first: number; readonly second: number }>;

/** By record and by row: the distances of the two nearest on the other side. */
function nearestOf(possible: ReadonlyMap<OurRequest, readonly Candidate[]>): Nearest {
  const nearest = new Map<OurRequest | RowGroup, { first: number; second: number }>();
  for (const { record, group, distance } of [...possible.values()].flat()) {
    for (const side of [record, group]) {
      const { first, second } = nearest.get(side) ?? {
        first: Number.POSITIVE_INFINITY,
        second: Number.POSITIVE_INFINITY,
      };
      if (distance < first) nearest.set(side, { first: distance, second: first });
      else if (distance < second) nearest.set(side, { first, second: distance });
    }
  }
  return nearest;
}

/** No other record or row is nearly as close. */
function isClear({ record, group, distance }: Candidate, nearest: Nearest, close: number): boolean {
  return [record, group].every((side) => {
    const { first, second } = nearest.get(side) ?? { first: 0, second: 0 };
    return distance === first && second > 2 * distance + close;
  });
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
  const listed = possibleRows(left, uses, context);
  const unlisted = new Set<string>();
  for (const [name, requests] of groupedBy(left, (record) => callName(record, record.stream))) {
    const count = requests.filter((record) => listed.has(record)).length;
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
