import type Database from "libsql";
import { FARTHEST_MS, type OurRequest, type StartFit, type TheirRow } from "../reconcile/context.ts";
import { learnStartFit, UNKNOWN_START } from "../reconcile/fit.ts";
import { reconcile, unlistedIn } from "../reconcile/reconcile.ts";
import type { JudgedRecord, JudgedRow } from "../verdict.ts";
import { DAY_MS } from "./changed-days.ts";
import { type Gap, readFact, readTime } from "./facts.ts";
import { heldTimes } from "./held.ts";
import { keyLinks } from "./keys.ts";
import { hasOwnId, type Learned, learnedFrom, offsetsOf, readOwnIds } from "./learning.ts";
import { AMONG } from "./many.ts";
import { missingIsKnown } from "./missing.ts";
import { type Ours, oursOf, RECORD, VERDICT } from "./ours.ts";
import { columnsOf } from "./raw-row.ts";
import { judgedValues, STORED, type StoredVerdict, storedRowOf } from "./stored-row.ts";
import { keptFrom } from "./unwatched.ts";
import { type NewVerdict, theirsText } from "./verdicts.ts";

export interface CompareOptions {
  readonly gateway: string;
  readonly now: number;
  /** How far the console's clock is ahead. */
  readonly skew: number;
  /** See ConsoleAdapter. */
  readonly idNames: readonly string[];
  readonly billsFailures: boolean;
  readonly socketRowsHaveIds: boolean;
  /** Times, by our clock, in which something of ours may not have been recorded. */
  readonly unwatched: readonly Gap[];
}

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

interface Their {
  readonly row: TheirRow;
  readonly judged: StoredVerdict;
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
    unwatched: options.unwatched,
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

/** So many records that the console never listed are searched for an id; the latest. */
const MAX_MISSING = 1000;
/** Somebody who gives all requests one id must not hold up the others. */
const MAX_ALIKE = 1000;

/** Reads both sides of a day. */
class Loader {
  readonly ours = new Map<string, Ours>();
  readonly theirs = new Map<string, Their>();
  readonly #db: Database.Database;
  readonly #from: number;
  readonly #options: CompareOptions;
  readonly #keys: ReadonlyMap<string, string | null>;
  /** Before that, another gateway had this name. */
  readonly #begunAt: number;

  constructor(db: Database.Database, from: number, options: CompareOptions) {
    this.#db = db;
    this.#from = from;
    this.#options = options;
    this.#keys = keyLinks(db, options.gateway).keys;
    // A time that is still to come was written before the clock was set back.
    const begunAt = readTime(db, options.gateway, "begun_at") ?? Number.NEGATIVE_INFINITY;
    this.#begunAt = begunAt > options.now ? Number.NEGATIVE_INFINITY : begunAt;
  }

  load(): void {
    const { gateway, skew } = this.#options;
    const from = this.#from;
    const to = from + DAY_MS;
    const first = from - FARTHEST_MS;
    const last = to + FARTHEST_MS;
    const place = "coalesce(r.ended_at, r.started_at)";
    this.#addOurs(
      `r.end IS NOT NULL AND r.gateway = ? AND r.started_at >= ? AND r.started_at < ? AND ${place} >= ?
       AND (v.how IS NOT 'id' OR (${place} >= ? AND ${place} < ?))`,
      gateway,
      Math.min(first - DAY_MS, this.#longestSince()),
      last,
      first,
      from,
      to,
    );
    // The plus keeps SQLite from reading all that ever began: few run at a time, and they have an index of their own.
    this.#addOurs("r.end IS NULL AND +r.gateway = ? AND +r.started_at < ?", gateway, last);
    this.#addTheirs(
      `gateway = ? AND created_at >= ? AND created_at < ?
       AND (how IS NOT 'id' OR (created_at >= ? AND created_at < ?))`,
      gateway,
      first + skew,
      last + skew,
      from + skew,
      to + skew,
    );
    this.#addFar();
    this.#addSocketRows(first);
  }

  /** A request that lasts longer than a day belongs to the day of its end. */
  #longestSince(): number {
    return readTime(this.#db, this.#options.gateway, "running_since") ?? this.#from - FARTHEST_MS - DAY_MS;
  }

  /**
   * What belongs to the loaded rows and records by its id, however far away: a console can write hours late, and one whose
   * clock was wrong has rows at hours at which nothing of ours was.
   */
  #addFar(): void {
    const known = new Set([...this.ours.values()].flatMap(({ request }) => request.ids));
    const unknown = [...this.theirs.values()]
      .flatMap(({ row }) => [row.request_id, row.upstream_id])
      .filter((id): id is string => id !== null && !known.has(id));
    this.#addRowsWith(unknown);
    this.#addRecords([...this.#linked(), ...this.#missingWith(unknown)]);
    this.#addRowsWith([...this.ours.values()].flatMap(({ request }) => request.ids));
    const mains = [...this.ours.values()].flatMap(({ verdict }) =>
      typeof verdict?.[2] === "string" && !this.theirs.has(verdict[2]) ? [verdict[2]] : [],
    );
    if (mains.length > 0)
      this.#addTheirs(`gateway = ? AND identity IN ${AMONG}`, this.#options.gateway, JSON.stringify(mains));
    this.#addRecords(this.#linked());
  }

  /**
   * A WebSocket can be open for hours and have rows all the time. Its record's numbers are the sums of all of them, so those
   * that the days before gave to it are read again.
   */
  #addSocketRows(first: number): void {
    const { gateway, skew } = this.#options;
    for (const { request } of this.ours.values()) {
      if (!request.upgraded || request.started_at >= first) continue;
      this.#addTheirs(
        "gateway = ? AND created_at >= ? AND created_at < ? AND record = ?",
        gateway,
        request.started_at - FARTHEST_MS + skew,
        first + skew,
        request.id,
      );
    }
  }

  /** The records with which the loaded rows were matched, and which are not loaded. */
  #linked(): string[] {
    return [...this.theirs.values()].flatMap(({ judged: { record } }) =>
      record === null || this.ours.has(record) ? [] : [record],
    );
  }

  #addRecords(ids: readonly string[]): void {
    if (ids.length > 0) this.#addOurs(`r.id IN ${AMONG}`, JSON.stringify(ids));
  }

  #addRowsWith(ids: readonly string[]): void {
    if (ids.length === 0) return;
    const { gateway } = this.#options;
    // Left to itself, SQLite looks for a request id through all rows of the gateway.
    this.#addTheirs(
      `gateway = ? AND identity IN (SELECT identity FROM mirror.console_rows INDEXED BY console_rows_by_id
         WHERE gateway = ? AND request_id IN ${AMONG} LIMIT ?)`,
      gateway,
      gateway,
      JSON.stringify(ids),
      ids.length + MAX_ALIKE,
    );
  }

  #missingWith(ids: readonly string[]): string[] {
    if (ids.length === 0) return [];
    const found = this.#db
      .prepare(
        `SELECT DISTINCT r.id FROM (SELECT record FROM mirror.verdicts WHERE gateway = ? AND verdict IN ('missing', 'pending')
           ORDER BY started_at DESC LIMIT ${MAX_MISSING}) m
         JOIN usage.records r ON r.id = m.record, json_each(r.gateway_ids) one WHERE one.value IN ${AMONG}`,
      )
      .raw()
      .all(this.#options.gateway, JSON.stringify(ids));
    return found.map((row) => String(columnsOf(row)[0]));
  }

  #addOurs(where: string, ...values: (string | number)[]): void {
    const columns = [
      ...RECORD.map((name) => `r."${name}"`),
      ...VERDICT.map((name) => `v."${name}"`),
      "v.ours",
    ];
    const rows = this.#db
      .prepare(
        `SELECT ${columns.join(", ")} FROM usage.records r LEFT JOIN mirror.verdicts v ON v.record = r.id WHERE ${where}`,
      )
      .raw()
      .all(...values);
    for (const row of rows) {
      const one = oursOf(columnsOf(row), this.#options.idNames);
      const isEarlier = one.request.started_at < this.#begunAt;
      this.ours.set(one.request.id, isEarlier ? withIdOnly(one) : one);
    }
  }

  #addTheirs(where: string, ...values: (string | number)[]): void {
    const { skew } = this.#options;
    const rows = this.#db
      .prepare(`SELECT ${STORED.join(", ")} FROM mirror.console_rows WHERE ${where}`)
      .raw()
      .all(...values);
    for (const raw of rows) {
      const { row, judged } = storedRowOf(raw);
      const key = row.key_ref === null ? null : (this.#keys.get(row.key_ref) ?? null);
      const began = row.began_at === null ? null : row.began_at - skew;
      this.theirs.set(row.identity, { row: { ...row, at: row.created_at - skew, began, key }, judged });
    }
  }
}

/** It may have gone to another gateway that had this name: only its id can say that a row is its own. */
function withIdOnly(one: Ours): Ours {
  return { ...one, request: { ...one.request, billable: false, expected: false } };
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
