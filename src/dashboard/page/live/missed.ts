/** Who wants to know that the stream left something out. */
export interface Missed {
  on(listener: () => void): () => void;
  tell(): void;
  /** In a while, and once for all that come until then. */
  tellSoon(): void;
}

/** Whoever is too slow for a flood is told so with every piece of it, and to ask for everything each time is no help. */
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
