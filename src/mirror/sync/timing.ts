import { type ScheduledTask, schedule } from "node-cron";
import type { Clock } from "../../clock.ts";

/** When to look at a console by itself: as its schedule says, and when the machine wakes up. */
export interface Timing {
  /** The same schedule goes on; another one takes its place. */
  follow(expression: string): void;
  /** Milliseconds UTC; null: never. */
  next(): number | null;
  stop(): void;
}

const LOOK_MS = 15_000;
/** More than this between the two clocks: the machine slept, or its clock was set. */
const SLEPT_MS = 30_000;

export function createTiming(clock: Clock, onTime: () => void, onTick: () => void): Timing {
  let expression = "";
  let task: ScheduledTask | null = null;
  let seen = { now: clock.now(), elapsed: clock.elapsed() };

  function begin(): void {
    void task?.destroy();
    task = schedule(expression, onTime, { unref: true, suppressMissedWarning: true });
    task.on("execution:missed", onTime);
  }

  // Wall time goes on in sleep, the other clock does not.
  const watch = setInterval(() => {
    onTick();
    const before = seen;
    seen = { now: clock.now(), elapsed: clock.elapsed() };
    if (Math.abs(seen.now - before.now - (seen.elapsed - before.elapsed)) < SLEPT_MS) return;
    // Begun anew: node-cron would go through every time it missed, or wait for one that is years away.
    begin();
    onTime();
  }, LOOK_MS).unref();

  return {
    follow(wanted) {
      if (wanted === expression) return;
      expression = wanted;
      begin();
    },
    next: () => task?.getNextRun()?.getTime() ?? null,
    stop() {
      clearInterval(watch);
      void task?.destroy();
    },
  };
}
