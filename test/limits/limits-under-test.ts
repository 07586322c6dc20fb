import {
  type Ask,
  Counters,
  type Reservation,
  type Reserved,
  type Terms,
} from "../../src/limits/counters.ts";
import { zoneCalendar } from "../../src/shared/calendar.ts";
import { toolOf } from "../doubles/parsed-config.ts";

/** Days and months of a place that never changes its clocks. */
export const utc = zoneCalendar("UTC");

/** As in config.yaml: `requests: 10/minute, concurrent: 2`, and a quota. */
export function terms(limits: string, quota: string | null = null): Terms {
  const tool = toolOf(`limits: { ${limits} }${quota === null ? "" : `, quota: ${quota}`}`);
  return { limits: tool.limits, quota: tool.quota };
}

export function counters(limits: string, quota: string | null = null): Counters {
  return countersWith(terms(limits, quota));
}

export function countersWith(terms: Terms): Counters {
  const limits = new Counters(utc);
  limits.change(terms);
  return limits;
}

/** The next request gets its record at once, as a daemon writes it. */
export function reserveRecorded(limits: Counters, ask: Ask, now: number): Reserved {
  const reserved = limits.reserve(ask, now);
  if (reserved.ok) limits.recorded(reserved.reservation, "an id");
  return reserved;
}

export const at = (iso: string) => Date.parse(iso);
export const SECOND = 1000;
export const MINUTE = 60 * SECOND;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;
/** What costs neither tokens nor money. */
export const FREE = { tokens: 0, spend: 0 };
/** A reservation that was never made. */
export const NEVER: Reservation = { ...FREE, at: 0, ownAt: 0, session: null, id: null };
