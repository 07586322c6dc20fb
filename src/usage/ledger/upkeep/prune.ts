import type Database from "libsql";
import { CELL_COLUMNS, cellOfRow } from "../cell-writer.ts";
import { FOLDED_SLOT, type Lane, SLOT_MS, slotOf } from "../cells.ts";
import { answerOf, columnsOf, firstOf } from "../raw-row.ts";
import type { Book } from "../writing/book.ts";

/** The start of what is kept, wall time: whoever compares with something older must know that it is no longer here. */
export const KEPT_FROM = "kept_from";

/** Deletes what began before a time, in small pieces: each call one of them, true while there may be more. */
export interface Pruning {
  /** Records deleted so far, and about how many there are to delete. */
  readonly done: number;
  readonly total: number;
  step(book: Book, size: number): boolean;
}

/** The time is taken down to a whole slot, so that a cell is kept or folded as a whole. */
export function createPruning(time: number): Pruning {
  const before = slotOf(time) * SLOT_MS;
  let stage: "records" | "console" | "cells" | "done" = "records";
  let after = LOWEST;
  let lane: Lane | null = null;
  let done = 0;
  let total: number | null = null;

  return {
    get done() {
      return done;
    },
    get total() {
      return total ?? 0;
    },
    step(book, size) {
      const { db } = book.connection;
      total ??= countBefore(db, before);
      if (stage === "records") {
        const gone = deleteRecords(book, before, after, size);
        after = gone?.last ?? after;
        done += gone?.count ?? 0;
        if (gone === null) stage = "console";
      } else if (stage === "console") {
        if (!deleteConsoleRows(book, before, size)) stage = "cells";
      } else if (stage === "cells") {
        lane ??= nextLane(db, null);
        if (lane !== null && !foldCells(book, before, lane, size)) lane = nextLane(db, lane);
        if (lane === null) stage = "done";
      }
      return stage !== "done";
    },
  };
}

/** null: there is nothing left to delete. */
function deleteRecords(
  { connection: { db }, rows, transact }: Book,
  before: number,
  after: number,
  size: number,
): { readonly last: number; readonly count: number } | null {
  const found = db
    .prepare(
      "SELECT seq, started_at < ? AND end IS NOT NULL, id FROM log.records WHERE seq > ? ORDER BY seq LIMIT ?",
    )
    .raw()
    .all(before, after, size)
    .map(columnsOf);
  const old = found.filter(([, isOld]) => isOld === 1);
  const last = found.at(-1)?.[0];
  // The order of seq is that of time but for a clock that was set: a whole piece without any old one is the end.
  if (last === undefined || old.length === 0) return null;
  transact(() => {
    const remove = db.prepare("DELETE FROM log.records WHERE seq = ?");
    const removeVerdict = db.prepare("DELETE FROM log.verdicts WHERE record = ?");
    for (const [seq, , id] of old) {
      remove.run(Number(seq));
      removeVerdict.run(String(id));
    }
    rows.setFact(KEPT_FROM, String(before));
  });
  return { last: Number(last), count: old.length };
}

/** What the consoles said of that time. false: there is nothing left to delete. */
function deleteConsoleRows({ connection: { db }, transact }: Book, before: number, size: number): boolean {
  const next = db.prepare("SELECT min(gateway) FROM log.console_rows WHERE gateway > ?").raw();
  const remove = `DELETE FROM log.console_rows WHERE gateway = ? AND identity IN
    (SELECT identity FROM log.console_rows WHERE gateway = ? AND created_at < ? ORDER BY created_at LIMIT ?)`;
  for (
    let gateway = firstOf(next.get(""));
    typeof gateway === "string";
    gateway = firstOf(next.get(gateway))
  ) {
    const name = gateway;
    if (transact(() => db.prepare(remove).run(name, name, before, size).changes) > 0) return true;
  }
  return false;
}

/** false: the lane has nothing left to fold. */
function foldCells(
  { connection: { db }, transact }: Book,
  before: number,
  lane: Lane,
  size: number,
): boolean {
  const place = [lane.tool, lane.gateway, lane.group, lane.key, lane.model];
  const found = db
    .prepare(
      `SELECT ${CELL_COLUMNS} FROM log.cells WHERE ${IN_LANE} AND slot > ? AND slot < ? ORDER BY slot LIMIT ?`,
    )
    .raw()
    .all(...place, FOLDED_SLOT, slotOf(before), size)
    .map(cellOfRow);
  const last = found.at(-1);
  if (last === undefined) return false;
  transact((_, tally) => {
    for (const cell of found) tally.add({ ...cell, slot: FOLDED_SLOT });
    const remove = db.prepare(`DELETE FROM log.cells WHERE ${IN_LANE} AND slot > ? AND slot <= ?`);
    remove.run(...place, FOLDED_SLOT, last.slot);
  });
  return true;
}

const LOWEST = Number.MIN_SAFE_INTEGER;
const IN_LANE = 'tool = ? AND gateway = ? AND "group" = ? AND key = ? AND model = ?';

/** Steps from lane to lane by the primary key, past all the slots of each. */
function nextLane(db: Database.Database, after: Lane | null): Lane | null {
  const columns = 'tool, gateway, "group", key, model';
  const order = `ORDER BY ${columns} LIMIT 1`;
  const row =
    after === null
      ? db.prepare(`SELECT ${columns} FROM log.cells ${order}`).raw().get()
      : db
          .prepare(`SELECT ${columns} FROM log.cells WHERE (${columns}) > (?, ?, ?, ?, ?) ${order}`)
          .raw()
          .get(after.tool, after.gateway, after.group, after.key, after.model);
  if (row === undefined) return null;
  const [tool = "", gateway = "", group = "", key = "", model = ""] = columnsOf(row).map(String);
  return { tool, gateway, group, key, model };
}

/** About how many began before, by halving: counting them would read them all. */
function countBefore(db: Database.Database, before: number): number {
  const bound = (sql: string) => Number(answerOf(db, sql));
  const bottom = bound("SELECT coalesce(min(seq), 0) FROM log.records");
  const at = db
    .prepare("SELECT seq, started_at < ? FROM log.records WHERE seq >= ? ORDER BY seq LIMIT 1")
    .raw();
  let low = bottom;
  let high = bound("SELECT coalesce(max(seq), 0) + 1 FROM log.records");
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    if (columnsOf(at.get(before, middle))[1] === 1) low = middle + 1;
    else high = middle;
  }
  return low - bottom;
}
