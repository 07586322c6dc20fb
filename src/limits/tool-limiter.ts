import type { Clock } from "../core/clock.ts";
import type { Refusal } from "../core/refusal.ts";
import { type Ask, Counters, type Reservation } from "./counters.ts";
import { RecentCalls } from "./estimate.ts";
import { type Moment, type Waiter, WaitingQueue } from "./queue.ts";
import type { Level, Shortage } from "./shortage.ts";
import type { Calendar } from "./windows.ts";

/** How asking for capacity ended. */
export type Admission =
  | { readonly kind: "admitted"; readonly reservation: Reservation }
  | { readonly kind: "short"; readonly shortage: Shortage }
  /** It waited, but the tool or the daemon is no longer there. */
  | { readonly kind: "turned-away"; readonly refusal: Refusal }
  | { readonly kind: "left" };

/** How full a tool's limits are. */
export interface ToolLevels {
  readonly levels: readonly Level[];
  readonly inFlight: number;
  readonly waiting: number;
}

/** While somebody waits, the queue is checked at least this often: the wall clock may be set. */
const MAX_SLEEP_MS = 10_000;

/** The limits of one tool: its counters, its queue, and the timer of the queue. */
export class ToolLimiter {
  readonly counters: Counters;
  readonly recent = new RecentCalls();
  readonly #clock: Clock;
  readonly #queue: WaitingQueue;
  readonly #waiting = new Map<Waiter, (admission: Admission) => void>();
  #timer: NodeJS.Timeout | null = null;

  constructor(clock: Clock, calendar: Calendar) {
    this.#clock = clock;
    this.counters = new Counters(calendar);
    this.#queue = new WaitingQueue(this.counters);
  }

  levels(): ToolLevels {
    const levels = this.counters.levels(this.#clock.now());
    return { levels, inFlight: this.counters.inFlight, waiting: this.#queue.length };
  }

  /** null: there is no capacity now, or others wait for it. */
  enterNow(ask: Ask): Reservation | null {
    return this.#queue.joinNow(ask, this.#clock.now());
  }

  /** Resolves when there is capacity, or will be none in time. `onWait` gets a function that ends the waiting. */
  async enter(ask: Ask, wait: number, onWait: (leave: () => void) => void): Promise<Admission> {
    const joined = this.#queue.join(ask, wait, this.#moment());
    if (joined.state === "admitted") return { kind: "admitted", reservation: joined.reservation };
    if (joined.state === "refused") return { kind: "short", shortage: joined.shortage };
    const { waiter } = joined;
    return new Promise((resolve) => {
      this.#waiting.set(waiter, resolve);
      onWait(() => {
        if (!this.#queue.leave(waiter)) return;
        this.#answer(waiter, { kind: "left" });
        this.checkQueue();
      });
      this.checkQueue();
    });
  }

  /** Refuses everybody who waits. */
  turnAway(refusal: Refusal): void {
    for (const waiter of this.#queue.clear()) this.#answer(waiter, { kind: "turned-away", refusal });
    this.checkQueue();
  }

  /** To be called whenever a request ended or the limits changed. */
  checkQueue(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    if (this.#queue.length === 0) return;
    const { admitted, refused, againIn } = this.#queue.check(this.#moment());
    for (const { waiter, reservation } of admitted) this.#answer(waiter, { kind: "admitted", reservation });
    for (const { waiter, shortage } of refused) this.#answer(waiter, { kind: "short", shortage });
    if (againIn === null) return;
    this.#timer = setTimeout(() => this.checkQueue(), Math.min(againIn, MAX_SLEEP_MS));
  }

  #answer(waiter: Waiter, admission: Admission): void {
    this.#waiting.get(waiter)?.(admission);
    this.#waiting.delete(waiter);
  }

  #moment(): Moment {
    return { now: this.#clock.now(), elapsed: this.#clock.elapsed() };
  }
}
