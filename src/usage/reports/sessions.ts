import type { Database } from "libsql";
import { PROCESS_SESSION, sharedSession } from "../../core/session-id.ts";
import { QUARTER_MS } from "../../core/units.ts";
import type { Sums } from "../rollups.ts";
import { startOfDay } from "./calendar.ts";
import { idSteps, prepareSums } from "./record-sums.ts";
import {
  type Conditions,
  idRange,
  matchesPattern,
  SHARED_NAME,
  sessionCondition,
  sqliteGlob,
} from "./records.ts";
import { type Report, readReport } from "./report.ts";
import { unknownCost } from "./sums.ts";

/*
 * The sessions of this machine: what each run of an agent used. Limits count them on each machine by itself. Requests that
 * name no session share one for each token and day: see core/session-id.ts.
 */

export interface SessionName {
  readonly tool: string;
  readonly session: string;
}

/** What a session used, as `keybearer sessions --json` prints it. */
export interface SessionRow extends SessionName {
  /** Of its last request where that is known. */
  readonly project: string | null;
  readonly branch: string | null;
  readonly started_at: number;
  /** When its last request began. */
  readonly last_at: number;
  /** That have ended. */
  readonly requests: number;
  readonly refused: number;
  readonly input_tokens: number;
  readonly cache_read_tokens: number;
  readonly cache_write_tokens: number;
  readonly output_tokens: number;
  readonly cost_microdollars: number;
  /** Requests whose cost is not known, which is not zero. */
  readonly unknown_cost: number;
}

export interface SessionsQuery {
  /** Sessions with a request since then; null: all. */
  readonly since: number | null;
  /** Patterns as those of Filter. */
  readonly tools: readonly string[];
  readonly projects: readonly string[];
}

/** With all their requests, the last one first. */
export function readSessions(db: Database, { since, tools, projects }: SessionsQuery): SessionRow[] {
  // A shared session is a day's.
  const period = { since: since === null ? null : startOfDay(since), until: null };
  const [from, before] = idRange(period);
  const condition = toolCondition(tools);
  const sessions = new Sessions();
  const readParts = prepareParts(db, `id >= ? AND id < ?${condition.sql}`);
  for (const ids of idSteps(db, from, before)) {
    sessions.add(readParts([...ids, ...condition.values]));
  }
  const found = sessions.list().filter(({ last_at }) => since === null || last_at >= since);
  if (period.since !== null) addEarlier(db, sessions, found, from, condition);
  const rows = period.since === null ? found : found.map((row) => sessions.find(row) ?? row);
  return rows
    .filter(
      ({ project }) => projects.length === 0 || projects.some((one) => matchesPattern(one, project ?? "")),
    )
    .sort((a, b) => b.last_at - a.last_at || (a.session < b.session ? -1 : 1));
}

/** The same as limits count them: all processes of a token and day are one session. */
export function countedSessions(db: Database, query: SessionsQuery): SessionRow[] {
  const sessions = new Sessions();
  for (const row of readSessions(db, query)) {
    const isProcess = row.session.startsWith(PROCESS_SESSION);
    sessions.add([{ ...row, session: (isProcess ? countedWith(db, row) : null) ?? row.session }]);
  }
  return sessions.list().sort((a, b) => b.last_at - a.last_at);
}

const STEP_SESSIONS = 10;

/** Adds the requests before an id to sessions that have later ones. */
function addEarlier(
  db: Database,
  sessions: Sessions,
  found: readonly SessionName[],
  before: string,
  condition: Conditions,
): void {
  const ids = [...new Set(found.map(({ session }) => session).filter((id) => !isShared(id)))];
  const readParts = prepareParts(
    db,
    `session IN (SELECT value FROM json_each(?)) AND id < ?${condition.sql}`,
  );
  for (let at = 0; at < ids.length; at += STEP_SESSIONS) {
    const parts = readParts([JSON.stringify(ids.slice(at, at + STEP_SESSIONS)), before, ...condition.values]);
    sessions.add(parts.filter((part) => sessions.has(part)));
  }
}

/** keybearer made this id itself. */
export function isShared(session: string): boolean {
  return session.includes("/");
}

/** The session in which limits count the last request of a session that is a process; null: it has none. */
export function countedWith(db: Database, { tool, session }: SessionName): string | null {
  const row = db
    .prepare("SELECT started_at, token FROM records WHERE session = ? AND tool = ? ORDER BY id DESC LIMIT 1")
    .raw()
    .get(session, tool) as [number, string | null] | undefined;
  return row === undefined ? null : sharedSession(...row);
}

/** One session, with all its requests; null: it has none. */
export function readSession(db: Database, { tool, session }: SessionName): SessionRow | null {
  const { sql, values } = sessionCondition(session);
  const sessions = new Sessions();
  sessions.add(prepareParts(db, `${sql} AND tool = ?`)([...values, tool]));
  return sessions.find({ tool, session });
}

export interface SessionDetails {
  readonly row: SessionRow;
  /** By model, with its trend. */
  readonly report: Report;
  /** The most frequent first. */
  readonly refusals: readonly { readonly code: string; readonly requests: number }[];
}

/** null: it has no requests. */
export function readDetails(db: Database, name: SessionName, now: number): SessionDetails | null {
  const row = readSession(db, name);
  if (row === null) return null;
  const { tool, session } = name;
  const { sql, values } = sessionCondition(session);
  const refusals = db
    .prepare(
      `SELECT refusal, count(*) FROM records WHERE ${sql} AND tool = ? AND ${SENT_HERE} AND refusal IS NOT NULL
       GROUP BY refusal ORDER BY count(*) DESC, refusal`,
    )
    .raw()
    .all(...values, tool) as [string, number][];
  const question = {
    by: ["model" as const],
    period: { since: row.started_at, until: row.last_at + 1 },
    tools: [tool],
    models: [],
    machines: [""],
    projects: [],
    sessions: [session],
  };
  return {
    row,
    report: readReport(db, question, now),
    refusals: refusals.map(([code, requests]) => ({ code, requests })),
  };
}

/**
 * The sessions with this id, or whose ids begin with it: at most `max`. One with exactly this id is preferred.
 * @param tools patterns; none: of any tool
 */
export function findSessions(
  db: Database,
  text: string,
  tools: readonly string[],
  max: number,
): SessionName[] {
  const condition = toolCondition(tools);
  const isOfDay = /^\d{4}-\d\d-\d\d(?:\/|$)/.test(text);
  const found: SessionName[] = [];
  for (const session of isOfDay ? sharedIds(db, text, condition) : idsBeginning(db, text)) {
    for (const tool of toolsOf(db, session, condition)) found.push({ tool, session });
    if (found.length >= max) break;
  }
  const exact = found.filter(({ session }) => session === text);
  return (exact.length > 0 ? exact : found).slice(0, max);
}

/** Of any tool and machine. Jumps from id to id: a session may have many requests. */
export function* idsBeginning(db: Database, prefix: string): Generator<string> {
  const next = db
    .prepare(
      "SELECT session FROM records INDEXED BY records_by_session WHERE session > ? AND session < ? ORDER BY session LIMIT 1",
    )
    .raw();
  if (db.prepare("SELECT 1 FROM records WHERE session = ? LIMIT 1").raw().get(prefix) !== undefined)
    yield prefix;
  for (let after = prefix; ; ) {
    const row = next.get(after, `${prefix}${LAST}`) as [string] | undefined;
    if (row === undefined) return;
    [after] = row;
    yield after;
  }
}

/** Nothing sorts after it. */
const LAST = "\u{10ffff}";

/** Those of a day that begin with this text. */
function sharedIds(db: Database, text: string, condition: Conditions): string[] {
  const day = sessionCondition(`${text.slice(0, "2026-11-19".length)}/*`);
  const sessions = new Sessions();
  sessions.add(prepareParts(db, day.sql + condition.sql)([...day.values, ...condition.values]));
  const ids = sessions.list().map(({ session }) => session);
  return [...new Set(ids)].filter((id) => id.startsWith(text)).sort();
}

function toolsOf(db: Database, session: string, condition: Conditions): string[] {
  const { sql, values } = sessionCondition(session);
  const statement = db.prepare(
    `SELECT DISTINCT tool FROM records WHERE ${sql} AND tool IS NOT NULL AND ${SENT_HERE}${condition.sql} ORDER BY tool`,
  );
  const rows = statement.raw().all(...values, ...condition.values) as [string][];
  return rows.map(([tool]) => tool);
}

/** It follows other conditions. */
function toolCondition(tools: readonly string[]): Conditions {
  if (tools.length === 0) return { sql: "", values: [] };
  return { sql: ` AND (${tools.map(() => "tool GLOB ?").join(" OR ")})`, values: tools.map(sqliteGlob) };
}

const SENT_HERE = "machine IS NULL";

/** Reads the records that fit a condition, added up by session. One session may have several parts. */
function prepareParts(db: Database, condition: string): (values: Conditions["values"]) => SessionRow[] {
  const readSums = prepareSums(
    db,
    {
      by: [
        "tool",
        "session",
        "project",
        "branch",
        `CASE WHEN session IS NULL THEN started_at / ${QUARTER_MS} END`,
        `CASE WHEN session IS NULL THEN ${SHARED_NAME} END`,
      ],
      also: ["min(started_at)", "max(started_at)"],
    },
    `${condition} AND tool IS NOT NULL AND ${SENT_HERE} AND last_id IS NULL`,
  );
  return (values) => readSums(values).map(({ values, sums }) => partOf(values, sums));
}

function partOf(values: readonly unknown[], sums: Sums): SessionRow {
  const [tool, id, project, branch, quarter, sharedName] = values as (string | null)[];
  return {
    tool: tool ?? "",
    session: id ?? sharedSession(Number(quarter) * QUARTER_MS, sharedName ?? null),
    project: project ?? null,
    branch: branch ?? null,
    started_at: Number(values.at(-2)),
    last_at: Number(values.at(-1)),
    requests: sums.requests,
    refused: sums.refused,
    input_tokens: sums.input_tokens,
    cache_read_tokens: sums.cache_read_tokens,
    cache_write_tokens: sums.cache_write_tokens,
    output_tokens: sums.output_tokens,
    cost_microdollars: sums.cost_microdollars,
    unknown_cost: unknownCost(sums),
  };
}

/** Sessions that grow part by part. */
class Sessions {
  readonly #rows = new Map<string, SessionRow>();

  add(parts: readonly SessionRow[]): void {
    for (const part of parts.toSorted((a, b) => a.last_at - b.last_at)) {
      const key = keyOf(part);
      const row = this.#rows.get(key);
      this.#rows.set(key, row === undefined ? part : joined(row, part));
    }
  }

  has(name: SessionName): boolean {
    return this.#rows.has(keyOf(name));
  }

  find(name: SessionName): SessionRow | null {
    return this.#rows.get(keyOf(name)) ?? null;
  }

  list(): SessionRow[] {
    return [...this.#rows.values()];
  }
}

function keyOf({ tool, session }: SessionName): string {
  return JSON.stringify([tool, session]);
}

function joined(a: SessionRow, b: SessionRow): SessionRow {
  const [earlier, later] = a.last_at <= b.last_at ? [a, b] : [b, a];
  const place = later.project === null ? earlier : later;
  return {
    tool: a.tool,
    session: a.session,
    project: place.project,
    branch: place.branch,
    started_at: Math.min(a.started_at, b.started_at),
    last_at: Math.max(a.last_at, b.last_at),
    requests: a.requests + b.requests,
    refused: a.refused + b.refused,
    input_tokens: a.input_tokens + b.input_tokens,
    cache_read_tokens: a.cache_read_tokens + b.cache_read_tokens,
    cache_write_tokens: a.cache_write_tokens + b.cache_write_tokens,
    output_tokens: a.output_tokens + b.output_tokens,
    cost_microdollars: a.cost_microdollars + b.cost_microdollars,
    unknown_cost: a.unknown_cost + b.unknown_cost,
  };
}
