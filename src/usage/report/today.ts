import type { Database } from "libsql";
import { emptySums, SLOT_MS, type Sums, slotOf } from "../ledger/cells.ts";
import { inSteps, lanesIn } from "./chart.ts";
import { sumsOfLanes } from "./lanes.ts";
import { addSums } from "./sums.ts";

export interface DayOfTools {
  /** Midnight of this machine's calendar. */
  readonly since: number;
  /** By tool; empty: callers that nobody recognised. */
  readonly tools: ReadonlyMap<string, Sums>;
}

/** What each tool used today, in steps. */
export function* readToday(db: Database, now: number): Generator<undefined, DayOfTools> {
  const date = new Date(now);
  const since = new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime();
  // Every zone's midnight is the beginning of a slot. Where the clock was set back, there are records from later.
  const today = { name: "today", from: slotOf(since), to: slotOf(now) + (24 * 3_600_000) / SLOT_MS };
  const tools = new Map<string, Sums>();
  const lanes = yield* lanesIn(db);
  for (const few of inSteps(lanes)) {
    for (const { lane, sums } of sumsOfLanes(db, few, [today], false)) {
      const whole = tools.get(lane.tool) ?? emptySums();
      addSums(whole, sums);
      tools.set(lane.tool, whole);
    }
    yield;
  }
  return { since, tools };
}
