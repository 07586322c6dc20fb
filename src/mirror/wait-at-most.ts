import { setTimeout as pause } from "node:timers/promises";

/**
 * Waits for the work, but no longer than this, and not after the signal is aborted. True: the work is done. Throws what it
 * throws. The work goes on by itself otherwise.
 */
export async function waitAtMost(
  milliseconds: number,
  work: Promise<unknown>,
  stop?: AbortSignal,
): Promise<boolean> {
  const over = new AbortController();
  const signal = stop === undefined ? over.signal : AbortSignal.any([stop, over.signal]);
  const timeout = pause(milliseconds, false, { ref: false, signal }).catch(() => false);
  try {
    return await Promise.race([work.then(() => true), timeout]);
  } finally {
    // Otherwise every call would leave its timer behind.
    over.abort();
  }
}
