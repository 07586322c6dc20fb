/**
 * One timer for everything that has to look now and then: a timer of its own for each would wake an idle process once more
 * every second.
 */
export interface Ticker {
  /** Calls back about once a second, or at every so many beats, and keeps no process alive. What it answers ends that. */
  every(beats: number, work: () => void): () => void;
}

const BEAT_MS = 1000;

export function createTicker(ms: number = BEAT_MS): Ticker {
  const works = new Set<() => void>();
  let timer: NodeJS.Timeout | undefined;
  let count = 0;
  const run = () => {
    count += 1;
    for (const work of works) work();
  };
  return {
    every(beats, work) {
      const mine = () => {
        if (count % beats === 0) work();
      };
      works.add(mine);
      timer ??= setInterval(run, ms).unref();
      return () => {
        works.delete(mine);
        if (works.size > 0) return;
        clearInterval(timer);
        timer = undefined;
      };
    },
  };
}
