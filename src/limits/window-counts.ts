import type { Period } from "../config/shape.ts";
import { type Calendar, contains, PERIODS, type Window, windowOf } from "./windows.ts";

/** A window with what was used in it by the requests that have a record. */
export interface CountedWindow extends Window {
  readonly per: Period;
  requests: number;
  tokens: number;
  /** Micro-dollars. */
  spend: number;
}

/** How many windows of each period are kept. A clock that jumped ahead and back finds the window it left. */
const KEPT_WINDOWS = 3;

/**
 * What one tool used, by calendar window, in every period. A request counts in the windows that contain the moment of its
 * admission.
 *
 * A clock that is set back must not bring a fresh window. So in a window that has no counts yet and lies before the one
 * counted in last, the counts of that one apply as well; when a request is counted there, they are copied.
 */
export class WindowCounts {
  readonly #calendar: Calendar;
  /** Of each period the window that was counted in last is at the end. */
  readonly #windows: Record<Period, CountedWindow[]> = {
    second: [],
    minute: [],
    hour: [],
    day: [],
    month: [],
  };
  /** The window in which it was first seen that the clock was set back. */
  readonly #setBackTo = new Map<Period, Window>();

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
  add(at: number, tokens: number, spend: number): void {
    for (const per of PERIODS) {
      const window = this.#windowWith(per, at);
      if (window === undefined) continue;
      window.tokens = Math.max(0, window.tokens + tokens);
      window.spend = Math.max(0, window.spend + spend);
    }
  }

  /** The windows whose counts apply at a moment: the one that contains it, then the one that the clock was set back from. */
  applyingAt(per: Period, now: number): [CountedWindow, ...CountedWindow[]] {
    const last = this.#windows[per].at(-1);
    const known = this.#windowWith(per, now);
    const current = known ?? this.#emptyWindow(per, now);
    const isSetBack = last !== undefined && now < last.start;
    if (!isSetBack) this.#setBackTo.delete(per);
    if (!isSetBack || known !== undefined) return [current];
    // If the clock had been far ahead, the limit would stay shut until the clock gets there again. So the counts apply only
    // in the first window in which this is seen.
    const first = this.#setBackTo.get(per);
    if (first !== undefined && now >= first.end) return [current];
    this.#setBackTo.set(per, current);
    return [current, last];
  }

  /** The start of the oldest month that is kept; null: none was dropped yet. */
  oldestMonth(): number | null {
    const months = this.#windows.month;
    return months.length < KEPT_WINDOWS ? null : Math.min(...months.map(({ start }) => start));
  }

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
    return window;
  }

  /** Of several the one counted in last: days overlap when the time zone was changed. */
  #windowWith(per: Period, at: number): CountedWindow | undefined {
    return this.#windows[per].findLast((window) => contains(window, at));
  }

  #emptyWindow(per: Period, at: number): CountedWindow {
    const { start, end } = windowOf(per, at, this.#calendar);
    return { per, start, end, requests: 0, tokens: 0, spend: 0 };
  }
}
