import type Database from "libsql";
import { pick } from "../../core/pick.ts";
import { IN_LIST, queryAll, queryColumn, queryRows } from "../store/query.ts";
import { gatewaysIn, readStoredRow, STORED, type StoredRow, WAITS_FOR_SIBLING } from "../store/rows.ts";
import { readRecords, type StoredRecord } from "../store/verdicts.ts";
import { COMPARED_FIELDS, type ComparedRecord, type ComparedRow } from "./shape.ts";

/* Console rows beside our records: the list of `mirror diff`, and what `mirror show` prints. */

interface DiffOptions {
  /** At most this many rows. */
  readonly max: number;
  /** How far the console's clock is ahead. */
  readonly skew: number;
  /** Keys that are used elsewhere on purpose: their unexplained rows are not listed. */
  readonly quietKeys: ReadonlySet<string>;
}

/** A row without its record, or a record without its row. */
interface DiffEntry {
  readonly row: StoredRow | null;
  /** The id of our record. */
  readonly record: string | null;
}

/**
 * Foreign rows, the certain before the suspected, and then those that wait for a sibling's records, differ or are missing;
 * each the newest first. Other rows never push a foreign one off the list.
 */
export function readDiff(db: Database.Database, gateway: string, options: DiffOptions): ComparedRow[] {
  const { max, skew } = options;
  const foreign = foreignRows(db, gateway, options);
  const rest = max - foreign.length;
  const waiting = newestRows(db, gateway, `${WAITS_FOR_SIBLING} AND ${LOUD}`, [quietList(options)], rest);
  const differing = newestRows(db, gateway, "verdict = 'differs'", [], rest);
  const missing = queryAll<{ readonly record: string; readonly started_at: number }>(
    db,
    `SELECT record, started_at FROM mirror.verdicts WHERE gateway = ? AND verdict = 'missing'
     ORDER BY started_at DESC LIMIT ?`,
    gateway,
    rest,
  );
  const others = [
    ...[...waiting, ...differing].map((row) => ({
      at: row.row.created_at - skew,
      row,
      record: row.judged.record,
    })),
    ...missing.map(({ record, started_at }) => ({ at: started_at, row: null, record })),
  ];
  const newest = others.toSorted((a, b) => b.at - a.at).slice(0, rest);
  const entries = [...foreign.map((row) => ({ row, record: row.judged.record })), ...newest];
  return compareEntries(db, gateway, entries, skew);
}

/** Rows beside their records. Records that are no longer in the log are left out. */
function compareEntries(
  db: Database.Database,
  gateway: string,
  entries: readonly DiffEntry[],
  skew: number,
): ComparedRow[] {
  const records = readRecords(
    db,
    entries.flatMap(({ row, record }) => record ?? findCandidate(row) ?? []),
  );
  return entries.flatMap(({ row, record }) => {
    const ours = records.get(record ?? "") ?? null;
    if (row === null) return ours === null ? [] : [recordAlone(gateway, ours)];
    const compared = rowBesideRecord(gateway, row, ours, skew);
    const candidate = ours === null ? records.get(findCandidate(row) ?? "") : undefined;
    return candidate === undefined ? [compared] : [{ ...compared, candidate: comparedRecord(candidate) }];
  });
}

/** In reconcile.ts, the reason of a suspicion names the request that the row may be. */
const NAMED_REQUEST = /\b(?:it may be|it began with) request ([0-7][0-9A-HJKMNP-TV-Z]{25})\b/;

function findCandidate(row: StoredRow | null): string | null {
  if (row?.judged.verdict !== "foreign" || row.judged.certain) return null;
  return NAMED_REQUEST.exec(row.judged.reason ?? "")?.[1] ?? null;
}

/** The order of readDiff, to merge the lists of several gateways. */
export function diffOrder(a: ComparedRow, b: ComparedRow): number {
  return weigh(b) - weigh(a) || timeOf(b) - timeOf(a);
}

function weigh({ verdict, row }: ComparedRow): number {
  if (verdict !== "foreign") return 0;
  return row?.certain === true ? 2 : 1;
}

function timeOf({ row, record }: ComparedRow): number {
  return row?.at ?? record?.started_at ?? 0;
}

/** Takes quietList() as its value. */
const LOUD = `coalesce(key, '') NOT IN ${IN_LIST}`;

function quietList({ quietKeys }: DiffOptions): string {
  return JSON.stringify([...quietKeys]);
}

function foreignRows(db: Database.Database, gateway: string, options: DiffOptions): StoredRow[] {
  const { max } = options;
  const quiet = quietList(options);
  const certain = newestRows(db, gateway, `verdict = 'foreign' AND certain = 1 AND ${LOUD}`, [quiet], max);
  const rest = max - certain.length;
  const suspected = newestRows(db, gateway, `verdict = 'foreign' AND certain = 0 AND ${LOUD}`, [quiet], rest);
  return [...certain, ...suspected];
}

function newestRows(
  db: Database.Database,
  gateway: string,
  condition: string,
  values: readonly (string | number)[],
  max: number,
): StoredRow[] {
  const sql = `SELECT ${STORED.join(", ")} FROM mirror.console_rows INDEXED BY console_rows_by_verdict
    WHERE gateway = ? AND ${condition} ORDER BY created_at DESC LIMIT ?`;
  return queryRows(db, sql, gateway, ...values, max).map(readStoredRow);
}

/** How far a gateway's console is ahead of our clock. */
type SkewOf = (gateway: string) => number;

const MAX_FOUND = 20;
/** A shorter prefix would match too much. */
const MIN_PREFIX = 4;

/** Finds by a row's identity, a request id or a record's id, else by a prefix of one. Several: it was ambiguous. */
export function findCompared(db: Database.Database, text: string, skewOf: SkewOf): ComparedRow[] {
  const exact = findBetween(db, text, text, skewOf);
  if (exact.length > 0 || text.length < MIN_PREFIX) return exact;
  return findBetween(db, text, `${text}\u{10FFFF}`, skewOf);
}

function findBetween(db: Database.Database, from: string, to: string, skewOf: SkewOf): ComparedRow[] {
  const rows = gatewaysIn(db).flatMap((gateway) => {
    const found = findRows(db, gateway, from, to).map((row) => ({ row, record: row.judged.record }));
    return compareEntries(db, gateway, found, skewOf(gateway));
  });
  if (rows.length > 0) return rows;
  const byId = "SELECT id FROM usage.records WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?";
  const ids = queryColumn(db, byId, from.toUpperCase(), to.toUpperCase(), MAX_FOUND).map(String);
  return [...readRecords(db, ids).values()].flatMap((ours) => recordBesideRow(db, ours, skewOf));
}

function findRows(db: Database.Database, gateway: string, from: string, to: string): StoredRow[] {
  const select = `SELECT ${STORED.join(", ")} FROM mirror.console_rows`;
  const byIdentity = `${select} WHERE gateway = ? AND identity BETWEEN ? AND ? LIMIT ?`;
  // Without INDEXED BY, SQLite scans all rows of the gateway.
  const byRequestId = `${select} INDEXED BY console_rows_by_id WHERE gateway = ? AND request_id BETWEEN ? AND ? LIMIT ?`;
  const found = [byIdentity, byRequestId].flatMap((sql) => queryRows(db, sql, gateway, from, to, MAX_FOUND));
  const rows = found.map(readStoredRow);
  return [...new Map(rows.map((one) => [one.row.identity, one])).values()];
}

function rowBesideRecord(
  gateway: string,
  { row, judged }: StoredRow,
  ours: StoredRecord | null,
  skew: number,
): ComparedRow {
  const { how, certain, key } = judged;
  const verdict = judged.verdict ?? "pending";
  const reason = judged.reason ?? "it was not compared yet";
  const at = row.created_at - skew;
  const began = row.began_at === null ? null : row.began_at - skew;
  return {
    gateway,
    row: { ...row, verdict, how, certain, key, reason, at, began },
    record: ours === null ? null : comparedRecord(ours),
    verdict,
    reason,
  };
}

/** None where the record went to no gateway. */
function recordBesideRow(db: Database.Database, ours: StoredRecord, skewOf: SkewOf): ComparedRow[] {
  const { gateway } = ours.record;
  if (gateway === null) return [];
  if (ours.row !== null) {
    const row = findRows(db, gateway, ours.row, ours.row).find((one) => one.row.identity === ours.row);
    if (row !== undefined) return [rowBesideRecord(gateway, row, ours, skewOf(gateway))];
  }
  return [recordAlone(gateway, ours)];
}

function recordAlone(gateway: string, ours: StoredRecord): ComparedRow {
  const unlisted = ours.record.end === null ? "it still runs" : "no console is expected to list it";
  return {
    gateway,
    row: null,
    record: comparedRecord(ours),
    verdict: ours.verdict ?? "none",
    reason: ours.reason ?? unlisted,
  };
}

/** With our own numbers, even if the record took the console's since. */
function comparedRecord({ record, own }: StoredRecord): ComparedRecord {
  const shown = {
    ...own,
    model: record.model ?? record.model_answered,
    billed_microdollars: record.billed_microdollars,
  };
  return pick(shown, COMPARED_FIELDS);
}
