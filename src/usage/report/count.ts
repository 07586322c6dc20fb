import type { Database } from "libsql";
import type { RecordEnd } from "../record.ts";
import { lanesIn, wholeExtent } from "./chart.ts";
import { IS_LANE, namesOf } from "./lanes.ts";
import { oldestFirst } from "./pieces.ts";
import { rangeOf } from "./read.ts";
import { isSelected, type Selection } from "./selection.ts";

/** The ends that cells count one by one. The others are told apart only in the records themselves. */
const COUNTED: Readonly<Partial<Record<RecordEnd, string>>> = {
  refused: "refused",
  "client-left": "client_left",
  interrupted: "interrupted",
};

/** How many finished records are selected, from the cells, in steps. null: only counting them all would tell. */
export function* countSelected(
  db: Database,
  selection: Selection,
  now: number,
): Generator<undefined, number | null> {
  const columns = selection.ends.map((end) => COUNTED[end]);
  if (columns.includes(undefined)) return null;
  const sum = columns.length === 0 ? "requests" : columns.join(" + ");
  const lanes = (yield* lanesIn(db)).filter((lane) => isSelected(selection, lane));
  const { inner, edges } = rangeOf(yield* wholeExtent(db, lanes), selection.period, now);
  const statement = db
    .prepare(`SELECT coalesce(sum(${sum}), 0) FROM cells WHERE ${IS_LANE} AND slot >= ? AND slot < ?`)
    .raw();
  let count = 0;
  for (const lane of lanes) {
    const [found] = statement.get(...namesOf(lane), inner.from, inner.to) as [number];
    count += found;
    yield;
  }
  for (const period of edges) {
    for (const piece of oldestFirst(db, { ...selection, period })) {
      count += piece.length;
      yield;
    }
  }
  return count;
}
