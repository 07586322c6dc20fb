import type Database from "libsql";
import { numberIn } from "./raw-row.ts";

/** What one step of judging decides on: everything whose own time, by our clock, lies from `from` up to, without, `to`. */
export interface Window {
  readonly from: number;
  readonly to: number;
  /** Nothing is after it. */
  readonly last: boolean;
}

export interface WindowMeans {
  readonly skew: number;
  readonly most: number;
}

/**
 * What cannot be told apart is compared as the sums of an hour. With FARTHEST_MS around it, a window of whole quarters has
 * every hour that it touches in sight.
 */
const QUARTER_MS = 15 * 60_000;
export const DAY_MS = 86_400_000;
/** So many are stepped over to find what is not settled: that is quick, but not for nothing. */
const MOST_SCANNED = 2000;
/** What was matched by its id is settled: nothing around it can change that. */
export const UNSETTLED = "how IS NOT 'id'";
/**
 * Rows to be found by an id: those that are not settled, those that changed and were matched with a record before, and
 * those of which nobody knew whose key it was, which may be known by now.
 */
export const WITH_IDS = `(${UNSETTLED} OR key IS NULL) AND (coalesce(request_id, upstream_id) IS NOT NULL
  OR (how IS NULL AND record IS NOT NULL))`;

/**
 * From the quarter of `from` on, or from where there is something again; null: nothing is. About `most` records and rows
 * that are not settled.
 */
export function windowFrom(
  db: Database.Database,
  gateway: string,
  from: number,
  { now, skew, most }: WindowMeans & { readonly now: number },
): Window | null {
  const { rowAt, recordAt, openRowAt, openRecordAt } = placesIn(db, gateway, skew);
  // A record belongs where it ended, up to a day after it began.
  const next = Math.min(rowAt(from, 0), recordAt(from - DAY_MS, 0));
  if (next === Number.POSITIVE_INFINITY) return null;
  const start = Math.floor(Math.max(from, next) / QUARTER_MS) * QUARTER_MS;
  const half = Math.floor(most / 2);
  const far = Math.min(rowAt(start, MOST_SCANNED), recordAt(start, MOST_SCANNED), start + DAY_MS);
  const full = Math.min(openRowAt(start, far, half), openRecordAt(start, far, half), far);
  const end = Math.max(Math.floor(full / QUARTER_MS) * QUARTER_MS, start + QUARTER_MS);
  return end > now ? { from: start, to: END_OF_TIME, last: true } : { from: start, to: end, last: false };
}

/** Where only ids count, it can begin and end anywhere. `anew`: what is settled is looked at as well. */
export function idWindowFrom(
  db: Database.Database,
  gateway: string,
  from: number,
  { skew, most, anew }: WindowMeans & { readonly anew: boolean },
): Window {
  const { rowAt, recordAt, openRowAt } = placesIn(db, gateway, skew);
  const half = Math.floor(most / 2);
  const far = rowAt(from, anew ? half : MOST_SCANNED);
  const to = Math.min(far, anew ? recordAt(from, half) : openRowAt(from, far, half, WITH_IDS));
  if (to === Number.POSITIVE_INFINITY) return { from, to: END_OF_TIME, last: true };
  return { from, to: Math.max(to, from + 1), last: false };
}

/** When the one is that follows so many others; infinity: there are not so many. */
function placesIn(db: Database.Database, gateway: string, skew: number) {
  const row = "SELECT created_at FROM mirror.console_rows WHERE gateway = ? AND created_at >= ?";
  const record = "SELECT r.started_at FROM usage.records r";
  const verdict = "LEFT JOIN mirror.verdicts v ON v.record = r.id";
  // Those that run are few, and loaded wherever the window ends.
  const since = "WHERE r.end IS NOT NULL AND r.gateway = ? AND r.started_at >= ?";
  const rowOrder = "ORDER BY created_at LIMIT 1 OFFSET ?";
  const recordOrder = "ORDER BY r.started_at LIMIT 1 OFFSET ?";
  const ask = (sql: string, ...values: (string | number)[]) =>
    numberIn(
      db
        .prepare(sql)
        .raw()
        .get(...values),
    ) ?? Number.POSITIVE_INFINITY;
  const finite = (time: number) => Math.min(time, END_OF_TIME);
  return {
    rowAt: (from: number, skip: number) => ask(`${row} ${rowOrder}`, gateway, from + skew, skip) - skew,
    recordAt: (from: number, skip: number) => ask(`${record} ${since} ${recordOrder}`, gateway, from, skip),
    openRowAt: (from: number, to: number, skip: number, open = UNSETTLED) =>
      ask(
        `${row} AND created_at < ? AND ${open} ${rowOrder}`,
        gateway,
        from + skew,
        finite(to + skew),
        skip,
      ) - skew,
    openRecordAt: (from: number, to: number, skip: number) =>
      ask(
        `${record} ${verdict} ${since} AND r.started_at < ? AND v.${UNSETTLED} ${recordOrder}`,
        gateway,
        from,
        finite(to),
        skip,
      ),
  };
}

/** A number that SQLite compares with its own, other than infinity. */
export const END_OF_TIME = 8_640_000_000_000_000;
