import type { Period } from "../config/shape.ts";

/** A stretch of time in which a limit counts: from start up to, and without, end. Milliseconds UTC. */
export interface Window {
  readonly start: number;
  readonly end: number;
}

/** What the wall clock of a place shows. */
export interface LocalTime {
  readonly year: number;
  /** 1 to 12. */
  readonly month: number;
  readonly day: number;
  readonly hour: number;
  readonly minute: number;
  readonly second: number;
}

/**
 * The owner's days and months. Passed in, as time is: what a day is depends on the place, and a place is something
 * that only the process knows. Everything else about windows follows from these two.
 */
export interface Calendar {
  at(time: number): LocalTime;
  /** The first moment of a day. Month 13 and day 32 run over into what follows, as with Date. */
  dayStart(year: number, month: number, day: number): number;
}

/**
 * The calendar of the place this process runs in. Where the clocks go forward at midnight, Date gives the first moment
 * there is; where they go back over it, the first of the two midnights.
 */
export const systemCalendar: Calendar = {
  at: (time) => {
    const date = new Date(time);
    return {
      year: date.getFullYear(),
      month: date.getMonth() + 1,
      day: date.getDate(),
      hour: date.getHours(),
      minute: date.getMinutes(),
      second: date.getSeconds(),
    };
  },
  dayStart: (year, month, day) => new Date(year, month - 1, day).getTime(),
};

export const PERIODS: readonly Period[] = ["second", "minute", "hour", "day", "month"];

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

/** The window that a moment lies in: aligned to the Unix epoch below a day, of the calendar above. */
export function windowOf(period: Period, now: number, calendar: Calendar): Window {
  switch (period) {
    case "second":
      return aligned(SECOND, now);
    case "minute":
      return aligned(MINUTE, now);
    case "hour":
      return aligned(HOUR, now);
    case "day": {
      const { year, month, day } = calendar.at(now);
      return containing(now, (step) => calendar.dayStart(year, month, day + step));
    }
    case "month": {
      const { year, month } = calendar.at(now);
      return containing(now, (step) => calendar.dayStart(year, month + step, 1));
    }
  }
}

function aligned(length: number, now: number): Window {
  const start = Math.floor(now / length) * length;
  return { start, end: start + length };
}

/**
 * Clocks that go back over midnight (at 00:01 in St. John's, until 2011) show the old day again after the new one has
 * begun. That hour belongs to the new day, or it would lie in no window at all.
 */
function containing(now: number, startOf: (step: number) => number): Window {
  let step = 0;
  while (startOf(step + 1) <= now) step += 1;
  return { start: startOf(step), end: startOf(step + 1) };
}

/**
 * Where a moment stands to the window that is being counted in.
 *
 * inside: it counts there. So does a moment before it: a clock that was set back must not open a window that was spent
 * already. over: the next window begins, empty.
 *
 * astray: the window lies more than its own length ahead, so the clock was wrong then, or is now. To wait for it would
 * keep a limit of 60/minute shut for the hours that a clock can be wrong by, so what was counted moves to the
 * window of the moment: nothing is given away.
 *
 * Whenever the clock was set, gate.ts counts the windows anew from the usage log.
 */
export function standing(window: Window, now: number): "inside" | "over" | "astray" {
  if (now >= window.end) return "over";
  return now < window.start - (window.end - window.start) ? "astray" : "inside";
}

/**
 * Which records of the past count in a window when it is counted anew. It ends as late as standing() still holds a
 * record to be of this window, so that a restart right after the clock was set back forgets nothing.
 */
export function countedSpan({ start, end }: Window): { readonly from: number; readonly to: number } {
  return { from: start, to: end + (end - start) };
}
