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

export type FoundRow = StoredRow & { readonly gateway: string };

export function besideRow(finder: Finder, { gateway, row, judged }: FoundRow, skew: number): ComparedRow {
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
export function besideRecord(finder: Finder, id: string, skewOf: SkewOf): ComparedRow | null {
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

export interface Finder {
  record(id: string): FoundRecord | null;
  row(gateway: string, identity: string): StoredRow | null;
}

export function createFinder(db: Database.Database): Finder {
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
