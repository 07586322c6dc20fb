import type { OurRequest, StartFit, TheirRow } from "./context.ts";

/** So many matches by id tell how close a row's beginning is to its request. */
const ENOUGH = 20;
/** Without them: clocks are compared to about a second, and some consoles tell whole seconds. */
export const UNKNOWN_START: StartFit = { later: 0, within: 3000 };
const LEAST_MS = 150;
/** A connection that has to be opened first takes longer than most. */
const FACTOR = 3;
/** A request whose end nobody saw began at the gateway within this time. */
const CONNECT_MS = 10_000;
const SLACK_MS = 1000;
/** A gateway may go on so long with what its caller has left. */
const LONGEST_MS = 90 * 60_000;

/**
 * null: too few to tell.
 * @param offsets of requests matched by id: when their rows began, less when they were sent.
 */
export function learnStartFit(offsets: readonly number[]): StartFit | null {
  if (offsets.length < ENOUGH) return null;
  const later = quantile(offsets, 0.5);
  const spread = quantile(
    offsets.map((offset) => Math.abs(offset - later)),
    0.9,
  );
  return { later, within: Math.min(Math.max(LEAST_MS, FACTOR * spread), UNKNOWN_START.within) };
}

function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.floor((sorted.length - 1) * share)] ?? 0;
}

/** When its request was sent, by what the row tells; null: it does not. */
export function sentAt({ began }: TheirRow, { later }: StartFit): number | null {
  return began === null ? null : began - later;
}

/** Whether the row began when the request did. */
export function beganWith(record: OurRequest, row: TheirRow, start: StartFit): boolean {
  const sent = sentAt(row, start);
  return sent !== null && Math.abs(sent - record.sent_at) <= start.within && mayHaveBegun(record, row, start);
}

/** Whether the row began while the request was under way. Without a beginning, its end must be later than the start. */
export function mayHaveBegun(record: OurRequest, row: TheirRow, start: StartFit): boolean {
  const sent = sentAt(row, start);
  const early = record.sent_at - Math.max(start.within, SLACK_MS);
  if (row.at < early) return false;
  if (sent === null) return true;
  if (record.running) return sent >= early;
  const end = record.ended_at ?? record.sent_at + CONNECT_MS;
  return sent >= early && sent <= end + SLACK_MS && row.at <= end + LONGEST_MS;
}
