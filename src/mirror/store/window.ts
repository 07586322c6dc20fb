import type Database from "libsql";
import { numberIn } from "../../usage/ledger/raw-row.ts";

/** What one step of judging decides on: everything whose own time, by our clock, lies from `from` up to, without, `to`. */
export interface Window {
  readonly from: number;
  readonly to: number;
  /** It reaches beyond now. */
  readonly last: boolean;
}

/**
 * What cannot be told apart is compared as the sums of an hour. With FARTHEST_MS around it, a window of whole quarters has
 * every hour that it touches in sight.
 */
const QUARTER_MS = 15 * 60_000;
export const DAY_MS = 86_400_000;

/** From the quarter of `from` on, or from where there is something again; null: nothing is. About `most` records and rows. */
export function windowFrom(
  db: Database.Database,
  gateway: string,
  from: number,
  means: { readonly now: number; readonly skew: number; readonly most: number },
): Window | null {
  const { now, skew, most } = means;
  const rows = db
    .prepare(
      `SELECT created_at FROM log.console_rows WHERE gateway = ? AND created_at >= ?
       ORDER BY created_at LIMIT 1 OFFSET ?`,
    )
    .raw();
  const records = db
    .prepare(
      `SELECT started_at FROM log.records WHERE gateway = ? AND started_at >= ?
       ORDER BY started_at LIMIT 1 OFFSET ?`,
    )
    .raw();
  const rowAt = (time: number, skip: number) =>
    (numberIn(rows.get(gateway, time + skew, skip)) ?? Number.POSITIVE_INFINITY) - skew;
  const recordAt = (time: number, skip: number) =>
    numberIn(records.get(gateway, time, skip)) ?? Number.POSITIVE_INFINITY;

  // A record belongs where it ended, up to a day after it began.
  const next = Math.min(rowAt(from, 0), recordAt(from - DAY_MS, 0));
  if (next === Number.POSITIVE_INFINITY) return null;
  const start = Math.floor(Math.max(from, next) / QUARTER_MS) * QUARTER_MS;
  const half = Math.floor(most / 2);
  const full = Math.min(rowAt(start, half), recordAt(start, half), start + DAY_MS);
  const end = Math.max(Math.floor(full / QUARTER_MS) * QUARTER_MS, start + QUARTER_MS);
  return end > now ? { from: start, to: END_OF_TIME, last: true } : { from: start, to: end, last: false };
}

/** A number that SQLite compares with its own, other than infinity. */
const END_OF_TIME = 8_640_000_000_000_000;
