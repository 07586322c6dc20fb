import type Database from "libsql";
import type { Closing, Opening, UsageRecord } from "../record.ts";
import { createCellWriter } from "./cell-writer.ts";
import type { Tally } from "./cells.ts";
import { columnsOf, numberIn } from "./raw-row.ts";

/** The columns of a record, in the order in which they are written. */
const OPENING = [
  "id",
  "started_at",
  "tool",
  "gateway",
  "group",
  "multiplier",
  "key",
  "protocol",
  "method",
  "endpoint",
  "model",
  "process",
  "waited_ms",
  "held_tokens",
  "held_microdollars",
  "admitted_at",
] as const satisfies readonly (keyof Opening)[];

const CLOSING = [
  "first_byte_at",
  "ended_at",
  "model_answered",
  "stream",
  "status",
  "end",
  "cause",
  "refusal",
  "input_tokens",
  "cache_read_tokens",
  "cache_write_tokens",
  "output_tokens",
  "reasoning_tokens",
  "tokens_from",
  "list_microdollars",
  "cost_microdollars",
  "bytes_in",
  "bytes_out",
  "counts",
  "counted_tokens",
  "counted_microdollars",
  "gateway_ids",
] as const satisfies readonly (keyof Closing)[];

const WHOLE = [...OPENING, ...CLOSING, "billed_microdollars"] as const;

/** The columns of recordOf's rows. */
export const RECORD_COLUMNS: string = names(WHOLE);
/** The same from a file that may be older and lack some of them. */
export function recordColumnsOf(there: ReadonlySet<string>): string {
  return WHOLE.map((name) => (there.has(name) ? `"${name}"` : "NULL")).join(", ");
}

/** The statements of one open log. Everything here runs inside the caller's transaction. */
export interface Rows {
  open(opening: Opening): void;
  /** false: it is complete already, or not there. */
  complete(id: string, closing: Closing): boolean;
  /** false: it is there already. A seq of its own puts it elsewhere than at the end. */
  insert(record: UsageRecord, seq?: number): boolean;
  has(id: string): boolean;
  running(): UsageRecord[];
  lowestSeq(): number | null;
  count(tally: Tally): void;
  /** As a transaction begins in which only records are written: what is known of their cells need not be read again. */
  rememberCells(): void;
  /** A transaction was undone. */
  forgetCells(): void;
  /** So many records were written in a transaction of their own, and no cell. */
  wroteRecords(count: number): void;
  fact(name: string): string | null;
  setFact(name: string, value: string): void;
  factsLike(prefix: string): { readonly name: string; readonly value: string }[];
}

export function createRows(db: Database.Database): Rows {
  const marks = (count: number) => Array(count).fill("?").join(", ");
  const opens = db.prepare(`INSERT INTO log.records (${names(OPENING)}) VALUES (${marks(OPENING.length)})`);
  const completes = db.prepare(
    `UPDATE log.records SET ${CLOSING.map((name) => `"${name}" = ?`).join(", ")}, model = coalesce(?, model)
     WHERE id = ? AND end IS NULL`,
  );
  const inserts = db.prepare(
    `INSERT OR IGNORE INTO log.records (seq, ${names(WHOLE)}) VALUES (?, ${marks(WHOLE.length)})`,
  );
  const has = db.prepare("SELECT 1 FROM log.records WHERE id = ?").raw();
  const running = db.prepare(`SELECT ${RECORD_COLUMNS} FROM log.records WHERE end IS NULL`).raw();
  const lowest = db.prepare("SELECT min(seq) FROM log.records").raw();
  const cells = createCellWriter(db);
  const fact = db.prepare("SELECT value FROM log.facts WHERE name = ?").raw();
  const facts = db.prepare("SELECT name, value FROM log.facts WHERE name >= ? AND name < ?").raw();
  const setFact = db.prepare("INSERT OR REPLACE INTO log.facts (name, value) VALUES (?, ?)");

  return {
    open: (opening) => void opens.run(openingValues(opening)),
    complete(id, closing) {
      const values = closingValues(closing);
      values.push(closing.model, id);
      return completes.run(values).changes > 0;
    },
    insert(record, seq) {
      const values = [
        seq ?? null,
        ...openingValues(record),
        ...closingValues(record),
        record.billed_microdollars,
      ];
      return inserts.run(values).changes > 0;
    },
    has: (id) => has.get(id) !== undefined,
    running: () => running.all().map(recordOf),
    lowestSeq: () => numberIn(lowest.get()),
    count: (tally) => cells.count(tally),
    rememberCells: () => cells.remember(),
    forgetCells: () => cells.forget(),
    wroteRecords: (count) => cells.pass(count),
    fact(name) {
      const [value] = columnsOf(fact.get(name));
      return value === undefined ? null : String(value);
    },
    setFact: (name, value) => void setFact.run(name, value),
    factsLike(prefix) {
      return facts.all(prefix, `${prefix}\u{10FFFF}`).map((row) => {
        const [name, value] = columnsOf(row).map(String);
        return { name: name ?? "", value: value ?? "" };
      });
    },
  };
}

/** All or nothing. libsql's own transaction() forgets the first error when ROLLBACK fails as well. */
export function transact<T>(db: Database.Database, work: () => T): T {
  db.exec("BEGIN IMMEDIATE");
  try {
    const result = work();
    db.exec("COMMIT");
    return result;
  } catch (error) {
    // After a full disk or a failed write SQLite may have rolled back by itself.
    if (db.inTransaction) rollBack(db);
    throw error;
  }
}

function rollBack(db: Database.Database): void {
  try {
    db.exec("ROLLBACK");
  } catch {
    // The first error says why; whoever gets it opens the file anew.
  }
}

/** A row of WHOLE columns. */
export function recordOf(row: unknown): UsageRecord {
  const values = columnsOf(row);
  const record = Object.fromEntries(WHOLE.map((name, at) => [name, values[at] ?? null]));
  const [stream, counts] = [record.stream, record.counts].map((flag) => (flag === null ? null : flag === 1));
  return { ...record, stream, counts, gateway_ids: idsIn(record.gateway_ids) } as unknown as UsageRecord;
}

function names(columns: readonly string[]): string {
  return columns.map((name) => `"${name}"`).join(", ");
}

function idsIn(text: unknown): Readonly<Record<string, string>> {
  try {
    return JSON.parse(String(text));
  } catch {
    return {};
  }
}

type Value = string | number | null;

/*
 * As SQLite takes them, in the order of OPENING and CLOSING. Written out, and handed over as one array: looked up by
 * name and spread into arguments they take as long as the statement itself.
 */

function openingValues(opening: Opening): Value[] {
  return [
    opening.id,
    opening.started_at,
    opening.tool,
    opening.gateway,
    opening.group,
    opening.multiplier,
    opening.key,
    opening.protocol,
    opening.method,
    opening.endpoint,
    opening.model,
    opening.process,
    opening.waited_ms,
    opening.held_tokens,
    opening.held_microdollars,
    opening.admitted_at,
  ];
}

function closingValues(closing: Closing): Value[] {
  return [
    closing.first_byte_at,
    closing.ended_at,
    closing.model_answered,
    flag(closing.stream),
    closing.status,
    closing.end,
    closing.cause,
    closing.refusal,
    closing.input_tokens,
    closing.cache_read_tokens,
    closing.cache_write_tokens,
    closing.output_tokens,
    closing.reasoning_tokens,
    closing.tokens_from,
    closing.list_microdollars,
    closing.cost_microdollars,
    closing.bytes_in,
    closing.bytes_out,
    flag(closing.counts),
    closing.counted_tokens,
    closing.counted_microdollars,
    JSON.stringify(closing.gateway_ids),
  ];
}

function flag(value: boolean | null): number | null {
  return value === null ? null : Number(value);
}
