import type { Logger } from "./log.ts";
import { MINUTE_MS } from "./units.ts";

/**
 * Returns a function that logs the first call at once, and then once a minute how many more there were. Repeated attempts
 * must not fill the log.
 */
export function throttledLog(
  log: Pick<Logger, "warn">,
  message: string,
  everyMs: number = MINUTE_MS,
): () => void {
  /** null: the next call is logged at once. */
  let more: number | null = null;
  const wait = () => {
    more = 0;
    setTimeout(logSum, everyMs).unref();
  };
  const logSum = () => {
    if (more === 0) {
      more = null;
      return;
    }
    log.warn(`${message}: ${more} more times within a minute`);
    wait();
  };
  return () => {
    if (more !== null) {
      more += 1;
      return;
    }
    log.warn(message);
    wait();
  };
}
