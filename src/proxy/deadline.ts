import type { Clock } from "../clock.ts";

export type Phase = "connect" | "first_byte" | "idle";

/**
 * One timer serves the connect, first-byte and idle timeouts in turn. Activity only moves the due time; the timer is set
 * again when it fires early. So an event of a stream costs no timer.
 */
export class Deadline {
  readonly #clock: Clock;
  readonly #onExpired: (phase: Phase, ms: number) => void;
  #timer: NodeJS.Timeout | null = null;
  #firesAt = 0;
  #phase: Phase | null = null;
  #ms = 0;
  #dueAt = 0;

  constructor(clock: Clock, onExpired: (phase: Phase, ms: number) => void) {
    this.#clock = clock;
    this.#onExpired = onExpired;
  }

  /** From now on, this long without touch() expires. */
  start(phase: Phase, ms: number): void {
    const now = this.#clock.elapsed();
    this.#phase = phase;
    this.#ms = ms;
    this.#dueAt = now + ms;
    if (this.#timer === null || this.#firesAt > this.#dueAt) this.#setTimer(now);
  }

  /** There was activity. It counts only if this is the current phase. */
  touch(phase: Phase): void {
    if (phase === this.#phase) this.#dueAt = this.#clock.elapsed() + this.#ms;
  }

  stop(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    this.#phase = null;
  }

  #setTimer(now: number): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#firesAt = this.#dueAt;
    this.#timer = setTimeout(this.#onTimer, this.#dueAt - now);
  }

  readonly #onTimer = (): void => {
    const phase = this.#phase;
    if (phase === null) return;
    const now = this.#clock.elapsed();
    // A timer may fire up to a millisecond early on this clock.
    if (this.#dueAt - now >= 1) {
      this.#setTimer(now);
      return;
    }
    this.stop();
    this.#onExpired(phase, this.#ms);
  };
}
