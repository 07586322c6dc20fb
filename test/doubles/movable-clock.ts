import type { Clock } from "../../src/core/clock.ts";

/** Time goes on as usual, and further when the test says so. It begins now, or at `start`. */
export function movableClock(start?: number): Clock & { pass(milliseconds: number): void } {
  const begun = performance.now();
  let passed = 0;
  return {
    now: () => (start === undefined ? Date.now() : Math.floor(start + performance.now() - begun)) + passed,
    elapsed: () => performance.now() + passed,
    pass(milliseconds) {
      passed += milliseconds;
    },
  };
}
