export type Phase = "connect" | "first_byte" | "idle";

/**
 * One timer serves the connect, first-byte and idle timeouts in turn. When it fires it checks the time and is set again if
 * needed. That is cheaper than resetting it for every phase and chunk.
 */
export class Deadline {
  readonly #onExpired: (phase: Phase, ms: number) => void;
  #timer: NodeJS.Timeout | undefined;
  #timerAt = 0;
  #phase: Phase | null = null;
  #ms = 0;
  #expiresAt = 0;

  constructor(onExpired: (phase: Phase, ms: number) => void) {
    this.#onExpired = onExpired;
  }

  /** From now on, this long without touch() expires. */
  start(phase: Phase, ms: number): void {
    this.#phase = phase;
    this.#ms = ms;
    this.#expiresAt = performance.now() + ms;
    if (this.#timer === undefined || this.#expiresAt < this.#timerAt) this.#setTimer();
  }

  /** There was activity. It counts only if this is the current phase. */
  touch(phase: Phase): void {
    if (phase === this.#phase) this.#expiresAt = performance.now() + this.#ms;
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#phase = null;
  }

  #setTimer(): void {
    clearTimeout(this.#timer);
    this.#timerAt = this.#expiresAt;
    this.#timer = setTimeout(() => this.#check(), this.#expiresAt - performance.now());
  }

  #check(): void {
    const phase = this.#phase;
    if (phase === null) return;
    // Node's timers may fire up to a millisecond early.
    if (this.#expiresAt > performance.now() + 1) {
      this.#setTimer();
      return;
    }
    this.#timer = undefined;
    this.#phase = null;
    this.#onExpired(phase, this.#ms);
  }
}
