import { PERIODS, type Period } from "../config/schema.ts";
import { HOUR_MS, MINUTE_MS } from "../core/units.ts";

/** A calendar window: from start up to, but not including, end. Milliseconds UTC. */
export interface Window {
  readonly start: number;
  readonly end: number;
}

/** What a wall clock shows at some place. */
export interface LocalTime {
  readonly year: number;
  /** 1 to 12. */
  readonly month: number;
  readonly day: number;
  readonly hour: number;
  readonly minute: number;
  readonly second: number;
}

/** The owner's days and months. It is passed in, like the clock, because they depend on the time zone. */
export interface Calendar {
  at(time: number): LocalTime;
  /** The first moment of a day. Month 13 and day 32 run over into what follows, as with Date. */
  dayStart(year: number, month: number, day: number): number;
  /** A remembered day or month is computed again when this changes: a zone's name, or the minutes between it and UTC. */
  zone(time: number): string | number;
}

/**
 * The calendar of this process's time zone. Where clocks go forward at midnight, Date gives the first moment that exists;
 * where they go back over midnight, the first of the two.
 */
export const systemCalendar: Calendar = {
  at: (time) => {
    const date = new Date(time);
    return {
      year: date.getFullYear(),
      month: date.getMonth() + 1,
      day: date.getDate(),
      hour: date.getHours(),
      minute: date.getMinutes(),
      second: date.getSeconds(),
    };
  },
  dayStart: (year, month, day) => new Date(year, month - 1, day).getTime(),
  zone: (time) => new Date(time).getTimezoneOffset(),
};

export function contains({ start, end }: Window, time: number): boolean {
  return time >= start && time < end;
}

/** The window that contains a moment. Windows shorter than a day are aligned to the Unix epoch. */
export function findWindow(period: Period, time: number, calendar: Calendar): Window {
  switch (period) {
    case "second":
      return alignedWindow(1000, time);
    case "minute":
      return alignedWindow(MINUTE_MS, time);
    case "hour":
      return alignedWindow(HOUR_MS, time);
    case "day": {
      const { year, month, day } = calendar.at(time);
      return calendarWindow(time, (step) => calendar.dayStart(year, month, day + step));
    }
    case "month": {
      const { year, month } = calendar.at(time);
      return calendarWindow(time, (step) => calendar.dayStart(year, month + step, 1));
    }
  }
}

function alignedWindow(length: number, time: number): Window {
  const start = Math.floor(time / length) * length;
  return { start, end: start + length };
}

/**
 * Clocks that go back over midnight (at 00:01 in St. John's, until 2011) show the old day again after the new day has
 * begun. That hour belongs to the new day; otherwise it would be in no window at all.
 */
function calendarWindow(time: number, startOf: (step: number) => number): Window {
  let step = 0;
  while (startOf(step + 1) <= time) step += 1;
  return { start: startOf(step), end: startOf(step + 1) };
}

/** What requests take from limits. */
export interface Counted {
  readonly tokens: number;
  /** Micro-dollars. */
  readonly spend: number;
  /** How much of each neither the gateway nor its console reported. */
  readonly estimated_tokens: number;
  readonly estimated_spend: number;
}

/** How much more `after` is than `before`. */
export function difference(before: Counted, after: Counted): Counted {
  return {
    tokens: after.tokens - before.tokens,
    spend: after.spend - before.spend,
    estimated_tokens: after.estimated_tokens - before.estimated_tokens,
    estimated_spend: after.estimated_spend - before.estimated_spend,
  };
}

const NOTHING_COUNTED: Counted = { tokens: 0, spend: 0, estimated_tokens: 0, estimated_spend: 0 };
const AMOUNTS = ["tokens", "spend", "estimated_tokens", "estimated_spend"] as const;

/** A window with what was used in it by the requests that have a record. */
export interface CountedWindow extends Window {
  readonly per: Period;
  requests: number;
  tokens: number;
  spend: number;
  estimated_tokens: number;
  estimated_spend: number;
  /** When its last request was admitted. In another calendar, its counts belong to the window that contains this moment. */
  last: number;
}

/** The counts that apply at a moment. */
interface Applying extends Counted {
  /** The window that contains the moment. */
  readonly window: Window;
  /** The window that the clock was set back from; null: it was not. */
  readonly setBackFrom: Window | null;
  readonly requests: number;
}

interface ZonedWindow {
  readonly window: Window;
  readonly zone: string | number;
}

/** How many windows of each period are kept. A clock that jumped ahead and back finds the window it left. */
const KEPT_WINDOWS = 3;

/**
 * What one tool used, by calendar window, in every period. A request counts in the windows that contain the moment of its
 * admission.
 *
 * A clock that is set back must not bring a fresh window. So in a window that has no counts yet and is before the one
 * counted in last, the counts of that one apply as well; when a request is counted there, they are copied.
 */
export class WindowCounts {
  readonly #calendar: Calendar;
  /** In each list, the window that was counted in last is at the end. */
  readonly #windows: Record<Period, CountedWindow[]> = {
    second: [],
    minute: [],
    hour: [],
    day: [],
    month: [],
  };
  /** The window in which it was first seen that the clock was set back. */
  readonly #setBackTo = new Map<Period, Window>();
  /** The window of each period that was asked for last. A day takes 1.5 µs to compute, and a request asks for 16 windows. */
  readonly #cache: Record<Period, ZonedWindow | null> = {
    second: null,
    minute: null,
    hour: null,
    day: null,
    month: null,
  };

  constructor(calendar: Calendar) {
    this.#calendar = calendar;
  }

  list(): CountedWindow[] {
    return PERIODS.flatMap((per) => this.#windows[per].map((window) => ({ ...window })));
  }

  /** Takes what list() gave. */
  restore(windows: readonly Readonly<CountedWindow>[]): void {
    for (const per of PERIODS)
      this.#windows[per] = windows.filter((window) => window.per === per).map((window) => ({ ...window }));
  }

  countRequest(at: number): void {
    for (const per of PERIODS) this.#windowToCountIn(per, at).requests += 1;
  }

  uncountRequest(at: number): void {
    for (const per of PERIODS) {
      const window = this.#windowWith(per, at);
      if (window !== undefined) window.requests = Math.max(0, window.requests - 1);
    }
  }

  /**
   * Adds tokens and spend of a request, or a correction, which may be negative. A sum that would go below zero does not
   * include the request: its window was dropped and begun again meanwhile.
   */
  add(at: number, counted: Counted): void {
    for (const per of PERIODS) {
      const window = this.#windowWith(per, at);
      if (window === undefined) continue;
      window.tokens = Math.max(0, window.tokens + counted.tokens);
      window.spend = Math.max(0, window.spend + counted.spend);
      window.estimated_tokens = Math.max(0, window.estimated_tokens + counted.estimated_tokens);
      window.estimated_spend = Math.max(0, window.estimated_spend + counted.estimated_spend);
    }
  }

  /** The counts that belong to a window. */
  countedIn(per: Period, window: Window): readonly Readonly<CountedWindow>[] {
    return this.#windows[per].filter(({ last }) => contains(window, last));
  }

  /** They are those of several windows if the calendar has changed. */
  applyingAt(per: Period, now: number): Applying {
    const window = this.#windowAt(per, now);
    const setBackFrom = this.#setBackFrom(per, now, window);
    let requests = 0;
    let tokens = 0;
    let spend = 0;
    let estimated_tokens = 0;
    let estimated_spend = 0;
    for (const one of this.#windows[per]) {
      if (one !== setBackFrom && !contains(window, one.last)) continue;
      requests += one.requests;
      tokens += one.tokens;
      spend += one.spend;
      estimated_tokens += one.estimated_tokens;
      estimated_spend += one.estimated_spend;
    }
    return { window, setBackFrom, requests, tokens, spend, estimated_tokens, estimated_spend };
  }

  /** The window whose counts apply because the clock was set back; null: it was not. */
  #setBackFrom(per: Period, now: number, window: Window): CountedWindow | null {
    const countedLast = this.#windows[per].at(-1);
    if (countedLast === undefined || now >= countedLast.start) {
      this.#setBackTo.delete(per);
      return null;
    }
    if (this.countedIn(per, window).length > 0) return null;
    // If the clock had been far ahead, the limit would stay shut until the clock gets there again. So the counts apply only
    // in the first window in which this is seen.
    const first = this.#setBackTo.get(per);
    if (first !== undefined && now >= first.end) return null;
    this.#setBackTo.set(per, window);
    return countedLast;
  }

  /** The start of the oldest month that is kept; null: none was dropped yet. */
  oldestMonth(): number | null {
    const months = this.#windows.month;
    return months.length < KEPT_WINDOWS ? null : Math.min(...months.map(({ start }) => start));
  }

  #windowAt(per: Period, time: number): Window {
    const cached = this.#cache[per];
    const zone = per === "day" || per === "month" ? this.#calendar.zone(time) : "";
    if (cached !== null && cached.zone === zone && contains(cached.window, time)) return cached.window;
    const window = findWindow(per, time, this.#calendar);
    this.#cache[per] = { window, zone };
    return window;
  }

  #windowToCountIn(per: Period, at: number): CountedWindow {
    const windows = this.#windows[per];
    const countedLast = windows.at(-1);
    const { start, end } = this.#windowAt(per, at);
    if (countedLast !== undefined && countedLast.start === start && countedLast.end === end) {
      countedLast.last = Math.max(countedLast.last, at);
      return countedLast;
    }
    let window = windows.find((other) => other.start === start && other.end === end);
    if (window === undefined) {
      window = { per, start, end, requests: 0, ...NOTHING_COUNTED, last: at };
      const isSetBack = countedLast !== undefined && at < countedLast.start;
      if (isSetBack) {
        window.requests = countedLast.requests;
        for (const name of AMOUNTS) window[name] = countedLast[name];
      }
    }
    window.last = Math.max(window.last, at);
    let others = windows.filter((other) => other !== window);
    if (others.length === KEPT_WINDOWS) {
      // Not the one counted in longest ago: a few requests that get their record late must not drop the newest windows.
      const oldest = Math.min(...others.map(({ start }) => start));
      others = others.filter(({ start }) => start !== oldest);
    }
    this.#windows[per] = [...others, window];
    return window;
  }

  /** If several contain the time, the one counted in last: days overlap when the calendar was changed. */
  #windowWith(per: Period, at: number): CountedWindow | undefined {
    return this.#windows[per].findLast((window) => contains(window, at));
  }
}
