import type Database from "libsql";
import { COLUMN_NAMES, recordOfRow } from "../../usage/columns.ts";
import type { UsageRecord } from "../../usage/record.ts";
import { gatewaysIn } from "../store/ack.ts";
import { columnsOf, firstOf } from "../store/raw-row.ts";
import { STORED, type StoredRow, storedRowOf } from "../store/stored-row.ts";
import { type OwnNumbers, withoutTheirs } from "../store/take.ts";
import type { ComparedRecord, ComparedRow } from "./shape.ts";

/** How far a gateway's console is ahead of our clock. */
export type SkewOf = (gateway: string) => number;

const MOST_FOUND = 20;
/** Shorter beginnings would find too much. */
const SHORTEST = 4;

/** By a row's identity, a request id or a record's id; how it begins is enough. Several: it was not unique. */
export function readCompared(db: Database.Database, what: string, skewOf: SkewOf): ComparedRow[] {
  const exact = found(db, what, false, skewOf);
  return exact.length > 0 || what.length < SHORTEST ? exact : found(db, what, true, skewOf);
}

/** Left to itself, SQLite looks for a request id through all rows of the gateway. */
const INDEX = { identity: "", request_id: "INDEXED BY console_rows_by_id" };

function found(db: Database.Database, what: string, beginning: boolean, skewOf: SkewOf): ComparedRow[] {
  const among = (column: string) => (beginning ? `${column} >= ? AND ${column} < ?` : `${column} = ?`);
  const values = (text: string) => (beginning ? [text, `${text}\u{10FFFF}`] : [text]);
  const rows = (column: "identity" | "request_id", gateway: string) =>
    db
      .prepare(
        `SELECT ${STORED.join(", ")} FROM mirror.console_rows ${INDEX[column]} WHERE gateway = ? AND ${among(column)} LIMIT ${MOST_FOUND}`,
      )
      .raw()
      .all(gateway, ...values(what))
      .map((row) => ({ gateway, ...storedRowOf(row) }));
  const stored = gatewaysIn(db).flatMap((gateway) => [
    ...rows("identity", gateway),
    ...rows("request_id", gateway),
  ]);
  const unique = new Map(stored.map((one) => [JSON.stringify([one.gateway, one.row.identity]), one]));
  const finder = createFinder(db);
  if (unique.size > 0) return [...unique.values()].map((one) => besideRow(finder, one, skewOf(one.gateway)));
  return db
    .prepare(`SELECT id FROM usage.records WHERE ${among("id")} ORDER BY id LIMIT ${MOST_FOUND}`)
    .raw()
    .all(...values(what.toUpperCase()))
    .flatMap((row) => besideRecord(finder, String(firstOf(row)), skewOf) ?? []);
}

type FoundRow = StoredRow & { readonly gateway: string };

function besideRow(finder: Finder, { gateway, row, judged }: FoundRow, skew: number): ComparedRow {
  const ours = judged.record === null ? null : finder.record(judged.record);
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

/** null: no gateway was asked. */
function besideRecord(finder: Finder, id: string, skewOf: SkewOf): ComparedRow | null {
  const ours = finder.record(id);
  if (ours === null || ours.gateway === null) return null;
  const { gateway } = ours;
  const row = ours.row === null ? null : finder.row(gateway, ours.row);
  if (row !== null) return besideRow(finder, { gateway, ...row }, skewOf(gateway));
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
  /** All null: it has no verdict. */
  readonly verdict: string | null;
  readonly reason: string | null;
  readonly row: string | null;
}

interface Finder {
  record(id: string): FoundRecord | null;
  row(gateway: string, identity: string): StoredRow | null;
}

function createFinder(db: Database.Database): Finder {
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

export interface DiffMeans {
  readonly most: number;
  /** How far the console's clock is ahead. */
  readonly skew: number;
  /** Keys whose use elsewhere is on purpose: their foreign rows are no news. */
  readonly quiet: (key: string) => boolean;
}

/**
 * What is foreign, the certain before the suspected, and then what differs or is missing; each the newest first. However
 * many others there are, they never push a foreign row out.
 */
export function readDiff(db: Database.Database, gateway: string, means: DiffMeans): ComparedRow[] {
  const steps = stepDiff(db, gateway, means);
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

const STEP_ROWS = 25;

/** The same for whoever does other things between two steps. */
export function* stepDiff(
  db: Database.Database,
  gateway: string,
  means: DiffMeans,
): Generator<undefined, ComparedRow[]> {
  const { most, skew } = means;
  const finder = createFinder(db);
  const foreign = foreignRows(db, gateway, means);
  yield;
  const theirs = rowsWith(db, gateway, "verdict = 'differs'", most - foreign.length);
  const missing = db
    .prepare(
      `SELECT record, started_at FROM mirror.verdicts WHERE gateway = ? AND verdict = 'missing'
       ORDER BY started_at DESC LIMIT ?`,
    )
    .raw()
    .all(gateway, most - foreign.length)
    .map(columnsOf);
  const others = [
    ...theirs.map((one) => ({
      at: one.row.created_at - skew,
      shown: () => [besideRow(finder, one, skew)],
    })),
    ...missing.map(([id, at]) => ({
      at: Number(at),
      shown: () => [besideRecord(finder, String(id), () => skew) ?? []].flat(),
    })),
  ];
  yield;
  const newest = others.toSorted((a, b) => b.at - a.at).slice(0, most - foreign.length);
  // Our side is looked up only of those that are shown.
  const shown = [
    ...foreign.map((one) => () => [besideRow(finder, one, skew)]),
    ...newest.map((one) => one.shown),
  ];
  const rows: ComparedRow[] = [];
  for (const [at, find] of shown.entries()) {
    rows.push(...find());
    if (at % STEP_ROWS === 0) yield;
  }
  return rows;
}

/** How readDiff orders its rows, for whoever puts those of several gateways together. */
export function inDiffOrder(a: ComparedRow, b: ComparedRow): number {
  return weightOf(b) - weightOf(a) || timeOf(b) - timeOf(a);
}

function weightOf({ verdict, row }: ComparedRow): number {
  return verdict !== "foreign" ? 0 : row?.certain === true ? 2 : 1;
}

function timeOf({ row, record }: ComparedRow): number {
  return row?.at ?? record?.started_at ?? 0;
}

/** Quiet ones are left out by the statement: there may be more of them than are ever listed. */
function foreignRows(db: Database.Database, gateway: string, { most, quiet }: DiffMeans): FoundRow[] {
  const groups = db
    .prepare(
      `SELECT certain, key FROM mirror.console_rows INDEXED BY console_rows_counted
       WHERE gateway = ? AND verdict = 'foreign' GROUP BY how, certain, key`,
    )
    .raw()
    .all(gateway)
    .map(columnsOf);
  const loud = groups.filter(([, key]) => key === null || !quiet(String(key)));
  const found: FoundRow[] = [];
  for (const certain of [1, 0]) {
    const keys = loud.flatMap(([sure, key]) => (sure === certain ? [key === null ? "" : String(key)] : []));
    // Looking for what is not there would read every other foreign row.
    if (keys.length === 0 || found.length >= most) continue;
    const which = `verdict = 'foreign' AND certain = ${certain} AND coalesce(key, '') IN (SELECT value FROM json_each(?))`;
    found.push(...rowsWith(db, gateway, which, most - found.length, JSON.stringify(keys)));
  }
  return found;
}

/** The newest of a verdict. */
function rowsWith(
  db: Database.Database,
  gateway: string,
  which: string,
  most: number,
  ...values: readonly string[]
): FoundRow[] {
  return db
    .prepare(
      `SELECT ${STORED.join(", ")} FROM mirror.console_rows INDEXED BY console_rows_by_verdict
       WHERE gateway = ? AND ${which} ORDER BY created_at DESC LIMIT ?`,
    )
    .raw()
    .all(gateway, ...values, most)
    .map((row) => ({ gateway, ...storedRowOf(row) }));
}
