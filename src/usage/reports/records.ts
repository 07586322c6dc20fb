import type { Database } from "libsql";
import { SANDBOX } from "../../config/schema.ts";
import { firstIdAt, readIdTime } from "../../core/ids.ts";
import { NO_TOKEN } from "../../core/session-id.ts";
import { HOUR_MS, MINUTE_MS } from "../../core/units.ts";
import { minuteOf } from "../journal/refusal-runs.ts";
import { COLUMN_NAMES, EXPORTED, recordOfRow, type UsageRecord } from "../record.ts";
import type { Series } from "../rollups.ts";
import type { Period } from "./calendar.ts";
import { csvLine, plainDollars } from "./format.ts";
import { type Outcome, SELECTED_NAMES, type SelectedName } from "./names.ts";

/* Selects and reads single records: for `usage export`, `show` and `tail`, and for the dashboard's list. */

/** What records are added up by. Rollups have no session. */
export type SeriesName = keyof Series | "session";

/** Which records a command selects. */
export interface Filter {
  readonly period: Period;
  /** `*` stands for anything, every other character for itself. No names: any. */
  readonly tools: readonly string[];
  readonly models: readonly string[];
  /** An empty name stands for this machine. */
  readonly machines: readonly string[];
  readonly projects: readonly string[];
  /** Ids that clients sent, or those of shared sessions; see core/session-id.ts. */
  readonly sessions: readonly string[];
}

/** Which records the dashboard selects. */
export interface Selection {
  readonly period: Period;
  /** Exact names; an empty one means records without one. No names: any. */
  readonly names: Readonly<Record<SelectedName, readonly string[]>>;
  /** How they ended; none: in any way. */
  readonly ends: readonly Outcome[];
  /** A part of any of their texts; of the letters, A to Z are found in any case. Empty: all of them. */
  readonly search: string;
}

const IS_ERROR = "coalesce(status, 0) >= 400";
const OUTCOME_CONDITIONS: Readonly<Record<Outcome, string>> = {
  complete: `("end" = 'complete' AND NOT ${IS_ERROR})`,
  failed: `("end" = 'gateway-failed' OR ("end" = 'complete' AND ${IS_ERROR}))`,
  refused: `"end" = 'refused'`,
  "client-left": `"end" = 'client-left'`,
  interrupted: `"end" = 'interrupted'`,
};

/** What a search looks at. */
const SEARCHED = [
  ...["id", "tool", "gateway", "model", "model_answered", "project", "branch", "session", `"group"`, "key"],
  ...["machine", "endpoint", "refusal", "cause", "cause_detail", "process", "user_agent", "gateway_ids"],
];

/** Conditions that follow others in a WHERE clause, and their values. */
export interface Conditions {
  readonly sql: string;
  readonly values: readonly (string | number)[];
}

/** Rollups know neither a session nor how a request ended nor all its texts: those conditions are for records alone. */
export function buildConditions(filter: Filter | Selection, table: "records" | "rollups"): Conditions {
  const conditions: string[] = [];
  const values: (string | number)[] = [];
  const add = (expression: string, operator: "=" | "GLOB", names: readonly string[]) => {
    if (names.length === 0) return;
    conditions.push(` AND (${names.map(() => `${expression} ${operator} ?`).join(" OR ")})`);
    values.push(...names);
  };
  const column = (name: SeriesName) => (table === "records" ? RECORD_SERIES[name] : `"${name}"`);
  if ("names" in filter) {
    for (const name of SELECTED_NAMES) {
      const names = filter.names[name];
      // An expression would not be found by the index's own index.
      const isIndexed = table === "records" && name === "session" && !names.includes("");
      add(isIndexed ? "session" : column(name), "=", names);
    }
    if (filter.ends.length > 0)
      conditions.push(` AND (${filter.ends.map((end) => OUTCOME_CONDITIONS[end]).join(" OR ")})`);
    if (filter.search !== "") {
      conditions.push(` AND (${SEARCHED.map((name) => `${name} LIKE ? ESCAPE '\\'`).join(" OR ")})`);
      const pattern = `%${filter.search.replace(/[\\%_]/g, "\\$&")}%`;
      values.push(...SEARCHED.map(() => pattern));
    }
  } else {
    add(column("tool"), "GLOB", filter.tools.map(sqliteGlob));
    add(column("model"), "GLOB", filter.models.map(sqliteGlob));
    add(column("machine"), "GLOB", filter.machines.map(sqliteGlob));
    add(column("project"), "GLOB", filter.projects.map(sqliteGlob));
    if (table === "records" && filter.sessions.length > 0) {
      const sessions = filter.sessions.map(sessionCondition);
      conditions.push(` AND (${sessions.map(({ sql }) => sql).join(" OR ")})`);
      values.push(...sessions.flatMap((session) => session.values));
    }
  }
  const namesTools = "names" in filter ? filter.names.tool.length > 0 : filter.tools.length > 0;
  if (!namesTools) conditions.push(` AND (${column("gateway")} <> '${SANDBOX}' OR ${ONLY_SANDBOX})`);
  return { sql: conditions.join(""), values };
}

/** What was tried in the sandbox is left out once there is real usage, unless its tool is asked for by name. */
const ONLY_SANDBOX = `NOT EXISTS (SELECT 1 FROM rollups WHERE gateway NOT IN ('', '${SANDBOX}'))`;

/** The part of the id of a shared session after its slash. */
export const SHARED_NAME = `coalesce(token, '${NO_TOKEN}')`;

/** Requests that name no session. Refusals that share a record may be of any session. */
export const WITHOUT_SESSION = "session IS NULL AND tool IS NOT NULL AND last_id IS NULL";

/** An id as it is can be found by the index's own index. */
export function sessionCondition(pattern: string): Conditions {
  const [, year, month, date, name = ""] = /^(\d{4})-(\d\d)-(\d\d)\/(.+)$/s.exec(pattern) ?? [];
  if (year !== undefined) {
    const dayAt = (day: number) => new Date(Number(year), Number(month) - 1, day).getTime();
    const from = dayAt(Number(date));
    const to = dayAt(Number(date) + 1);
    const ids = idRange({ since: from - MAX_CLOCK_DIFFERENCE_MS, until: to + MAX_CLOCK_DIFFERENCE_MS });
    const sql = `(id >= ? AND id < ? AND ${WITHOUT_SESSION} AND started_at >= ? AND started_at < ? AND ${SHARED_NAME} GLOB ?)`;
    return { sql, values: [...ids, from, to, sqliteGlob(name)] };
  }
  if (pattern.includes("*")) return { sql: "session GLOB ?", values: [sqliteGlob(pattern)] };
  return { sql: "session = ?", values: [pattern] };
}

/** In SQLite's patterns `?` and `[` are special, too. */
export function sqliteGlob(pattern: string): string {
  return pattern.replace(/[?[]/g, "[$&]");
}

/** The same for names that are not in the database. */
export function matchesPattern(pattern: string, name: string): boolean {
  if (!pattern.includes("*")) return pattern === name;
  const parts = pattern.split("*").map((part) => part.replace(/[\\^$.|?+()[\]{}]/g, "\\$&"));
  return new RegExp(`^${parts.join(".*")}$`, "s").test(name);
}

/** The series a record belongs to, as rollUp() has it. */
export const RECORD_SERIES: Readonly<Record<SeriesName, string>> = {
  tool: "coalesce(tool, '')",
  gateway: "coalesce(gateway, '')",
  group: `coalesce("group", '')`,
  key: "coalesce(key, '')",
  model: "coalesce(model, model_answered, '')",
  machine: "coalesce(machine, '')",
  session: "coalesce(session, '')",
  project: "coalesce(project, '')",
  branch: "coalesce(branch, '')",
  token: "coalesce(token, '')",
  answered: "CASE WHEN model <> model_answered THEN model_answered ELSE '' END",
};

/** How far the time in an id may be from the record's own: another machine's id has the time of that machine's clock. */
export const MAX_CLOCK_DIFFERENCE_MS = HOUR_MS;

/** The ids of all records that began in a period: from the first to before the second. */
export function idRange({ since, until }: Period): [from: string, before: string] {
  // "~" is greater than every id.
  return [since === null ? "" : firstIdAt(since), until === null ? "~" : firstIdAt(until)];
}

/** A record without what only keybearer itself needs. */
export type ExportedRecord = Omit<
  UsageRecord,
  | "held_tokens"
  | "held_microdollars"
  | "admitted_at"
  | "counted_session"
  | "counts"
  | "counted_tokens"
  | "counted_microdollars"
  | "seen_tokens"
  | "machine_id"
  | "verified"
>;

/** Its fields in the order of an export. */
export function exportedRecord(record: ExportedRecord): ExportedRecord {
  const exported: Record<string, unknown> = {};
  for (const name of EXPORTED) exported[name] = record[name as keyof ExportedRecord];
  return exported as ExportedRecord;
}

const CSV_TIMES = ["started_at", "first_byte_at", "ended_at"] as const;
const CSV_AMOUNTS = ["list_microdollars", "cost_microdollars", "billed_microdollars"] as const;

/** Times and amounts come twice: raw, and as spreadsheets read them. The new columns are last, so the others keep their places. */
export function csvHead(): string {
  const isoTimes = CSV_TIMES.map((name) => `${name}_iso`);
  const inDollars = CSV_AMOUNTS.map((name) => name.replace("microdollars", "dollars"));
  return csvLine([...EXPORTED, ...isoTimes, ...inDollars]);
}

export function csvRecord(record: UsageRecord): string {
  const isoTimes = CSV_TIMES.map((name) => isoTime(record[name]));
  const inDollars = CSV_AMOUNTS.map((name) => plainDollars(record[name]));
  return csvLine([...EXPORTED.map((name) => record[name]), ...isoTimes, ...inDollars]);
}

function isoTime(at: number | null): string | null {
  return at === null ? null : new Date(at).toISOString();
}

const PAGE = 2000;

/**
 * Every record, oldest first, page by page, up to the record that was the last one at the start. Between two pages nothing
 * is locked, so a slow reader does not prevent a checkpoint of the WAL.
 */
export function* pagesOf(db: Database, filter: Filter): Generator<UsageRecord[]> {
  const [from, before] = idRange(filter.period);
  const last = newestId(db);
  if (last === "") return;
  const { sql, values } = buildConditions(filter, "records");
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
  const { sql, values } = buildConditions(filter, "records");
  const statement = db.prepare(`SELECT count(*) FROM records WHERE id > ? AND id < ?${sql}`).raw();
  const [count] = statement.get(...idRange(filter.period), ...values) as [number];
  return count;
}

/** Where a page begins: before a record, after one, or at the newest. */
export interface Cursor {
  readonly before: string | null;
  readonly after: string | null;
}

export interface Page {
  /** Newest first. */
  readonly records: readonly UsageRecord[];
  /** The cursors of the next page; null: there is none. */
  readonly older: string | null;
  readonly newer: string | null;
}

/** Finished records, newest first. */
export function readPage(db: Database, selection: Selection, { before, after }: Cursor, limit: number): Page {
  const { sql, values } = buildConditions(selection, "records");
  const [from, end] = idRange(selection.period);
  const low = after !== null && after >= from ? `${after}!` : from;
  const high = before !== null && before < end ? before : end;
  const order = after === null ? "DESC" : "ASC";
  // One more than is wanted, which shows that there is another page.
  const found = db
    .prepare(
      `SELECT ${COLUMN_NAMES} FROM records WHERE id >= ? AND id < ? AND "end" IS NOT NULL${sql}
       ORDER BY id ${order} LIMIT ${limit + 1}`,
    )
    .raw()
    .all(low, high, ...values)
    .map(recordOfRow);
  const hasMore = found.length > limit;
  const records = found.slice(0, limit);
  if (after !== null) records.reverse();
  const newest = records[0]?.id ?? null;
  const oldest = records.at(-1)?.id ?? null;
  // Where a page came from there is always one.
  if (after !== null) return { records, older: oldest, newer: hasMore ? newest : null };
  return { records, older: hasMore ? oldest : null, newer: before === null ? null : newest };
}

const CSV_PAGE = 1000;

/** Between which ids the next page is. */
export interface CsvCursor {
  readonly after: string;
  /** The newest record when the first page was read. */
  readonly last: string;
}

export interface CsvPage {
  readonly text: string;
  /** null: this was the last page. */
  readonly next: CsvCursor | null;
}

/** Finished records as lines of CSV, oldest first. @param cursor null: the first page */
export function csvPage(db: Database, selection: Selection, cursor: CsvCursor | null): CsvPage {
  const { sql, values } = buildConditions(selection, "records");
  const [from, before] = idRange(selection.period);
  const last = cursor?.last ?? newestId(db);
  const records = db
    .prepare(
      `SELECT ${COLUMN_NAMES} FROM records WHERE id >= ? AND id < ? AND id <= ? AND "end" IS NOT NULL${sql}
       ORDER BY id LIMIT ${CSV_PAGE}`,
    )
    .raw()
    .all(cursor === null ? from : `${cursor.after}!`, before, last, ...values)
    .map(recordOfRow);
  const after = records.at(-1)?.id;
  const isLast = after === undefined || records.length < CSV_PAGE;
  return { text: records.map(csvRecord).join(""), next: isLast ? null : { after, last } };
}

/** Empty: there are no records. */
function newestId(db: Database): string {
  const [id] = db.prepare("SELECT max(id) FROM records").raw().get() as [string | null];
  return id ?? "";
}

/** Older records are not searched for refusals. */
const MAX_SEARCHED = 20_000;

/** The last refusals of this machine, newest first. */
export function lastRefused(db: Database, max: number): UsageRecord[] {
  return db
    .prepare(
      `SELECT ${COLUMN_NAMES} FROM records
       WHERE id >= coalesce((SELECT id FROM records ORDER BY id DESC LIMIT 1 OFFSET ${MAX_SEARCHED}), '')
         AND "end" IS NOT NULL AND refusal IS NOT NULL AND ${SENT_HERE}
       ORDER BY id DESC LIMIT ?`,
    )
    .raw()
    .all(max)
    .map(recordOfRow);
}

export function recordsById(db: Database, ids: readonly string[]): UsageRecord[] {
  const sql = `SELECT ${COLUMN_NAMES} FROM records WHERE id IN (SELECT value FROM json_each(?))`;
  return db.prepare(sql).raw().all(JSON.stringify(ids)).map(recordOfRow);
}

export function recordById(db: Database, id: string): UsageRecord | null {
  const row = db.prepare(`SELECT ${COLUMN_NAMES} FROM records WHERE id = ?`).raw().get(id);
  return row === undefined ? null : recordOfRow(row);
}

/** How far apart two attempts at one request may be, and how many are looked at. */
const ATTEMPTS_MS = 10 * MINUTE_MS;
const MAX_ATTEMPTS = 20;

/**
 * The attempts at one request, oldest first, as far as records show them: the same tool asked for the same in the same
 * session, with as many bytes, again and again until it was answered. Empty: it was sent once.
 */
export function attemptsAt(db: Database, record: UsageRecord): UsageRecord[] {
  const { id, started_at: at, tool, session, endpoint, model, bytes_in: bytes } = record;
  if (bytes === 0 || record.last_id !== null) return [];
  const alike = db
    .prepare(
      `SELECT ${COLUMN_NAMES} FROM records
       WHERE id >= ? AND id < ? AND tool IS ? AND session IS ? AND endpoint = ? AND model IS ? AND bytes_in = ?
       ORDER BY id LIMIT ${MAX_ATTEMPTS}`,
    )
    .raw()
    .all(firstIdAt(at - ATTEMPTS_MS), firstIdAt(at + ATTEMPTS_MS), tool, session, endpoint, model, bytes)
    .map(recordOfRow);
  let attempts: UsageRecord[] = [];
  for (const one of alike) {
    attempts.push(one);
    const isAnswered = one.end === "complete" && (one.status ?? 0) < 400;
    if (isAnswered && one.id >= id) break;
    if (isAnswered) attempts = [];
  }
  return attempts.length > 1 && attempts.some((one) => one.id === id) ? attempts : [];
}

/** By its id, the beginning of its id, an id the gateway gave it, or `last` of this machine. At most `max`, oldest first. */
export function findRecords(db: Database, text: string, max: number): UsageRecord[] {
  const find = (condition: string, ...values: string[]) => {
    const statement = db.prepare(`SELECT ${COLUMN_NAMES} FROM records ${condition} LIMIT ${max}`).raw();
    return statement.all(...values).map(recordOfRow);
  };
  if (text.toLowerCase() === "last") return find(`WHERE ${SENT_HERE} ORDER BY id DESC`).slice(0, 1);
  const id = text.toUpperCase();
  const byId = /^[0-9A-Z]{4,26}$/.test(id) ? find("WHERE id >= ? AND id < ? ORDER BY id", id, `${id}~`) : [];
  if (byId.length > 0) return byId;
  return find("WHERE instr(gateway_ids, ?) > 0 ORDER BY id", JSON.stringify(text));
}

/**
 * The runs of refusals that a request with this whole id may be part of: those of its minute and, because a request may wait
 * for a limit before it is refused, those whose first and last ids are around it.
 */
export function findRuns(db: Database, id: string, max: number): UsageRecord[] {
  const time = readIdTime(id);
  if (time === null) return [];
  const sql = `SELECT ${COLUMN_NAMES} FROM records
    WHERE last_id IS NOT NULL AND (started_at = ? OR ? BETWEEN id AND last_id) ORDER BY last_id LIMIT ${max}`;
  const runs = db.prepare(sql).raw().all(minuteOf(time), id).map(recordOfRow);
  const ending = runs.filter(({ last_id }) => last_id === id);
  return ending.length > 0 ? ending : runs;
}

const SENT_HERE = "machine IS NULL";

/** The last records of this machine that have ended, oldest first. */
export function lastEnded(db: Database, max: number): UsageRecord[] {
  const rows = db
    .prepare(
      `SELECT ${COLUMN_NAMES} FROM records WHERE "end" IS NOT NULL AND ${SENT_HERE} ORDER BY id DESC LIMIT ?`,
    )
    .raw()
    .all(max);
  return rows.map(recordOfRow).reverse();
}

/** What a follower of this machine's records knew at some time. Other records may have ended since. */
export interface Mark {
  /** The records that had not ended. */
  readonly inFlight: readonly string[];
  /** Every record with a smaller id was in the index by then. */
  readonly from: string;
  /** The records from there on that had ended. */
  readonly ended: ReadonlySet<string>;
}

/** A record is written when its request is sent. Before that, the request may have waited for a limit this long. */
const MAX_LATE_MS = HOUR_MS;

export function readMark(db: Database): Mark {
  const inFlight = db.prepare(`SELECT id FROM records WHERE "end" IS NULL`).raw().all() as [string][];
  const newest = db
    .prepare(`SELECT started_at FROM records WHERE ${SENT_HERE} ORDER BY id DESC LIMIT 1`)
    .raw()
    .get();
  const from = newest === undefined ? "" : firstIdAt((newest as [number])[0] - MAX_LATE_MS);
  return {
    inFlight: inFlight.map(([id]) => id),
    from,
    ended: new Set(endedFrom(db, from).map(({ id }) => id)),
  };
}

/** What a follower has not seen. */
interface Missed {
  /** Oldest first. */
  readonly records: readonly UsageRecord[];
  /** How many older records were left out, and when the first of them began; null: none. */
  readonly more: { readonly count: number; readonly since: number } | null;
}

/**
 * The records that have ended since a mark, except those in `seen`: all that were in flight then, and the newest `max` of
 * the others.
 */
export function endedSince(
  db: Database,
  mark: Mark,
  max: number,
  seen: { has(id: string): boolean },
): Missed {
  const wereInFlight = new Set(mark.inFlight);
  const isNew = (id: string) => !mark.ended.has(id) && !wereInFlight.has(id) && !seen.has(id);
  const begun = endedFrom(db, mark.from).filter(({ id }) => isNew(id));
  const shown = begun.slice(-max).map(({ id }) => id);
  const older = begun.slice(0, -max);
  const [first] = older;
  const ids = [...mark.inFlight.filter((id) => !seen.has(id)), ...shown].sort();
  const records = ids.flatMap((id) => recordById(db, id) ?? []);
  return {
    records: records.filter(({ end }) => end !== null),
    more: first === undefined ? null : { count: older.length, since: first.startedAt },
  };
}

function endedFrom(db: Database, from: string): { readonly id: string; readonly startedAt: number }[] {
  const statement = db.prepare(
    `SELECT id, started_at FROM records WHERE id >= ? AND "end" IS NOT NULL AND ${SENT_HERE} ORDER BY id`,
  );
  const rows = statement.raw().all(from) as [string, number][];
  return rows.map(([id, startedAt]) => ({ id, startedAt }));
}
