import type { Clock } from "../clock.ts";

export type Phase = "connect" | "first_byte" | "idle";

/**
 * One kind of patience after the other, on one timer. A new phase and a sign of life only move the moment at which it is
 * over; the timer is set again when it rings too early, or when it would ring too late. So a call that goes well sets it
 * once, and an event of a stream costs no more than a look at the clock.
 */
export class Deadline {
  readonly #clock: Clock;
  readonly #expired: (phase: Phase, ms: number) => void;
  #timer: NodeJS.Timeout | null = null;
  #rings = 0;
  #phase: Phase | null = null;
  #ms = 0;
  #due = 0;

  constructor(clock: Clock, expired: (phase: Phase, ms: number) => void) {
    this.#clock = clock;
    this.#expired = expired;
  }

  /** From now on, this long without touch() ends in `expired(phase)`. */
  await(phase: Phase, ms: number): void {
    const now = this.#clock.elapsed();
    this.#phase = phase;
    this.#ms = ms;
    this.#due = now + ms;
    if (this.#timer === null || this.#rings > this.#due) this.#set(now);
  }

  /** Something moved: if this phase is the present one, it starts again. */
  touch(phase: Phase): void {
    if (phase === this.#phase) this.#due = this.#clock.elapsed() + this.#ms;
  }

  stop(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    this.#phase = null;
  }

  #set(now: number): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#rings = this.#due;
    this.#timer = setTimeout(this.#onRing, this.#due - now);
  }

  readonly #onRing = (): void => {
    const phase = this.#phase;
    if (phase === null) return;
    const now = this.#clock.elapsed();
    // A timer may ring up to a millisecond before its time on this clock.
    if (this.#due - now >= 1) this.#set(now);
    else {
      this.stop();
      this.#expired(phase, this.#ms);
    }
  };
}
