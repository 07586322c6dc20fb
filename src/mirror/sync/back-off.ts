/** The shortest time between two tries by itself, and the longest. */
const SHORTEST_MS = 60_000;
const LONGEST_MS = 60 * 60_000;

/** Milliseconds until a console that failed so many times in a row is asked again; it may ask for longer itself. */
export function backOff(failures: number, retryAfter: number | null): number {
  const own = Math.min(LONGEST_MS, SHORTEST_MS * 2 ** Math.min(failures - 1, 10));
  // A console that asks for a week has a wrong clock, or is not to be waited for.
  const asked = Math.min(24 * LONGEST_MS, (retryAfter ?? 0) * 1000);
  return Math.max(own, asked);
}
