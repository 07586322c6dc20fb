import type { Clock } from "../../../clock.ts";

/** Whoever counts what was saved reads a month of records each time. */
const TELL_MS = 2000;

/**
 * Tells that more was saved: after the first piece, which holds the newest records and with them most of what the
 * running windows have to count, now and then on the way, and at the end.
 */
export function createTelling(clock: Clock, onSaved: (() => void) | undefined): (ended: boolean) => void {
  let toldAt = Number.NEGATIVE_INFINITY;
  return (ended) => {
    const now = clock.elapsed();
    if (!ended && now - toldAt < TELL_MS) return;
    toldAt = ended ? Number.NEGATIVE_INFINITY : now;
    onSaved?.();
  };
}
