import { MINUTE_MS } from "../../core/units.ts";
import { REASONS } from "../verdict.ts";
import {
  type Cluster,
  findClusters,
  groupedBy,
  matchCluster,
  type Nearest,
  type Range,
  RowIndex,
  Timeline,
} from "./candidates.ts";
import type { Context, Match, OurRequest, RowGroup, TheirRow, Unmatched } from "./context.ts";
import { beganWith, endOf, isSameCall, mayBeOfSocket, mayBeRefusal, mayHaveBegun, timeOfRow } from "./fit.ts";

/** Clocks are compared to about a second. */
const EARLY_MS = 2000;
/** A row without a start must end this soon after the request. */
const LATE_MS = 30_000;
/** Two starts this close cannot be distinguished. */
const INDISTINCT_MS = 50;

/**
 * Step 4: a record that never got an id takes the row of its key and model that began when it did. Its client left before
 * the response began, it timed out, or keybearer crashed; new-api and sub2api bill many of those. A row is taken only as
 * close as this gateway's rows are to their requests, and only where it lists such requests. Where there are more rows than
 * requests near each other, no row is taken: one of them is not ours, and nothing shows which.
 */
export function matchPresumed({ records, groups }: Unmatched, context: Context): Match[] {
  const seekers = records.filter((record) => mayOwnWithoutId(record) && isOfListedKind(record, context));
  const candidates = new CandidateRows(groups, context);
  const near = (record: OurRequest) => candidates.near(record);
  const mayTakeRow = (record: OurRequest, group: RowGroup) => candidates.mayPresume(record, group);
  const accounted = findClusters(seekers, near, mayTakeRow).filter(
    (cluster) => cluster.groups.length <= cluster.records.length,
  );
  const presumed = accounted.flatMap((cluster) => clearlyNearest(cluster, candidates, context));
  const taken = new Set(presumed.flatMap(({ record, group }) => [record, group]));
  const rest = findClusters(
    accounted.flatMap((cluster) => cluster.records).filter((record) => !taken.has(record)),
    near,
    (record, group) => !taken.has(group) && mayTakeRow(record, group),
  );
  // Too close together to distinguish. If their number agrees, all of them are ours.
  const counted = rest.filter(
    (cluster) =>
      cluster.records.length === cluster.groups.length && !hasRival(cluster, candidates, taken, context),
  );
  return [
    ...presumed,
    ...counted.flatMap((cluster) => matchCluster(cluster, "sum", REASONS["alike-without-id"])),
  ];
}

/** A row just beyond those that are counted: it may be ours, and one of them foreign. */
function hasRival(
  { records, groups }: Cluster,
  candidates: CandidateRows,
  taken: ReadonlySet<OurRequest | RowGroup>,
  context: Context,
): boolean {
  const { start, hands_out_ids } = context;
  if (!hands_out_ids) return false;
  const reach = 2 * start.close + indistinctMs(context);
  const counted = new Set(groups);
  return records.some((record) =>
    candidates.hasAny(record, (group) => {
      const isNear = Math.abs(timeOfRow(group.main, start) - record.sent_at) <= reach;
      return isNear && !counted.has(group) && !taken.has(group) && candidates.mayOwn(record, group);
    }),
  );
}

/** Two starts this close cannot be distinguished; where rows are further from their requests, even more. */
function indistinctMs({ start, hands_out_ids }: Context): number {
  return Math.max(INDISTINCT_MS, (hands_out_ids ? start.close : start.within) / 2);
}

function mayOwnWithoutId({ billable, running, upgraded, key, own_id, refusable }: OurRequest): boolean {
  return billable && !running && !upgraded && key !== null && (!own_id || refusable);
}

/** Whether a row of this kind may belong to a record without an id. new-api, one-api and sub2api do not bill failures. */
export function mayTake(
  record: OurRequest,
  kind: TheirRow["kind"],
  { bills_failures }: Pick<Context, "bills_failures">,
): boolean {
  if (!mayOwnWithoutId(record)) return false;
  if (record.refusable) return kind === "error";
  return kind !== "use" || !record.failed || bills_failures;
}

export type FitContext = Pick<Context, "start" | "bills_failures" | "hands_out_ids" | "own_addresses">;

/** The row does not come from where our requests come from. A VPN or another network does that, too. */
export function hasOtherAddress(
  { ip }: TheirRow,
  { own_addresses }: Pick<Context, "own_addresses">,
): boolean {
  return ip !== null && own_addresses !== null && !own_addresses.has(ip);
}

/** The rows that a record without an id may own. */
class CandidateRows {
  readonly #rows: RowIndex;
  readonly #context: FitContext;

  constructor(groups: readonly RowGroup[], context: FitContext) {
    this.#rows = new RowIndex(groups, context.start);
    this.#context = context;
  }

  near(record: OurRequest): Range<RowGroup>[] {
    const { sent_at, refusable } = record;
    const { within } = this.#context.start;
    const latest = refusable ? endOf(record) : sent_at;
    return this.#rows.near(record, {
      start: { from: sent_at - within, to: latest + within },
      end: { from: sent_at - Math.max(EARLY_MS, within), to: endOf(record) + LATE_MS },
    });
  }

  mayOwn(record: OurRequest, group: RowGroup): boolean {
    const { main } = group;
    const { start } = this.#context;
    if (main.kind === "refund" || !mayTake(record, main.kind, this.#context)) return false;
    // A busy gateway begins late with what it then refuses.
    if (mayBeRefusal(record, main)) return mayHaveBegun(record, main, start) && isSameCall(record, group);
    if (main.began !== null) return beganWith(record, main, start) && isSameCall(record, group);
    const isNear =
      main.at >= record.sent_at - Math.max(EARLY_MS, start.within) && main.at <= endOf(record) + LATE_MS;
    return isNear && isSameCall(record, group);
  }

  /** Whether it is presumed to be the record's own, unless another row is as close. */
  mayPresume(record: OurRequest, group: RowGroup): boolean {
    const { main } = group;
    const { start, hands_out_ids } = this.#context;
    // Without ids nothing shows how close rows are, and every foreign row is only suspected.
    if (!hands_out_ids) return this.mayOwn(record, group);
    const sent = timeOfRow(main, start);
    const isLate = record.ended_at !== null && sent > record.ended_at;
    // It cost nothing, so nothing is hidden if it was another's.
    if (mayBeRefusal(record, main)) return this.mayOwn(record, group);
    if (main.began === null || isLate || Math.abs(sent - record.sent_at) > start.close) return false;
    return !hasOtherAddress(main, this.#context) && this.mayOwn(record, group);
  }

  hasAny(record: OurRequest, isWanted: (group: RowGroup) => boolean): boolean {
    return this.near(record).some(({ timeline, first, end }) => {
      for (let at = first; at < end; at += 1) {
        const group = timeline.items[at];
        if (group !== undefined && isWanted(group)) return true;
      }
      return false;
    });
  }

  nearest(record: OurRequest): Nearest<RowGroup> | null {
    let nearest: Nearest<RowGroup> | null = null;
    for (const range of this.near(record)) {
      const { timeline, first } = range;
      const time = timeline.items[first]?.main.began === null ? endOf(record) : record.sent_at;
      const found = timeline.nearest(range, time, (group) => this.mayOwn(record, group));
      nearest = pickNearest(nearest, found);
    }
    return nearest;
  }
}

function pickNearest<T>(a: Nearest<T> | null, b: Nearest<T> | null): Nearest<T> | null {
  if (a === null || b === null) return a ?? b;
  const nearer = a.distance <= b.distance ? a : b;
  const farther = nearer === a ? b : a;
  return { ...nearer, second: Math.min(nearer.second, farther.distance) };
}

/** Records and rows that are nearest to each other, where no other is almost as close to either. */
function clearlyNearest({ records }: Cluster, candidates: CandidateRows, context: Context): Match[] {
  const { start } = context;
  const byStart = new Timeline(records, ({ sent_at }) => sent_at);
  const byEnd = new Timeline(records, endOf);
  const indistinct = indistinctMs(context);
  const isClear = ({ distance, second }: Nearest<unknown>) => second > 2 * distance + indistinct;
  return records.flatMap((record): Match[] => {
    const nearestRow = candidates.nearest(record);
    if (nearestRow === null || !isClear(nearestRow)) return [];
    const group = nearestRow.item;
    if (!candidates.mayPresume(record, group)) return [];
    const timeline = group.main.began === null ? byEnd : byStart;
    const nearestRecord = timeline.nearest(timeline.whole, timeOfRow(group.main, start), (one) =>
      candidates.mayPresume(one, group),
    );
    if (nearestRecord?.item !== record || !isClear(nearestRecord)) return [];
    return [{ record, group, how: "presumed", reason: presumedReason(record, group, context) }];
  });
}

function presumedReason(
  { ended_at, status }: OurRequest,
  { main }: RowGroup,
  { hands_out_ids }: Context,
): string {
  const fits = REASONS[main.began === null ? "ended-then" : "began-then"];
  if (ended_at === null) return `${REASONS.stopped}; ${fits}`;
  if (status === null) return `${REASONS["ended-early"]}; ${fits}`;
  if (hands_out_ids) return `${REASONS["no-known-id"]}; ${fits}`;
  return `${REASONS["hands-out-no-ids"]}; ${fits}`;
}

/** The records without an id that have a row which began with them. Where several fit, none was matched. */
export function findWithRow({ records, groups }: Unmatched, context: FitContext): Set<OurRequest> {
  const candidates = new CandidateRows(groups, context);
  const hasRow = (record: OurRequest) =>
    candidates.hasAny(record, (group) => candidates.mayOwn(record, group));
  return new Set(records.filter(hasRow));
}

/** A request that the gateway gave no answer, and whether a row began with it. */
export interface Unanswered {
  readonly record: OurRequest;
  readonly kind: string;
  readonly isListed: boolean;
}

/**
 * Whether a console lists requests that got no answer depends on the gateway, its version and the endpoint: sub2api 0.1.27
 * does not list them, 0.1.135 lists streams. Where most of them have no row that began with them, a row that did proves
 * nothing. Requests of other machines show nothing: their clocks are less exact.
 */
export function findUnanswered({ records, groups }: Unmatched, context: FitContext): Unanswered[] {
  const uses = groups.filter(({ main }) => main.kind === "use");
  const candidates = new CandidateRows(uses, context);
  return records
    .filter((one) => isUnanswered(one) && one.clock_error === 0 && mayTake(one, "use", context))
    .map((record) => ({
      record,
      kind: unansweredKind(record, record.stream),
      isListed: candidates.hasAny(record, (group) => candidates.mayPresume(record, group)),
    }));
}

/** The client left, the time was up, or keybearer crashed. A status beside that is keybearer's own. */
function isUnanswered({ status, failed }: OurRequest): boolean {
  return status === null || (status >= 400 && !failed);
}

/** After a crash it is unknown whether a stream was requested. Then all kinds that are known must be listed. */
function isOfListedKind(record: OurRequest, { lists_unanswered }: Context): boolean {
  if (record.refusable || !isUnanswered(record)) return true;
  const streams = record.stream === null ? [null, true, false] : [record.stream];
  const known = streams.flatMap((stream) => lists_unanswered.get(unansweredKind(record, stream)) ?? []);
  return known.length > 0 && known.every(Boolean);
}

/** Not by key: a rotated key must not be learned again. */
function unansweredKind({ model }: OurRequest, stream: boolean | null): string {
  return `${model?.toLowerCase()}|${stream}`;
}

/** A socket's row may seem early, because clocks are compared to about a second. Consoles write late. */
const SOCKET_EARLY_MS = 5000;
const SOCKET_LATE_MS = 10 * MINUTE_MS;
/**
 * Step 5: a WebSocket takes every row of its key in its time. It has one record and any number of billed requests, whose ids
 * its client never sees.
 */
export function matchSockets({ records, groups }: Unmatched, context: Context): Match[] {
  const ended = records.filter(({ upgraded, running, key }) => upgraded && !running && key !== null);
  const socketsByKey = new Map<string | null, OpenSockets>();
  for (const [key, sockets] of groupedBy(ended, (record) => record.key))
    socketsByKey.set(key, new OpenSockets(sockets));
  const possible = groups.filter((group) => mayBeOfSocket(group, context));
  const rowsBySocket = groupedBy(possible, ({ key, main }) => socketsByKey.get(key)?.latestAt(main.at));
  const matches: Match[] = [];
  for (const [record, parts] of rowsBySocket) {
    const [first] = parts;
    if (record === undefined || first === undefined) continue;
    const rows = parts.flatMap((part) => part.rows);
    matches.push({ record, group: { ...first, rows }, how: "presumed", reason: REASONS["in-socket"] });
  }
  return matches;
}

/** The WebSockets of one key, for times that only grow: each is opened and closed once, however many rows there are. */
class OpenSockets {
  /** The one that opens next is the last. */
  readonly #unopened: OurRequest[];
  /** The one that was opened last is the last. */
  readonly #open: OurRequest[] = [];

  constructor(sockets: readonly OurRequest[]) {
    this.#unopened = sockets.toSorted((a, b) => b.started_at - a.started_at || (a.id < b.id ? 1 : -1));
  }

  /** The one that was opened last among those open at a time. */
  latestAt(time: number): OurRequest | undefined {
    let next = this.#unopened.at(-1);
    while (next !== undefined && next.started_at <= time + SOCKET_EARLY_MS) {
      this.#open.push(next);
      this.#unopened.pop();
      next = this.#unopened.at(-1);
    }
    let latest = this.#open.at(-1);
    while (latest !== undefined && (latest.ended_at ?? latest.started_at) + SOCKET_LATE_MS < time) {
      this.#open.pop();
      latest = this.#open.at(-1);
    }
    return latest;
  }
}
