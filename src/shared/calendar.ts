import { DAY_MS, QUARTER_MS } from "../core/units.ts";
import type { Calendar, LocalTime } from "../limits/windows.ts";

const MAX_OFFSETS = 100;

/** The days and months of a time zone, which all machines share wherever they are. */
export function zoneCalendar(timeZone: string): Calendar {
  const format = new Intl.DateTimeFormat("en-US", {
    timeZone,
    hourCycle: "h23",
    year: "numeric",
    month: "numeric",
    day: "numeric",
    hour: "numeric",
    minute: "numeric",
    second: "numeric",
  });
  // Every request asks for the same few, and formatting takes some microseconds.
  const offsets = new Map<number, number>();

  const offsetAt = (time: number): number => {
    const quarter = Math.floor(time / QUARTER_MS);
    const known = offsets.get(quarter);
    if (known !== undefined) return known;
    if (offsets.size >= MAX_OFFSETS) offsets.clear();
    const offset = computeOffset(format, quarter * QUARTER_MS);
    offsets.set(quarter, offset);
    return offset;
  };

  return {
    at: (time) => localTime(time + offsetAt(time)),
    dayStart: (year, month, day) => {
      const midnight = Date.UTC(year, month - 1, day);
      const before = offsetAt(midnight - DAY_MS);
      const after = offsetAt(midnight + DAY_MS);
      const candidates = [midnight - before, midnight - after].sort((a, b) => a - b);
      const found = candidates.find((time) => time + offsetAt(time) === midnight);
      // Where clocks go forward at midnight, the day begins at the first moment after it.
      return found ?? midnight - before;
    },
    zone: () => timeZone,
  };
}

function computeOffset(format: Intl.DateTimeFormat, time: number): number {
  const parts = new Map(format.formatToParts(time).map(({ type, value }) => [type, Number(value)]));
  const value = (type: Intl.DateTimeFormatPartTypes) => parts.get(type) ?? 0;
  const local = Date.UTC(
    value("year"),
    value("month") - 1,
    value("day"),
    value("hour"),
    value("minute"),
    value("second"),
  );
  return local - time;
}

function localTime(shifted: number): LocalTime {
  const date = new Date(shifted);
  return {
    year: date.getUTCFullYear(),
    month: date.getUTCMonth() + 1,
    day: date.getUTCDate(),
    hour: date.getUTCHours(),
    minute: date.getUTCMinutes(),
    second: date.getUTCSeconds(),
  };
}
