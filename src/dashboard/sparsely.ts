const MINUTE_MS = 60_000;

/**
 * Tells of the first at once (0 more), then once a minute how many more there were: whoever tries again and again
 * must not be able to fill the log.
 */
export function throttledLog(tell: (more: number) => void, everyMs = MINUTE_MS): () => void {
  let more = 0;
  let timer: NodeJS.Timeout | null = null;
  const wait = () => {
    timer = setTimeout(sum, everyMs);
    timer.unref();
  };
  const sum = () => {
    timer = null;
    if (more === 0) return;
    tell(more);
    more = 0;
    wait();
  };
  return () => {
    if (timer !== null) {
      more += 1;
      return;
    }
    tell(0);
    wait();
  };
}
