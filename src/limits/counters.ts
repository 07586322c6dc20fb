import type { Limits, Period, Rate } from "../config/shape.ts";
import { type Correction, correctCounts, shown } from "./correction.ts";
import {
  type Counts,
  each,
  emptyCounts,
  extraIn,
  type Frames,
  framesAt,
  giveLift,
  type Lift,
  rolled,
} from "./frames.ts";
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
import { type Calendar, countedSpan, PERIODS, windowOf } from "./windows.ts";

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
}

export type Reserved =
  | { readonly ok: true; readonly reservation: Reservation }
  | { readonly ok: false; readonly shortage: Shortage };

/** What a tool may do, as in the file. */
export interface Terms {
  readonly limits: Limits;
  readonly quota: number | null;
}

/** Sums of the usage log: tokens and spend of the calls that have ended, requests of all. */
export type Sums = Readonly<Record<Kind, number>>;

/** Which records are in a sum: those from `from` up to, and without, `to`. */
export interface Span {
  readonly from: number;
  readonly to: number;
}

const KINDS: readonly Kind[] = ["requests", "tokens", "spend"];

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
  /** The calls under way. A slot is a place in this map, so none can be given back twice, or by somebody else. */
  readonly #open = new Map<Reservation, readonly Counts[]>();
  /** Those of them that the usage log does not know of yet. */
  readonly #unlogged = new Set<Reservation>();
  #frames: Frames;
  #terms: Terms;

  constructor(terms: Terms, calendar: Calendar, now: number) {
    this.#terms = terms;
    this.#calendar = calendar;
    this.#frames = framesAt(now, calendar);
  }

  get running(): number {
    return this.#open.size;
  }

  /** Applies to the next request; those under way finish on what they were given. */
  change(terms: Terms): void {
    this.#terms = terms;
  }

  /** All limits are looked at, then all of them are taken from, or none is. */
  reserve(ask: Ask, now: number): Reserved {
    const { shortage, need } = this.#weigh(ask, now);
    if (shortage !== null) return { ok: false, shortage };
    const spend = ask.spend === null ? null : need.spend;
    const reservation = Object.freeze({ tokens: need.tokens, spend, at: now });
    const counts = PERIODS.map((per) => this.#frames[per].counts);
    counts.push(this.#ever);
    for (const { requests, tokens, spend } of counts) {
      requests.used += need.requests;
      tokens.held += need.tokens;
      spend.held += need.spend;
    }
    this.#open.set(reservation, counts);
    this.#unlogged.add(reservation);
    return { ok: true, reservation };
  }

  /** What would refuse this request now; nothing is taken. */
  check(ask: Ask, now: number): Shortage | null {
    return this.#weigh(ask, now).shortage;
  }

  /** The call stands in the usage log from now on, which counts it among its requests. */
  logged(reservation: Reservation): void {
    this.#unlogged.delete(reservation);
  }

  /** The call has ended. What nobody told counts as reserved. False: it was settled or cancelled before. */
  settle(reservation: Reservation, used: Used): boolean {
    const tokens = told(used.tokens) ?? reservation.tokens;
    const spend = told(used.spend) ?? reservation.spend ?? 0;
    return this.#close(reservation, (counts) => {
      counts.tokens.used += tokens;
      counts.spend.used += spend;
    });
  }

  /** Nothing of it ever reached the gateway: as if it had not been. False: it was settled or cancelled before. */
  cancel(reservation: Reservation): boolean {
    return this.#close(reservation, ({ requests }) => {
      requests.used = Math.max(0, requests.used - 1);
    });
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
   * Takes in what the usage log says where that is more than was counted: a log that was damaged, or is being saved
   * from one that was, knows less than this process does. What is held for calls under way stays held, and those that
   * the log does not know of yet stay counted.
   */
  restore(sums: Readonly<Partial<Record<Period, Sums>>>, everSpent: number | null, now: number): void {
    for (const { per, counts } of Object.values(this.#roll(now))) {
      const sum = sums[per];
      if (sum === undefined) continue;
      const known = { ...sum, requests: sum.requests + this.#unloggedIn(counts) };
      for (const kind of KINDS) counts[kind].used = Math.max(counts[kind].used, told(known[kind]) ?? 0);
    }
    this.#ever.spend.used = Math.max(this.#ever.spend.used, told(everSpent) ?? 0);
  }

  /** Every limit on requests, tokens and spend with how full it is, the quota last. */
  levels(now: number): Level[] {
    this.#roll(now);
    const { limits, quota } = this.#terms;
    const levels: Level[] = [];
    for (const kind of KINDS) for (const rate of limits[kind]) levels.push(this.#level(kind, rate, now));
    if (quota !== null) {
      const { used, held } = shown(this.#ever.spend);
      levels.push({ limit: { kind: "quota" }, used, held, most: quota, extra: 0, resetsAt: null });
    }
    return levels;
  }

  /** Whether limits on requests can let in more than `ahead` from now up to, and with, a moment. */
  reaches(ahead: number, time: number, now: number): boolean {
    this.#roll(now);
    return this.#terms.limits.requests.every((rate) => {
      const { most, used, resetsAt } = this.#level("requests", rate, now);
      let room = Math.max(0, most - used);
      for (let end = resetsAt ?? time + 1; end <= time && room <= ahead; ) {
        room += most;
        end = windowOf(rate.per, end, this.#calendar).end;
      }
      return room > ahead;
    });
  }

  /** What the request would hold, and what stands against that. */
  #weigh(ask: Ask, now: number): { readonly shortage: Shortage | null; readonly need: Sums } {
    const { limits, quota } = this.#terms;
    const levels = this.levels(now);
    const need = needOf(ask, levels);
    if (ask.spend === null && (limits.spend.length > 0 || quota !== null))
      return { shortage: priceUnknown(), need };
    const found: Shortage[] = [];
    for (const level of levels) {
      const shortage = shortageOf(level, need[kindOf(level)]);
      if (shortage !== null) found.push(shortage);
    }
    if (limits.concurrent !== null && this.running >= limits.concurrent)
      found.push(tooManyAtOnce(limits.concurrent, this.running));
    return { shortage: longest(found), need };
  }

  #unloggedIn(counts: Counts): number {
    return [...this.#unlogged].filter((one) => this.#open.get(one)?.includes(counts)).length;
  }

  #level(kind: Kind, { most, per }: Rate, now: number): Level {
    const frame = this.#frames[per];
    const extra = extraIn(frame, kind, now);
    const { used, held } = shown(frame.counts[kind]);
    return { limit: { kind, per }, used, held, most: most + extra, extra, resetsAt: frame.window.end };
  }

  #close(reservation: Reservation, book: (counts: Counts) => void): boolean {
    const taken = this.#open.get(reservation);
    if (taken === undefined) return false;
    this.#open.delete(reservation);
    this.#unlogged.delete(reservation);
    for (const counts of taken) {
      counts.tokens.held -= reservation.tokens;
      counts.spend.held -= reservation.spend ?? 0;
      book(counts);
    }
    return true;
  }

  #roll(now: number): Frames {
    this.#frames = rolled(this.#frames, now, this.#calendar);
    return this.#frames;
  }
}

/** An amount somebody told, in whole units; null for none, and for what is no amount. */
function told(amount: number | null): number | null {
  if (amount === null || !Number.isFinite(amount) || amount < 0) return null;
  return Math.min(Math.ceil(amount), Number.MAX_SAFE_INTEGER);
}
