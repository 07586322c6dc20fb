import type { Database } from "libsql";
import type { UsageRecord } from "../record.ts";
import { COLUMNS, recordOf } from "./fields.ts";
import { idsOf } from "./records.ts";
import { type Selection, selectionSql } from "./selection.ts";

/** How many records are looked at in one step: with their lines of CSV, two or three milliseconds. */
const STEP = 100;

/**
 * Finished records, piece by piece: each holds those of the next hundred that are selected, which may be none. So that
 * a selection that finds little in a million does not hold up whoever else runs on this thread.
 */
export function newestFirst(
  db: Database,
  selection: Selection,
  before: string | null,
): Generator<UsageRecord[]> {
  const [from, end] = idsOf(selection.period);
  const until = before !== null && before < end ? before : end;
  return pieces(db, selection, { from, until, order: "DESC" });
}

export function oldestFirst(db: Database, selection: Selection): Generator<UsageRecord[]> {
  const [from, until] = idsOf(selection.period);
  return pieces(db, selection, { from, until, order: "ASC" });
}

interface Walk {
  readonly from: string;
  /** Not part of it. */
  readonly until: string;
  readonly order: "ASC" | "DESC";
}

function* pieces(db: Database, selection: Selection, walk: Walk): Generator<UsageRecord[]> {
  const { sql, values } = selectionSql(selection);
  const { order } = walk;
  const among = "id >= ? AND id < ?";
  // Found by the index alone.
  const last = db
    .prepare(`SELECT id FROM records WHERE ${among} ORDER BY id ${order} LIMIT 1 OFFSET ${STEP - 1}`)
    .raw();
  const found = db
    .prepare(`SELECT ${COLUMNS} FROM records WHERE ${among} AND ${sql} ORDER BY id ${order}`)
    .raw();
  let { from, until } = walk;
  for (;;) {
    const row = last.get(from, until) as [string] | undefined;
    const edge = row?.[0];
    // The edge belongs to this piece. No id is another with something behind it.
    const [low, high] =
      edge === undefined ? [from, until] : order === "DESC" ? [edge, until] : [from, `${edge}!`];
    yield (found.all(low, high, ...values) as unknown[][]).map(recordOf);
    if (edge === undefined) return;
    if (order === "DESC") until = edge;
    else from = high;
  }
}
