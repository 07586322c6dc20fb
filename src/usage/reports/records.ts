import type { Database } from "libsql";
import { COLUMN_NAMES, EXPORTED, recordOfRow } from "../columns.ts";
import type { UsageRecord } from "../record.ts";
import { conditionsOf, type Filter, firstIdAt, idsOf, type Selection } from "./filter.ts";

/* Single records: `usage export`, `show` and `tail`, and the dashboard's list. */

/** A record without what only the limits need. */
export type ExportedRecord = Omit<
  UsageRecord,
  "held_tokens" | "held_microdollars" | "admitted_at" | "counts" | "counted_tokens" | "counted_microdollars"
>;

/** Its fields in the order of an export. */
export function exportedRecord(record: ExportedRecord): ExportedRecord {
  const exported: Record<string, unknown> = {};
  for (const name of EXPORTED) exported[name] = record[name as keyof ExportedRecord];
  return exported as unknown as ExportedRecord;
}

const PAGE = 2000;

/**
 * Every record, oldest first, page by page. Ends with the record that was the last one at the beginning. Between two pages
 * nothing is locked, so a slow reader does not keep the WAL from being checkpointed.
 */
export function* pagesOf(db: Database, filter: Filter): Generator<UsageRecord[]> {
  const [from, before] = idsOf(filter.period);
  const [last] = db.prepare("SELECT max(id) FROM records").raw().get() as [string | null];
  if (last === null) return;
  const { sql, values } = conditionsOf(filter, "records");
  const statement = db
    .prepare(
      `SELECT ${COLUMN_NAMES} FROM records WHERE id > ? AND id < ? AND id <= ?${sql} ORDER BY id LIMIT ${PAGE}`,
    )
    .raw();
  let after = from;
  for (;;) {
    const page = statement.all(after, before, last, ...values).map(recordOfRow);
    if (page.length > 0) yield page;
    if (page.length < PAGE) return;
    after = page.at(-1)?.id ?? last;
  }
}

export function countRecords(db: Database, filter: Filter): number {
  const { sql, values } = conditionsOf(filter, "records");
  const statement = db.prepare(`SELECT count(*) FROM records WHERE id > ? AND id < ?${sql}`).raw();
  const [count] = statement.get(...idsOf(filter.period), ...values) as [number];
  return count;
}

/** How many records are read in one step: with their lines of CSV, that takes two or three milliseconds. */
const STEP = 100;

/**
 * Finished records, in steps. Each step reads the next hundred records and returns those that fit, perhaps none. So a
 * filter that finds little in a million records does not block this thread.
 */
export function oldestFirst(db: Database, filter: Filter | Selection): Generator<UsageRecord[]> {
  const [from, before] = idsOf(filter.period);
  return inSteps(db, filter, from, before, "ASC");
}

/** The same, newest first; `beforeId`: only records before this one. */
export function newestFirst(
  db: Database,
  filter: Filter | Selection,
  beforeId: string | null,
): Generator<UsageRecord[]> {
  const [from, before] = idsOf(filter.period);
  const end = beforeId !== null && beforeId < before ? beforeId : before;
  return inSteps(db, filter, from, end, "DESC");
}

function* inSteps(
  db: Database,
  filter: Filter | Selection,
  from: string,
  before: string,
  order: "ASC" | "DESC",
): Generator<UsageRecord[]> {
  const { sql, values } = conditionsOf(filter, "records");
  const stepEnd = db
    .prepare(
      `SELECT id FROM records WHERE id >= ? AND id < ? ORDER BY id ${order} LIMIT 1 OFFSET ${STEP - 1}`,
    )
    .raw();
  const records = db
    .prepare(
      `SELECT ${COLUMN_NAMES} FROM records WHERE id >= ? AND id < ? AND "end" IS NOT NULL${sql} ORDER BY id ${order}`,
    )
    .raw();
  let low = from;
  let high = before;
  for (;;) {
    const row = stepEnd.get(low, high) as [string] | undefined;
    if (row === undefined) {
      yield records.all(low, high, ...values).map(recordOfRow);
      return;
    }
    const [last] = row;
    if (order === "DESC") {
      yield records.all(last, high, ...values).map(recordOfRow);
      high = last;
    } else {
      // The smallest text behind the last id.
      const next = `${last}!`;
      yield records.all(low, next, ...values).map(recordOfRow);
      low = next;
    }
  }
}

export function recordById(db: Database, id: string): UsageRecord | null {
  const row = db.prepare(`SELECT ${COLUMN_NAMES} FROM records WHERE id = ?`).raw().get(id);
  return row === undefined ? null : recordOfRow(row);
}

/** By its id, the beginning of its id, an id the gateway gave it, or `last`. At most `max`, oldest first. */
export function findRecords(db: Database, text: string, max: number): UsageRecord[] {
  const find = (condition: string, ...values: string[]) => {
    const statement = db.prepare(`SELECT ${COLUMN_NAMES} FROM records ${condition} LIMIT ${max}`).raw();
    return statement.all(...values).map(recordOfRow);
  };
  if (text.toLowerCase() === "last") return find("ORDER BY id DESC").slice(0, 1);
  const id = text.toUpperCase();
  const byId = /^[0-9A-Z]{4,26}$/.test(id) ? find("WHERE id >= ? AND id < ? ORDER BY id", id, `${id}~`) : [];
  if (byId.length > 0) return byId;
  return find("WHERE instr(gateway_ids, ?) > 0 ORDER BY id", JSON.stringify(text));
}

/** The last ones that have ended, oldest first. */
export function lastEnded(db: Database, max: number): UsageRecord[] {
  const rows = db
    .prepare(`SELECT ${COLUMN_NAMES} FROM records WHERE "end" IS NOT NULL ORDER BY id DESC LIMIT ?`)
    .raw()
    .all(max);
  return rows.map(recordOfRow).reverse();
}

/** What had ended at some time, as far as records may still end or arrive in the index. */
export interface Mark {
  /** Every record with a smaller id had ended. */
  readonly from: string;
  /** The ids from there on that had ended. */
  readonly ended: ReadonlySet<string>;
}

/** A record is written before it is sent, not when it began: it may have waited that long for a limit. */
const MAX_LATE_MS = 3_600_000;

export function markOf(db: Database): Mark {
  const newest = db.prepare("SELECT started_at FROM records ORDER BY id DESC LIMIT 1").raw().get();
  const late = newest === undefined ? "" : firstIdAt((newest as [number])[0] - MAX_LATE_MS);
  const inFlight = `SELECT min(id) FROM records WHERE "end" IS NULL`;
  const [oldest] = db.prepare(inFlight).raw().get() as [string | null];
  const from = oldest !== null && oldest < late ? oldest : late;
  const ended = endedFrom(db, from).map(([id]) => id);
  return { from, ended: new Set(ended) };
}

/** What a follower has not seen. */
export interface Missed {
  /** In the order in which they began. */
  readonly records: readonly UsageRecord[];
  /** How many older ones there are, and when the first of them began; null: none. */
  readonly more: { readonly count: number; readonly since: number } | null;
}

/** What has ended since a mark, except for ids in `seen`: the newest `max`, and how many more there are. */
export function endedSince(
  db: Database,
  mark: Mark,
  max: number,
  seen: { has(id: string): boolean },
): Missed {
  const missed = endedFrom(db, mark.from).filter(([id]) => !mark.ended.has(id) && !seen.has(id));
  const older = missed.slice(0, -max);
  const [first] = older;
  return {
    records: missed.slice(-max).flatMap(([id]) => recordById(db, id) ?? []),
    more: first === undefined ? null : { count: older.length, since: first[1] },
  };
}

function endedFrom(db: Database, from: string): [id: string, startedAt: number][] {
  const statement = db.prepare(
    `SELECT id, started_at FROM records WHERE id >= ? AND "end" IS NOT NULL ORDER BY id`,
  );
  return statement.raw().all(from) as [string, number][];
}
