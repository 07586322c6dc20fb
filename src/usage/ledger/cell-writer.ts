import type Database from "libsql";
import { addCell, type Cell, cellName, emptySums, SUMS, type Tally } from "./cells.ts";
import { readFirstBytes, writeFirstBytes } from "./first-bytes.ts";
import { columnsOf, numberIn } from "./raw-row.ts";

const LANE = ["tool", "gateway", "group", "key", "model"] as const;
/** The columns of cellOfRow's rows. */
export const CELL_COLUMNS: string = [...LANE, "slot", ...SUMS, "first_bytes"]
  .map((name) => `"${name}"`)
  .join(", ");
/** More are written at once only by what seldom runs. */
const MOST_REMEMBERED = 64;

/** Adds to the cells of one open log, inside the caller's transaction. */
export interface CellWriter {
  count(tally: Tally): void;
  /**
   * As a transaction begins that touches no cell but through here: the next count need not read again what the last one
   * wrote, unless anybody else wrote anything since. To read and to take apart a cell takes as long as two records.
   */
  remember(): void;
  /** So many rows were written in another transaction, and none of them was a cell. */
  pass(count: number): void;
  /** The transaction was undone. */
  forget(): void;
}

type Known = Pick<Cell, "sums" | "firstBytes">;

export function createCellWriter(db: Database.Database): CellWriter {
  const where = LANE.map((name) => `"${name}" = ?`).join(" AND ");
  const reads = db.prepare(`SELECT ${CELL_COLUMNS} FROM log.cells WHERE ${where} AND slot = ?`).raw();
  const marks = Array(LANE.length + SUMS.length + 2).fill("?");
  const puts = db.prepare(`INSERT OR REPLACE INTO log.cells (${CELL_COLUMNS}) VALUES (${marks.join(", ")})`);
  // The first counts every row this connection changed, the second every commit of another one.
  const ours = db.prepare("SELECT total_changes()").raw();
  const others = db.prepare("PRAGMA log.data_version").raw();
  const known = new Map<string, Known>();
  let trusted = false;
  let lastOurs: number | null = null;
  let lastOthers: number | null = null;

  function add(added: Cell): void {
    const place = [added.tool, added.gateway, added.group, added.key, added.model, added.slot];
    const name = cellName(added);
    const sum = known.get(name) ?? read(place);
    addCell(sum, added);
    known.set(name, sum);
    const values: (string | number)[] = place;
    for (const name of SUMS) values.push(sum.sums[name]);
    values.push(writeFirstBytes(sum.firstBytes));
    puts.run(values);
  }

  function read(place: readonly (string | number)[]): Known {
    const row = reads.get(place);
    return row === undefined ? { sums: emptySums(), firstBytes: new Map() } : cellOfRow(row);
  }

  return {
    count(tally) {
      if (!trusted || known.size > MOST_REMEMBERED) known.clear();
      for (const added of tally.cells()) add(added);
      // Whatever comes in the same transaction after this is somebody else's.
      trusted = false;
      lastOurs = numberIn(ours.get());
    },
    remember() {
      const version = numberIn(others.get());
      if (version !== lastOthers || numberIn(ours.get()) !== lastOurs) known.clear();
      lastOthers = version;
      trusted = true;
    },
    pass(count) {
      if (lastOurs !== null) lastOurs += count;
    },
    forget() {
      trusted = false;
      known.clear();
    },
  };
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
