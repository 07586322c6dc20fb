import type { Period } from "../config/shape.ts";

/** A calendar window: from start up to, but not including, end. Milliseconds UTC. */
export interface Window {
  readonly start: number;
  readonly end: number;
}

/** What a wall clock shows at some place. */
export interface LocalTime {
  readonly year: number;
  /** 1 to 12. */
  readonly month: number;
  readonly day: number;
  readonly hour: number;
  readonly minute: number;
  readonly second: number;
}

/** The owner's days and months. It is passed in, like the clock, because they depend on the time zone. */
export interface Calendar {
  at(time: number): LocalTime;
  /** The first moment of a day. Month 13 and day 32 run over into what follows, as with Date. */
  dayStart(year: number, month: number, day: number): number;
}

/**
 * The calendar of this process's time zone. Where clocks go forward at midnight, Date gives the first moment that exists;
 * where they go back over midnight, the first of the two.
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

export function contains({ start, end }: Window, time: number): boolean {
  return time >= start && time < end;
}

/** The window that contains a moment. Windows shorter than a day are aligned to the Unix epoch. */
export function windowOf(period: Period, time: number, calendar: Calendar): Window {
  switch (period) {
    case "second":
      return alignedWindow(SECOND, time);
    case "minute":
      return alignedWindow(MINUTE, time);
    case "hour":
      return alignedWindow(HOUR, time);
    case "day": {
      const { year, month, day } = calendar.at(time);
      return calendarWindow(time, (step) => calendar.dayStart(year, month, day + step));
    }
    case "month": {
      const { year, month } = calendar.at(time);
      return calendarWindow(time, (step) => calendar.dayStart(year, month + step, 1));
    }
  }
}

function alignedWindow(length: number, time: number): Window {
  const start = Math.floor(time / length) * length;
  return { start, end: start + length };
}

/**
 * Clocks that go back over midnight (at 00:01 in St. John's, until 2011) show the old day again after the new day has
 * begun. That hour belongs to the new day; otherwise it would lie in no window at all.
 */
function calendarWindow(time: number, startOf: (step: number) => number): Window {
  let step = 0;
  while (startOf(step + 1) <= time) step += 1;
  return { start: startOf(step), end: startOf(step + 1) };
}
