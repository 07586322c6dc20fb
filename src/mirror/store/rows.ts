import type Database from "libsql";
import { transact } from "../../usage/index/database.ts";
import type { AckLine, KeyHeldLine } from "../../usage/journal/lines.ts";
import { firstIdAt } from "../../usage/reports/filter.ts";
import { type ConsoleRow, ROW_FIELDS } from "../console-row.ts";
import type { Page } from "../consoles/console.ts";
import type { JudgedRow } from "../verdict.ts";
import { touchRows } from "./changed-days.ts";
import { addConsoleGap, keptFrom } from "./coverage-gaps.ts";
import { readFact, writeFact } from "./facts.ts";
import { keyLinks, restartHeld } from "./keys.ts";
import { byName, columnsOf, firstOf } from "./query.ts";

export type Value = string | number | null;

export const ROW_COLUMNS: string = ROW_FIELDS.map((name) => `"${name}"`).join(", ");

/** What is stored of its verdict. */
export const JUDGED = ["verdict", "how", "certain", "record", "key", "reason"] as const;
/** The columns of storedRowOf's rows. */
export const STORED: readonly string[] = [...ROW_FIELDS, ...JUDGED].map((name) => `"${name}"`);

/** verdict null: nobody has judged it yet. */
export type StoredVerdict = Omit<JudgedRow, "identity" | "verdict" | "reason"> & {
  readonly verdict: JudgedRow["verdict"] | null;
  readonly reason: string | null;
};

export interface StoredRow {
  readonly row: ConsoleRow;
  readonly judged: StoredVerdict;
}

export function storedRowOf(raw: unknown): StoredRow {
  const values = columnsOf(raw);
  const row = byName(ROW_FIELDS, values);
  row.stream = flagOf(row.stream);
  const at = ROW_FIELDS.length;
  const [verdict, how, certain] = [values[at], values[at + 1], values[at + 2] === 1];
  const [record, key, reason] = [values[at + 3], values[at + 4], values[at + 5]];
  const judged = { verdict, how, certain, record, key, reason };
  return { row, judged } as unknown as StoredRow;
}

export function flagOf(value: unknown): boolean | null {
  return value === null ? null : value === 1;
}

export function judgedValues({ verdict, how, certain, record, key, reason }: StoredVerdict): Value[] {
  return [verdict, how, certain ? 1 : 0, record, key, reason];
}

/**
 * As it is written, in the order of ROW_FIELDS. Numbers come from gateways: the log takes whole ones only (but for
 * factors), and would refuse a whole page for one that is not. libsql reads a text up to its first NUL.
 */
export function valuesOf(row: ConsoleRow): Value[] {
  return ROW_FIELDS.map((name) => {
    const value = row[name];
    if (typeof value === "boolean") return value ? 1 : 0;
    if (typeof value === "string") return value.includes("\0") ? value.replaceAll("\0", "\uFFFD") : value;
    if (typeof value !== "number" || !Number.isFinite(value)) return null;
    return name === "multiplier" ? value : Math.min(Math.max(Math.round(value), -MOST), MOST);
  });
}

/** A sum of a million of these is still exact. */
const MOST = 2 ** 33 * 1000;

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
    if (gap !== null) addConsoleGap(db, gateway, gap);
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
  touchRows(db, gateway, [...times, ...news.formerTimes]);
  return { added: news.added.length, changed: news.changed.length };
}

export function readCursor(db: Database.Database, gateway: string): string | null {
  return readFact(db, gateway, "mark");
}

/** The next walk is the first again. What was read stays. */
export function clearCursor(db: Database.Database, gateway: string): void {
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

/** The alarm as it was shown. null: whatever there is. */
export interface Shown {
  readonly gateway: string | null;
  readonly key: string | null;
  /** Certain rows, or suspected ones. */
  readonly certain: boolean | null;
  /** Time of the newest row, by the console's clock. */
  readonly until: number | null;
  readonly count: number | null;
}

/** Returns a line for each acknowledged row; null: there are other rows now than were shown, and nothing is changed. */
export function acknowledge(db: Database.Database, shown: Shown, now: number): AckLine[] | null {
  const { gateway, key, until, count } = shown;
  const gateways = gateway === null ? gatewaysIn(db) : [gateway];
  const certain = shown.certain === null ? null : Number(shown.certain);
  const these = `gateway = ? AND verdict = 'foreign' AND acknowledged_at IS NULL
    AND certain = coalesce(?, certain) AND key = coalesce(?, key) AND created_at <= coalesce(?, created_at)`;
  return transact(db, () => {
    const found = db.prepare(`SELECT identity FROM mirror.console_rows WHERE ${these}`).raw();
    const lines = gateways.flatMap((one) =>
      found
        .all(one, certain, key, until)
        .map((row): AckLine => ({ kind: "ack", gateway: one, row: String(firstOf(row)), at: now })),
    );
    if (count !== null && lines.length !== count) return null;
    const mark = db.prepare(`UPDATE mirror.console_rows SET acknowledged_at = ? WHERE ${these}`);
    for (const one of gateways) mark.run(now, one, certain, key, until);
    return lines;
  });
}

/** Gateways with console rows. One seek of the primary key for each. */
export function gatewaysIn(db: Database.Database): string[] {
  const next = db.prepare("SELECT min(gateway) FROM mirror.console_rows WHERE gateway > ?").raw();
  const names: string[] = [];
  for (let last = ""; ; ) {
    const [name] = next.get(last) as [string | null];
    if (name === null) return names;
    names.push(name);
    last = name;
  }
}

/** So many are deleted at a time: requests wait meanwhile. */
const STEP = 250;

/**
 * Deletes what is older than the usage log: console rows, and verdicts on records that are no longer there. A small part of
 * it; true: there may be more.
 */
export function pruneStep(db: Database.Database, size: number = STEP): boolean {
  const before = keptFrom(db);
  if (before === 0) return false;
  return transact(db, () => pruneRows(db, before, size) || pruneVerdicts(db, before, size));
}

function pruneRows(db: Database.Database, before: number, size: number): boolean {
  const remove = db.prepare(
    `DELETE FROM mirror.console_rows WHERE gateway = ? AND identity IN
       (SELECT identity FROM mirror.console_rows WHERE gateway = ? AND created_at < ? ORDER BY created_at LIMIT ?)`,
  );
  return gatewaysIn(db).some((gateway) => remove.run(gateway, gateway, before, size).changes > 0);
}

/** A record that began before, but ended later, is in the log as long as its end is. */
function pruneVerdicts(db: Database.Database, before: number, size: number): boolean {
  const found = db
    .prepare(
      `SELECT record FROM mirror.verdicts WHERE record < ?
         AND NOT EXISTS (SELECT 1 FROM usage.records WHERE id = record) ORDER BY record LIMIT ?`,
    )
    .raw();
  const old = found.all(firstIdAt(before), size).map((row) => String(firstOf(row)));
  const remove = db.prepare("DELETE FROM mirror.verdicts WHERE record = ?");
  for (const record of old) remove.run(record);
  return old.length > 0;
}

/**
 * Another gateway, or another console, has this name from now on: nothing that the one before told, or was compared with it,
 * is of this one. What records took from it stays theirs, and an alarm that nobody acknowledged stands. Returns what changed
 * about held keys, for the journal.
 */
export function forgetConsole(
  db: Database.Database,
  gateway: string,
  now: number,
  alarms: boolean,
): KeyHeldLine[] {
  return transact(db, () => {
    const standing = alarms ? `AND NOT (${STANDING})` : "";
    db.prepare(`DELETE FROM mirror.console_rows WHERE gateway = ? ${standing}`).run(gateway);
    // Under a name that no row of the new console can have, and found by nothing but its key.
    db.prepare(
      `UPDATE mirror.console_rows SET identity = ? || identity, request_id = NULL, upstream_id = NULL, key_ref = NULL
       WHERE gateway = ? AND identity NOT LIKE 'earlier:%'`,
    ).run(`earlier:${now}:`, gateway);
    for (const table of ["console_keys", "verdicts", "changed_days"])
      db.prepare(`DELETE FROM mirror.${table} WHERE gateway = ?`).run(gateway);
    const held = restartHeld(db, gateway, now);
    const prefix = `mirror:${gateway}:`;
    db.prepare("DELETE FROM mirror.facts WHERE name >= ? AND name < ?").run(prefix, `${prefix}\u{10FFFF}`);
    writeFact(db, gateway, "begun_at", String(now));
    return held;
  });
}

const STANDING = "verdict = 'foreign' AND certain = 1 AND acknowledged_at IS NULL";

/**
 * Whose console this is. One of another origin, or of another gateway's, has other rows under the same numbers: then what
 * was known is forgotten, and this returns what changed about held keys. null: it is no other than before.
 */
export function claimConsole(
  db: Database.Database,
  gateway: string,
  origins: string,
  now: number,
): KeyHeldLine[] | null {
  const before = readFact(db, gateway, "console");
  if (before === origins) return null;
  const held = before === null ? null : forgetConsole(db, gateway, now, true);
  writeFact(db, gateway, "console", origins);
  return held;
}
