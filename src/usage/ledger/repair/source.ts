import type { UsageRecord } from "../../record.ts";
import { type Cell, FOLDED_SLOT } from "../cells.ts";
import { type Connection, openForSalvage } from "../connect.ts";
import { faultOf } from "../fault.ts";
import { CELL_COLUMNS, cellOfRow, RECORD_COLUMNS, recordOf } from "../rows.ts";

/** A damaged log, as far as it can be read. */
export interface Source {
  /** Above every seq there is, as far as can be told; null: there are none. */
  readonly top: number | null;
  /** The sums of what was pruned before. */
  folded(): Cell[];
  /** Everything readable in this range, the newest first, and how many places were not. */
  read(from: number, to: number): { readonly records: UsageRecord[]; readonly unreadable: number };
  /** The next seq below, as far as can be told. null: there is nothing below. */
  below(seq: number): number | null;
  close(): void;
}

/** In how many steps an unknown end is felt for. */
const MOST_ROWS_A_PAGE = 60;

/** Throws where nothing at all can be read. */
export function openSource(file: string): Source {
  const connection = openForSalvage(file);
  try {
    return readFrom(connection);
  } catch (error) {
    connection.close();
    throw error;
  }
}

function readFrom({ db, close }: Connection): Source {
  const range = db
    .prepare(`SELECT ${RECORD_COLUMNS} FROM log.records WHERE seq BETWEEN ? AND ? ORDER BY seq DESC`)
    .raw();
  const lower = db.prepare("SELECT max(seq) FROM log.records WHERE seq < ?").raw();
  const pages = Number(firstOf(db.prepare("PRAGMA log.page_count").raw().get()));

  const tries = (sql: string): number | null | undefined => {
    try {
      const found = firstOf(db.prepare(sql).raw().get());
      return typeof found === "number" ? found : null;
    } catch {
      return undefined;
    }
  };
  const bottom = tries("SELECT min(seq) FROM log.records") ?? 0;
  // Ids sort by time, so that the newest of them tells about where the end is when the end itself cannot be read.
  const newest = "SELECT seq FROM log.records INDEXED BY sqlite_autoindex_records_1 ORDER BY id DESC LIMIT 1";
  const end = tries("SELECT max(seq) FROM log.records");
  const top = end === undefined ? (tries(newest) ?? bottom + pages * MOST_ROWS_A_PAGE) : end;

  function read(from: number, to: number): { readonly records: UsageRecord[]; readonly unreadable: number } {
    try {
      return { records: range.all(from, to).map(recordOf), unreadable: 0 };
    } catch (error) {
      if (faultOf(error).kind !== "corrupt") throw error;
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
    folded() {
      try {
        const cells = db.prepare(`SELECT ${CELL_COLUMNS} FROM log.cells WHERE slot = ?`).raw();
        return cells.all(FOLDED_SLOT).map(cellOfRow);
      } catch {
        return [];
      }
    },
    read,
    below(seq) {
      try {
        const found = firstOf(lower.get(seq));
        return typeof found === "number" ? found : null;
      } catch {
        return seq - 1 >= bottom ? seq - 1 : null;
      }
    },
    close,
  };
}

function firstOf(row: unknown): unknown {
  return Array.isArray(row) ? row[0] : undefined;
}
