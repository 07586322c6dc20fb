import type Database from "libsql";
import { MISSING_AFTER_MS, type OurRequest, type StartFit } from "../reconcile/context.ts";
import { learnStartFit, UNKNOWN_START } from "../reconcile/fit.ts";
import { reconcile, unlistedIn } from "../reconcile/reconcile.ts";
import type { JudgedRecord, JudgedRow } from "../verdict.ts";
import { DAY_MS } from "./changed-days.ts";
import { keptFrom, readConsoleGaps, readUnreadKeys } from "./coverage-gaps.ts";
import { readFact, readTime } from "./facts.ts";
import { heldTimes, type KeyLinks, keyLinks } from "./keys.ts";
import { type CompareOptions, Loader, type Ours, type Their } from "./load-day.ts";
import { judgedValues, type StoredVerdict } from "./rows.ts";
import { type NewVerdict, theirsText } from "./verdicts.ts";

/** What one day's comparison says that is not stored yet. */
export interface DayChanges {
  /** Not null: this must be stored first, and the day compared again. */
  readonly learned: Learned | null;
  readonly rows: readonly (StoredVerdict & Pick<JudgedRow, "identity">)[];
  readonly records: readonly NewVerdict[];
  /** When something is, by our clock, of another day that must be compared again. */
  readonly elsewhere: readonly number[];
  /** null: nothing new was learned about it. */
  readonly start: StartFit | null;
}

/**
 * Compares one UTC day, by our clock, and reads only. Both logs are read around it, too, so that where a day ends makes no
 * difference. What is matched by id outside the day is left out: nothing here can change that.
 */
export function compareDay(db: Database.Database, day: number, options: CompareOptions): DayChanges {
  const { gateway, skew } = options;
  const from = day * DAY_MS;
  const loader = new Loader(db, from, options);
  loader.load();
  const ours = [...loader.ours.values()];
  const theirs = [...loader.theirs.values()];

  const own = readOwnIds(db, gateway);
  const learned = learnedFrom(ours, theirs, own, keyLinks(db, gateway));
  if (learned !== null) return { learned, rows: [], records: [], elsewhere: [], start: null };

  const newStart = learnStartFit(offsetsOf(ours, theirs));
  const start = newStart ?? storedStart(db, gateway);
  const held = heldTimes(db, gateway);
  const requests = ours.map((one): OurRequest => ({ ...one.request, own_id: hasOwnId(one, own) }));
  const consoleRows = theirs.map(({ row }) => row);
  const { billsFailures } = options;
  const { rows, records } = reconcile(requests, consoleRows, {
    now: options.now,
    held: (key) => held.get(key) ?? null,
    kept_from: keptFrom(db),
    unwatched: options.logGaps,
    hands_out_ids: Object.keys(own).length > 0,
    bills_failures: billsFailures,
    unlisted: unlistedIn(requests, consoleRows, { start, bills_failures: billsFailures }),
    socket_rows_have_ids: options.socketRowsHaveIds,
    start,
  });
  const isInside = (time: number) => time >= from && time < from + DAY_MS;
  const rowChanges = changedRows(loader, rows, isInside);
  const recordChanges = changedRecords(loader, records, missingIsKnown(db, gateway, skew), isInside);
  return {
    learned: null,
    rows: rowChanges.changed,
    records: recordChanges.changed,
    elsewhere: [...rowChanges.elsewhere, ...recordChanges.elsewhere],
    start: newStart,
  };
}

function storedStart(db: Database.Database, gateway: string): StartFit {
  const stored = readFact(db, gateway, "start_fit");
  return stored === null ? UNKNOWN_START : JSON.parse(stored);
}

interface Changed<T> {
  readonly changed: T[];
  readonly elsewhere: number[];
}

type Loaded = Pick<Loader, "ours" | "theirs">;

/** A row outside the day is decided here only where it belongs to a record of the day by its id. */
function changedRows(
  { ours, theirs }: Loaded,
  verdicts: readonly JudgedRow[],
  isInside: (time: number) => boolean,
): Changed<DayChanges["rows"][number]> {
  const changed: DayChanges["rows"][number][] = [];
  const elsewhere: number[] = [];
  for (const next of verdicts) {
    const their = theirs.get(next.identity);
    if (their === undefined) continue;
    const { row, judged: before } = their;
    const owner = next.how === "id" ? ours.get(next.record ?? "") : undefined;
    const isOwnerInside = owner !== undefined && isInside(owner.own);
    if (!isInside(row.at) && !isOwnerInside) {
      if (before.how === "id" && owner === undefined) elsewhere.push(row.at);
      continue;
    }
    if (!isOtherRow(before, next) || takesBack(before, next)) continue;
    changed.push(next);
    // All rows of a record are known only where its own day is compared.
    if (owner !== undefined && !isOwnerInside) elsewhere.push(owner.own);
    for (const id of [before.record, next.record]) {
      const socket = ours.get(id ?? "");
      if (socket?.request.upgraded && !isInside(socket.own)) elsewhere.push(socket.own);
    }
  }
  return { changed, elsewhere };
}

/** A record is decided where its own day is compared. */
function changedRecords(
  { ours, theirs }: Loaded,
  verdicts: readonly JudgedRecord[],
  known: ReturnType<typeof missingIsKnown>,
  isInside: (time: number) => boolean,
): Changed<NewVerdict> {
  const byRecord = new Map(verdicts.map((one) => [one.record, one]));
  const changed: NewVerdict[] = [];
  const elsewhere: number[] = [];
  for (const one of ours.values()) {
    if (one.request.running) continue;
    const judged = byRecord.get(one.request.id) ?? null;
    if (!isInside(one.own)) {
      if (one.verdict?.[1] === "id" && judged?.how !== "id") elsewhere.push(one.own);
      continue;
    }
    const next = known(one, judged);
    const hasTokens = next?.row != null && theirs.get(next.row)?.row.kind === "use";
    if (isOtherRecord(one.verdict, next)) changed.push({ id: one.request.id, judged: next, hasTokens });
  }
  return { changed, elsewhere };
}

/**
 * An alarm ends when a person acknowledges it, or when the row turns out to be ours. It does not end because a key was
 * taken out of config.yaml and put back, or because the clock was set back: a program that can edit files could silence
 * it so.
 */
function takesBack(before: StoredVerdict, after: JudgedRow): boolean {
  if (before.verdict !== "foreign" || !before.certain) return false;
  return after.verdict === "before" || after.verdict === "unwatched" || after.verdict === "pending";
}

function isOtherRow(before: StoredVerdict, after: JudgedRow): boolean {
  const values = judgedValues(before);
  return judgedValues(after).some((value, at) => value !== values[at]);
}

function isOtherRecord(before: Ours["verdict"], after: JudgedRecord | null): boolean {
  if (before === null || after === null) return (before === null) !== (after === null);
  const values = [after.verdict, after.how, after.row, after.reason, theirsText(after)];
  return values.some((value, at) => value !== (before[at] ?? null));
}

/**
 * Which ids are the gateway's own: by the name of the id and the kind of response, since when. It depends on the gateway's
 * version. new-api v0.13.2 hands out its own on streams and errors, and that of the gateway behind it on plain responses.
 */
export type OwnIds = Readonly<Record<string, number>>;

/** What matches by id teach. */
export interface Learned {
  readonly own: OwnIds;
  /** Since when an id is newly known to be own; null: none is. */
  readonly ownFrom: number | null;
  /** Which keys a console's name for a key stands for. */
  readonly keys: ReadonlyMap<string, ReadonlySet<string>>;
}

export function readOwnIds(db: Database.Database, gateway: string): OwnIds {
  return JSON.parse(readFact(db, gateway, "own_ids") ?? "{}");
}

/** Whether one of a record's ids is the gateway's own, by what was learned so far. */
export function hasOwnId({ request, gateway_ids }: Ours, own: OwnIds): boolean {
  return Object.keys(gateway_ids).some(
    (name) => (own[`${name} ${responseKind(request)}`] ?? Number.POSITIVE_INFINITY) <= request.started_at,
  );
}

function responseKind({ status, stream }: Ours["request"]): string {
  if (status !== null && status >= 400) return String(status);
  return stream === true ? "stream" : "plain";
}

/** null: nothing that is not known already. */
export function learnedFrom(
  ours: readonly Ours[],
  theirs: readonly Their[],
  known: OwnIds,
  links: KeyLinks,
): Learned | null {
  const own: Record<string, number> = { ...known };
  const keys = new Map<string, Set<string>>();
  let ownFrom: number | null = null;
  for (const { record, row } of matchesById(ours, theirs)) {
    const { key, started_at } = record.request;
    const ref = row.key_ref;
    if (key !== null && ref !== null && !links.decided.has(ref) && links.keys.get(ref) !== key)
      keys.set(ref, (keys.get(ref) ?? new Set()).add(key));
    for (const [name, id] of Object.entries(record.gateway_ids)) {
      const kind = `${name} ${responseKind(record.request)}`;
      if (id !== row.request_id || (own[kind] ?? Number.POSITIVE_INFINITY) <= started_at) continue;
      own[kind] = started_at;
      ownFrom = Math.min(ownFrom ?? started_at, started_at);
    }
  }
  return ownFrom === null && keys.size === 0 ? null : { own, ownFrom, keys };
}

/** How many of the last matches by id tell how a row's beginning fits its request. */
const SAMPLE = 200;

/** How much later than they were sent requests began at the gateway, of the last that were matched by id. */
export function offsetsOf(ours: readonly Ours[], theirs: readonly Their[]): number[] {
  const offsets: { readonly at: number; readonly offset: number }[] = [];
  for (const { record, row } of matchesById(ours, theirs)) {
    if (row.began === null || row.kind !== "use" || record.request.failed) continue;
    offsets.push({ at: row.at, offset: row.began - record.request.sent_at });
  }
  offsets.sort((a, b) => b.at - a.at || a.offset - b.offset);
  return offsets.slice(0, SAMPLE).map(({ offset }) => offset);
}

function* matchesById(ours: readonly Ours[], theirs: readonly Their[]) {
  const recordsById = new Map<string, Ours>();
  for (const one of ours) for (const id of one.request.ids) recordsById.set(id, one);
  for (const { row } of theirs) {
    const record = row.request_id === null ? undefined : recordsById.get(row.request_id);
    if (record !== undefined) yield { record, row };
  }
}

/** A gap has whole seconds at both ends, and a row is written a little before or after our end of the request. */
const MARGIN_MS = 60_000;

/**
 * A record without a row is missing only where the console was read: not before the first walk's beginning, not in a gap,
 * and not yet where nobody has looked since. Answers the verdict that holds; null: none.
 */
export function missingIsKnown(
  db: Database.Database,
  gateway: string,
  skew: number,
): (ours: Ours, judged: JudgedRecord | null) => JudgedRecord | null {
  const covered = readTime(db, gateway, "covered_from") ?? Number.NEGATIVE_INFINITY;
  const synced = readTime(db, gateway, "last_sync") ?? Number.NEGATIVE_INFINITY;
  const gaps = readConsoleGaps(db, gateway).map((gap) => ({
    ...gap,
    from: gap.from - skew - MARGIN_MS,
    to: gap.to - skew + MARGIN_MS,
  }));
  const unseen = new Map(readUnreadKeys(db, gateway).map((one) => [one.key, one]));
  return ({ own, request: { key } }, judged) => {
    if (judged === null || (judged.verdict !== "missing" && judged.verdict !== "pending")) return judged;
    const isInGap = gaps.some(
      (gap) => own >= gap.from && own < gap.to && (gap.key === undefined || gap.key === key),
    );
    const unread = unseen.get(key ?? "");
    if (own < covered || isInGap || unread?.why === "no-account") return null;
    const read = unread === undefined ? synced : (unread.until ?? Number.NEGATIVE_INFINITY);
    if (judged.verdict === "pending" || own + MISSING_AFTER_MS <= read) return judged;
    return { ...judged, verdict: "pending", reason: "the console was not read since it ended" };
  };
}
