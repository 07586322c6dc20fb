import type { Database } from "libsql";
import type { UsageRecord } from "../record.ts";
import { COLUMNS, recordOf } from "./fields.ts";
import { firstIdAt } from "./ids.ts";
import type { Period } from "./period.ts";

/** Which records are meant. */
export interface Filter {
  readonly period: Period;
  /** Names, with `*` for anything; none: all. */
  readonly tools: readonly string[];
  readonly models: readonly string[];
}

const PAGE = 2000;

/** The ids of all records that began in the period: from the first to before the second. */
export function idsOf({ since, until }: Period): [string, string] {
  // Beyond the last letter an id can begin with.
  return [since === null ? "" : firstIdAt(since), until === null ? "~" : firstIdAt(until)];
}

/**
 * Every record, oldest first, a page at a time: between two pages nothing is held, so that the WAL can be taken over
 * into the file however slowly somebody reads. Ends with the record that was the last when it began.
 */
export function* pagesOf(db: Database, filter: Filter): Generator<UsageRecord[]> {
  const [from, before] = idsOf(filter.period);
  const { sql, values } = whereOf(filter);
  const last = textOf(db, "SELECT max(id) FROM records");
  if (last === null) return;
  const statement = db
    .prepare(
      `SELECT ${COLUMNS} FROM records WHERE id > ? AND id < ? AND id <= ?${sql} ORDER BY id LIMIT ${PAGE}`,
    )
    .raw();
  let at = from;
  for (;;) {
    const rows = statement.all(at, before, last, ...values) as unknown[][];
    const page = rows.map(recordOf);
    if (page.length > 0) yield page;
    if (page.length < PAGE) return;
    at = page.at(-1)?.id ?? last;
  }
}

export function countOf(db: Database, filter: Filter): number {
  const { sql, values } = whereOf(filter);
  const statement = db.prepare(`SELECT count(*) FROM records WHERE id > ? AND id < ?${sql}`).raw();
  const [count] = statement.get(...idsOf(filter.period), ...values) as [number];
  return count;
}

function whereOf({ tools, models }: Filter): { sql: string; values: string[] } {
  const among = (column: string, names: readonly string[]) =>
    names.length === 0 ? "" : ` AND (${names.map(() => `${column} GLOB ?`).join(" OR ")})`;
  return {
    sql: `${among("coalesce(tool, '')", tools)}${among("coalesce(model, model_answered, '')", models)}`,
    values: [...tools, ...models].map(globOf),
  };
}

/** For SQLite, `?` and `[` have a meaning of their own as well. */
function globOf(pattern: string): string {
  return pattern.replace(/[?[]/g, "[$&]");
}

/** The last ones that have ended, oldest first. */
export function lastEnded(db: Database, most: number): UsageRecord[] {
  const rows = db
    .prepare(`SELECT ${COLUMNS} FROM records WHERE "end" IS NOT NULL ORDER BY id DESC LIMIT ?`)
    .raw()
    .all(most) as unknown[][];
  return rows.map(recordOf).reverse();
}

/** By its id or how it begins, by an id that the gateway gave it, or `last`. At most `most`, oldest first. */
export function findRecords(db: Database, text: string, most: number): UsageRecord[] {
  const where = (condition: string, ...values: string[]) => {
    const statement = db.prepare(`SELECT ${COLUMNS} FROM records ${condition} LIMIT ${most}`).raw();
    return (statement.all(...values) as unknown[][]).map(recordOf);
  };
  if (text.toLowerCase() === "last") return where("ORDER BY id DESC").slice(0, 1);
  const id = text.toUpperCase();
  const own = /^[0-9A-Z]{4,26}$/.test(id) ? where("WHERE id >= ? AND id < ? ORDER BY id", id, `${id}~`) : [];
  if (own.length > 0) return own;
  return where("WHERE instr(gateway_ids, ?) > 0 ORDER BY id", JSON.stringify(text));
}

/** From where on a follower has not seen everything yet. */
export interface Mark {
  readonly seq: number;
  /** Those that had begun by then and not ended. */
  readonly running: readonly string[];
}

export function markOf(db: Database): Mark {
  const [seq] = db.prepare("SELECT coalesce(max(seq), 0) FROM records").raw().get() as [number];
  const running = db.prepare(`SELECT id FROM records WHERE "end" IS NULL`).raw().all() as [string][];
  return { seq, running: running.map(([id]) => id) };
}

/** What a follower has not seen. */
export interface Missed {
  /** In the order in which they began. */
  readonly records: readonly UsageRecord[];
  /** How many there are beside these, all older, and when the first of them began; null: none. */
  readonly more: { readonly count: number; readonly since: number } | null;
}

/** What has ended since: the newest `most`, and how many more. Ids in `seen` are no longer missed. */
export function endedSince(
  db: Database,
  mark: Mark,
  most: number,
  seen: { has(id: string): boolean },
): Missed {
  const begun = db
    .prepare(`SELECT id, started_at FROM records WHERE seq > ? AND "end" IS NOT NULL ORDER BY seq DESC`)
    .raw()
    .iterate(mark.seq) as IterableIterator<[string, number]>;
  const wanted = mark.running.filter((id) => !seen.has(id));
  let [left, count, since] = [most, 0, Number.POSITIVE_INFINITY];
  for (const [id, startedAt] of begun) {
    if (seen.has(id)) continue;
    if (left > 0) wanted.push(id);
    else {
      count += 1;
      since = Math.min(since, startedAt);
    }
    left -= 1;
  }
  const one = db.prepare(`SELECT ${COLUMNS} FROM records WHERE id = ? AND "end" IS NOT NULL`).raw();
  const rows = wanted.map((id) => one.get(id)).filter((row) => row !== undefined) as unknown[][];
  const records = rows.map(recordOf).sort((a, b) => (a.id < b.id ? -1 : 1));
  return { records, more: count === 0 ? null : { count, since } };
}

function textOf(db: Database, sql: string): string | null {
  const [text] = db.prepare(sql).raw().get() as [string | null];
  return text;
}
