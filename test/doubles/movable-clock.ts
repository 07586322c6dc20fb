import type { Clock } from "../../src/core/clock.ts";

/** Time goes on as usual, and further when the test says so. */
export function movableClock(): Clock & { pass(milliseconds: number): void } {
  let passed = 0;
  return {
    now: () => Date.now() + passed,
    elapsed: () => performance.now() + passed,
    pass(milliseconds) {
      passed += milliseconds;
    },
  };
}
