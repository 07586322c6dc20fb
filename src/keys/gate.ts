/** Lets so many through at once; the others wait in the order they came. */
export function createGate(most: number): <T>(work: () => Promise<T>) => Promise<T> {
  const waiting: (() => void)[] = [];
  let free = most;
  return async (work) => {
    if (free > 0) free -= 1;
    else await new Promise<void>((enter) => waiting.push(enter));
    try {
      return await work();
    } finally {
      // The place is handed on, not freed and raced for.
      const next = waiting.shift();
      if (next === undefined) free += 1;
      else next();
    }
  };
}
