import type Database from "libsql";
import { firstIdAt } from "../../core/ids.ts";
import { transact } from "../../usage/index/database.ts";
import type { AckLine, KeyHeldLine } from "../../usage/journal/lines.ts";
import { type ConsoleRow, ROW_FIELDS } from "../console-row.ts";
import type { Page } from "../consoles/console.ts";
import { CANNOT_SEE } from "../reconcile/siblings.ts";
import type { JudgedRow } from "../verdict.ts";
import { touchRows } from "./changed-days.ts";
import { addConsoleGap, keptFrom } from "./coverage-gaps.ts";
import { deleteFacts, readFact, writeFact } from "./facts.ts";
import { keyLinks, restartHeldKeys } from "./keys.ts";
import {
  execute,
  IN_LIST,
  namedColumns,
  queryAll,
  queryColumn,
  queryRows,
  queryValue,
  type Value,
} from "./query.ts";

/** The columns of a row's verdict. */
export const ROW_VERDICT_FIELDS = ["verdict", "how", "certain", "record", "key", "reason"] as const;
/** The columns that readStoredRow reads. */
export const STORED: readonly string[] = [...ROW_FIELDS, ...ROW_VERDICT_FIELDS].map((name) => `"${name}"`);

/** verdict null: the row was not compared yet. */
export type StoredRowVerdict = Omit<JudgedRow, "identity" | "verdict" | "reason"> & {
  readonly verdict: JudgedRow["verdict"] | null;
  readonly reason: string | null;
};

export interface StoredRow {
  readonly row: ConsoleRow;
  readonly judged: StoredRowVerdict;
}

export function readStoredRow(values: readonly unknown[]): StoredRow {
  const row = namedColumns<WithFlag<ConsoleRow, "stream">>(ROW_FIELDS, values);
  row.stream = readBoolean(row.stream);
  const verdict = values.slice(ROW_FIELDS.length);
  const judged = namedColumns<WithFlag<StoredRowVerdict, "certain">>(ROW_VERDICT_FIELDS, verdict);
  judged.certain = readBoolean(judged.certain) ?? false;
  return { row, judged };
}

/** Flags are stored as 0 or 1, and become booleans once the row is read. */
type WithFlag<Row, Flag extends keyof Row> = Omit<Row, Flag> & { -readonly [Name in Flag]: Row[Name] };

function readBoolean(value: unknown): boolean | null {
  return value === null ? null : value === 1;
}

/** A million times this is still an exact integer. */
const MAX_NUMBER = 2 ** 33 * 1000;

/**
 * In the order of ROW_FIELDS. Gateways send any number, but the table takes only integers (and a multiplier) and would
 * refuse the whole page. libsql cuts off a text at its first NUL.
 */
function rowValues(row: ConsoleRow): Value[] {
  return ROW_FIELDS.map((name) => {
    const value = row[name];
    if (typeof value === "boolean") return value ? 1 : 0;
    if (typeof value === "string") return value.replaceAll("\0", "\uFFFD");
    if (typeof value !== "number" || !Number.isFinite(value)) return null;
    return name === "multiplier" ? value : Math.min(Math.max(Math.round(value), -MAX_NUMBER), MAX_NUMBER);
  });
}

export interface Written {
  readonly added: number;
  readonly changed: number;
}

/**
 * Writes a page's rows, cursor and gap, all or nothing: however the program ends, the next walk begins where rows are
 * missing. Rows that are stored already change nothing.
 */
export function writePage(
  db: Database.Database,
  gateway: string,
  { rows, cursor, gap }: Pick<Page, "rows" | "cursor" | "gap">,
): Written {
  return transact(db, () => {
    const written = putRows(db, gateway, rows);
    if (gap !== null) addConsoleGap(db, gateway, gap);
    writeFact(db, gateway, "cursor", cursor);
    return written;
  });
}

/** Writes the first rows of a large page. Its cursor is written with the last ones; until then the page is read again. */
export function writeRows(db: Database.Database, gateway: string, rows: readonly ConsoleRow[]): Written {
  return transact(db, () => putRows(db, gateway, rows));
}

export function readCursor(db: Database.Database, gateway: string): string | null {
  return readFact(db, gateway, "cursor");
}

/** The next walk starts over. Stored rows stay. */
export function clearCursor(db: Database.Database, gateway: string): void {
  writeFact(db, gateway, "cursor", null);
}

const IDENTITY = ROW_FIELDS.indexOf("identity");
const CREATED_AT = ROW_FIELDS.indexOf("created_at");
const ROW_COLUMNS = ROW_FIELDS.map((name) => `"${name}"`).join(", ");

function putRows(db: Database.Database, gateway: string, rows: readonly ConsoleRow[]): Written {
  const { keys } = keyLinks(db, gateway);
  // If a page has a row twice, the last one counts.
  const listed = new Map<string, Value[]>();
  for (const row of rows) {
    const isOthers = row.key_ref !== null && keys.get(row.key_ref) === null;
    if (isOthers || !Number.isFinite(row.created_at)) continue;
    const values = rowValues(row);
    listed.set(String(values[IDENTITY]), values);
  }
  const known = queryRows(
    db,
    `SELECT ${ROW_COLUMNS} FROM mirror.console_rows WHERE gateway = ? AND identity IN ${IN_LIST}`,
    gateway,
    JSON.stringify([...listed.keys()]),
  );
  const changed: Value[][] = [];
  const touched: number[] = [];
  for (const before of known) {
    const identity = String(before[IDENTITY]);
    const after = listed.get(identity) ?? [];
    listed.delete(identity);
    if (after.every((value, at) => value === before[at])) continue;
    changed.push(after);
    touched.push(Number(before[CREATED_AT]));
  }
  const added = [...listed.values()];
  insertRows(db, gateway, added);
  updateRows(db, gateway, changed);
  for (const values of [...added, ...changed]) touched.push(Number(values[CREATED_AT]));
  touchRows(db, gateway, touched);
  return { added: added.length, changed: changed.length };
}

function insertRows(db: Database.Database, gateway: string, rows: readonly Value[][]): void {
  // If mirror.db was lost, the journal still has the acknowledgements. Only those from after the row count: another
  // console under the same name can have other rows with the same identities.
  const acknowledgedAt = "(SELECT max(at) FROM usage.acks WHERE gateway = ? AND row = ? AND at >= ?)";
  const insert = db.prepare(
    `INSERT INTO mirror.console_rows (gateway, ${ROW_COLUMNS}, acknowledged_at)
     VALUES (?, ${ROW_FIELDS.map(() => "?").join(", ")}, ${acknowledgedAt})`,
  );
  for (const values of rows)
    insert.run(gateway, ...values, gateway, values[IDENTITY] ?? null, values[CREATED_AT] ?? null);
}

function updateRows(db: Database.Database, gateway: string, rows: readonly Value[][]): void {
  const sets = ROW_FIELDS.map((name) => `"${name}" = ?`).join(", ");
  // Without `how` it is compared again. `record` stays, so that the comparison finds the record it was matched with.
  const update = db.prepare(
    `UPDATE mirror.console_rows SET ${sets}, how = NULL WHERE gateway = ? AND identity = ?`,
  );
  for (const values of rows) update.run(...values, gateway, values[IDENTITY] ?? null);
}

/** The gateways that have console rows. One seek of the primary key for each. */
export function gatewaysIn(db: Database.Database): string[] {
  const names: string[] = [];
  for (;;) {
    const next = "SELECT min(gateway) FROM mirror.console_rows WHERE gateway > ?";
    const name = queryValue(db, next, names.at(-1) ?? "");
    if (name === null) return names;
    names.push(String(name));
  }
}

/** The rows that wait for a sibling's records. */
export const WAITS_FOR_SIBLING = `verdict = 'unwatched' AND reason GLOB '${CANNOT_SEE}*'`;

/** The first of the rows with one key that wait for the same siblings, by our clock. */
export interface WaitingRow {
  readonly key: string;
  readonly began: number;
}

export function readWaitingRows(db: Database.Database, gateway: string, skew: number): WaitingRow[] {
  return queryAll(
    db,
    `SELECT key, min(coalesce(began_at, created_at - coalesce(duration_ms, 0))) - ? AS began
     FROM mirror.console_rows WHERE gateway = ? AND ${WAITS_FOR_SIBLING} GROUP BY key, reason`,
    skew,
    gateway,
  );
}

/** Which open alarms a person saw. null: any. */
export interface SeenAlarms {
  readonly gateway: string | null;
  readonly key: string | null;
  readonly certain: boolean | null;
  /** Time of the newest row, by the console's clock. */
  readonly until: number | null;
}

/** Foreign rows of one gateway that are not acknowledged, all certain or all suspected. */
export interface OpenRows {
  readonly gateway: string;
  readonly certain: boolean;
  readonly identities: readonly string[];
}

export function readOpenRows(db: Database.Database, seen: SeenAlarms): OpenRows[] {
  const { key, until } = seen;
  const gateways = seen.gateway === null ? gatewaysIn(db) : [seen.gateway];
  const sql = `SELECT identity FROM mirror.console_rows
    WHERE gateway = ? AND certain = ? AND verdict = 'foreign' AND acknowledged_at IS NULL
      AND key = coalesce(?, key) AND created_at <= coalesce(?, created_at)`;
  const found: OpenRows[] = [];
  for (const gateway of gateways) {
    for (const certain of seen.certain === null ? [true, false] : [seen.certain]) {
      const identities = queryColumn(db, sql, gateway, Number(certain), key, until).map(String);
      found.push({ gateway, certain, identities });
    }
  }
  return found;
}

/** Returns a line for each row that was still open. */
export function acknowledgeRows(db: Database.Database, rows: OpenRows, now: number): AckLine[] {
  const { gateway, certain, identities } = rows;
  return transact(db, () => {
    const update = db.prepare(
      `UPDATE mirror.console_rows SET acknowledged_at = ?
       WHERE gateway = ? AND identity = ? AND certain = ? AND verdict = 'foreign' AND acknowledged_at IS NULL`,
    );
    const wasOpen = (row: string) => update.run(now, gateway, row, Number(certain)).changes > 0;
    return identities.filter(wasOpen).map((row) => ({ kind: "ack", gateway, row, certain, at: now }));
  });
}

/** Requests wait while this many rows are deleted. */
const PRUNE_SIZE = 250;

/**
 * Deletes some of what is older than the usage log: console rows, and verdicts on records that are gone. Returns whether
 * there may be more.
 */
export function pruneStep(db: Database.Database, size: number = PRUNE_SIZE): boolean {
  const before = keptFrom(db);
  if (before === 0) return false;
  return transact(db, () => pruneRows(db, before, size) || pruneVerdicts(db, before, size));
}

function pruneRows(db: Database.Database, before: number, size: number): boolean {
  const prune = `DELETE FROM mirror.console_rows WHERE gateway = ? AND identity IN
    (SELECT identity FROM mirror.console_rows WHERE gateway = ? AND created_at < ? ORDER BY created_at LIMIT ?)`;
  return gatewaysIn(db).some((gateway) => execute(db, prune, gateway, gateway, before, size) > 0);
}

/** A record that ended later than it began is kept as long as the day of its end. */
function pruneVerdicts(db: Database.Database, before: number, size: number): boolean {
  const old = queryColumn(
    db,
    `SELECT record FROM mirror.verdicts WHERE record < ?
       AND NOT EXISTS (SELECT 1 FROM usage.records WHERE id = record) ORDER BY record LIMIT ?`,
    firstIdAt(before),
    size,
  );
  execute(db, `DELETE FROM mirror.verdicts WHERE record IN ${IN_LIST}`, JSON.stringify(old));
  return old.length > 0;
}

/**
 * Notes which console has this gateway's name. If the gateway or its console moved to another origin, other rows can have the
 * same identities, so everything known is deleted. Returns the changes of held keys; null: the console is the same as before.
 */
export function claimConsole(
  db: Database.Database,
  gateway: string,
  origins: string,
  now: number,
): KeyHeldLine[] | null {
  const before = readFact(db, gateway, "console");
  if (before === origins) return null;
  const changedKeys = before === null ? null : forgetConsole(db, gateway, now, true);
  writeFact(db, gateway, "console", origins);
  return changedKeys;
}

/**
 * Deletes everything that a console said. Records keep the numbers they took from it. Returns the changes of held keys, for
 * the journal.
 * @param keepAlarms certain alarms stay until a person acknowledges them.
 */
export function forgetConsole(
  db: Database.Database,
  gateway: string,
  now: number,
  keepAlarms: boolean,
): KeyHeldLine[] {
  const isAlarm = "verdict = 'foreign' AND certain = 1 AND acknowledged_at IS NULL";
  return transact(db, () => {
    const others = keepAlarms ? `AND NOT (${isAlarm})` : "";
    execute(db, `DELETE FROM mirror.console_rows WHERE gateway = ? ${others}`, gateway);
    // Rows that stay get an identity that no row of the new console can have, and keep only their key.
    execute(
      db,
      `UPDATE mirror.console_rows SET identity = ? || identity, request_id = NULL, upstream_id = NULL, key_ref = NULL
       WHERE gateway = ? AND identity NOT LIKE 'earlier:%'`,
      `earlier:${now}:`,
      gateway,
    );
    for (const table of ["console_keys", "verdicts", "changed_days"])
      execute(db, `DELETE FROM mirror.${table} WHERE gateway = ?`, gateway);
    deleteFacts(db, gateway);
    writeFact(db, gateway, "begun_at", String(now));
    return restartHeldKeys(db, gateway, now);
  });
}
