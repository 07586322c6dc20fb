import type Database from "libsql";
import { transact } from "../../usage/index/database.ts";
import { type ConsoleRow, ROW_FIELDS } from "../console-row.ts";
import type { Page } from "../consoles/console.ts";
import { markRows } from "./changed-days.ts";
import { addGap, readFact, writeFact } from "./facts.ts";
import { keyLinks } from "./keys.ts";
import { columnsOf } from "./raw-row.ts";
import { ROW_COLUMNS, type Value, valuesOf } from "./stored-row.ts";

export interface Written {
  readonly added: number;
  readonly changed: number;
}

/**
 * A page's rows, its cursor and its gap, all or nothing: whatever ends the program in between, the next walk begins where
 * rows are missing. What says the same as before changes nothing.
 */
export function writePage(
  db: Database.Database,
  gateway: string,
  { rows, cursor, gap }: Pick<Page, "rows" | "cursor" | "gap">,
): Written {
  return transact(db, () => {
    const written = writeNews(db, gateway, rows);
    if (gap !== null) addGap(db, gateway, gap);
    writeFact(db, gateway, "mark", cursor);
    return written;
  });
}

/** The first rows of a large page, of which the last are yet to be written with its cursor: until then it is read again. */
export function writeRows(db: Database.Database, gateway: string, rows: readonly ConsoleRow[]): Written {
  return transact(db, () => writeNews(db, gateway, rows));
}

function writeNews(db: Database.Database, gateway: string, rows: readonly ConsoleRow[]): Written {
  const news = newsIn(db, gateway, rows);
  insert(db, gateway, news.added);
  update(db, gateway, news.changed);
  const times = [...news.added, ...news.changed].map((values) => Number(values[CREATED_AT]));
  markRows(db, gateway, [...times, ...news.formerTimes]);
  return { added: news.added.length, changed: news.changed.length };
}

export function readMark(db: Database.Database, gateway: string): string | null {
  return readFact(db, gateway, "mark");
}

/** The next walk is the first again. What was read stays. */
export function clearMark(db: Database.Database, gateway: string): void {
  writeFact(db, gateway, "mark", null);
}

const IDENTITY = ROW_FIELDS.indexOf("identity");
const CREATED_AT = ROW_FIELDS.indexOf("created_at");

interface News {
  readonly added: readonly Value[][];
  readonly changed: readonly Value[][];
  /** When those that changed were written, by what they said before. */
  readonly formerTimes: readonly number[];
}

function newsIn(db: Database.Database, gateway: string, rows: readonly ConsoleRow[]): News {
  const { keys } = keyLinks(db, gateway);
  // One that comes twice in a page counts as it came last.
  const wanted = new Map<string, Value[]>();
  for (const row of rows) {
    if (!Number.isFinite(row.created_at)) continue;
    if (row.key_ref !== null && keys.get(row.key_ref) === null) continue;
    const values = valuesOf(row);
    wanted.set(String(values[IDENTITY]), values);
  }
  const known = db
    .prepare(
      `SELECT ${ROW_COLUMNS} FROM mirror.console_rows
       WHERE gateway = ? AND identity IN (SELECT value FROM json_each(?))`,
    )
    .raw()
    .all(gateway, JSON.stringify([...wanted.keys()]));
  const changed: Value[][] = [];
  const formerTimes: number[] = [];
  for (const row of known) {
    const before = columnsOf(row);
    const identity = String(before[IDENTITY]);
    const after = wanted.get(identity);
    wanted.delete(identity);
    if (after === undefined || after.every((value, at) => value === before[at])) continue;
    changed.push(after);
    formerTimes.push(Number(before[CREATED_AT]));
  }
  return { added: [...wanted.values()], changed, formerTimes };
}

function insert(db: Database.Database, gateway: string, rows: readonly Value[][]): void {
  const marks = ROW_FIELDS.map(() => "?").join(", ");
  // Where mirror.db was lost, the journal still knows what was acknowledged. Only what was there by then: another console
  // under the same name can have other rows under the same identities.
  const acknowledged = "(SELECT at FROM usage.acks WHERE gateway = ? AND row = ? AND at >= ?)";
  const add = db.prepare(
    `INSERT INTO mirror.console_rows (gateway, ${ROW_COLUMNS}, acknowledged_at)
     VALUES (?, ${marks}, ${acknowledged})`,
  );
  for (const values of rows)
    add.run(gateway, ...values, gateway, values[IDENTITY] ?? null, values[CREATED_AT] ?? null);
}

function update(db: Database.Database, gateway: string, rows: readonly Value[][]): void {
  const sets = ROW_FIELDS.map((name) => `"${name}" = ?`).join(", ");
  // It is no longer settled; the record it was matched with stays named, so that judging finds that one too.
  const change = db.prepare(
    `UPDATE mirror.console_rows SET ${sets}, how = NULL WHERE gateway = ? AND identity = ?`,
  );
  for (const values of rows) change.run(...values, gateway, values[IDENTITY] ?? null);
}
