import type Database from "libsql";
import { COLUMN_NAMES, recordOfRow } from "../../usage/columns.ts";
import type { UsageRecord } from "../../usage/record.ts";
import { columnsOf, firstOf } from "../store/query.ts";
import { gatewaysIn, STORED, type StoredRow, storedRowOf } from "../store/rows.ts";
import { type OwnNumbers, withoutTheirs } from "../store/verdicts.ts";
import type { ComparedRecord, ComparedRow } from "./shape.ts";

/* Console rows beside our records: the list of `mirror diff`, and the one that `mirror show` prints. */

export interface DiffOptions {
  /** At most this many rows. */
  readonly max: number;
  /** How far the console's clock is ahead. */
  readonly skew: number;
  /** Keys that are used elsewhere on purpose: their foreign rows are not listed. */
  readonly quiet: (key: string) => boolean;
}

/** listDiffInSteps without a pause. */
export function listDiff(db: Database.Database, gateway: string, options: DiffOptions): ComparedRow[] {
  const steps = listDiffInSteps(db, gateway, options);
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

const STEP_ROWS = 25;

/**
 * Foreign rows, the certain before the suspected, and then those that differ or are missing; each the newest first.
 * Other rows never push a foreign one off the list. In steps, for a caller with other work in between.
 */
export function* listDiffInSteps(
  db: Database.Database,
  gateway: string,
  options: DiffOptions,
): Generator<undefined, ComparedRow[]> {
  const { max, skew } = options;
  const lookup = createLookup(db);
  const foreign = foreignRows(db, gateway, options);
  yield;
  const theirs = newestRows(db, gateway, "verdict = 'differs'", max - foreign.length);
  const missing = db
    .prepare(
      `SELECT record, started_at FROM mirror.verdicts WHERE gateway = ? AND verdict = 'missing'
       ORDER BY started_at DESC LIMIT ?`,
    )
    .raw()
    .all(gateway, max - foreign.length)
    .map(columnsOf);
  const others = [
    ...theirs.map((one) => ({
      at: one.row.created_at - skew,
      compare: () => compareRow(lookup, one, skew),
    })),
    ...missing.map(([id, at]) => ({
      at: Number(at),
      compare: () => compareRecord(lookup, String(id), () => skew),
    })),
  ];
  yield;
  const newest = others.toSorted((a, b) => b.at - a.at).slice(0, max - foreign.length);
  // Our side is read only for rows that make it onto the list.
  const listed = [
    ...foreign.map((one) => () => compareRow(lookup, one, skew)),
    ...newest.map((one) => one.compare),
  ];
  const rows: ComparedRow[] = [];
  for (const [at, compare] of listed.entries()) {
    const row = compare();
    if (row !== null) rows.push(row);
    if (at % STEP_ROWS === 0) yield;
  }
  return rows;
}

/** The order of listDiff, to merge the lists of several gateways. */
export function diffOrder(a: ComparedRow, b: ComparedRow): number {
  return weightOf(b) - weightOf(a) || timeOf(b) - timeOf(a);
}

function weightOf({ verdict, row }: ComparedRow): number {
  return verdict !== "foreign" ? 0 : row?.certain === true ? 2 : 1;
}

function timeOf({ row, record }: ComparedRow): number {
  return row?.at ?? record?.started_at ?? 0;
}

type FoundRow = StoredRow & { readonly gateway: string };

/** SQLite leaves out the quiet keys: they may have more rows than the list is long. */
function foreignRows(db: Database.Database, gateway: string, { max, quiet }: DiffOptions): FoundRow[] {
  const groups = db
    .prepare(
      `SELECT certain, key FROM mirror.console_rows INDEXED BY console_rows_counted
       WHERE gateway = ? AND verdict = 'foreign' GROUP BY how, certain, key`,
    )
    .raw()
    .all(gateway)
    .map(columnsOf);
  const listed = groups.filter(([, key]) => key === null || !quiet(String(key)));
  const found: FoundRow[] = [];
  for (const certain of [1, 0]) {
    const keys = listed.flatMap(([sure, key]) => (sure === certain ? [key === null ? "" : String(key)] : []));
    // Without a key to look for, the statement would read every foreign row and find none.
    if (keys.length === 0 || found.length >= max) continue;
    const which = `verdict = 'foreign' AND certain = ${certain} AND coalesce(key, '') IN (SELECT value FROM json_each(?))`;
    found.push(...newestRows(db, gateway, which, max - found.length, JSON.stringify(keys)));
  }
  return found;
}

function newestRows(
  db: Database.Database,
  gateway: string,
  which: string,
  max: number,
  ...values: readonly string[]
): FoundRow[] {
  return db
    .prepare(
      `SELECT ${STORED.join(", ")} FROM mirror.console_rows INDEXED BY console_rows_by_verdict
       WHERE gateway = ? AND ${which} ORDER BY created_at DESC LIMIT ?`,
    )
    .raw()
    .all(gateway, ...values, max)
    .map((row) => ({ gateway, ...storedRowOf(row) }));
}

/** How far a gateway's console is ahead of our clock. */
export type SkewOf = (gateway: string) => number;

const MAX_FOUND = 20;
/** A shorter prefix would match too much. */
const MIN_PREFIX = 4;

/** Finds by a row's identity, a request id or a record's id, else by a prefix of one. Several: it was ambiguous. */
export function findCompared(db: Database.Database, what: string, skewOf: SkewOf): ComparedRow[] {
  const exact = find(db, what, false, skewOf);
  return exact.length > 0 || what.length < MIN_PREFIX ? exact : find(db, what, true, skewOf);
}

/** Without INDEXED BY, SQLite scans all rows of the gateway for a request id. */
const INDEX = { identity: "", request_id: "INDEXED BY console_rows_by_id" };

function find(db: Database.Database, what: string, isPrefix: boolean, skewOf: SkewOf): ComparedRow[] {
  const matches = (column: string) => (isPrefix ? `${column} >= ? AND ${column} < ?` : `${column} = ?`);
  const values = (text: string) => (isPrefix ? [text, `${text}\u{10FFFF}`] : [text]);
  const rows = (column: "identity" | "request_id", gateway: string) =>
    db
      .prepare(
        `SELECT ${STORED.join(", ")} FROM mirror.console_rows ${INDEX[column]} WHERE gateway = ? AND ${matches(column)} LIMIT ${MAX_FOUND}`,
      )
      .raw()
      .all(gateway, ...values(what))
      .map((row) => ({ gateway, ...storedRowOf(row) }));
  const stored = gatewaysIn(db).flatMap((gateway) => [
    ...rows("identity", gateway),
    ...rows("request_id", gateway),
  ]);
  const unique = new Map(stored.map((one) => [JSON.stringify([one.gateway, one.row.identity]), one]));
  const lookup = createLookup(db);
  if (unique.size > 0) return [...unique.values()].map((one) => compareRow(lookup, one, skewOf(one.gateway)));
  return db
    .prepare(`SELECT id FROM usage.records WHERE ${matches("id")} ORDER BY id LIMIT ${MAX_FOUND}`)
    .raw()
    .all(...values(what.toUpperCase()))
    .flatMap((row) => compareRecord(lookup, String(firstOf(row)), skewOf) ?? []);
}

function compareRow(lookup: Lookup, { gateway, row, judged }: FoundRow, skew: number): ComparedRow {
  const ours = judged.record === null ? null : lookup.record(judged.record);
  const verdict = judged.verdict ?? "pending";
  const reason = judged.reason ?? "it was not compared yet";
  const { how, certain, key } = judged;
  return {
    gateway,
    row: { ...row, verdict, how, certain, key, reason, at: row.created_at - skew },
    record: ours?.record ?? null,
    verdict,
    reason,
  };
}

/** null: there is no such record, or it went to no gateway. */
function compareRecord(lookup: Lookup, id: string, skewOf: SkewOf): ComparedRow | null {
  const ours = lookup.record(id);
  if (ours === null || ours.gateway === null) return null;
  const { gateway } = ours;
  const row = ours.row === null ? null : lookup.row(gateway, ours.row);
  if (row !== null) return compareRow(lookup, { gateway, ...row }, skewOf(gateway));
  return {
    gateway,
    row: null,
    record: ours.record,
    verdict: ours.verdict ?? "none",
    reason: ours.reason ?? (ours.running ? "it still runs" : "no console is expected to list it"),
  };
}

interface FoundRecord {
  readonly record: ComparedRecord;
  readonly gateway: string | null;
  readonly running: boolean;
  /** These three are null for a record without a verdict. */
  readonly verdict: string | null;
  readonly reason: string | null;
  readonly row: string | null;
}

/** Statements that are prepared once for a whole list. */
interface Lookup {
  record(id: string): FoundRecord | null;
  row(gateway: string, identity: string): StoredRow | null;
}

function createLookup(db: Database.Database): Lookup {
  const records = db.prepare(`SELECT ${COLUMN_NAMES} FROM usage.records WHERE id = ?`).raw();
  const verdicts = db
    .prepare("SELECT verdict, reason, row, ours FROM mirror.verdicts WHERE record = ?")
    .raw();
  const rows = db
    .prepare(`SELECT ${STORED.join(", ")} FROM mirror.console_rows WHERE gateway = ? AND identity = ?`)
    .raw();
  return {
    record(id) {
      const found = records.get(id);
      if (found === undefined) return null;
      const record = recordOfRow(found);
      const [verdict, reason, row, ours] = columnsOf(verdicts.get(id)).map((one) =>
        one === null ? null : String(one),
      );
      return {
        record: comparedRecord(record, ours == null ? null : JSON.parse(ours)),
        gateway: record.gateway,
        running: record.end === null,
        verdict: verdict ?? null,
        reason: reason ?? null,
        row: row ?? null,
      };
    },
    row(gateway, identity) {
      const found = rows.get(gateway, identity);
      return found === undefined ? null : storedRowOf(found);
    },
  };
}

function comparedRecord(record: UsageRecord, ours: OwnNumbers | null): ComparedRecord {
  const own = withoutTheirs(record, ours);
  return {
    id: record.id,
    started_at: record.started_at,
    ended_at: record.ended_at,
    tool: record.tool,
    key: record.key,
    model: record.model ?? record.model_answered,
    stream: record.stream,
    end: record.end,
    status: record.status,
    input_tokens: own.input_tokens,
    cache_read_tokens: own.cache_read_tokens,
    cache_write_tokens: own.cache_write_tokens,
    output_tokens: own.output_tokens,
    tokens_from: own.tokens_from,
    cost_microdollars: own.cost_microdollars,
    billed_microdollars: record.billed_microdollars,
    gateway_ids: record.gateway_ids,
  };
}
