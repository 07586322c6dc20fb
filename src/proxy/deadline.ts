export type Phase = "connect" | "first_byte" | "idle";

/** One timer serves the connect, first-byte and idle timeouts in turn. */
export class Deadline {
  readonly #onExpired: (phase: Phase, ms: number) => void;
  #timer: NodeJS.Timeout | undefined;
  #phase: Phase | null = null;

  constructor(onExpired: (phase: Phase, ms: number) => void) {
    this.#onExpired = onExpired;
  }

  /** From now on, this long without touch() expires. */
  start(phase: Phase, ms: number): void {
    clearTimeout(this.#timer);
    this.#phase = phase;
    this.#timer = setTimeout(() => {
      this.#phase = null;
      this.#onExpired(phase, ms);
    }, ms);
  }

  /** There was activity. It counts only if this is the current phase. */
  touch(phase: Phase): void {
    if (phase === this.#phase) this.#timer?.refresh();
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#phase = null;
  }
}
