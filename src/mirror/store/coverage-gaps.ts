import type Database from "libsql";
import { mergeSpans, type Span } from "../../core/spans.ts";
import { MINUTE_MS } from "../../core/units.ts";
import type { ConsoleGap } from "../consoles/console.ts";
import { touchFrom } from "./changed-days.ts";
import { readJsonFact, writeFact } from "./facts.ts";
import { queryColumn, queryValue } from "./query.ts";

/**
 * Times that one of the two logs does not cover. Nothing in them is foreign or missing. Both lists are bounded: once there are
 * more gaps, the two oldest become one, which only widens what is not covered.
 */
const MAX_GAPS = 100;

/** When requests of ours may not have been recorded: `from` up to, without, `to`, by our clock. */
export type LogGap = Span;

/** Which rows the console no longer lists, by its clock. */
export function readConsoleGaps(db: Database.Database, gateway: string): readonly ConsoleGap[] {
  return readJsonFact(db, gateway, "console_gaps", []);
}

export function addConsoleGap(db: Database.Database, gateway: string, gap: ConsoleGap): void {
  const known = readConsoleGaps(db, gateway);
  const isAlike = (one: ConsoleGap) => one.key === gap.key && one.cause === gap.cause;
  const others = known.filter((one) => !isAlike(one));
  const joined = mergeGaps([...known.filter(isAlike), gap]);
  writeFact(db, gateway, "console_gaps", JSON.stringify([...others, ...joined]));
}

/** A row can be a little earlier than its request: the clocks are compared to about a second. */
const MARGIN_MS = MINUTE_MS;

/** The oldest first. The same for all gateways. */
export function readLogGaps(db: Database.Database): readonly LogGap[] {
  const gaps = readJsonFact<readonly LogGap[]>(db, null, "log_gaps", []);
  const kept = keptFrom(db);
  return gaps.filter(({ to }) => to > kept);
}

/** Has that time compared again. Returns false if the gap was known. Runs in the caller's transaction. */
export function addLogGap(db: Database.Database, gap: LogGap): boolean {
  const known = readLogGaps(db);
  if (known.some(({ from, to }) => from <= gap.from && to >= gap.to)) return false;
  writeFact(db, null, "log_gaps", JSON.stringify(mergeGaps([...known, gap])));
  for (const gateway of queryColumn(db, "SELECT DISTINCT gateway FROM mirror.held_keys"))
    touchFrom(db, String(gateway), gap.from - MARGIN_MS);
  return true;
}

function mergeGaps<Gap extends Span>(gaps: readonly Gap[]): Gap[] {
  const merged = mergeSpans(gaps);
  const [first, second, ...rest] = merged;
  if (merged.length <= MAX_GAPS || first === undefined || second === undefined) return merged;
  return [{ ...first, to: second.to }, ...rest];
}

/** The usage log has everything from this time on. 0: nothing was ever removed from it. */
export function keptFrom(db: Database.Database): number {
  return Number(queryValue(db, "SELECT value FROM usage.meta WHERE name = 'kept_from'") ?? 0);
}

/** A key held here that the last sync did not read. */
export interface UnreadKey {
  /** Fingerprint. */
  readonly key: string;
  /** When it was last read, by our clock; null: never. */
  readonly until: number | null;
  /** no-account: no account that is logged in lists it. not-read: the console's rate limit was used up. */
  readonly cause: "no-account" | "not-read";
}

export function readUnreadKeys(db: Database.Database, gateway: string): readonly UnreadKey[] {
  return readJsonFact(db, gateway, "unread_keys", []);
}

export function writeUnreadKeys(db: Database.Database, gateway: string, unread: readonly UnreadKey[]): void {
  const before = readUnreadKeys(db, gateway);
  writeFact(db, gateway, "unread_keys", JSON.stringify(unread));
  const isRead = (one: UnreadKey) => !unread.some(({ key, cause }) => key === one.key && cause === one.cause);
  // Requests with these keys can be missing from now on.
  if (before.some(isRead)) touchFrom(db, gateway, 0);
}
