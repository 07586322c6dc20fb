import type Database from "libsql";
import { MISSING_AFTER_MS } from "../reconcile/context.ts";
import type { JudgedRecord } from "../verdict.ts";
import { readGaps, readTime } from "./facts.ts";
import type { Ours } from "./ours.ts";
import { readUnseen } from "./unseen.ts";

/** A gap has whole seconds at both ends, and a row is written a little before or after our end of the request. */
const MARGIN_MS = 60_000;

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
  const gaps = readGaps(db, gateway).map((gap) => ({
    ...gap,
    from: gap.from - skew - MARGIN_MS,
    to: gap.to - skew + MARGIN_MS,
  }));
  const unseen = new Map(readUnseen(db, gateway).map((one) => [one.key, one]));
  return ({ own, request: { key } }, judged) => {
    if (judged === null || (judged.verdict !== "missing" && judged.verdict !== "pending")) return judged;
    const isInGap = gaps.some(
      (gap) => own >= gap.from && own < gap.to && (gap.key === undefined || gap.key === key),
    );
    const unread = unseen.get(key ?? "");
    if (own < covered || isInGap || unread?.why === "no-account") return null;
    const read = unread === undefined ? synced : (unread.until ?? Number.NEGATIVE_INFINITY);
    if (judged.verdict === "pending" || own + MISSING_AFTER_MS <= read) return judged;
    return { ...judged, verdict: "pending", reason: "the console was not read since it ended" };
  };
}
