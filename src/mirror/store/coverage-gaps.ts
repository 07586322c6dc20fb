import type Database from "libsql";
import { mergeSpans } from "../../core/spans.ts";
import type { ConsoleGap } from "../consoles/console.ts";
import { touchFrom } from "./changed-days.ts";
import { readFact, writeFact } from "./facts.ts";
import { queryColumn, queryValue } from "./query.ts";

/** A time in which a log cannot be seen: `from` up to, without, `to`; milliseconds UTC. */
export interface CoverageGap {
  readonly from: number;
  readonly to: number;
}

/** Which rows the console no longer lists, by its clock. */
export function readConsoleGaps(db: Database.Database, gateway: string): readonly ConsoleGap[] {
  return JSON.parse(readFact(db, gateway, "gaps") ?? "[]");
}

export function addConsoleGap(db: Database.Database, gateway: string, gap: ConsoleGap): void {
  const known = readConsoleGaps(db, gateway);
  const isAlike = (one: ConsoleGap) => one.key === gap.key && one.why === gap.why;
  const others = known.filter((one) => !isAlike(one));
  const joined = mergeSpans([...known.filter(isAlike), gap]);
  writeFact(db, gateway, "gaps", JSON.stringify([...others, ...joined]));
}

/** A row can be a little earlier than its request: the clocks are compared to about a second. */
const MARGIN_MS = 60_000;

/** When requests of ours may not have been recorded, by our clock, the oldest first. The same for all gateways. */
export function readLogGaps(db: Database.Database): readonly CoverageGap[] {
  const gaps: CoverageGap[] = JSON.parse(readFact(db, null, "unwatched") ?? "[]");
  const kept = keptFrom(db);
  return gaps.filter(({ to }) => to > kept);
}

/** Verdicts on that time are given again. Returns false if the gap was known. Runs in the caller's transaction. */
export function addLogGap(db: Database.Database, gap: CoverageGap): boolean {
  const known = readLogGaps(db);
  if (known.some(({ from, to }) => from <= gap.from && to >= gap.to)) return false;
  writeFact(db, null, "unwatched", JSON.stringify(mergeSpans([...known, gap])));
  for (const gateway of queryColumn(db, "SELECT DISTINCT gateway FROM mirror.held_keys"))
    touchFrom(db, String(gateway), gap.from - MARGIN_MS);
  return true;
}

/** The usage log has everything from this time on. 0: nothing was ever removed from it. */
export function keptFrom(db: Database.Database): number {
  return Number(queryValue(db, "SELECT value FROM usage.meta WHERE name = 'kept_from'") ?? 0);
}

/** A key that is held here and that the last sync did not read. */
export interface UnreadKey {
  /** Fingerprint. */
  readonly key: string;
  /** When it was last read, by our clock; null: never. */
  readonly until: number | null;
  /** no-account: no account that is logged in lists it. not-read: the console allowed no further call. */
  readonly why: "no-account" | "not-read";
}

export function readUnreadKeys(db: Database.Database, gateway: string): readonly UnreadKey[] {
  return JSON.parse(readFact(db, gateway, "unseen") ?? "[]");
}

export function writeUnreadKeys(db: Database.Database, gateway: string, unread: readonly UnreadKey[]): void {
  const before = readUnreadKeys(db, gateway);
  writeFact(db, gateway, "unseen", JSON.stringify(unread));
  const isRead = (one: UnreadKey) => !unread.some(({ key, why }) => key === one.key && why === one.why);
  // Requests that could not be called missing can be now.
  if (before.some(isRead)) touchFrom(db, gateway, 0);
}
