import type { UsageRecord } from "../../record.ts";
import type { Cell } from "../cells.ts";
import type { Aside } from "../state.ts";
import type { LiftRow } from "./lifts.ts";

/** How far the salvage of one file is. Kept in the new log, so that it says the same after a restart. */
export interface Progress {
  readonly salvage: Aside["salvage"];
  readonly saved: number;
  readonly unreadable: number;
  /** The highest seq not looked at yet; null: nothing was looked at yet. */
  readonly next: number | null;
  /** That it was deleted while it was open, in words; it is there only as long as it stays open. null: it lies aside. */
  readonly deleted: string | null;
}

/** What one step found. */
export interface Piece {
  readonly records: readonly UsageRecord[];
  readonly unreadable: number;
  readonly folded: readonly Cell[];
  readonly lifts: readonly LiftRow[];
  /** Where to go on below; null: that was the last. */
  readonly next: number | null;
}

export const BEGUN: Progress = { salvage: "under way", saved: 0, unreadable: 0, next: null, deleted: null };

/** null: nothing more can be read. */
export function afterwards(before: Progress, found: Piece | null, saved: number): Progress {
  if (found === null) return { ...before, salvage: before.saved > 0 ? "done" : "not possible" };
  return {
    ...before,
    salvage: found.next === null ? "done" : "under way",
    saved: before.saved + saved,
    unreadable: before.unreadable + found.unreadable,
    next: found.next,
  };
}

export function progressIn(text: string): Progress | null {
  try {
    return { ...BEGUN, ...JSON.parse(text) };
  } catch {
    return null;
  }
}
