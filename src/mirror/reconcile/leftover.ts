import type { JudgedRecord, JudgedRow, RowVerdict } from "../verdict.ts";
import {
  type Context,
  FOREIGN_AFTER_MS,
  type HeldTime,
  MISSING_AFTER_MS,
  type OurRequest,
  type RowGroup,
  type TheirRow,
  type Unmatched,
} from "./context.ts";
import {
  beganWith,
  groupedBy,
  idsContradict,
  isSameCall,
  mayBeOfSocket,
  mayHaveBegun,
  placeOf,
} from "./fit.ts";
import { mayTake } from "./presumed.ts";

/** A row that is further ahead of us than this is not young: a clock is wrong, and waiting for it would not end. */
const AHEAD_MS = 86_400_000;
/** A gap in our log may be off by the difference between the clocks. */
const GAP_MARGIN_MS = 5000;
/** So long around a response of ours without an id, other ids prove nothing either. */
const UNNAMED_MS = 10 * 60_000;

interface Finding {
  readonly verdict: RowVerdict;
  readonly reason: string;
}

/** The verdicts on rows that no record of ours was matched with. */
export function judgeLeftRows(
  { records, groups }: Unmatched,
  running: readonly OurRequest[],
  presumed: readonly OurRequest[],
  context: Context,
): JudgedRow[] {
  const runningByKey = groupedBy(running, ({ key }) => key);
  const endedByTime = byKeyAndTime(records.filter((record) => !record.running));
  const presumedByTime = byKeyAndTime(presumed);
  return groups.flatMap((group) => {
    const { verdict, reason } = findingOf(group, runningByKey.get(group.key) ?? [], context);
    const judged = { how: null, certain: false, record: null, key: group.key };
    if (verdict !== "foreign")
      return group.rows.map((row) => ({ ...judged, identity: row.identity, verdict, reason }));
    const doubt =
      doubtOf(group, recordsNear(group, endedByTime), context) ??
      presumedDoubt(group, recordsNear(group, presumedByTime), context);
    return group.rows.map((row): JudgedRow => {
      const { identity } = row;
      if (row !== group.main) return { ...judged, identity, verdict: "companion", reason: COMPANION };
      if (doubt !== null) return { ...judged, identity, verdict, reason: `${reason}; ${doubt}` };
      return { ...judged, identity, verdict, reason, certain: true };
    });
  });
}

const COMPANION = "another row of the same request, which is foreign";

/** Records by key and time in steps of UNNAMED_MS: to look at all of them for each row would take minutes. */
function byKeyAndTime(records: readonly OurRequest[]): Map<string, OurRequest[]> {
  const found = new Map<string, OurRequest[]>();
  for (const record of records) {
    const last = Math.floor(placeOf(record) / UNNAMED_MS);
    for (let step = Math.floor(record.sent_at / UNNAMED_MS); step <= last; step += 1) {
      const name = `${record.key} ${step}`;
      const list = found.get(name);
      if (list === undefined) found.set(name, [record]);
      else list.push(record);
    }
  }
  return found;
}

function recordsNear({ key, main }: RowGroup, records: ReadonlyMap<string, OurRequest[]>): Set<OurRequest> {
  const near = new Set<OurRequest>();
  for (const time of [main.at, main.began ?? main.at]) {
    const middle = Math.floor(time / UNNAMED_MS);
    for (const step of [middle - 1, middle, middle + 1])
      for (const record of records.get(`${key} ${step}`) ?? []) near.add(record);
  }
  return near;
}

function findingOf(group: RowGroup, running: readonly OurRequest[], context: Context): Finding {
  const { main, key } = group;
  // A refund uses no key: what it pays back has a row of its own.
  if (main.kind === "refund")
    return { verdict: "companion", reason: "a refund of a request that is not listed" };
  if (key === null) return unwatched("whose key it was billed to cannot be seen here");
  const held = context.held(key);
  if (held === null) return unwatched("its key was never held here");
  const unseen = notWatched(main, held, context);
  if (unseen !== null) return unseen;
  if (main.at > context.now + AHEAD_MS)
    return unwatched("it is more than a day ahead of this machine's clock: one of the clocks is wrong");
  if (running.some((record) => couldOwn(record, group, context)))
    return { verdict: "pending", reason: "a request with this key still runs, and it may be its own" };
  if (context.now - main.at < FOREIGN_AFTER_MS)
    return { verdict: "pending", reason: "it is too young to be called foreign" };
  const old =
    held.until !== null && main.at > held.until ? "the key was replaced here, and still is used: " : "";
  const isOtherId = context.hands_out_ids && main.request_id !== null;
  return {
    verdict: "foreign",
    reason: `${old}no request that passed here ${isOtherId ? "has this id" : "fits it"}`,
  };
}

function notWatched(row: TheirRow, { since, until, replaced }: HeldTime, context: Context): Finding | null {
  // Ours is recorded when it begins, so it is the beginning that must have been watched.
  const began = row.began ?? row.at - (row.duration_ms ?? 0);
  if (began < since) return { verdict: "before", reason: "it is from before this key was held here" };
  if (until !== null && row.at > until && !replaced) return unwatched("its key is no longer held here");
  if (began < context.kept_from) return unwatched("it is older than what the usage log keeps");
  const isInGap = context.unwatched.some(
    ({ from, to }) => began - GAP_MARGIN_MS <= to && row.at + GAP_MARGIN_MS >= from,
  );
  return isInGap ? unwatched("something of ours may not have been recorded at that time") : null;
}

function unwatched(reason: string): Finding {
  return { verdict: "unwatched", reason };
}

function couldOwn(record: OurRequest, group: RowGroup, context: Context): boolean {
  if (!record.billable || !mayHaveBegun(record, group.main, context.start)) return false;
  if (record.upgraded) return mayBeOfSocket(group, context);
  return isSameCall(record, group) && !idsContradict(record, group);
}

/** Why a foreign row is only suspected; null: it is certain. */
function doubtOf(group: RowGroup, records: Iterable<OurRequest>, context: Context): string | null {
  const { main } = group;
  const { start } = context;
  if (!context.hands_out_ids || main.request_id === null) return "without ids this is a suspicion";
  for (const record of records) {
    const isAlike = isSameCall(record, group);
    if (isAlike && mayTake(record, main.kind, context) && mayHaveBegun(record, main, start))
      return `it may be request ${record.id}, which got no id: they cannot be told apart`;
    // The gateway, or something in front of it, does not always send ids.
    if (record.expected && !record.own_id && Math.abs(placeOf(record) - main.at) <= UNNAMED_MS)
      return `request ${record.id} was answered without an id at that time, so that ids prove nothing`;
    // Some channels of new-api v0.13.2 hand out the id of the gateway behind them.
    if (isAlike && record.expected && record.ids.length > 0 && beganWith(record, main, start))
      return `request ${record.id} began with it and is not listed: the gateway may have handed out another id`;
  }
  return null;
}

/** A record that took another row and might have taken this one: the choice may have been wrong. */
function presumedDoubt(group: RowGroup, presumed: Iterable<OurRequest>, { start }: Context): string | null {
  for (const record of presumed) {
    if (isSameCall(record, group) && beganWith(record, group.main, start))
      return `it began with request ${record.id}, which got no id and took another row: they may be exchanged`;
  }
  return null;
}

/** The verdicts on records that no row was found for. */
export function judgeLeftRecords(records: readonly OurRequest[], { now }: Context): JudgedRecord[] {
  // A WebSocket may hold no billed request at all.
  const listable = records.filter(({ expected, running, upgraded }) => expected && !running && !upgraded);
  return listable.map((record): JudgedRecord => {
    const judged = { record: record.id, how: null, row: null, theirs: null };
    if (now - placeOf(record) <= MISSING_AFTER_MS)
      return { ...judged, verdict: "pending", reason: "the console does not list it yet" };
    return {
      ...judged,
      verdict: "missing",
      reason: "the console does not list it, and should: a row that was dropped, or logging that is off",
    };
  });
}
