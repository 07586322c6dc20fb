import type { Ask, Counters, Reservation } from "./counters.ts";
import type { Shortage } from "./shortage.ts";

/** Both clocks: windows go by the one on the wall, waiting by the one that nobody can set. */
export interface Moment {
  /** Milliseconds UTC. */
  readonly now: number;
  /** Milliseconds on a clock that only goes forward. */
  readonly elapsed: number;
}

/** A request that waits for room. Known by its identity. */
export interface Waiter {
  readonly ask: Ask;
  /** On the clock that only goes forward. */
  readonly deadline: number;
}

export type Joined =
  | { readonly state: "go"; readonly reservation: Reservation }
  | { readonly state: "refused"; readonly shortage: Shortage }
  | { readonly state: "waits"; readonly waiter: Waiter };

/** What is to be done now. */
export interface Look {
  readonly go: readonly { readonly waiter: Waiter; readonly reservation: Reservation }[];
  readonly refused: readonly { readonly waiter: Waiter; readonly shortage: Shortage }[];
  /** Milliseconds after which to look again, should nothing happen before; null: nobody waits. */
  readonly againIn: number | null;
}

/** Each that waits holds a connection and a body. */
export const LONGEST_QUEUE = 128;

interface Line {
  /** Never empty. */
  readonly waiters: readonly Waiter[];
  /** What the first of them lacked when that was last looked at. */
  readonly lack: Shortage;
}

/**
 * Those of one tool that wait for room, first come, first served: whoever does not fit yet holds up those behind, or a
 * large request would be overtaken by small ones for ever. Decides only; whoever owns it sets the timer, and looks after
 * every call that ended, every waiter that left, every reload and every lift.
 */
export class WaitingQueue {
  readonly #counters: Counters;
  readonly #longest: number;
  #line: Line | null = null;

  constructor(counters: Counters, longest = LONGEST_QUEUE) {
    this.#counters = counters;
    this.#longest = longest;
  }

  get length(): number {
    return this.#line?.waiters.length ?? 0;
  }

  /** Goes at once, waits, or is refused at once: where waiting is off, the queue full, or the wait in vain. */
  join(ask: Ask, wait: number, moment: Moment): Joined {
    const line = this.#line;
    if (line !== null) {
      // It may have room of its own, but not before those in front: what they lack is what it lacks.
      return this.#enqueue(ask, wait, moment, this.#counters.check(ask, moment.now) ?? line.lack);
    }
    const reserved = this.#counters.reserve(ask, moment.now);
    if (reserved.ok) return { state: "go", reservation: reserved.reservation };
    return this.#enqueue(ask, wait, moment, reserved.shortage);
  }

  /** As join() for one that goes at once; null: there is no room, or others wait for it. */
  joinNow(ask: Ask, now: number): Reservation | null {
    if (this.#line !== null) return null;
    const reserved = this.#counters.reserve(ask, now);
    return reserved.ok ? reserved.reservation : null;
  }

  /** Whether join() would let it wait now; it takes no place. */
  wouldWait(ask: Ask, wait: number, moment: Moment): boolean {
    const shortage = this.#counters.check(ask, moment.now) ?? this.#line?.lack ?? null;
    return shortage !== null && this.#mayWait(waiterOf(ask, wait, moment), shortage, moment);
  }

  /** False: it was not waiting any more. */
  leave(waiter: Waiter): boolean {
    if (this.#line === null || !this.#line.waiters.includes(waiter)) return false;
    const { waiters, lack } = this.#line;
    this.#line = lineOf(
      waiters.filter((other) => other !== waiter),
      lack,
    );
    return true;
  }

  /** Everybody leaves: the tool is gone or disabled, or the daemon stops. */
  empty(): readonly Waiter[] {
    const all = this.#line?.waiters ?? [];
    this.#line = null;
    return all;
  }

  look(moment: Moment): Look {
    const go: Look["go"][number][] = [];
    const refused: Look["refused"][number][] = [];
    const stay: Waiter[] = [];
    let lack: Shortage | null = null;
    for (const waiter of this.#line?.waiters ?? []) {
      if (lack === null) {
        const reserved = this.#counters.reserve(waiter.ask, moment.now);
        if (reserved.ok) go.push({ waiter, reservation: reserved.reservation });
        else if (!this.#canSucceed(waiter, reserved.shortage, 0, moment))
          refused.push({ waiter, shortage: reserved.shortage });
        else {
          lack = reserved.shortage;
          stay.push(waiter);
        }
      } else if (moment.elapsed >= waiter.deadline) refused.push({ waiter, shortage: lack });
      else stay.push(waiter);
    }
    this.#line = lineOf(stay, lack);
    return { go, refused, againIn: this.#line === null ? null : againIn(this.#line, moment) };
  }

  #enqueue(ask: Ask, wait: number, moment: Moment, shortage: Shortage): Joined {
    const waiter = waiterOf(ask, wait, moment);
    if (!this.#mayWait(waiter, shortage, moment)) return { state: "refused", shortage };
    const { waiters, lack } = this.#line ?? { waiters: [], lack: shortage };
    this.#line = { waiters: [...waiters, waiter], lack };
    return { state: "waits", waiter };
  }

  #mayWait(waiter: Waiter, shortage: Shortage, moment: Moment): boolean {
    return this.length < this.#longest && this.#canSucceed(waiter, shortage, this.length, moment);
  }

  /** As far as can be known, and if those in front are let in rather than give up. */
  #canSucceed(waiter: Waiter, shortage: Shortage, ahead: number, { now, elapsed }: Moment): boolean {
    const left = waiter.deadline - elapsed;
    if (left <= 0) return false;
    const { roomAt, mayEndSooner } = shortage;
    if (!mayEndSooner && (roomAt === null || roomAt - now > left)) return false;
    return this.#counters.reaches(ahead, now + left, now);
  }
}

function waiterOf(ask: Ask, wait: number, { elapsed }: Moment): Waiter {
  return { ask, deadline: elapsed + wait };
}

function lineOf(waiters: readonly Waiter[], lack: Shortage | null): Line | null {
  return waiters.length === 0 || lack === null ? null : { waiters, lack };
}

/** When the first of them gets room by time alone, or somebody's time is up. */
function againIn({ waiters, lack }: Line, { now, elapsed }: Moment): number {
  const deadlines = waiters.map(({ deadline }) => deadline - elapsed);
  const room = lack.roomAt === null ? Number.POSITIVE_INFINITY : lack.roomAt - now;
  // Rounded up: a look that comes a little early is in vain.
  return Math.ceil(Math.min(room, ...deadlines));
}
