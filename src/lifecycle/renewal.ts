import { DAY_MS } from "../core/units.ts";
import type { RenewedSettings } from "../mirror/consoles/console.ts";
import type { KeyReport } from "../mirror/report/shape.ts";

/* A key that has expired or has used up its quota is replaced only with a new expiry or quota, to which a person agreed. */

/** Where it is not known how long the old key was to last. */
const USUAL_LIFETIME_MS = 30 * DAY_MS;

/** The console's key that a rotation would replace. */
export interface RotatableKey extends KeyReport {
  /** What is over, and what the new key would get instead; null: nothing is. */
  readonly renewed: RenewedSettings | null;
}

/**
 * For a key that has expired: as much time as it had. For one that has used up its quota: the same quota. null: neither.
 * @param now by the console's clock
 */
export function renewedSettings(key: KeyReport, now: number): RenewedSettings | null {
  const { state, created_at: created, expires_at: expires, quota, quota_used: used } = key;
  const isExpired = state === "expired" || (expires !== null && expires <= now);
  const isUsedUp = quota !== null && quota > 0 && (state === "quota-exhausted" || (used ?? 0) >= quota);
  if (!isExpired && !isUsedUp) return null;
  const isKnown = created !== null && expires !== null;
  const lifetime = isKnown ? Math.max(DAY_MS, expires - created) : USUAL_LIFETIME_MS;
  return { expires_at: isExpired ? now + lifetime : null, quota: isUsedUp ? quota : null };
}

/** has expired and has used up its quota */
export function endedText({ expires_at, quota }: RenewedSettings): string {
  const ended: string[] = [];
  if (expires_at !== null) ended.push("has expired");
  if (quota !== null) ended.push("has used up its quota");
  return ended.join(" and ");
}
