import type { Clock } from "../../src/core/clock.ts";

/** Time that moves only when a test says so. */
export function heldClock(): Clock & { pass(milliseconds: number): void } {
  let elapsed = 0;
  return {
    now: () => 1_800_000_000_000 + elapsed,
    elapsed: () => elapsed,
    pass: (milliseconds) => {
      elapsed += milliseconds;
    },
  };
}
