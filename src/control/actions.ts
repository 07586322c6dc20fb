import type { Clock } from "../core/clock.ts";

export interface Action {
  readonly at: number;
  readonly what: string;
}

const MOST = 10;

/**
 * What was allowed through the control socket since the start: the last ten. Every program of this user can speak to the
 * socket, and no system tells Node who does, so the owner must be able to see what was done.
 */
export class Actions {
  readonly #clock: Clock;
  #last: readonly Action[] = [];

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  note(what: string): void {
    this.#last = [...this.#last, { at: this.#clock.now(), what }].slice(-MOST);
  }

  /** The latest first. */
  last(): readonly Action[] {
    return this.#last.toReversed();
  }
}
