import { SLOT_MS, slotOf } from "../ledger/cells.ts";
import { type Bin, daysOf, hoursOf, monthsOf } from "./calendar.ts";
import { type Extent, steadyStretches } from "./lanes.ts";
import type { Period } from "./period.ts";
import type { Slots } from "./read.ts";

export type ChartBin = "hour" | "day" | "month";

export const MOST_BINS = 2000;
const HOUR_SLOTS = 4;
const DAY_SLOTS = 24 * HOUR_SLOTS;
/** Of one lane, what is summed up in one step. */
const STEP_SLOTS = 31 * DAY_SLOTS;

/** All of the period as it was asked for, or, where that reaches too far, of it what holds something. null: still too many. */
export function chartBins(
  bin: ChartBin,
  { since, until }: Period,
  extent: Extent,
  now: number,
): Bin[] | null {
  const last = Math.max(slotOf(now) + 1, extent.to);
  const first = extent.to === 0 ? slotOf(now) : extent.from;
  const to = until === null ? last : Math.min(Math.ceil(until / SLOT_MS), Math.max(last, first));
  const asked = since === null ? first : Math.max(0, Math.floor(since / SLOT_MS));
  for (const from of [asked, Math.max(asked, first)]) {
    const slots = bin === "hour" ? HOUR_SLOTS : bin === "day" ? DAY_SLOTS : 28 * DAY_SLOTS;
    // At both ends a part of one may stand beside the whole ones.
    if ((to - from) / slots > MOST_BINS + 2) continue;
    const bins = (bin === "hour" ? hoursOf : bin === "day" ? daysOf : monthsOf)(from, Math.max(from, to));
    if (bins.length <= MOST_BINS) return bins;
  }
  return null;
}

export interface Stretch extends Slots {
  /** Slots are counted from so many before, and so many make one group. */
  readonly shift: number;
  readonly slots: number;
}

/** Pieces of time, short enough for one step, in which bins are groups of as many slots each. See steadyStretches. */
export function chartStretches(bins: readonly Bin[], bin: ChartBin, { from, to }: Slots): Stretch[] {
  const within = (piece: Stretch) => ({
    ...piece,
    from: Math.max(piece.from, from),
    to: Math.min(piece.to, to),
  });
  const pieces =
    bin === "month"
      ? bins.map((month) => ({ from: month.from, to: month.to, shift: 0, slots: Number.MAX_SAFE_INTEGER }))
      : steadyStretches(bins).flatMap((stretch) => cut(stretch, bin === "hour" ? HOUR_SLOTS : DAY_SLOTS));
  return pieces.map(within).filter((piece) => piece.from < piece.to);
}

/** Where it is cut in the middle of a bin, that bin is found twice and added up. */
function cut({ from, to, shift }: Omit<Stretch, "slots">, slots: number): Stretch[] {
  const pieces: Stretch[] = [];
  for (let at = from; at < to; at += STEP_SLOTS)
    pieces.push({ from: at, to: Math.min(to, at + STEP_SLOTS), shift, slots });
  return pieces;
}
