import type Database from "libsql";
import type { Closing, Opening, UsageRecord } from "../record.ts";
import { addCell, type Cell, emptySums, SUMS, type Tally } from "./cells.ts";
import { readFirstBytes, writeFirstBytes } from "./first-bytes.ts";
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
const LANE = ["tool", "gateway", "group", "key", "model"] as const;

/** The columns of recordOf's rows. */
export const RECORD_COLUMNS: string = names(WHOLE);
/** The same from a file that may be older and lack some of them. */
export function recordColumnsOf(there: ReadonlySet<string>): string {
  return WHOLE.map((name) => (there.has(name) ? `"${name}"` : "NULL")).join(", ");
}
/** The columns of cellOfRow's rows. */
export const CELL_COLUMNS: string = names([...LANE, "slot", ...SUMS, "first_bytes"]);

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
  const where = LANE.map((name) => `"${name}" = ?`).join(" AND ");
  const cell = db.prepare(`SELECT ${CELL_COLUMNS} FROM log.cells WHERE ${where} AND slot = ?`).raw();
  const puts = db.prepare(
    `INSERT OR REPLACE INTO log.cells (${CELL_COLUMNS})
     VALUES (${marks(LANE.length + SUMS.length + 2)})`,
  );
  const fact = db.prepare("SELECT value FROM log.facts WHERE name = ?").raw();
  const facts = db.prepare("SELECT name, value FROM log.facts WHERE name >= ? AND name < ?").raw();
  const setFact = db.prepare("INSERT OR REPLACE INTO log.facts (name, value) VALUES (?, ?)");

  function countCell(added: Cell): void {
    const place = [...LANE.map((name) => added[name]), added.slot];
    const before = cell.get(...place);
    const sum = before === undefined ? { sums: emptySums(), firstBytes: new Map() } : cellOfRow(before);
    addCell(sum, added);
    puts.run(...place, ...SUMS.map((name) => sum.sums[name]), writeFirstBytes(sum.firstBytes));
  }

  return {
    open: (opening) => void opens.run(...OPENING.map((name) => plain(opening[name]))),
    complete(id, closing) {
      const values = CLOSING.map((name) => plain(closing[name]));
      return completes.run(...values, closing.model, id).changes > 0;
    },
    insert(record, seq) {
      return inserts.run(seq ?? null, ...WHOLE.map((name) => plain(record[name]))).changes > 0;
    },
    has: (id) => has.get(id) !== undefined,
    running: () => running.all().map(recordOf),
    lowestSeq: () => numberIn(lowest.get()),
    count(tally) {
      for (const added of tally.cells()) countCell(added);
    },
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

export function cellOfRow(row: unknown): Cell {
  const values = columnsOf(row);
  const [tool, gateway, group, key, model] = values.slice(0, LANE.length).map(String);
  const sums = emptySums();
  SUMS.forEach((name, at) => {
    sums[name] = Number(values[LANE.length + 1 + at] ?? 0);
  });
  return {
    tool: tool ?? "",
    gateway: gateway ?? "",
    group: group ?? "",
    key: key ?? "",
    model: model ?? "",
    slot: Number(values[LANE.length]),
    sums,
    firstBytes: readFirstBytes(String(values[LANE.length + 1 + SUMS.length] ?? "")),
  };
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

/** As SQLite takes it. */
function plain(value: Value | boolean | Readonly<Record<string, string>>): Value {
  if (typeof value === "boolean") return value ? 1 : 0;
  return typeof value === "object" && value !== null ? JSON.stringify(value) : value;
}
