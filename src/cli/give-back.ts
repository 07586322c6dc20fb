/** When a start is over for good: keys are read, the watch stands. */
const AFTER_MS = 1000;

/**
 * Gives the memory that only the start needed back to the system, 3 to 5 MB. V8 does so by itself, but only if it happens to
 * collect within the next seconds, and a daemon without requests never gives it another occasion. Takes some tens of
 * milliseconds, once. Asked for through the inspector, in this process and without a port: the one documented way.
 */
export function giveBackSoon(): void {
  setTimeout(() => void giveBack().catch(() => undefined), AFTER_MS).unref();
}

async function giveBack(): Promise<void> {
  // Some builds of Node have none.
  const { Session } = await import("node:inspector/promises");
  const session = new Session();
  session.connect();
  try {
    await session.post("HeapProfiler.collectGarbage");
  } finally {
    session.disconnect();
  }
}
