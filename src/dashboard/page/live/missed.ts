/** The listeners for gaps in the event stream. */
export interface Missed {
  on(listener: () => void): () => void;
  tell(): void;
  /** In a while, and once for all that come until then. */
  tellSoon(): void;
}

/** A page that is too slow gets a gap with every event. It must not fetch everything each time. */
const SOON_MS = 2000;

export function createMissed(soonMs = SOON_MS): Missed {
  const listeners = new Set<() => void>();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const tell = () => {
    clearTimeout(timer);
    timer = undefined;
    for (const listener of listeners) listener();
  };
  return {
    on(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    tell,
    tellSoon() {
      timer ??= setTimeout(tell, soonMs);
    },
  };
}
