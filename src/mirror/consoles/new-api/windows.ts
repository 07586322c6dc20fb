import { asObject, countAt } from "../json.ts";

/** Whole seconds by the console's clock, both of them inside. */
export interface Span {
  readonly from: number;
  readonly to: number;
}

/** How far the log was read, in seconds; what a walk begins from. */
export interface WalkMark {
  /** Everything up to here was seen. */
  readonly until: number;
  /** When a day was last looked over again. */
  readonly day: number;
  /** How far looking over a day has come, where it was broken off. */
  readonly again: number | null;
}

export interface WalkPlan {
  readonly from: number;
  /** Frozen: what is written while we walk belongs to the next walk, else the pages would shift all the time. */
  readonly end: number;
  readonly mark: WalkMark;
  /** This walk looks over a whole day again. */
  readonly wholeDay: boolean;
}

/** created_at is the end of a request, and rows are written late. */
const OVERLAP_S = 3600;
const DAY_S = 24 * 3600;
/** So far may a clock have been set back without anybody caring. */
const SET_BACK_S = 60;

export function planWalk(mark: WalkMark | null, since: number, now: number): WalkPlan {
  const end = Math.floor(now / 1000);
  if (mark === null) {
    const from = Math.min(Math.max(0, Math.floor(since / 1000)), end);
    return { from, end, mark: { until: from, day: end, again: null }, wholeDay: false };
  }
  const setBack = mark.until > end + SET_BACK_S;
  const until = Math.min(mark.until, end);
  const wholeDay = setBack || mark.again !== null || end - mark.day >= DAY_S || mark.day > end + SET_BACK_S;
  const overlap = until - OVERLAP_S;
  const from = wholeDay ? Math.min(mark.again ?? until - DAY_S, overlap) : overlap;
  return { from: Math.max(0, from), end, mark: { ...mark, until }, wholeDay };
}

/** The mark when everything up to `read` has been seen. */
export function markAt(plan: WalkPlan, read: number): WalkMark {
  const until = Math.max(plan.mark.until, read);
  const done = read >= plan.end;
  if (!plan.wholeDay) return { ...plan.mark, until };
  return done ? { until, day: plan.end, again: null } : { ...plan.mark, until, again: read + 1 };
}

export function writeMark(mark: WalkMark): string {
  return JSON.stringify(mark);
}

/** null: there is none, or none that can be read, which begins anew. */
export function readMark(text: string | null): WalkMark | null {
  const object = text === null ? null : parsed(text);
  if (object === null) return null;
  const until = countAt(object, "until");
  const day = countAt(object, "day");
  return until === null || day === null ? null : { until, day, again: countAt(object, "again") };
}

function parsed(text: string) {
  try {
    return asObject(JSON.parse(text));
  } catch {
    return null;
  }
}
