import { monitorEventLoopDelay } from "node:perf_hooks";
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

/**
 * Makes the attempt again if this process stood still for so long meanwhile, as it may on a busy machine. Afterwards the timers
 * of the test and those of the daemon fire together, so that it says nothing about time-outs.
 */
export async function withoutStall<T>(milliseconds: number, attempt: () => Promise<T>): Promise<T> {
  for (let left = 10; ; left -= 1) {
    const delay = monitorEventLoopDelay({ resolution: 10 });
    delay.enable();
    const result = await attempt();
    delay.disable();
    if (delay.max < milliseconds * 1e6 || left === 1) return result;
  }
}
