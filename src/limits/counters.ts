import type { Period } from "../config/shape.ts";
import { UnderWay } from "../under-way.ts";
import { type Correction, correctCounts } from "./correction.ts";
import {
  type Counts,
  each,
  emptyCounts,
  type Frames,
  framesAt,
  giveLift,
  type Lift,
  rolled,
} from "./frames.ts";
import { type Amounts, Gauges, KINDS, type Nearest, type Terms } from "./gauges.ts";
import { kindOf, needOf } from "./need.ts";
import {
  type Kind,
  type Level,
  longest,
  priceUnknown,
  type Shortage,
  shortageOf,
  tooManyAtOnce,
} from "./shortage.ts";
import { type Calendar, countedSpan, windowOf } from "./windows.ts";

/** What a request may use up, as far as can be said before it is sent; 0 where it uses none. */
export interface Ask {
  readonly tokens: number;
  /** Micro-dollars; null: nobody knows the price. */
  readonly spend: number | null;
}

/** What it really used; null: nobody told. */
export interface Used {
  readonly tokens: number | null;
  readonly spend: number | null;
}

/** What is held for one call until it is settled or cancelled. */
export interface Reservation {
  readonly tokens: number;
  readonly spend: number | null;
  /** When it was let in, which tells the windows it counts in. */
  readonly at: number;
  /** The counts of these windows, and the quota's. */
  readonly counted: readonly Counts[];
  /** The usage log counts it among its requests. */
  logged: boolean;
}

export type Reserved =
  | { readonly ok: true; readonly reservation: Reservation }
  | { readonly ok: false; readonly shortage: Shortage };

/** Of the usage log: tokens and spend of the calls that have ended, requests of all. */
export type Sums = Amounts;

/** Which records are in a sum: those from `from` up to, and without, `to`. */
export interface Span {
  readonly from: number;
  readonly to: number;
}

/**
 * Counts for one tool. Each call here is one synchronous step, so that no two requests can see the same room.
 *
 * Every kind is counted in every period, limited or not: a limit that a reload brings in or changes finds what was
 * used, and there is nothing to carry over.
 */
export class Counters {
  readonly #calendar: Calendar;
  /** What the quota looks at. */
  readonly #ever: Counts = emptyCounts();
  /** The calls under way. A slot is a place among them, so none can be given back twice, or by somebody else. */
  readonly #open = new UnderWay<Reservation>();
  readonly #gauges: Gauges;
  /** Where a call that is let in now is counted: in each frame, and for the quota. */
  #counted: readonly Counts[];

  constructor(terms: Terms, calendar: Calendar, now: number) {
    this.#calendar = calendar;
    this.#gauges = new Gauges(terms, framesAt(now, calendar), this.#ever);
    this.#counted = this.#gauges.counts();
  }

  get running(): number {
    return this.#open.size;
  }

  /** Applies to the next request; those under way finish on what they were given. */
  change(terms: Terms): void {
    this.#gauges.change(terms);
  }

  /** All limits are looked at, then all of them are taken from, or none is. */
  reserve(ask: Ask, now: number): Reserved {
    const need = this.#needOf(ask, now);
    const shortage = this.#shortage(ask, need, now);
    if (shortage !== null) return { ok: false, shortage };
    const held = ask.spend === null ? null : need.spend;
    const reservation: Reservation = {
      tokens: need.tokens,
      spend: held,
      at: now,
      counted: this.#counted,
      logged: false,
    };
    for (const { requests, tokens, spend } of this.#counted) {
      requests.used += need.requests;
      tokens.held += need.tokens;
      spend.held += need.spend;
    }
    this.#open.add(reservation);
    return { ok: true, reservation };
  }

  /** What would refuse this request now; nothing is taken. */
  check(ask: Ask, now: number): Shortage | null {
    return this.#shortage(ask, this.#needOf(ask, now), now);
  }

  /** The call stands in the usage log from now on, which counts it among its requests. */
  logged(reservation: Reservation): void {
    reservation.logged = true;
  }

  /** The call has ended. What nobody told counts as reserved. False: it was settled or cancelled before. */
  settle(reservation: Reservation, used: Used): boolean {
    const tokens = told(used.tokens) ?? reservation.tokens;
    const spend = told(used.spend) ?? reservation.spend ?? 0;
    if (!this.#close(reservation)) return false;
    for (const counts of reservation.counted) {
      counts.tokens.used += tokens;
      counts.spend.used += spend;
    }
    return true;
  }

  /** Nothing of it ever reached the gateway: as if it had not been. False: it was settled or cancelled before. */
  cancel(reservation: Reservation): boolean {
    if (!this.#close(reservation)) return false;
    for (const { requests } of reservation.counted) requests.used = Math.max(0, requests.used - 1);
    return true;
  }

  /** What an ended call used turned out to be more, or less: the difference counts wherever the call does. */
  correct(correction: Correction, now: number): void {
    correctCounts(this.#roll(now), this.#ever, correction);
  }

  /** At a start all lifts there ever were can be given again: those that are over give nothing. */
  lift(lift: Lift, now: number): void {
    giveLift(this.#roll(now), { ...lift, amount: told(lift.amount) ?? 0 }, now);
  }

  /** Which records count, by period; for the sums that restore() takes. */
  spans(now: number): Readonly<Record<Period, Span>> {
    const frames = this.#roll(now);
    return each((per) => countedSpan(frames[per].window));
  }

  /**
   * The clock was set. One that was set back by less than a window's length goes on counting in that window until then;
   * from now on it counts in the one of the moment, of which only the log knows.
   */
  realign(now: number): void {
    for (const frame of Object.values(this.#roll(now))) {
      if (now >= frame.window.start) continue;
      frame.window = windowOf(frame.per, now, this.#calendar);
      frame.moved = true;
    }
  }

  /**
   * Takes in what the usage log says where that is more than was counted: a log that was damaged, or is being saved
   * from one that was, knows less than this process does. Of a window that the clock was set back to, only the log knows.
   * What is held for calls under way stays held, and those that the log does not know of yet stay counted.
   */
  restore(sums: Readonly<Partial<Record<Period, Sums>>>, everSpent: number | null, now: number): void {
    for (const frame of Object.values(this.#roll(now))) {
      const { counts, moved } = frame;
      const sum = sums[frame.per];
      if (sum === undefined) continue;
      const known = { ...sum, requests: sum.requests + this.#unloggedIn(counts) };
      for (const kind of KINDS) {
        const before = moved ? 0 : counts[kind].used;
        counts[kind].used = Math.max(before, told(known[kind]) ?? 0);
      }
      frame.moved = false;
    }
    this.#ever.spend.used = Math.max(this.#ever.spend.used, told(everSpent) ?? 0);
  }

  /** Every limit on requests, tokens and spend with how full it is, the quota last. */
  levels(now: number): Level[] {
    this.#roll(now);
    return this.#gauges.levels(now);
  }

  /** null: there is no limit of the kind. */
  nearest(kind: Kind, now: number): Nearest | null {
    this.#roll(now);
    return this.#gauges.nearest(kind, now);
  }

  /** Whether limits on requests can let in more than `ahead` from now up to, and with, a moment. */
  reaches(ahead: number, time: number, now: number): boolean {
    this.#roll(now);
    return this.#gauges.terms.limits.requests.every((rate) => {
      const { most, used, resetsAt } = this.#gauges.level("requests", rate, now);
      let room = Math.max(0, most - used);
      for (let end = resetsAt ?? time + 1; end <= time && room <= ahead; ) {
        room += most;
        end = windowOf(rate.per, end, this.#calendar).end;
      }
      return room > ahead;
    });
  }

  /** What the request would hold. */
  #needOf(ask: Ask, now: number): Amounts {
    this.#roll(now);
    return {
      requests: 1,
      tokens: needOf(ask.tokens, this.#gauges.tightest("tokens", now)),
      spend: needOf(ask.spend ?? 0, this.#gauges.tightest("spend", now)),
    };
  }

  /** What stands against that. */
  #shortage(ask: Ask, need: Amounts, now: number): Shortage | null {
    const { limits, quota } = this.#gauges.terms;
    if (ask.spend === null && (limits.spend.length > 0 || quota !== null)) return priceUnknown();
    const full = limits.concurrent !== null && this.running >= limits.concurrent;
    // Nearly always there is room, and that is seen without making a list of anything.
    if (!full && this.#gauges.haveRoom(need, now)) return null;
    const found: Shortage[] = [];
    for (const level of this.#gauges.levels(now)) {
      const shortage = shortageOf(level, need[kindOf(level)]);
      if (shortage !== null) found.push(shortage);
    }
    if (full) found.push(tooManyAtOnce(limits.concurrent ?? 0, this.running));
    return longest(found);
  }

  #unloggedIn(counts: Counts): number {
    return this.#open.list().filter(({ logged, counted }) => !logged && counted.includes(counts)).length;
  }

  /** Gives back what was held. False: it was settled or cancelled before. */
  #close(reservation: Reservation): boolean {
    if (!this.#open.delete(reservation)) return false;
    for (const counts of reservation.counted) {
      counts.tokens.held -= reservation.tokens;
      counts.spend.held -= reservation.spend ?? 0;
    }
    return true;
  }

  #roll(now: number): Frames {
    const frames = rolled(this.#gauges.frames, now, this.#calendar);
    if (frames !== this.#gauges.frames) {
      this.#gauges.frames = frames;
      this.#counted = this.#gauges.counts();
    }
    return frames;
  }
}

/** An amount somebody told, in whole units; null for none, and for what is no amount. */
function told(amount: number | null): number | null {
  if (amount === null || !Number.isFinite(amount) || amount < 0) return null;
  return Math.min(Math.ceil(amount), Number.MAX_SAFE_INTEGER);
}
