import type { Period } from "../config/shape.ts";
import type { Kind } from "./shortage.ts";
import { type Calendar, standing, type Window, windowOf } from "./windows.ts";

export interface Count {
  used: number;
  held: number;
}

export type Counts = Readonly<Record<Kind, Count>>;

/** One extra allowance, in every window of its kind. A quota is not lifted: it is changed in the file. */
export interface Lift {
  readonly kind: Kind;
  readonly amount: number;
  /** It counts in the windows that this moment lies in, and ends with each. */
  readonly givenAt: number;
  /** Or, not null: in every window up to this moment. */
  readonly until: number | null;
}

/**
 * One window of one period with everything counted in it. Its identity is what a reservation remembers: when the next
 * window begins another one takes its place, and what is settled here afterwards reaches nobody.
 */
export interface Frame {
  readonly per: Period;
  window: Window;
  readonly counts: Counts;
  lifts: readonly Lift[];
  /** What is counted here was counted in another window, before the clock was set back. */
  moved: boolean;
}

export type Frames = Readonly<Record<Period, Frame>>;

export function emptyCounts(): Counts {
  const zero = (): Count => ({ used: 0, held: 0 });
  return { requests: zero(), tokens: zero(), spend: zero() };
}

export function framesAt(now: number, calendar: Calendar): Frames {
  return each((per) => frame(per, windowOf(per, now, calendar), []));
}

/** The frames to count in now. Those that are over are replaced, never emptied. */
export function rolled(frames: Frames, now: number, calendar: Calendar): Frames {
  // Asked for several times in every request: one after the other, without a list to go through.
  const { second, minute, hour, day, month } = frames;
  const same =
    isInside(second, now) &&
    isInside(minute, now) &&
    isInside(hour, now) &&
    isInside(day, now) &&
    isInside(month, now);
  if (same) return frames;
  return each((per) => next(frames[per], now, calendar));
}

function isInside({ window }: Frame, now: number): boolean {
  return standing(window, now) === "inside";
}

function next(current: Frame, now: number, calendar: Calendar): Frame {
  switch (standing(current.window, now)) {
    case "inside":
      return current;
    case "astray":
      current.window = windowOf(current.per, now, calendar);
      current.moved = true;
      return current;
    case "over": {
      const lifts = current.lifts.filter(({ until }) => until !== null && now < until);
      return frame(current.per, windowOf(current.per, now, calendar), lifts);
    }
  }
}

/** Gives an allowance; one whose windows are over by now gives nothing. */
export function giveLift(frames: Frames, lift: Lift, now: number): void {
  for (const each of Object.values(frames)) {
    const counts = lift.until === null ? lift.givenAt >= each.window.start : now < lift.until;
    if (counts) each.lifts = [...each.lifts, lift];
  }
}

export function extraIn({ lifts }: Frame, kind: Kind, now: number): number {
  if (lifts.length === 0) return 0;
  return lifts
    .filter((lift) => lift.kind === kind && (lift.until === null || now < lift.until))
    .reduce((sum, { amount }) => sum + amount, 0);
}

export function each<T>(make: (per: Period) => T): Readonly<Record<Period, T>> {
  return {
    second: make("second"),
    minute: make("minute"),
    hour: make("hour"),
    day: make("day"),
    month: make("month"),
  };
}

function frame(per: Period, window: Window, lifts: readonly Lift[]): Frame {
  return { per, window, counts: emptyCounts(), lifts, moved: false };
}
