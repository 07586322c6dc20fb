/** One timer for all periodic checks. A timer for each would wake an idle process more often. */
export interface Ticker {
  /** Calls `check` at every `ticks`-th tick of a second. Returns a function that ends this. Keeps no process alive. */
  every(ticks: number, check: () => void): () => void;
}

const TICK_MS = 1000;

export function createTicker(ms: number = TICK_MS): Ticker {
  const checks = new Set<() => void>();
  let timer: NodeJS.Timeout | undefined;
  let count = 0;
  const tick = () => {
    count += 1;
    for (const check of checks) check();
  };
  return {
    every(ticks, check) {
      const own = () => {
        if (count % ticks === 0) check();
      };
      checks.add(own);
      timer ??= setInterval(tick, ms).unref();
      return () => {
        checks.delete(own);
        if (checks.size > 0) return;
        clearInterval(timer);
        timer = undefined;
      };
    },
  };
}
