import type { Clock } from "../core/clock.ts";
import { DAY_MS } from "../core/units.ts";

/** This machine's clocks at one moment. */
export interface Mark {
  readonly wall: number;
  readonly elapsed: number;
}

/** A day. A store whose clock is further off is not believed. */
const MAX_OFFSET_MS = DAY_MS;
/** Smaller differences are within what two synchronized clocks and a slow network can have. */
const SAME_CLOCK_MS = 2000;
/** How much faster the store's clock may run: 100 ppm, more than any clock that is adjusted. */
const MAX_DRIFT = 1e-4;

/**
 * The store's clock, as far as this machine knows it. Windows that machines share follow it.
 *
 * now() is never behind the store's clock: a grant must not be spent after its window. The time since the last answer is the
 * longer one of two clocks, because one stops while a machine sleeps and the other may be set.
 *
 * Between two answers it advances no faster than that, because the store may be hostile: a clock that is set ahead must not
 * bring the next window. Only towards this machine's own clock it may, as when a wrong clock of the store is corrected.
 */
export class StoreClock {
  readonly #clock: Clock;
  #known: { readonly time: number; readonly sentAt: Mark } | null = null;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  mark(): Mark {
    return { wall: this.#clock.now(), elapsed: this.#clock.elapsed() };
  }

  /** The store's time in an answer, which was read after the call was sent. Returns the time that counts. */
  learn(time: number, sentAt: Mark): number {
    const counted = Math.min(time, this.#latest());
    this.#known = { time: counted, sentAt };
    return counted;
  }

  /** No later time counts now. */
  #latest(): number {
    const expected = this.now();
    return expected === null ? Infinity : Math.max(expected, this.#clock.now() + SAME_CLOCK_MS);
  }

  /** null: there was no answer yet. */
  now(): number | null {
    if (this.#known === null) return null;
    const { time, sentAt } = this.#known;
    const sinceSent = Math.max(this.#clock.now() - sentAt.wall, this.#clock.elapsed() - sentAt.elapsed);
    return time + sinceSent * (1 + MAX_DRIFT);
  }

  /** Milliseconds to add to this machine's clock to get the store's. 0 if the two agree. */
  offset(): number {
    const exact = this.exactOffset();
    return Math.abs(exact) < SAME_CLOCK_MS ? 0 : Math.round(exact);
  }

  exactOffset(): number {
    return this.#known === null ? 0 : this.#known.time - this.#known.sentAt.wall;
  }

  /** Why a store with this time is not believed; null: it is. */
  problemWith(time: number): string | null {
    if (Math.abs(time - this.#clock.now()) >= MAX_OFFSET_MS)
      return "the store's clock and this machine's differ by more than a day";
    if (time > this.#latest() + SAME_CLOCK_MS)
      return "the store's clock went ahead faster than time passes here: set the clocks of both by the network";
    return null;
  }
}
