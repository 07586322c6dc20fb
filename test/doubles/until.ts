import { setTimeout as wait } from "node:timers/promises";

/** Waits for something to become true; fails loudly when it does not. */
export async function until(what: string, holds: () => unknown, withinMs = 5000): Promise<void> {
  const end = performance.now() + withinMs;
  while (!(await holds())) {
    if (performance.now() > end) throw new Error(`not within ${withinMs} ms: ${what}`);
    await wait(10);
  }
}
