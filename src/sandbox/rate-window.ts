/**
 * So many a minute, counted from the first one, as the gateway's own counter does. Refused requests do not count.
 * Times are milliseconds on a clock that only goes forward.
 */
export interface RateWindow {
  /** Takes one and returns 0, or takes nothing and returns the seconds until there is room. */
  take(most: number, elapsed: number): number;
}

const MINUTE = 60_000;

export function createRateWindow(): RateWindow {
  let startedAt = Number.NEGATIVE_INFINITY;
  let taken = 0;
  return {
    take(most, elapsed) {
      if (elapsed - startedAt >= MINUTE) {
        startedAt = elapsed;
        taken = 0;
      }
      if (taken >= most) return Math.max(1, Math.ceil((startedAt + MINUTE - elapsed) / 1000));
      taken += 1;
      return 0;
    },
  };
}
