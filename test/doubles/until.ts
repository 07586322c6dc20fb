import { setTimeout as wait } from "node:timers/promises";

/** No test fails on a slow machine, only one in which something never comes. */
export const HANG_MS = 60_000;

/** Waits for something to become true; fails loudly when it never does. For what has no event. */
export async function until(what: string, holds: () => unknown, everyMs = 10): Promise<void> {
  const end = performance.now() + HANG_MS;
  // Most things come within a few milliseconds.
  for (let pause = 1; !(await holds()); pause = Math.min(2 * pause, everyMs)) {
    if (performance.now() > end) throw new Error(`this did not come within ${HANG_MS} ms: ${what}`);
    await wait(pause);
  }
}
