import type { Ask, Counters, Reservation, Shortage } from "./counters.ts";

/** All clocks: windows follow a wall clock, waiting follows the clock that cannot be set. */
export interface Moment {
  /** Milliseconds UTC, by the clock that decides the windows. */
  readonly now: number;
  /** The same by the daemon's own clock. */
  readonly ownNow: number;
  /** Milliseconds on a clock that only goes forward. */
  readonly elapsed: number;
}

/** A request that waits. */
export interface Waiter {
  readonly ask: Ask;
  /** On the clock that only goes forward. */
  readonly deadline: number;
}

export type Joined =
  | { readonly state: "admitted"; readonly reservation: Reservation }
  | { readonly state: "refused"; readonly shortage: Shortage }
  | { readonly state: "waits"; readonly waiter: Waiter };

/** Which waiters are admitted or refused now. */
interface Decisions {
  readonly admitted: readonly { readonly waiter: Waiter; readonly reservation: Reservation }[];
  readonly refused: readonly { readonly waiter: Waiter; readonly shortage: Shortage }[];
  /** Milliseconds after which to check again if nothing happens before; null: the queue is empty. */
  readonly againIn: number | null;
}

/** The requests that wait, in order. */
interface Waiting {
  /** Never empty. */
  readonly waiters: readonly Waiter[];
  /** What the first of them lacked at the last check. */
  readonly shortage: Shortage;
}

/** Each request that waits holds a connection and a body. */
const MAX_WAITING = 128;

/**
 * The requests of one tool that wait for capacity: first come, first served. A request that does not fit yet holds up those
 * behind it; otherwise small requests would overtake a large one forever.
 *
 * The queue only decides. Its owner sets the timer, and calls check() when a request ended, a waiter left, or the limits
 * changed.
 */
export class WaitingQueue {
  readonly #counters: Counters;
  readonly #max: number;
  /** null: the queue is empty. */
  #waiting: Waiting | null = null;

  constructor(counters: Counters, max = MAX_WAITING) {
    this.#counters = counters;
    this.#max = max;
  }

  get length(): number {
    return this.#waiting?.waiters.length ?? 0;
  }

  /** What the requests that wait ask for, in their order. */
  asks(): Ask[] {
    return (this.#waiting?.waiters ?? []).map(({ ask }) => ask);
  }

  /** Admits at once, waits, or refuses at once: if `wait` is 0, the queue is full, or waiting is of no use. */
  join(ask: Ask, wait: number, moment: Moment): Joined {
    if (this.#waiting === null) {
      const reserved = this.#counters.reserve(ask, moment.now, moment.ownNow);
      if (reserved.ok) return { state: "admitted", reservation: reserved.reservation };
      return this.#enqueue(ask, wait, moment, reserved.shortage);
    }
    // A request that fits, but not before those in front, lacks what they lack.
    const shortage = this.#counters.check(ask, moment.now, moment.ownNow) ?? this.#waiting.shortage;
    return this.#enqueue(ask, wait, moment, shortage);
  }

  /** null: there is no capacity now, or others wait for it. */
  joinNow(ask: Ask, now: number, ownNow: number): Reservation | null {
    if (this.#waiting !== null) return null;
    const reserved = this.#counters.reserve(ask, now, ownNow);
    return reserved.ok ? reserved.reservation : null;
  }

  /** false: it was no longer waiting. */
  leave(waiter: Waiter): boolean {
    if (this.#waiting === null || !this.#waiting.waiters.includes(waiter)) return false;
    const { waiters, shortage } = this.#waiting;
    const others = waiters.filter((other) => other !== waiter);
    this.#waiting = others.length === 0 ? null : { waiters: others, shortage };
    return true;
  }

  /** Removes all: the tool is gone or disabled, or the daemon stops. */
  clear(): readonly Waiter[] {
    const all = this.#waiting?.waiters ?? [];
    this.#waiting = null;
    return all;
  }

  check(moment: Moment): Decisions {
    const admitted: Decisions["admitted"][number][] = [];
    const refused: Decisions["refused"][number][] = [];
    const waiting: Waiter[] = [];
    let shortage: Shortage | null = null;
    for (const waiter of this.#waiting?.waiters ?? []) {
      if (shortage !== null) {
        // A request in front does not fit yet.
        if (moment.elapsed >= waiter.deadline) refused.push({ waiter, shortage });
        else waiting.push(waiter);
        continue;
      }
      const reserved = this.#counters.reserve(waiter.ask, moment.now, moment.ownNow);
      if (reserved.ok) {
        admitted.push({ waiter, reservation: reserved.reservation });
      } else if (this.#canSucceed(waiter, reserved.shortage, 0, moment)) {
        shortage = reserved.shortage;
        waiting.push(waiter);
      } else {
        refused.push({ waiter, shortage: reserved.shortage });
      }
    }
    this.#waiting = shortage === null ? null : { waiters: waiting, shortage };
    return { admitted, refused, againIn: this.#waiting === null ? null : againIn(this.#waiting, moment) };
  }

  #enqueue(ask: Ask, wait: number, moment: Moment, shortage: Shortage): Joined {
    const waiter = { ask, deadline: moment.elapsed + wait };
    const mayWait = this.length < this.#max && this.#canSucceed(waiter, shortage, this.length, moment);
    if (!mayWait) return { state: "refused", shortage };
    const waiters = [...(this.#waiting?.waiters ?? []), waiter];
    this.#waiting = { waiters, shortage: this.#waiting?.shortage ?? shortage };
    return { state: "waits", waiter };
  }

  /** As far as is known, and if those in front are admitted rather than give up. */
  #canSucceed(waiter: Waiter, shortage: Shortage, ahead: number, { now, elapsed }: Moment): boolean {
    const left = waiter.deadline - elapsed;
    if (left <= 0) return false;
    const { capacityAt, mayEndSooner } = shortage;
    if (!mayEndSooner && (capacityAt === null || capacityAt - now > left)) return false;
    return this.#counters.canAdmit(ahead, now + left, now);
  }
}

/** When the first waiter gets capacity by time alone, or a deadline passes. */
function againIn({ waiters, shortage }: Waiting, { now, elapsed }: Moment): number {
  const deadlines = waiters.map(({ deadline }) => deadline - elapsed);
  const untilCapacity = shortage.capacityAt === null ? Number.POSITIVE_INFINITY : shortage.capacityAt - now;
  // Rounded up: a check that comes a little early finds nothing.
  return Math.ceil(Math.min(untilCapacity, ...deadlines));
}
