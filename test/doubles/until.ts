import { monitorEventLoopDelay } from "node:perf_hooks";
import { setTimeout as wait } from "node:timers/promises";

/** No test fails on a slow machine, only one in which something never comes. */
export const HANG_MS = 60_000;

/** The longest pause between two looks. */
const MOST_PAUSE_MS = 50;

/**
 * Waits for something to become true; fails loudly when it never does. For what has no event. Most things come within a few
 * milliseconds. The longer something takes the less often it looks, because on a busy machine each look delays what it waits for.
 */
export async function until(what: string, holds: () => unknown, mostMs = MOST_PAUSE_MS): Promise<void> {
  const begun = performance.now();
  while (!(await holds())) {
    const waited = performance.now() - begun;
    if (waited > HANG_MS) throw new Error(`this did not come within ${HANG_MS} ms: ${what}`);
    await wait(Math.min(1 + waited / 4, mostMs));
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
