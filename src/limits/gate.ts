import type { Clock } from "../clock.ts";
import type { Tool } from "../config/shape.ts";
import type { Refusal } from "../refusal.ts";
import type { Correction } from "./correction.ts";
import { type Ask, Counters, type Reservation, type Used } from "./counters.ts";
import { RecentCalls } from "./estimate.ts";
import type { Lift } from "./frames.ts";
import type { Spent, Standing } from "./limiter.ts";
import { type Moment, type Waiter, WaitingQueue } from "./queue.ts";
import { addRateHeaders, TOLD_IN_HEADERS, unknownSpent } from "./refusals.ts";
import type { Shortage } from "./shortage.ts";
import type { Calendar } from "./windows.ts";

/** How asking for room ended. */
export type Admission =
  | { readonly kind: "go"; readonly reservation: Reservation }
  | { readonly kind: "short"; readonly shortage: Shortage }
  /** It waited for something that will not come any more. */
  | { readonly kind: "told"; readonly refusal: Refusal }
  | { readonly kind: "left" };

/** null: the log cannot be read. */
export type ReadSpent = (tool: Tool, spans: ReturnType<Counters["spans"]>) => Spent | null;

/** Nobody looks less often than this while somebody waits: the clock on the wall may be set. */
const LONGEST_SLEEP_MS = 10_000;
/** The clock on the wall and the one that only goes forward differ by this much more or less than before: it was set. */
const SET_MS = 1000;

/** One tool's counters and its queue, and the timer that the queue needs. */
export class Gate {
  readonly recent = new RecentCalls();
  readonly #clock: Clock;
  readonly #read: ReadSpent;
  readonly #counters: Counters;
  readonly #queue: WaitingQueue;
  readonly #waiting = new Map<Waiter, (admission: Admission) => void>();
  #tool: Tool;
  #timer: NodeJS.Timeout | null = null;
  #restored = false;
  /** By how much the clock on the wall was ahead of the other one when it was last looked at. */
  #ahead: number;
  /** The allowances counted by now: read a second time from the log, they are not given a second time. */
  readonly #given = new Set<string>();

  constructor(tool: Tool, calendar: Calendar, clock: Clock, read: ReadSpent) {
    this.#tool = tool;
    this.#clock = clock;
    this.#read = read;
    this.#ahead = clock.now() - clock.elapsed();
    this.#counters = new Counters(tool, calendar, clock.now());
    this.#queue = new WaitingQueue(this.#counters);
  }

  standing(): Standing {
    const levels = this.#counters.levels(this.#clock.now());
    return { levels, running: this.#counters.running, waiting: this.#queue.length };
  }

  /** Adds what is left to an answer's headers. */
  rateHeaders(headers: string[]): void {
    const now = this.#clock.now();
    for (const kind of TOLD_IN_HEADERS) {
      const nearest = this.#counters.nearest(kind, now);
      if (nearest !== null) addRateHeaders(headers, kind, nearest, now);
    }
  }

  /** Whether what was used before this process began is counted, or does not matter. */
  get known(): boolean {
    return this.#restored || !isLimited(this.#tool);
  }

  /** Room that is there now; null: there is none, or others wait for it already. */
  enterNow(ask: Ask): Reservation | null {
    return this.#queue.joinNow(ask, this.#clock.now());
  }

  /** Resolves when there is room, or there will be none in time. `whenLeft` gets what ends the waiting. */
  async enter(ask: Ask, wait: number, whenLeft: (leave: () => void) => void): Promise<Admission> {
    const joined = this.#queue.join(ask, wait, this.#moment());
    if (joined.state === "go") return { kind: "go", reservation: joined.reservation };
    if (joined.state === "refused") return { kind: "short", shortage: joined.shortage };
    const { waiter } = joined;
    return new Promise((resolve) => {
      this.#waiting.set(waiter, resolve);
      whenLeft(() => {
        if (!this.#queue.leave(waiter)) return;
        this.#answer(waiter, { kind: "left" });
        this.#look();
      });
      this.#look();
    });
  }

  /** Whether enter() would wait now. */
  wouldWait(ask: Ask, wait: number): boolean {
    return this.#queue.wouldWait(ask, wait, this.#moment());
  }

  logged(reservation: Reservation): void {
    this.#counters.logged(reservation);
  }

  settle(reservation: Reservation, used: Used): void {
    if (this.#counters.settle(reservation, used)) this.#look();
  }

  /** What the log already says is not counted twice: a gate that has not read it yet finds it there. */
  correct(correction: Correction): void {
    if (!this.#restored) return;
    this.#counters.correct(correction, this.#clock.now());
    this.#look();
  }

  cancel(reservation: Reservation): void {
    if (this.#counters.cancel(reservation)) this.#look();
  }

  lift(lift: Lift): void {
    this.#counters.lift(lift, this.#clock.now());
    this.#given.add(identityOf(lift));
    this.#look();
  }

  /** Nobody who waits is let in before what a new limit has to count is known. */
  change(tool: Tool): void {
    this.#tool = tool;
    this.#counters.change(tool);
    if (!this.restore()) this.#look();
  }

  /** Whoever waits is told no. */
  turnAway(refusal: Refusal): void {
    for (const waiter of this.#queue.empty()) this.#answer(waiter, { kind: "told", refusal });
    this.#look();
  }

  /**
   * Takes in what the log says was used: before this process began, as soon as a limit asks for it and the log can tell,
   * and again whenever the clock was set. True when that was now.
   */
  restore(): boolean {
    if (!this.#takeIn()) return false;
    this.#look();
    return true;
  }

  /** The log knows more of the past than it did. */
  restoreAgain(): void {
    this.#restored = false;
    this.restore();
  }

  #takeIn(): boolean {
    const now = this.#clock.now();
    if (this.#clockWasSet()) {
      this.#counters.realign(now);
      this.#restored = false;
    }
    if (this.known) return false;
    const spent = this.#read(this.#tool, this.#counters.spans(now));
    if (spent === null) return false;
    this.#counters.restore(spent.sums, spent.ever, now);
    const lifts = spent.lifts.filter((lift) => !this.#given.has(identityOf(lift)));
    for (const lift of lifts) this.#counters.lift(lift, now);
    for (const lift of lifts) this.#given.add(identityOf(lift));
    this.#restored = true;
    return true;
  }

  #clockWasSet(): boolean {
    const ahead = this.#clock.now() - this.#clock.elapsed();
    const wasSet = Math.abs(ahead - this.#ahead) > SET_MS;
    this.#ahead = ahead;
    return wasSet;
  }

  #look(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    if (this.#queue.length === 0) return;
    this.#takeIn();
    if (!this.known) {
      for (const waiter of this.#queue.empty())
        this.#answer(waiter, { kind: "told", refusal: unknownSpent(this.#tool.name) });
      return;
    }
    const { go, refused, againIn } = this.#queue.look(this.#moment());
    for (const { waiter, reservation } of go) this.#answer(waiter, { kind: "go", reservation });
    for (const { waiter, shortage } of refused) this.#answer(waiter, { kind: "short", shortage });
    if (againIn === null) return;
    this.#timer = setTimeout(() => this.#look(), Math.min(againIn, LONGEST_SLEEP_MS));
  }

  #answer(waiter: Waiter, admission: Admission): void {
    this.#waiting.get(waiter)?.(admission);
    this.#waiting.delete(waiter);
  }

  #moment(): Moment {
    return { now: this.#clock.now(), elapsed: this.#clock.elapsed() };
  }
}

function identityOf({ kind, amount, givenAt, until }: Lift): string {
  return JSON.stringify([kind, amount, givenAt, until]);
}

function isLimited({ limits, quota }: Tool): boolean {
  const { requests, tokens, spend } = limits;
  return requests.length + tokens.length + spend.length > 0 || quota !== null;
}
