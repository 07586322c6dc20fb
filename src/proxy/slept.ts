import type { Clock } from "../clock.ts";

/** More than this between the two clocks means that the machine slept. */
const SLEPT_MS = 2000;

/**
 * Tells, once each time, that the machine slept since it was last asked: kept connections are gone then, unnoticed, and a
 * call over one of them would wait for its time-out. Wall time goes on in sleep, the other clock does not.
 */
export function sleepWatch(clock: Clock): () => boolean {
  let [seenNow, seenElapsed] = [clock.now(), clock.elapsed()];
  return () => {
    const [now, elapsed] = [clock.now(), clock.elapsed()];
    const slept = now - seenNow - (elapsed - seenElapsed);
    seenNow = now;
    seenElapsed = elapsed;
    return slept >= SLEPT_MS;
  };
}
