import type Database from "libsql";
import { DAY_MS } from "../../core/units.ts";
import { findMetering } from "../../metering/protocols.ts";
import { atOnce, mayHaveArrived, type UsageRecord } from "../../usage/record.ts";
import { FARTHEST_MS, type OurRequest, type OurTokens, type TheirRow } from "../reconcile/context.ts";
import { SIBLING_CLOCK_MS, type Sibling } from "../reconcile/siblings.ts";
import { readSiblings } from "./changed-days.ts";
import type { LogGap } from "./coverage-gaps.ts";
import { readTime } from "./facts.ts";
import { keyLinks } from "./keys.ts";
import { IN_LIST, queryColumn, queryRows, type Value } from "./query.ts";
import { readStoredRow, STORED, type StoredRowVerdict } from "./rows.ts";
import { readRecords, type StoredRecord } from "./verdicts.ts";

export interface CompareOptions {
  readonly gateway: string;
  readonly now: number;
  /** How far the console's clock is ahead. */
  readonly skew: number;
  /** See ConsoleAdapter. */
  readonly idNames: readonly string[];
  readonly billsFailures: boolean;
  readonly socketRowsHaveIds: boolean;
  /** When requests of ours may not have been recorded, by our clock. */
  readonly logGaps: readonly LogGap[];
  readonly siblings: readonly Sibling[];
}

/** A console row as reconcile needs it, with the verdict that is stored. */
export interface LoadedRow {
  readonly row: TheirRow;
  readonly judged: StoredRowVerdict;
}

/** One of our records as reconcile needs it, with the verdict that is stored. */
export interface LoadedRecord extends StoredRecord {
  readonly request: OurRequest;
  /** When its row would be written: at its end. The record is judged with the day of this time. */
  readonly at: number;
}

/** A row's id is searched in this many of the latest records that the console never listed. */
const MAX_MISSING = 1000;
/** At most this many rows with one id are read: a client may give all its requests the same id. */
const MAX_SAME_ID = 1000;

/**
 * Both logs of one UTC day by our clock, and FARTHEST_MS around it, so that verdicts do not depend on where a day ends. What
 * is matched by id outside the day is left out: nothing in this day can change that.
 */
export class LoadedDay {
  /** Both by id. */
  readonly records = new Map<string, LoadedRecord>();
  readonly rows = new Map<string, LoadedRow>();
  readonly #db: Database.Database;
  readonly #options: CompareOptions;
  readonly #keys: ReadonlyMap<string, string | null>;
  /** Before this time another gateway had this name. */
  readonly #begunAt: number;

  constructor(db: Database.Database, day: number, options: CompareOptions) {
    this.#db = db;
    this.#options = options;
    this.#keys = keyLinks(db, options.gateway).keys;
    const begunAt = readTime(db, options.gateway, "begun_at");
    // A time in the future was written before the clock was set back.
    this.#begunAt = begunAt === null || begunAt > options.now ? -Infinity : begunAt;
    this.#addDay(day * DAY_MS);
  }

  #addDay(from: number): void {
    const { gateway, skew } = this.#options;
    const to = from + DAY_MS;
    const first = from - FARTHEST_MS;
    const last = to + FARTHEST_MS;
    const longestSince = this.#longestSince() ?? first - DAY_MS;
    const end = "coalesce(r.ended_at, r.started_at)";
    this.#addRecords(
      `r.end IS NOT NULL AND r.gateway = ? AND r.started_at >= ? AND r.started_at < ? AND ${end} >= ?
       AND (v.how IS NOT 'id' OR (${end} >= ? AND ${end} < ?))`,
      gateway,
      // A request that lasts longer than a day belongs to the day of its end.
      Math.min(first - DAY_MS, longestSince),
      last,
      first,
      from,
      to,
    );
    // The plus keeps SQLite on the index of requests in flight.
    this.#addRecords("r.end IS NULL AND +r.gateway = ? AND +r.started_at < ?", gateway, last);
    this.#addRows(
      "gateway = ? AND created_at >= ? AND created_at < ? AND (how IS NOT 'id' OR (created_at >= ? AND created_at < ?))",
      gateway,
      first + skew,
      last + skew,
      from + skew,
      to + skew,
    );
    this.#addRelated();
    this.#addSocketRows(first);
  }

  /** Since when the oldest request ran that may have ended since the last comparison; null: not known. */
  #longestSince(): number | null {
    const { gateway, siblings } = this.#options;
    const running = readTime(this.#db, gateway, "running_since");
    if (running === null) return null;
    // A sibling that is no further than it was has ended nothing.
    const times = readSiblings(this.#db, gateway)
      .filter(({ name, seenUntil }) => siblings.some((one) => one.name === name && one.seenUntil > seenUntil))
      .map(({ seenUntil }) => seenUntil);
    return Math.min(running, ...times);
  }

  /**
   * Adds what matches the loaded rows and records by id, however far away: a console can write hours late, and if its clock
   * was wrong it has rows at any time.
   */
  #addRelated(): void {
    const ourIds = new Set(this.#requestIds());
    const otherIds: string[] = [];
    for (const { row } of this.rows.values()) {
      for (const id of [row.request_id, row.upstream_id])
        if (id !== null && !ourIds.has(id)) otherIds.push(id);
    }
    this.#addRowsWithIds(otherIds);
    this.#addMatchedRecords();
    this.#addMissingRecords(otherIds);
    this.#addRowsWithIds(this.#requestIds());
    this.#addMatchedRows();
    this.#addMatchedRecords();
  }

  #requestIds(): string[] {
    return [...this.records.values()].flatMap(({ request }) => request.ids);
  }

  #addRowsWithIds(ids: readonly string[]): void {
    if (ids.length === 0) return;
    const { gateway } = this.#options;
    // Without INDEXED BY, SQLite scans all rows of the gateway for a request id.
    this.#addRows(
      `gateway = ? AND identity IN (SELECT identity FROM mirror.console_rows INDEXED BY console_rows_by_id
         WHERE gateway = ? AND request_id IN ${IN_LIST} LIMIT ?)`,
      gateway,
      gateway,
      JSON.stringify(ids),
      ids.length + MAX_SAME_ID,
    );
  }

  /** The records that the loaded rows were matched with. */
  #addMatchedRecords(): void {
    const ids: string[] = [];
    for (const { judged } of this.rows.values())
      if (judged.record !== null && !this.records.has(judged.record)) ids.push(judged.record);
    this.#addRecordsWithIds(ids);
  }

  /** The rows that the loaded records were matched with. */
  #addMatchedRows(): void {
    const identities: string[] = [];
    for (const { row } of this.records.values())
      if (row !== null && !this.rows.has(row)) identities.push(row);
    if (identities.length === 0) return;
    this.#addRows(
      `gateway = ? AND identity IN ${IN_LIST}`,
      this.#options.gateway,
      JSON.stringify(identities),
    );
  }

  #addMissingRecords(ids: readonly string[]): void {
    if (ids.length === 0) return;
    const found = queryColumn(
      this.#db,
      `SELECT DISTINCT r.id FROM (SELECT record FROM mirror.verdicts WHERE gateway = ? AND verdict IN ('missing', 'pending')
         ORDER BY started_at DESC LIMIT ${MAX_MISSING}) m
       JOIN usage.records r ON r.id = m.record, json_each(r.gateway_ids) one WHERE one.value IN ${IN_LIST}`,
      this.#options.gateway,
      JSON.stringify(ids),
    );
    this.#addRecordsWithIds(found.map(String));
  }

  /**
   * A WebSocket can be open for hours and have rows all the time. Its record's numbers are the sums of all of them, so the
   * rows that earlier days matched with it are read again.
   */
  #addSocketRows(first: number): void {
    const { gateway, skew } = this.#options;
    for (const { request } of this.records.values()) {
      if (!request.upgraded || request.started_at >= first) continue;
      this.#addRows(
        "gateway = ? AND created_at >= ? AND created_at < ? AND record = ?",
        gateway,
        request.started_at - FARTHEST_MS + skew,
        first + skew,
        request.id,
      );
    }
  }

  #addRecords(where: string, ...values: Value[]): void {
    const ids = queryColumn(
      this.#db,
      `SELECT r.id FROM usage.records r LEFT JOIN mirror.verdicts v ON v.record = r.id WHERE ${where}`,
      ...values,
    );
    this.#addRecordsWithIds(ids.map(String));
  }

  #addRecordsWithIds(ids: readonly string[]): void {
    for (const [id, stored] of readRecords(this.#db, ids)) {
      const { started_at, ended_at } = stored.record;
      const request = toRequest(stored.own, this.#options.idNames);
      // It may have gone to another gateway that had this name, so only an id can match it with a row.
      const isEarlier = started_at < this.#begunAt;
      const known = isEarlier ? { ...request, billable: false, expected: false } : request;
      this.records.set(id, { ...stored, request: known, at: ended_at ?? started_at });
    }
  }

  #addRows(where: string, ...values: Value[]): void {
    const { skew } = this.#options;
    const sql = `SELECT ${STORED.join(", ")} FROM mirror.console_rows WHERE ${where}`;
    for (const columns of queryRows(this.#db, sql, ...values)) {
      const { row, judged } = readStoredRow(columns);
      const key = row.key_ref === null ? null : (this.#keys.get(row.key_ref) ?? null);
      const began = row.began_at === null ? null : row.began_at - skew;
      this.rows.set(row.identity, { row: { ...row, at: row.created_at - skew, began, key }, judged });
    }
  }
}

function toRequest(record: UsageRecord, idNames: readonly string[]): OurRequest {
  const { status, end, refusal } = record;
  const billable = mayHaveArrived(record);
  return {
    id: record.id,
    started_at: record.started_at,
    // What was never sent takes no row, whatever its time is.
    sent_at: record.sent_at ?? atOnce(record),
    ended_at: record.ended_at,
    clock_error: record.machine === null ? 0 : SIBLING_CLOCK_MS,
    running: end === null,
    key: record.key,
    model: record.model,
    model_answered: record.model_answered,
    stream: record.stream,
    status,
    user_agent: record.user_agent,
    ids: [...new Set(idNames.flatMap((name) => record.gateway_ids[name] ?? []))],
    // compareDay sets this from what was learned so far.
    own_id: false,
    brought_id: Object.values(record.gateway_ids).includes(record.id) ? record.id : null,
    refusable: false,
    tokens: toTokens(record),
    // The tokens of an answer that broke off are not complete.
    exact: record.tokens_from === "reported" && end === "complete",
    expected: billable && isExpected(record),
    billable,
    failed: refusal === null && status !== null && status >= 400,
    upgraded: status === 101,
  };
}

function isExpected({ method, endpoint, status, end, refusal, tokens_from }: UsageRecord): boolean {
  if (end !== "complete" || refusal !== null || status === null || status < 200 || status >= 400)
    return false;
  // Other endpoints are known to be billed only if the answer reports tokens.
  return findMetering(method, endpoint) !== "other" || tokens_from === "reported";
}

function toTokens(record: UsageRecord): OurTokens | null {
  const { input_tokens, output_tokens } = record;
  if (input_tokens === null || output_tokens === null) return null;
  return {
    input: input_tokens,
    cache_read: record.cache_read_tokens ?? 0,
    cache_write: record.cache_write_tokens ?? 0,
    output: output_tokens,
  };
}
