import type { UsageRecord } from "../../record.ts";
import { CELL_COLUMNS, cellOfRow } from "../cell-writer.ts";
import { type Cell, FOLDED_SLOT } from "../cells.ts";
import { type Connection, openForSalvage } from "../connect.ts";
import { faultOf, isPassing } from "../fault.ts";
import { answerOf, numberIn } from "../raw-row.ts";
import { recordColumnsOf, recordOf } from "../rows.ts";
import { type LiftRow, liftsIn } from "./lifts.ts";

/** A log that is no longer in use, as far as it can be read. Every method throws what may pass, and nothing else. */
export interface Source {
  /** Above every seq there is, as far as can be told; null: there are none. */
  readonly top: number | null;
  /** The lowest seq, as far as can be told. */
  readonly bottom: number;
  /** The sums of what was pruned before. */
  folded(): Cell[];
  /** The extra allowances; none where they cannot be read. */
  lifts(): LiftRow[];
  /** Everything readable in this range, the newest first, and how many places were not. */
  read(from: number, to: number): { readonly records: UsageRecord[]; readonly unreadable: number };
  /** The next seq below, as far as can be told. null: there is nothing below. */
  below(seq: number): number | null;
  /** Where the disk fails now, it has failed often enough: that is a place that cannot be read. */
  insist(on: boolean): void;
  close(): void;
}

/** In how many steps an unknown end is felt for. */
const MOST_ROWS_A_PAGE = 60;
const BY_ID = "SELECT seq FROM log.records INDEXED BY sqlite_autoindex_records_1 ORDER BY id";

/** What the limits count, for a log from before they did: as the migration has it (schema.ts). */
const COUNTED: Readonly<Record<string, string>> = {
  admitted_at: "started_at",
  counts: "end IS NOT 'refused'",
  counted_tokens: "input_tokens + cache_read_tokens + cache_write_tokens + output_tokens",
  counted_microdollars: "cost_microdollars",
};
const COUNTED_SUMS = { counted_microdollars: "cost_microdollars" };

/** Throws where nothing at all can be read. */
export function openSource(file: string): Source {
  const connection = openForSalvage(file);
  try {
    return sourceOf(connection);
  } catch (error) {
    connection.close();
    throw error;
  }
}

export function sourceOf({ db, close }: Connection): Source {
  const columns: unknown[] = db.prepare("SELECT name FROM pragma_table_info('records', 'log')").raw().all();
  const written = new Set(columns.flat().map(String));
  const older = !written.has("admitted_at");
  const there = older ? new Set([...written, ...Object.keys(COUNTED)]) : written;
  const records = older ? `(SELECT *, ${countedAs(COUNTED)} FROM log.records)` : "log.records";
  const sums = older ? `(SELECT *, ${countedAs(COUNTED_SUMS)} FROM log.cells)` : "log.cells";
  const range = db
    .prepare(`SELECT ${recordColumnsOf(there)} FROM ${records} WHERE seq BETWEEN ? AND ? ORDER BY seq DESC`)
    .raw();
  const lower = db.prepare("SELECT max(seq) FROM log.records WHERE seq < ?").raw();
  const cells = db.prepare(`SELECT ${CELL_COLUMNS} FROM ${sums} WHERE slot = ?`).raw();
  const pages = Number(answerOf(db, "PRAGMA log.page_count"));

  let insists = false;
  const mayPass = (error: unknown) => {
    const fault = faultOf(error);
    return isPassing(fault) && !(insists && fault.kind === "disk");
  };
  /** undefined: what it asks for is damaged. */
  const tries = <T>(work: () => T): T | undefined => {
    try {
      return work();
    } catch (error) {
      if (mayPass(error)) throw error;
      return undefined;
    }
  };
  const asks = (sql: string) => tries(() => numberIn(db.prepare(sql).raw().get()));
  // Ids sort by time, so that they tell about where the ends are when the ends themselves cannot be read.
  const lowest = asks("SELECT min(seq) FROM log.records");
  const bottom = lowest ?? asks(`${BY_ID} LIMIT 1`) ?? 0;
  const highest = asks("SELECT max(seq) FROM log.records");
  const top =
    highest === undefined ? (asks(`${BY_ID} DESC LIMIT 1`) ?? bottom + pages * MOST_ROWS_A_PAGE) : highest;

  function read(from: number, to: number): { readonly records: UsageRecord[]; readonly unreadable: number } {
    try {
      return { records: range.all(from, to).map(recordOf), unreadable: 0 };
    } catch (error) {
      if (mayPass(error)) throw error;
      if (from === to) return { records: [], unreadable: 1 };
    }
    const middle = Math.floor((from + to) / 2);
    const newer = read(middle + 1, to);
    const older = read(from, middle);
    return {
      records: [...newer.records, ...older.records],
      unreadable: newer.unreadable + older.unreadable,
    };
  }

  return {
    top,
    bottom,
    folded: () => tries(() => cells.all(FOLDED_SLOT).map(cellOfRow)) ?? [],
    lifts: () => tries(() => liftsIn(db)) ?? [],
    read,
    below(seq) {
      const found = tries(() => numberIn(lower.get(seq)));
      if (found !== undefined) return found;
      return seq - 1 >= (lowest ?? Math.min(bottom, 0)) ? seq - 1 : null;
    },
    insist(on) {
      insists = on;
    },
    close,
  };
}

function countedAs(columns: Readonly<Record<string, string>>): string {
  return Object.entries(columns)
    .map(([name, value]) => `${value} AS ${name}`)
    .join(", ");
}
