/** What a dollar is in quota where a console does not say. */
export const USUAL_QUOTA_PER_UNIT = 500_000;

/** Whole micro-dollars, half up. A large account's quota times a million is more than a double holds. */
export function microdollarsOf(quota: number, quotaPerUnit: number): number {
  if (!Number.isSafeInteger(quotaPerUnit)) return Math.round((quota / quotaPerUnit) * 1_000_000);
  const unit = BigInt(quotaPerUnit);
  const twice = BigInt(Math.round(quota)) * 2_000_000n + unit;
  const whole = twice / (2n * unit);
  // BigInt cuts towards zero; half up wants the floor.
  return Number(twice < 0n && twice % (2n * unit) !== 0n ? whole - 1n : whole);
}
