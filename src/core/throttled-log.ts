import type { Logger } from "./log.ts";
import { MINUTE_MS } from "./units.ts";

/**
 * Returns a function that logs a message at once, and then once a minute how often it came again. Repeated attempts must not
 * fill the log.
 */
export function throttledLog(
  log: Pick<Logger, "warn">,
  everyMs: number = MINUTE_MS,
): (message: string) => void {
  /** How often each came again since it was last logged. */
  const more = new Map<string, number>();
  const wait = (message: string) => {
    more.set(message, 0);
    setTimeout(() => logSum(message), everyMs).unref();
  };
  const logSum = (message: string) => {
    const times = more.get(message) ?? 0;
    more.delete(message);
    if (times === 0) return;
    log.warn(`${message}: ${times} more times within a minute`);
    wait(message);
  };
  return (message) => {
    const times = more.get(message);
    if (times !== undefined) {
      more.set(message, times + 1);
      return;
    }
    log.warn(message);
    wait(message);
  };
}
