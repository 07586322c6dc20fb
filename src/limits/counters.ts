import type { Limits, Period, Rate } from "../config/shape.ts";
import {
  type Amounts,
  type Kind,
  type Level,
  longest,
  priceUnknown,
  remaining,
  type Shortage,
  shortageOf,
  tooManyAtOnce,
} from "./shortage.ts";
import { type Calendar, contains, PERIODS, type Window, windowOf } from "./windows.ts";

/** What a tool may use, as in config.yaml. */
export interface Terms {
  readonly limits: Limits;
  readonly quota: number | null;
}

/** What a request may use, as far as is known before it is sent; 0 where it uses none. */
export interface Ask {
  readonly tokens: number;
  /** Micro-dollars; null: the price is unknown. */
  readonly spend: number | null;
}

/** What a request really used; null: not reported. */
export interface Used {
  readonly tokens: number | null;
  readonly spend: number | null;
}

/** How much more a finished request used than was counted; negative if it was less. */
export interface Correction {
  /** When the request was admitted. */
  readonly at: number;
  readonly tokens: number;
  readonly spend: number;
}

/** What is held for one request in flight, until it is settled or canceled. */
export interface Reservation {
  readonly tokens: number;
  readonly spend: number | null;
  /** When the request was admitted. It counts in the windows that contain this moment. */
  readonly at: number;
  /** The id of its record in the usage journal; null: it has none yet. */
  id: string | null;
}

export type Reserved =
  | { readonly ok: true; readonly reservation: Reservation }
  | { readonly ok: false; readonly shortage: Shortage };

/** One extra allowance that the owner gave. A quota has none: it is changed in config.yaml. */
export interface Allowance {
  readonly limit: Kind;
  readonly amount: number;
  readonly given_at: number;
  /** It counts in every window up to this moment; null: in the windows that contain given_at. */
  readonly until: number | null;
}

/** A window with what was used in it by the requests that have a record. */
export interface CountedWindow extends Window {
  readonly per: Period;
  requests: number;
  tokens: number;
  spend: number;
}

/** A request in flight that has a record. The windows include its request, but not its tokens and spend. */
export interface CarriedRequest {
  readonly id: string;
  readonly admitted_at: number;
  readonly tokens: number;
  readonly spend: number;
}

/** Everything that is known of one tool, as the usage journal carries it from one file to the next. */
export interface Carry {
  /** Micro-dollars, ever. */
  readonly total: number;
  /** Of each period the window that was counted in last comes last. */
  readonly windows: readonly Readonly<CountedWindow>[];
  readonly allowances: readonly Allowance[];
  readonly open: readonly CarriedRequest[];
}

/** How many windows of each period are kept. A clock that jumped ahead and back finds the window it left. */
const KEPT_WINDOWS = 3;
/** A million dollars, or as many tokens: more than any request uses, and small enough for sums to stay exact. */
const MAX_AMOUNT = 1e12;

const KINDS: readonly Kind[] = ["requests", "tokens", "spend"];
const UNLIMITED: Terms = {
  limits: { requests: [], tokens: [], spend: [], concurrent: null, wait: 0 },
  quota: null,
};

/**
 * Counts for one tool. Every method is one synchronous step, so no two requests can take the same capacity.
 *
 * Every kind is counted in every period, limited or not, so that a limit added by a reload finds what was used.
 *
 * A request counts in the calendar windows that contain the moment of its admission. What is held is summed over the
 * requests in flight whenever it is needed. The windows themselves change only together with a line of the usage journal
 * (record opened or closed, correction, allowance), so reading those lines again leads to the same state.
 */
export class Counters {
  readonly #calendar: Calendar;
  #terms = UNLIMITED;
  /** The windows counted in most recently, the last one at the end. */
  readonly #windows: Record<Period, CountedWindow[]> = {
    second: [],
    minute: [],
    hour: [],
    day: [],
    month: [],
  };
  /** What the quota counts: micro-dollars, ever. */
  #total = 0;
  #allowances: readonly Allowance[] = [];
  readonly #inFlight = new Set<Reservation>();
  /** The window in which it was first seen that the clock was set back; see #countingAt(). */
  readonly #setBackTo: Partial<Record<Period, Window>> = {};

  constructor(calendar: Calendar) {
    this.#calendar = calendar;
  }

  get inFlight(): number {
    return this.#inFlight.size;
  }

  /** Applies to the next request. Requests in flight keep what they hold. */
  change(terms: Terms): void {
    this.#terms = terms;
  }

  /** Checks all limits, then takes from all of them or from none. */
  reserve(ask: Ask, now: number): Reserved {
    const need = this.#needOf(ask, now);
    const shortage = this.#shortageFor(ask, need, now);
    if (shortage !== null) return { ok: false, shortage };
    const spend = ask.spend === null ? null : need.spend;
    return { ok: true, reservation: this.admit(need.tokens, spend, now) };
  }

  /** What would refuse this request now; nothing is taken. */
  check(ask: Ask, now: number): Shortage | null {
    return this.#shortageFor(ask, this.#needOf(ask, now), now);
  }

  /** Takes without checking the limits. */
  admit(tokens: number, spend: number | null, at: number): Reservation {
    const reservation: Reservation = { tokens, spend, at, id: null };
    this.#inFlight.add(reservation);
    return reservation;
  }

  /** The request has a record in the usage journal from now on. */
  recorded(reservation: Reservation, id: string): void {
    if (reservation.id !== null || !this.#inFlight.has(reservation)) return;
    reservation.id = id;
    this.#countRequest(reservation.at);
  }

  /** The request has ended. What was not reported counts as held. False: it was settled or canceled before. */
  settle(reservation: Reservation, used: Used): boolean {
    if (!this.#inFlight.delete(reservation)) return false;
    if (reservation.id === null) this.#countRequest(reservation.at);
    const tokens = wholeAmount(used.tokens) ?? reservation.tokens;
    const spend = wholeAmount(used.spend) ?? reservation.spend ?? 0;
    this.#add(reservation.at, tokens, spend);
    return true;
  }

  /** Nothing of the request reached the gateway, so nothing counts. False: it was settled or canceled before. */
  cancel(reservation: Reservation): boolean {
    if (!this.#inFlight.delete(reservation)) return false;
    if (reservation.id === null) return true;
    for (const window of this.#windowsWith(reservation.at))
      window.requests = Math.max(0, window.requests - 1);
    return true;
  }

  /** The difference counts wherever the request does. */
  correct({ at, tokens, spend }: Correction): void {
    this.#add(at, tokens, spend);
  }

  /** The same allowance given twice counts once. */
  allow({ limit, amount, given_at, until }: Allowance): void {
    const isSame = (other: Allowance) =>
      other.limit === limit &&
      other.amount === amount &&
      other.given_at === given_at &&
      other.until === until;
    if (wholeAmount(amount) === null || this.#allowances.some(isSame)) return;
    this.#allowances = [...this.#allowances, { limit, amount, given_at, until }];
  }

  carry(): Carry {
    const open: CarriedRequest[] = [];
    for (const { id, at, tokens, spend } of this.#inFlight)
      if (id !== null) open.push({ id, admitted_at: at, tokens, spend: spend ?? 0 });
    const windows = PERIODS.flatMap((per) => this.#windows[per].map((window) => ({ ...window })));
    return { total: this.#total, windows, allowances: this.#allowances, open };
  }

  /** Replaces everything that is known. */
  restore({ total, windows, allowances, open }: Carry): void {
    this.#total = total;
    this.#allowances = [...allowances];
    for (const per of PERIODS)
      this.#windows[per] = windows.filter((window) => window.per === per).map((window) => ({ ...window }));
    this.#inFlight.clear();
    for (const { id, admitted_at, tokens, spend } of open)
      this.#inFlight.add({ id, at: admitted_at, tokens, spend });
  }

  /** The request in flight with this record. */
  find(id: string): Reservation | null {
    for (const reservation of this.#inFlight) if (reservation.id === id) return reservation;
    return null;
  }

  /** Every limit on requests, tokens and spend, the quota last. */
  levels(now: number): Level[] {
    const { limits, quota } = this.#terms;
    const levels = KINDS.flatMap((kind) => limits[kind].map((rate) => this.#level(kind, rate, now)));
    if (quota !== null) {
      let held = 0;
      for (const { spend } of this.#inFlight) held += spend ?? 0;
      levels.push({
        limit: { kind: "quota" },
        used: this.#total,
        held,
        max: quota,
        extra: 0,
        resetsAt: null,
      });
    }
    return levels;
  }

  /** The limit of a kind that is nearest to being reached; null: the kind has no limit. */
  nearest(kind: Kind, now: number): Level | null {
    const levels = this.#terms.limits[kind].map((rate) => this.#level(kind, rate, now));
    const [first, ...others] = levels;
    if (first === undefined) return null;
    return others.reduce((least, next) => (remaining(next) < remaining(least) ? next : least), first);
  }

  /** Whether the limits on requests admit more than `ahead` requests between now and `time`. */
  canAdmit(ahead: number, time: number, now: number): boolean {
    return this.#terms.limits.requests.every((rate) => {
      const level = this.#level("requests", rate, now);
      let room = remaining(level);
      let end = level.resetsAt ?? time + 1;
      while (end <= time && room <= ahead) {
        room += level.max;
        end = windowOf(rate.per, end, this.#calendar).end;
      }
      return room > ahead;
    });
  }

  #level(kind: Kind, { most, per }: Rate, now: number): Level {
    const windows = this.#countingAt(per, now);
    let used = 0;
    let held = 0;
    for (const window of windows) {
      used += window[kind];
      for (const reservation of this.#inFlight) {
        if (!contains(window, reservation.at)) continue;
        if (kind !== "requests") held += reservation[kind] ?? 0;
        // The window includes the requests that have a record.
        else if (reservation.id === null) used += 1;
      }
    }
    const extra = this.#extra(kind, per, now);
    const resetsAt = windows[0].end;
    return { limit: { kind, per }, used, held, max: most + extra, extra, resetsAt };
  }

  /**
   * The windows whose counts apply at a moment. Normally that is the one that contains it.
   *
   * A clock that is set back must not bring a fresh window. So in a window that has no counts yet and lies before the one
   * counted in last, the counts of that one apply as well. If the clock had been far ahead, that would keep a limit shut
   * until the clock gets there again. So they apply only in the first window in which this is seen.
   */
  #countingAt(per: Period, now: number): [CountedWindow, ...CountedWindow[]] {
    const last = this.#windows[per].at(-1);
    const known = this.#windowWith(per, now);
    const current = known ?? this.#emptyWindow(per, now);
    const isSetBack = last !== undefined && now < last.start;
    if (!isSetBack) delete this.#setBackTo[per];
    if (!isSetBack || known !== undefined) return [current];
    const first = this.#setBackTo[per];
    if (first !== undefined && now >= first.end) return [current];
    this.#setBackTo[per] = current;
    return [current, last];
  }

  #countRequest(at: number): void {
    for (const per of PERIODS) this.#windowToCountIn(per, at).requests += 1;
  }

  /** The window that contains a moment becomes the last one of its period; see #countingAt(). */
  #windowToCountIn(per: Period, at: number): CountedWindow {
    const windows = this.#windows[per];
    const last = windows.at(-1);
    if (last !== undefined && contains(last, at)) return last;
    let window = this.#windowWith(per, at);
    if (window === undefined) {
      window = this.#emptyWindow(per, at);
      const isSetBack = last !== undefined && at < last.start;
      if (isSetBack) {
        window.requests = last.requests;
        window.tokens = last.tokens;
        window.spend = last.spend;
      }
    }
    let others = windows.filter((other) => other !== window);
    if (others.length === KEPT_WINDOWS) {
      // Not the one counted in longest ago: a few requests that get their record late must not drop the newest windows.
      const oldest = Math.min(...others.map(({ start }) => start));
      others = others.filter(({ start }) => start !== oldest);
    }
    this.#windows[per] = [...others, window];
    if (per === "month") this.#dropOldAllowances();
    return window;
  }

  /**
   * A sum that would go below zero does not include the request: its window was dropped and begun again meanwhile, or its
   * journal was deleted.
   */
  #add(at: number, tokens: number, spend: number): void {
    for (const window of this.#windowsWith(at)) {
      window.tokens = Math.max(0, window.tokens + tokens);
      window.spend = Math.max(0, window.spend + spend);
    }
    this.#total = Math.max(0, this.#total + spend);
  }

  #windowsWith(at: number): CountedWindow[] {
    return PERIODS.flatMap((per) => this.#windowWith(per, at) ?? []);
  }

  /** Of several the latest: days overlap when the time zone was changed. */
  #windowWith(per: Period, at: number): CountedWindow | undefined {
    return this.#windows[per].findLast((window) => contains(window, at));
  }

  #emptyWindow(per: Period, at: number): CountedWindow {
    const { start, end } = windowOf(per, at, this.#calendar);
    return { per, start, end, requests: 0, tokens: 0, spend: 0 };
  }

  /** Drops those that ended before every kept month. Until then a clock that is set back may make them count again. */
  #dropOldAllowances(): void {
    const months = this.#windows.month;
    if (months.length < KEPT_WINDOWS) return;
    const oldest = Math.min(...months.map(({ start }) => start));
    this.#allowances = this.#allowances.filter(({ given_at, until }) => {
      const end = until ?? windowOf("month", given_at, this.#calendar).end;
      return end > oldest;
    });
  }

  #extra(kind: Kind, per: Period, now: number): number {
    let extra = 0;
    for (const { limit, amount, given_at, until } of this.#allowances) {
      if (limit !== kind) continue;
      const counts = until === null ? contains(windowOf(per, now, this.#calendar), given_at) : now < until;
      if (counts) extra += amount;
    }
    return extra;
  }

  /**
   * What a request has to hold. Never more than the tightest limit: a request whose maximum is above that, such as
   * max_tokens: 128000 under 100k/minute, could never be admitted, while most such requests use a fraction of it. So it
   * gets an empty window to itself, and may exceed the limit by what this one request uses.
   */
  #needOf(ask: Ask, now: number): Amounts {
    const need = (kind: "tokens" | "spend", amount: number): number => {
      if (!(amount > 0)) return 0;
      let tightest = kind === "spend" && this.#terms.quota !== null ? this.#terms.quota : MAX_AMOUNT;
      for (const { most, per } of this.#terms.limits[kind])
        tightest = Math.min(tightest, most + this.#extra(kind, per, now));
      // At least 1, or a limit of 0 would admit everything.
      return Math.min(Math.ceil(amount), MAX_AMOUNT, Math.max(1, tightest));
    };
    return { requests: 1, tokens: need("tokens", ask.tokens), spend: need("spend", ask.spend ?? 0) };
  }

  #shortageFor(ask: Ask, need: Amounts, now: number): Shortage | null {
    const { limits, quota } = this.#terms;
    if (ask.spend === null && (limits.spend.length > 0 || quota !== null)) return priceUnknown();
    const shortages: Shortage[] = [];
    for (const level of this.levels(now)) {
      const { kind } = level.limit;
      // The quota counts spend.
      const amount = kind === "requests" || kind === "tokens" ? need[kind] : need.spend;
      const shortage = shortageOf(level, amount);
      if (shortage !== null) shortages.push(shortage);
    }
    if (limits.concurrent !== null && this.inFlight >= limits.concurrent)
      shortages.push(tooManyAtOnce(limits.concurrent, this.inFlight));
    return longest(shortages);
  }
}

/** null: not reported, or not an amount. */
function wholeAmount(amount: number | null): number | null {
  if (amount === null || !Number.isFinite(amount) || amount < 0) return null;
  return Math.min(Math.ceil(amount), MAX_AMOUNT);
}
