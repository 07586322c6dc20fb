import type Database from "libsql";
import { DAY_MS, MINUTE_MS } from "../../core/units.ts";
import type { ConsoleGap } from "../consoles/console.ts";
import { FOREIGN_AFTER_MS, MISSING_AFTER_MS, type OurRequest, type TheirRow } from "../reconcile/context.ts";
import { findOwnRows, isSameUserAgent, learnStartFit } from "../reconcile/fit.ts";
import type { Unanswered } from "../reconcile/presumed.ts";
import { reconcile, unansweredIn } from "../reconcile/reconcile.ts";
import { type JudgedRecord, type JudgedRow, type ShownVerdict, shownVerdict } from "../verdict.ts";
import {
  type AbortedBill,
  findAbortedBill,
  latestBills,
  listedKinds,
  type UnansweredBill,
  unansweredWith,
} from "./aborted-bills.ts";
import { keptFrom, readConsoleGaps, readUnreadKeys, type UnreadKey } from "./coverage-gaps.ts";
import { readFact, readJsonFact, readStartFit, readTime } from "./facts.ts";
import { heldTimes, type KeyLinks, keyLinks } from "./keys.ts";
import { type CompareOptions, LoadedDay, type LoadedRecord, type LoadedRow } from "./load-day.ts";
import { ROW_VERDICT_FIELDS, type StoredRowVerdict } from "./rows.ts";
import {
  type DayChanges,
  FROM_HERE,
  type Learned,
  type NewVerdict,
  type OwnIds,
  theirsText,
  type VerdictTally,
} from "./verdicts.ts";

/** Compares one UTC day by our clock. Only reads. */
export function compareDay(db: Database.Database, day: number, options: CompareOptions): DayChanges {
  const { gateway, billsFailures } = options;
  const loaded = new LoadedDay(db, day, options);
  const matches = matchesById(loaded);
  const ownIds = readJsonFact<OwnIds>(db, gateway, "own_ids", {});
  const learned = learnFrom(matches, ownIds, keyLinks(db, gateway));
  if (learned !== null) return { ...NOTHING_FOUND, learned };

  const newStart = learnStartFit(startOffsets(matches));
  const start = newStart ?? readStartFit(db, gateway);
  const held = heldTimes(db, gateway);
  const requests = [...loaded.records.values()].filter(isSigned).map((one): OurRequest => {
    // A sibling can have keys of another account, which this console does not list.
    const isListed = one.record.machine === null || held.has(one.request.key ?? "");
    const expected = one.request.expected && isListed;
    const own_id = hasOwnId(one, ownIds);
    return { ...one.request, expected, own_id, refusable: own_id && isRefusable(one) };
  });
  const userAgents = listsUserAgents(matches);
  const isAgentKnown = userAgents ?? readFact(db, gateway, "user_agents") === "true";
  const consoleRows = [...loaded.rows.values()].map(
    ({ row }): TheirRow => (isAgentKnown ? row : { ...row, user_agent: null }),
  );
  const fit = {
    start,
    bills_failures: billsFailures,
    hands_out_ids: Object.keys(ownIds).length > 0,
    own_addresses: ownAddresses(matches),
  };
  const coverage = readCoverage(db, options);
  const unanswered = unansweredIn(requests, consoleRows, fit).flatMap(
    (one) => findUnansweredBill(one, loaded, coverage, options.now) ?? [],
  );
  const { rows, records } = reconcile(requests, consoleRows, {
    ...fit,
    now: options.now,
    held: (key) => held.get(key) ?? null,
    kept_from: keptFrom(db),
    log_gaps: options.logGaps,
    siblings: options.siblings,
    unsigned: [...loaded.records.values()].filter((one) => !isSigned(one)).map(({ request }) => request),
    lists_unanswered: listedKinds(unansweredWith(db, gateway, unanswered)),
    socket_rows_have_ids: options.socketRowsHaveIds,
  });
  const from = day * DAY_MS;
  const isInside = (time: number) => time >= from && time < from + DAY_MS;
  const changedRows = findChangedRows(loaded, rows, isInside);
  const changedRecords = findChangedRecords(loaded, records, coverage, isInside);
  return {
    learned: null,
    rows: changedRows.changed,
    records: changedRecords.changed,
    judged: tallyVerdicts(loaded, changedRows.changed),
    elsewhere: [...changedRows.elsewhere, ...changedRecords.elsewhere],
    start: newStart,
    aborted: findAbortedBills(loaded, records, isInside),
    unanswered: unanswered.filter(({ record }) => isInside(loaded.records.get(record)?.at ?? 0)),
    userAgents,
  };
}

const NOTHING_FOUND: Omit<DayChanges, "learned"> = {
  rows: [],
  records: [],
  judged: {},
  elsewhere: [],
  start: null,
  aborted: [],
  unanswered: [],
  userAgents: null,
};

/** null: the console was not read since. A row that is listed still later changes it, because the day is compared again. */
function findUnansweredBill(
  { record, kind, isListed }: Unanswered,
  loaded: LoadedDay,
  coverage: Coverage,
  now: number,
): UnansweredBill | null {
  const one = loaded.records.get(record.id);
  if (one === undefined) return null;
  const until = Math.min(now, readUntil(one, coverage) ?? -Infinity);
  if (!isListed && one.at + FOREIGN_AFTER_MS > until) return null;
  return { record: record.id, started_at: record.started_at, kind, isListed };
}

function findAbortedBills(
  loaded: LoadedDay,
  verdicts: readonly JudgedRecord[],
  isInside: (time: number) => boolean,
): AbortedBill[] {
  const bills = verdicts.flatMap((judged) => {
    const one = loaded.records.get(judged.record);
    const isOfDay = one !== undefined && isInside(one.at);
    return (isOfDay && findAbortedBill(one.own, judged)) || [];
  });
  return latestBills(bills);
}

/** A record of this machine, or one that another machine signed. Others may be invented, so they prove nothing. */
function isSigned({ record }: LoadedRecord): boolean {
  return record.machine === null || record.verified === true;
}

interface Changed<T> {
  readonly changed: readonly T[];
  /** See DayChanges. */
  readonly elsewhere: readonly number[];
}

/** A row outside the day gets its verdict here only if it matches a record of the day by id. */
function findChangedRows(
  { records, rows }: LoadedDay,
  verdicts: readonly JudgedRow[],
  isInside: (time: number) => boolean,
): Changed<JudgedRow> {
  const changed: JudgedRow[] = [];
  const elsewhere: number[] = [];
  for (const next of verdicts) {
    const loaded = rows.get(next.identity);
    if (loaded === undefined) continue;
    const { row, judged: before } = loaded;
    const owner = next.how === "id" ? records.get(next.record ?? "") : undefined;
    const isOwnerInside = owner !== undefined && isInside(owner.at);
    if (!isInside(row.at) && !isOwnerInside) {
      if (before.how === "id" && owner === undefined) elsewhere.push(row.at);
      continue;
    }
    if (isSameRowVerdict(before, next) || wouldSilenceAlarm(before, next)) continue;
    changed.push(next);
    // Only the comparison of a record's own day knows all of its rows.
    if (owner !== undefined && !isOwnerInside) elsewhere.push(owner.at);
    for (const id of [before.record, next.record]) {
      const record = records.get(id ?? "");
      if (record?.request.upgraded && !isInside(record.at)) elsewhere.push(record.at);
    }
  }
  return { changed, elsewhere };
}

/** A row may change in other ways than its verdict, such as in the reason for it. */
function tallyVerdicts({ rows }: LoadedDay, changed: readonly JudgedRow[]): VerdictTally {
  const tally: Partial<Record<ShownVerdict, number>> = {};
  for (const next of changed) {
    const verdict = shownVerdict(next);
    const before = rows.get(next.identity)?.judged;
    if (verdict === null || before === undefined || shownVerdict(before) === verdict) continue;
    tally[verdict] = (tally[verdict] ?? 0) + 1;
  }
  return tally;
}

/** A record gets its verdict with its own day. */
function findChangedRecords(
  { records }: LoadedDay,
  verdicts: readonly JudgedRecord[],
  coverage: Coverage,
  isInside: (time: number) => boolean,
): Changed<NewVerdict> {
  const verdictById = new Map(verdicts.map((one) => [one.record, one]));
  const changed: NewVerdict[] = [];
  const elsewhere: number[] = [];
  for (const one of records.values()) {
    const { id, running } = one.request;
    if (running) continue;
    const judged = verdictById.get(id) ?? null;
    if (!isInside(one.at)) {
      if (one.how === "id" && judged?.how !== "id") elsewhere.push(one.at);
      continue;
    }
    const next = judged === null ? null : whereCovered(judged, one, coverage);
    if (isSameRecordVerdict(one, next)) continue;
    changed.push({ id, judged: next });
  }
  return { changed, elsewhere };
}

/**
 * Such a verdict is not stored. A certain alarm ends when a person acknowledges it, or when the row turns out to be ours. It does not end because a key
 * was removed from config.yaml and put back, or because the clock was set back: a program that can edit files could silence
 * it that way. It also does not become a suspicion because something unsigned appears in the store.
 */
function wouldSilenceAlarm(before: StoredRowVerdict, next: JudgedRow): boolean {
  if (before.verdict !== "foreign" || !before.certain) return false;
  return ["before", "unwatched", "pending", "foreign"].includes(next.verdict) && !next.certain;
}

function isSameRowVerdict(before: StoredRowVerdict, next: JudgedRow): boolean {
  return ROW_VERDICT_FIELDS.every((name) => before[name] === next[name]);
}

function isSameRecordVerdict(before: LoadedRecord, next: JudgedRecord | null): boolean {
  if (next === null) return before.verdict === null;
  return (
    before.verdict === next.verdict &&
    before.how === next.how &&
    before.row === next.row &&
    before.reason === next.reason &&
    before.theirs === theirsText(next)
  );
}

/** Where the console was read, by our clock. */
interface Coverage {
  readonly from: number;
  readonly lastSync: number;
  readonly gaps: readonly ConsoleGap[];
  readonly unreadKeys: ReadonlyMap<string, UnreadKey>;
}

/** Gaps are in whole seconds, and a row is written a little before or after the end of our request. */
const GAP_MARGIN_MS = MINUTE_MS;

function readCoverage(db: Database.Database, { gateway, skew }: CompareOptions): Coverage {
  const gaps = readConsoleGaps(db, gateway).map((gap) => ({
    ...gap,
    from: gap.from - skew - GAP_MARGIN_MS,
    to: gap.to - skew + GAP_MARGIN_MS,
  }));
  return {
    from: readTime(db, gateway, "covered_from") ?? -Infinity,
    lastSync: readTime(db, gateway, "last_sync") ?? -Infinity,
    gaps,
    unreadKeys: new Map(readUnreadKeys(db, gateway).map((one) => [one.key, one])),
  };
}

/**
 * A record can be missing only where the console was read. Elsewhere it has no verdict, and it is pending until the console
 * was read again after the request.
 */
function whereCovered(judged: JudgedRecord, one: LoadedRecord, coverage: Coverage): JudgedRecord | null {
  if (judged.verdict !== "missing" && judged.verdict !== "pending") return judged;
  const until = readUntil(one, coverage);
  if (until === null) return null;
  if (judged.verdict === "pending" || one.at + MISSING_AFTER_MS <= until) return judged;
  return { ...judged, verdict: "pending", reason: "the console was not read since it ended" };
}

/** Until when the console was read for a record's key; null: not when the record ended. */
function readUntil(
  { at, request: { key } }: LoadedRecord,
  { from, lastSync, gaps, unreadKeys }: Coverage,
): number | null {
  const isInGap = gaps.some(
    (gap) => at >= gap.from && at < gap.to && (gap.key === undefined || gap.key === key),
  );
  const unread = unreadKeys.get(key ?? "");
  if (at < from || isInGap || unread?.cause === "no-account") return null;
  return unread === undefined ? lastSync : (unread.until ?? -Infinity);
}

interface Match {
  readonly record: LoadedRecord;
  readonly row: LoadedRow["row"];
}

function matchesById({ records, rows }: LoadedDay): Match[] {
  const recordsById = new Map<string, LoadedRecord>();
  for (const one of records.values())
    if (isSigned(one)) for (const id of one.request.ids) recordsById.set(id, one);
  const rowsOf = new Map<LoadedRecord, TheirRow[]>();
  for (const { row } of rows.values()) {
    const record = recordsById.get(row.request_id ?? "");
    if (record !== undefined) rowsOf.set(record, [...(rowsOf.get(record) ?? []), row]);
  }
  return [...rowsOf].flatMap(([record, found]) => {
    const { brought_id } = record.request;
    if (brought_id === null) return found.map((row) => ({ record, row }));
    const others = found.filter(({ request_id }) => request_id !== brought_id);
    const own = findOwnRows(
      record.request,
      found.filter(({ request_id }) => request_id === brought_id),
    );
    return [...own, ...others].map((row) => ({ record, row }));
  });
}

/** null: everything is known already. */
function learnFrom(matches: readonly Match[], known: OwnIds, links: KeyLinks): Learned | null {
  const ownIds: Record<string, number> = { ...known };
  const keys = new Map<string, Set<string>>();
  let ownFrom: number | null = null;
  for (const { record, row } of matches) {
    const { key, started_at } = record.request;
    const ref = row.key_ref;
    if (key !== null && ref !== null && !links.decided.has(ref) && links.keys.get(ref) !== key)
      keys.set(ref, (keys.get(ref) ?? new Set()).add(key));
    for (const [name, id] of Object.entries(record.record.gateway_ids)) {
      const kind = idKind(name, id, record.request);
      if (id !== row.request_id || started_at >= (ownIds[kind] ?? Infinity)) continue;
      ownIds[kind] = started_at;
      ownFrom = Math.min(ownFrom ?? started_at, started_at);
    }
  }
  return ownFrom === null && keys.size === 0 ? null : { ownIds, ownFrom, keys };
}

function hasOwnId({ request, record }: LoadedRecord, ownIds: OwnIds): boolean {
  return Object.entries(record.gateway_ids).some(
    ([name, id]) => request.started_at >= (ownIds[idKind(name, id, request)] ?? Infinity),
  );
}

/** See OurRequest. */
function isRefusable({ request: { brought_id, status } }: LoadedRecord): boolean {
  return (status === null || status >= 400) && brought_id !== null;
}

/** A gateway that takes the ids of its requests from here lists them whatever it answers, and also if it does not. */
function idKind(name: string, id: string, { id: own, status, stream }: OurRequest): string {
  if (id === own) return name + FROM_HERE;
  if (status !== null && status >= 400) return `${name} ${status}`;
  return stream === true ? `${name} stream` : `${name} plain`;
}

/** Fewer matches show nothing about user agents and addresses. */
const ENOUGH_MATCHES = 20;

/** Whether the console lists what our clients sent; null: too few rows and records have a user agent. */
function listsUserAgents(matches: readonly Match[]): boolean | null {
  let count = 0;
  for (const { record, row } of matches) {
    const { user_agent: sent } = record.record;
    if (sent === null || row.user_agent === null) continue;
    if (!isSameUserAgent(sent, row.user_agent)) return false;
    count += 1;
  }
  return count >= ENOUGH_MATCHES ? true : null;
}

/** Where our requests came from on that day; null: too few rows have an address. */
function ownAddresses(matches: readonly Match[]): Set<string> | null {
  const addresses = matches.flatMap(({ row }) => row.ip ?? []);
  return addresses.length < ENOUGH_MATCHES ? null : new Set(addresses);
}

/** The start fit is learned from this many of the latest matches. */
const START_SAMPLE = 200;

/** How long after they were sent requests of this machine began at the gateway. Another machine's clock is less exact. */
function startOffsets(matches: readonly Match[]): number[] {
  const own = matches.filter(({ record }) => record.record.machine === null);
  return own
    .filter(({ record, row }) => row.began !== null && row.kind === "use" && !record.request.failed)
    .map(({ record, row }) => ({ at: row.at, offset: (row.began ?? 0) - record.request.sent_at }))
    .toSorted((a, b) => b.at - a.at || a.offset - b.offset)
    .slice(0, START_SAMPLE)
    .map(({ offset }) => offset);
}
