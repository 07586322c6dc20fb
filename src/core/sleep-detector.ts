import type { Clock } from "./clock.ts";

/** Notices that the machine slept: wall time goes on meanwhile, the monotonic clock does not. */
export class SleepDetector {
  readonly #clock: Clock;
  #now: number;
  #elapsed: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#now = clock.now();
    this.#elapsed = clock.elapsed();
  }

  /**
   * Milliseconds that wall time gained on the monotonic clock since the last call. A clock that is set looks the same as a
   * sleep; the result is negative if it was set back.
   */
  sleptMs(): number {
    const now = this.#clock.now();
    const elapsed = this.#clock.elapsed();
    const slept = now - this.#now - (elapsed - this.#elapsed);
    this.#now = now;
    this.#elapsed = elapsed;
    return slept;
  }
}
