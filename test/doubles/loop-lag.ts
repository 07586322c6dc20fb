/** The longest time, in milliseconds, for which the event loop did not come round while the work ran. */
export async function lagDuring(work: () => Promise<unknown>): Promise<number> {
  const EVERY_MS = 5;
  let last = performance.now();
  let longest = 0;
  const timer = setInterval(() => {
    const now = performance.now();
    longest = Math.max(longest, now - last - EVERY_MS);
    last = now;
  }, EVERY_MS);
  try {
    await work();
    return longest;
  } finally {
    clearInterval(timer);
  }
}
