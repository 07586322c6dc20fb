import { Counters, type Reservation } from "../../src/limits/counters.ts";
import type { Terms } from "../../src/limits/gauges.ts";
import type { Calendar } from "../../src/limits/windows.ts";
import { toolOf } from "../doubles/parsed-config.ts";

/** Days and months of a place that never changes its clocks. */
export const utc: Calendar = {
  at: (time) => {
    const date = new Date(time);
    return {
      year: date.getUTCFullYear(),
      month: date.getUTCMonth() + 1,
      day: date.getUTCDate(),
      hour: date.getUTCHours(),
      minute: date.getUTCMinutes(),
      second: date.getUTCSeconds(),
    };
  },
  dayStart: (year, month, day) => Date.UTC(year, month - 1, day),
};

/** As in config.yaml: `requests: 10/minute, concurrent: 2`, and a quota. */
export function terms(limits: string, quota: string | null = null): Terms {
  const tool = toolOf(`limits: { ${limits} }${quota === null ? "" : `, quota: ${quota}`}`);
  return { limits: tool.limits, quota: tool.quota };
}

export function counters(limits: string, now: number, quota: string | null = null): Counters {
  return new Counters(terms(limits, quota), utc, now);
}

export const at = (iso: string) => Date.parse(iso);
export const SECOND = 1000;
export const MINUTE = 60 * SECOND;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;
/** What costs neither tokens nor money. */
export const FREE = { tokens: 0, spend: 0 };
/** A reservation that nobody made. */
export const NEVER: Reservation = { ...FREE, at: 0, counted: [], logged: false };
