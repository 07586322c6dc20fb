import type Database from "libsql";
import { MISSING_AFTER_MS } from "../reconcile/context.ts";
import type { JudgedRecord } from "../verdict.ts";
import { readGaps, readTime } from "./facts.ts";
import type { Ours } from "./ours.ts";

/**
 * A record without a row is missing only where the console was read: not before the first walk's beginning, not in a gap,
 * and not yet where nobody has looked since. Answers the verdict that holds; null: none.
 */
export function missingIsKnown(
  db: Database.Database,
  gateway: string,
  skew: number,
): (ours: Ours, judged: JudgedRecord | null) => JudgedRecord | null {
  const covered = readTime(db, gateway, "covered_from") ?? Number.NEGATIVE_INFINITY;
  const synced = readTime(db, gateway, "last_sync") ?? Number.NEGATIVE_INFINITY;
  const gaps = readGaps(db, gateway).map(({ from, to }) => ({ from: from - skew, to: to - skew }));
  return ({ own }, judged) => {
    if (judged === null || (judged.verdict !== "missing" && judged.verdict !== "pending")) return judged;
    if (own < covered || gaps.some(({ from, to }) => own >= from && own < to)) return null;
    if (judged.verdict === "pending" || own + MISSING_AFTER_MS <= synced) return judged;
    return { ...judged, verdict: "pending", reason: "the console was not read since it ended" };
  };
}
