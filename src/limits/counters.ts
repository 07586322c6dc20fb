import type { Period, Rate, Tool } from "../config/schema.ts";
import type { SessionOrigin } from "../core/session-id.ts";
import { type CarriedSession, type Session, Sessions } from "./sessions.ts";
import {
  type Calendar,
  type Counted,
  type CountedWindow,
  contains,
  findWindow,
  type Window,
  WindowCounts,
} from "./windows.ts";

/** What a limit counts. */
export type Kind = "requests" | "tokens" | "spend";

/** Requests, tokens and micro-dollars. */
type Amounts = Readonly<Record<Kind, number>>;

export type CountedLimit =
  | { readonly kind: Kind; readonly per: Period }
  | { readonly kind: "concurrent" }
  | { readonly kind: "quota" };

export type LimitKind = CountedLimit["kind"];

type LimitName =
  | CountedLimit
  /** What one session may use. */
  | { readonly kind: "session"; readonly of: Kind; readonly session: string }
  /** The owner stopped the session. */
  | { readonly kind: "session-stopped"; readonly session: string }
  /** Money is limited, and the price of the request is unknown. */
  | { readonly kind: "price" };

/** How much of a limit may be used here, if it is used elsewhere, too. Requests, tokens or micro-dollars. */
export interface Grant {
  /** What may be used here in all. For more, it must be asked. */
  readonly granted: number;
  readonly usedElsewhere: number;
  readonly heldElsewhere: number;
}

/** Grants what may be used here of a tool's limits. */
export interface Grants {
  /**
   * @param window null: the limit does not depend on time.
   * @param max what can be used in total. What was granted under a higher limit does not count.
   */
  grantFor(limit: CountedLimit, window: Window | null, max: number): Grant;
}

/** How full a limit is. Requests, tokens or micro-dollars. */
export interface Level {
  readonly limit: CountedLimit;
  /** null: it does not depend on time. */
  readonly window: Window | null;
  /** null: it is used only here. */
  readonly grant: Grant | null;
  /** Used here; none of it is given back. */
  readonly used: number;
  /** How much of `used` neither the gateway nor its console reported. */
  readonly estimated: number;
  /** Held here for requests in flight, which may give some of it back. */
  readonly held: number;
  /** What can be used in total, extra included. */
  readonly max: number;
  /** How much of max comes from allowances. */
  readonly extra: number;
}

/** Why a request cannot be admitted now. */
export interface Shortage {
  readonly limit: LimitName;
  /** Used, held and possible in all, elsewhere too. */
  readonly used: number;
  /** How much of `used` was estimated here. */
  readonly estimated: number;
  readonly held: number;
  readonly max: number;
  /** How much of max comes from allowances. */
  readonly extra: number;
  /** How much of `used` and `held` is elsewhere. */
  readonly elsewhere: number;
  /** What the request would hold. */
  readonly need: number;
  /** When there is capacity again even if no request ends before; null: never. */
  readonly capacityAt: number | null;
  /** Whether a request that ends can free capacity before that. */
  readonly mayEndSooner: boolean;
  /** There is capacity beside what is used here, but it was not granted. */
  readonly isUngranted: boolean;
}

/** What a tool may use, as in config.yaml. */
export type Terms = Pick<Tool, "limits" | "quota">;

/** What a request may use, as far as is known before it is sent; 0 where it uses none. */
export interface Ask {
  readonly tokens: number;
  /** Micro-dollars; null: the price is unknown. */
  readonly spend: number | null;
  /** Missing: it belongs to no session. */
  readonly origin?: SessionOrigin;
}

/** What a request used; null: not known, and what was held counts. */
export interface Used {
  readonly tokens: number | null;
  readonly spend: number | null;
  /** true: neither the gateway nor its console reported it. */
  readonly areTokensEstimated?: boolean;
  readonly isSpendEstimated?: boolean;
}

/** How much more a finished request used than was counted; negative if it was less. */
export interface Correction extends Counted {
  /** When the request was admitted. */
  readonly at: number;
  /** The session that counts it; null or missing: none does. */
  readonly session?: string | null;
}

/** What is held for one request in flight, until it is settled or canceled. */
export interface Reservation {
  readonly tokens: number;
  readonly spend: number | null;
  /** When the request was admitted. It counts in the windows that contain this moment. */
  readonly at: number;
  /** The same by the daemon's own clock. It differs while another clock decides the windows. */
  readonly ownAt: number;
  /** null: its session is not counted. */
  readonly session: Session | null;
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

/** A request in flight that has a record. The windows include its request, but not its tokens and spend. */
export interface CarriedRequest {
  readonly id: string;
  readonly admitted_at: number;
  readonly tokens: number;
  readonly spend: number;
  /** The id of its session; null: that is not counted. */
  readonly session: string | null;
}

/** Everything that is known of one tool, as the usage journal carries it from one file to the next. */
export interface Carry {
  /** Micro-dollars, ever; and how much of it is estimated. */
  readonly total: number;
  readonly estimated_total: number;
  /** In each period, the window that was counted in last comes last. */
  readonly windows: readonly Readonly<CountedWindow>[];
  readonly allowances: readonly Allowance[];
  readonly sessions: readonly CarriedSession[];
  readonly open: readonly CarriedRequest[];
}

/** How full the limits of one session are. */
export interface SessionLevel {
  readonly session: Readonly<Session>;
  readonly limits: readonly {
    readonly kind: Kind;
    readonly used: number;
    readonly held: number;
    /** Extra included. */
    readonly max: number;
    readonly extra: number;
  }[];
}

/** A million dollars, or as many tokens: more than any request uses, and small enough for sums to stay exact. */
const MAX_AMOUNT = 1e12;

const KINDS: readonly Kind[] = ["requests", "tokens", "spend"];
const UNLIMITED: Terms = {
  limits: { requests: [], tokens: [], spend: [], concurrent: null, wait: 0, session: null },
  quota: null,
};

/**
 * Counts for one tool. Every method is one synchronous step, so no two requests can take the same capacity.
 *
 * Every kind is counted in every period, limited or not, so that a limit added by a reload finds what was used. What is held
 * is summed over the requests in flight whenever it is needed. Everything else changes only together with a line of the
 * usage journal (record opened or closed, correction, allowance), so reading those lines again leads to the same state.
 */
export class Counters {
  readonly #calendar: Calendar;
  readonly sessions: Sessions;
  readonly #windows: WindowCounts;
  /**
   * The same counts by the daemon's own clock, while another clock decides the windows; null: none does. Without
   * them, moving that other clock could begin a new window with every request.
   */
  #ownWindows: WindowCounts | null = null;
  /** What the quota counts: micro-dollars, ever. */
  #total = 0;
  #estimatedTotal = 0;
  #allowances: readonly Allowance[] = [];
  readonly #inFlight = new Set<Reservation>();
  /** The last request that found no capacity. */
  #lastShort: Ask | null = null;
  #terms = UNLIMITED;
  /** null: the limits are used only here. */
  #grants: Grants | null = null;

  constructor(calendar: Calendar) {
    this.#calendar = calendar;
    this.#windows = new WindowCounts(calendar);
    this.sessions = new Sessions();
  }

  get inFlight(): number {
    return this.#inFlight.size;
  }

  /**
   * Applies to the next request. Requests in flight keep what they hold.
   * @param grants null: the limits are used only here.
   */
  change(terms: Terms, grants: Grants | null = null): void {
    this.#terms = terms;
    this.sessions.change(terms.limits.session);
    this.#grants = grants;
    if (grants === null) this.#ownWindows = null;
    else if (this.#ownWindows === null) {
      this.#ownWindows = new WindowCounts(this.#calendar);
      this.#ownWindows.restore(this.#windows.list());
    }
  }

  /**
   * Checks all limits, then takes from all of them or from none.
   * @param ownNow the same moment by the daemon's own clock
   */
  reserve(ask: Ask, now: number, ownNow: number = now): Reserved {
    const need = this.#needFor(ask, now);
    const session = this.#findSession(ask, ownNow);
    const shortage = this.#findShortage(ask, need, session, now, ownNow);
    if (shortage !== null) return { ok: false, shortage };
    const spend = ask.spend === null ? null : need.spend;
    return { ok: true, reservation: this.#hold(need.tokens, spend, session, now, ownNow) };
  }

  /** What would refuse this request now; nothing is taken. */
  check(ask: Ask, now: number, ownNow: number = now): Shortage | null {
    return this.#findShortage(ask, this.#needFor(ask, now), this.#findSession(ask, ownNow), now, ownNow);
  }

  /** Takes without checking the limits. @param session in which it is counted; null: in none. */
  hold({ tokens, spend }: Ask, at: number, session: string | null = null): Reservation {
    const counted = session === null ? null : this.sessions.findById(session, at);
    return this.#hold(tokens, spend, counted, at, at);
  }

  #hold(
    tokens: number,
    spend: number | null,
    session: Session | null,
    at: number,
    ownAt: number,
  ): Reservation {
    const reservation: Reservation = { tokens, spend, at, ownAt, session, id: null };
    this.#inFlight.add(reservation);
    if (session !== null) this.sessions.begin(session, at);
    return reservation;
  }

  /** A session has the days of this machine, whatever clock decides the windows. */
  #findSession({ origin }: Ask, ownNow: number): Session | null {
    return origin === undefined ? null : this.sessions.find(origin, ownNow);
  }

  /** The request has a record in the usage journal from now on. */
  recorded(reservation: Reservation, id: string): void {
    if (reservation.id !== null || !this.#inFlight.has(reservation)) return;
    reservation.id = id;
    this.#countRequest(reservation);
  }

  /** The request has ended. What is not known counts as held. false: it was settled or canceled before. */
  settle(reservation: Reservation, used: Used): boolean {
    if (!this.#inFlight.delete(reservation)) return false;
    if (reservation.id === null) this.#countRequest(reservation);
    const tokens = wholeAmount(used.tokens);
    const spend = wholeAmount(used.spend);
    const counted = countUsed({ ...used, tokens, spend }, reservation);
    this.#add(reservation, counted);
    const { session } = reservation;
    if (session === null) return true;
    session.inFlight -= 1;
    this.sessions.add(session, counted);
    return true;
  }

  /** Settles every request in flight as held. */
  settleAll(): void {
    for (const reservation of [...this.#inFlight]) this.settle(reservation, { tokens: null, spend: null });
  }

  /** Nothing of the request reached the gateway, so nothing counts. false: it was settled or canceled before. */
  cancel(reservation: Reservation): boolean {
    if (!this.#inFlight.delete(reservation)) return false;
    const { session } = reservation;
    if (session !== null) session.inFlight -= 1;
    if (reservation.id === null) return true;
    this.#windows.uncountRequest(reservation.at);
    this.#ownWindows?.uncountRequest(reservation.ownAt);
    if (session !== null) session.requests -= 1;
    return true;
  }

  /** Counts a difference wherever the request counts. */
  correct(correction: Correction): void {
    const { at, session = null } = correction;
    this.#add({ at, ownAt: at }, correction);
    if (session !== null) this.sessions.correct(session, at, correction);
  }

  #add({ at, ownAt }: Pick<Reservation, "at" | "ownAt">, counted: Counted): void {
    this.#windows.add(at, counted);
    this.#ownWindows?.add(ownAt, counted);
    this.#total = Math.max(0, this.#total + counted.spend);
    this.#estimatedTotal = Math.max(0, this.#estimatedTotal + counted.estimated_spend);
  }

  /** The same allowance given twice counts once. An amount of 0 takes back everything given for this limit. */
  allow({ limit, amount, given_at, until }: Allowance): void {
    if (amount === 0) {
      this.#allowances = this.#allowances.filter((other) => other.limit !== limit);
      return;
    }
    const isSame = (other: Allowance) =>
      other.limit === limit &&
      other.amount === amount &&
      other.given_at === given_at &&
      other.until === until;
    if (wholeAmount(amount) === null || this.#allowances.some(isSame)) return;
    this.#allowances = [...this.#allowances, { limit, amount, given_at, until }];
  }

  /** @param now idle sessions are dropped */
  carry(now: number): Carry {
    const open: CarriedRequest[] = [];
    for (const { id, at, tokens, spend, session } of this.#inFlight) {
      if (id === null) continue;
      // A session that is not counted any more has no id here.
      const counted = session !== null && this.sessions.get(session.id) === session ? session.id : null;
      open.push({ id, admitted_at: at, tokens, spend: spend ?? 0, session: counted });
    }
    return {
      total: this.#total,
      estimated_total: this.#estimatedTotal,
      windows: this.#windows.list(),
      allowances: this.#allowances,
      sessions: this.sessions.carry(now),
      open,
    };
  }

  /** Replaces everything that is known. */
  restore({ total, estimated_total, windows, allowances, sessions, open }: Carry): void {
    this.#total = total;
    this.#estimatedTotal = estimated_total;
    this.#allowances = [...allowances];
    this.#windows.restore(windows);
    this.#ownWindows?.restore(windows);
    this.sessions.restore(sessions);
    this.#inFlight.clear();
    for (const { id, admitted_at: at, tokens, spend, session: sessionId } of open) {
      const session = this.sessions.get(sessionId);
      this.#inFlight.add({ id, at, ownAt: at, tokens, spend, session });
      if (session !== null) this.sessions.begin(session, at);
    }
  }

  /** The request in flight with this record. */
  find(id: string): Reservation | null {
    for (const reservation of this.#inFlight) if (reservation.id === id) return reservation;
    return null;
  }

  /** Every limit, in the order of the configuration reference. */
  levels(now: number): Level[] {
    const { limits, quota } = this.#terms;
    const levels: Level[] = [];
    for (const kind of KINDS) {
      for (const rate of limits[kind]) levels.push(this.#level(kind, rate, now));
    }
    if (limits.concurrent !== null)
      levels.push(this.#timeless({ kind: "concurrent" }, this.inFlight, 0, 0, limits.concurrent));
    if (quota !== null) {
      const estimated = Math.min(this.#total, this.#estimatedTotal);
      levels.push(this.#timeless({ kind: "quota" }, this.#total, estimated, this.#heldSpend(), quota));
    }
    return levels;
  }

  #timeless(limit: CountedLimit, used: number, estimated: number, held: number, max: number): Level {
    const grant = this.#grants?.grantFor(limit, null, max) ?? null;
    return { limit, window: null, grant, used, estimated, held, max, extra: 0 };
  }

  /** What requests used and hold here of a limit, in one window. @param window null: the limit has none */
  countUse(limit: CountedLimit, window: Window | null): number {
    if (limit.kind === "concurrent") return this.inFlight;
    if (limit.kind === "quota" || window === null) return this.#total + this.#heldSpend();
    let use = 0;
    const { kind, per } = limit;
    for (const one of this.#windows.countedIn(per, window)) use += one[kind];
    for (const reservation of this.#inFlight) {
      if (!contains(window, reservation.at)) continue;
      if (kind !== "requests") use += reservation[kind] ?? 0;
      else if (reservation.id === null) use += 1;
    }
    return use;
  }

  /** What a request takes from one of the levels. */
  needAt({ limit }: Level, ask: Ask, now: number): number {
    return amountFor(limit, this.#needFor(ask, now));
  }

  /** The limit of a kind that is nearest to being reached; null: the kind has no limit. */
  nearest(kind: Kind, now: number): Level | null {
    let nearest: Level | null = null;
    for (const rate of this.#terms.limits[kind]) {
      const level = this.#level(kind, rate, now);
      if (nearest === null || remaining(level) < remaining(nearest)) nearest = level;
    }
    return nearest;
  }

  /** Whether the limits on requests admit more than `ahead` requests between now and `time`. */
  canAdmit(ahead: number, time: number, now: number): boolean {
    return this.#terms.limits.requests.every((rate) => {
      const level = this.#level("requests", rate, now);
      let capacity = remaining(level);
      let end = level.window?.end ?? time + 1;
      while (end <= time && capacity <= ahead) {
        capacity += level.max;
        end = findWindow(rate.per, end, this.#calendar).end;
      }
      return capacity > ahead;
    });
  }

  #level(kind: Kind, { max, per }: Rate, now: number): Level {
    const use = this.#useAt(kind, per, this.#windows, now);
    const extra = this.#extra(kind, per, now);
    const limit = { kind, per };
    const grant = this.#grants?.grantFor(limit, use.window, max + extra) ?? null;
    return { limit, ...use, grant, max: max + extra, extra };
  }

  /** What counts in the window at a time of the clock that these windows follow. */
  #useAt(
    kind: Kind,
    per: Period,
    windows: WindowCounts,
    now: number,
  ): Pick<Level, "window" | "used" | "estimated" | "held"> {
    const applying = windows.applyingAt(per, now);
    const { window, setBackFrom } = applying;
    let used = applying[kind];
    let held = 0;
    const isOwn = windows === this.#ownWindows;
    for (const reservation of this.#inFlight) {
      const at = isOwn ? reservation.ownAt : reservation.at;
      const isIn = contains(window, at) || (setBackFrom !== null && contains(setBackFrom, at));
      if (!isIn) continue;
      if (kind === "tokens") held += reservation.tokens;
      else if (kind === "spend") held += reservation.spend ?? 0;
      // The counts include the requests that have a record.
      else if (reservation.id === null) used += 1;
    }
    return { window, used, estimated: Math.min(used, estimatedAmount(kind, applying)), held };
  }

  #countRequest({ at, ownAt, session }: Reservation): void {
    this.#windows.countRequest(at);
    this.#ownWindows?.countRequest(ownAt);
    if (session !== null) this.sessions.countRequest(session, at);
    this.#dropOldAllowances();
  }

  /** Drops those that ended before every kept month. Until then a clock that is set back may make them count again. */
  #dropOldAllowances(): void {
    const oldest = this.#windows.oldestMonth();
    if (oldest === null || this.#allowances.length === 0) return;
    this.#allowances = this.#allowances.filter(({ given_at, until }) => {
      const end = until ?? findWindow("month", given_at, this.#calendar).end;
      return end > oldest;
    });
  }

  #extra(kind: Kind, per: Period, now: number): number {
    let extra = 0;
    for (const { limit, amount, given_at, until } of this.#allowances) {
      if (limit !== kind) continue;
      const counts = until === null ? contains(findWindow(per, now, this.#calendar), given_at) : now < until;
      if (counts) extra += amount;
    }
    return extra;
  }

  /**
   * What a request has to hold. Never more than the tightest limit: a request whose maximum is above that, such as
   * max_tokens: 128000 under 100k/minute, could never be admitted, while most such requests use a fraction of it. So it
   * gets an empty window to itself, and may exceed the limit by what this one request uses.
   */
  #needFor(ask: Ask, now: number): Amounts {
    const need = (kind: "tokens" | "spend", amount: number): number => {
      if (!(amount > 0)) return 0;
      let tightest = kind === "spend" && this.#terms.quota !== null ? this.#terms.quota : MAX_AMOUNT;
      for (const { max, per } of this.#terms.limits[kind])
        tightest = Math.min(tightest, max + this.#extra(kind, per, now));
      // At least 1, or a limit of 0 would admit everything.
      return Math.min(Math.ceil(amount), MAX_AMOUNT, Math.max(1, tightest));
    };
    return { requests: 1, tokens: need("tokens", ask.tokens), spend: need("spend", ask.spend ?? 0) };
  }

  #findShortage(
    ask: Ask,
    need: Amounts,
    session: Session | null,
    now: number,
    ownNow: number,
  ): Shortage | null {
    const { limits, quota } = this.#terms;
    if (session !== null) {
      const shortage = this.#sessionShortage(session, need);
      if (shortage !== null) return shortage;
    }
    const limitsMoney = limits.spend.length > 0 || quota !== null || limits.session?.spend != null;
    if (ask.spend === null && limitsMoney) return priceUnknown();
    // Most requests find capacity. Comparing numbers takes a third of the time of describing every limit.
    if (this.#grants === null && this.#hasRoom(need, now)) return null;
    const shortages: Shortage[] = [];
    for (const level of this.levels(now)) {
      const shortage = levelShortage(level, amountFor(level.limit, need));
      if (shortage !== null) shortages.push(shortage);
    }
    if (this.#ownWindows !== null) shortages.push(...this.#ownShortages(need, now, this.#ownWindows, ownNow));
    if (shortages.length > 0) this.#lastShort = ask;
    return longestLasting(shortages);
  }

  /**
   * null: the session has room. A session has no window whose end could be waited for, and a request that waited for another
   * one of its session would hold up those of all others. So it is refused at once.
   */
  #sessionShortage(session: Session, need: Amounts): Shortage | null {
    const none = { estimated: 0, elsewhere: 0, capacityAt: null, mayEndSooner: false, isUngranted: false };
    const { id, isStopped } = session;
    if (isStopped) {
      const limit = { kind: "session-stopped", session: id } as const;
      return { ...none, limit, used: 0, held: 0, max: 0, extra: 0, need: 0 };
    }
    const { limits } = this.sessions;
    if (limits === null) return null;
    for (const kind of KINDS) {
      if (limits[kind] === null || need[kind] === 0) continue;
      const extra = session.extra[kind];
      const max = limits[kind] + extra;
      const { used, held } = this.#sessionUse(session, kind);
      // As for the other limits: a request that needs more than the whole limit has an empty session to itself.
      const wanted = Math.min(need[kind], Math.max(1, max));
      if (used + held + wanted <= max) continue;
      if (used + wanted > max) session.isFull = true;
      const limit = { kind: "session", of: kind, session: id } as const;
      return { ...none, limit, used, held, max, extra, need: wanted };
    }
    return null;
  }

  #sessionUse(session: Session, kind: Kind): { readonly used: number; readonly held: number } {
    let used = session[kind];
    let held = 0;
    if (session.inFlight === 0) return { used, held };
    for (const reservation of this.#inFlight) {
      if (reservation.session !== session) continue;
      if (kind !== "requests") held += reservation[kind] ?? 0;
      // The session's count includes the requests that have a record.
      else if (reservation.id === null) used += 1;
    }
    return { used, held };
  }

  /** The sessions that are counted or stopped, and what they hold now. */
  sessionLevels(): SessionLevel[] {
    const { limits } = this.sessions;
    return [...this.sessions.list()].map((session) => ({
      session,
      limits: KINDS.flatMap((kind) => {
        const max = limits?.[kind] ?? null;
        const extra = session.extra[kind];
        return max === null ? [] : [{ kind, ...this.#sessionUse(session, kind), max: max + extra, extra }];
      }),
    }));
  }

  /** Whether no limit that is used only here lacks anything: the same as that none of the levels has a shortage. */
  #hasRoom(need: Amounts, now: number): boolean {
    const { limits, quota } = this.#terms;
    for (const kind of KINDS) {
      if (need[kind] === 0) continue;
      for (const { max, per } of limits[kind]) {
        const { used, held } = this.#useAt(kind, per, this.#windows, now);
        if (used + held + need[kind] > max + this.#extra(kind, per, now)) return false;
      }
    }
    if (limits.concurrent !== null && this.inFlight + 1 > limits.concurrent) return false;
    return quota === null || need.spend === 0 || this.#total + this.#heldSpend() + need.spend <= quota;
  }

  #heldSpend(): number {
    let held = 0;
    for (const { spend } of this.#inFlight) held += spend ?? 0;
    return held;
  }

  /**
   * The extra allowance with which the last request that found no capacity is admitted. It counts in every window of its
   * kind, and what a request has to hold grows with it (#needFor), so it covers the whole request in each of them. It is at
   * least as much as the smallest limit: with less, the next request would be refused again.
   */
  neededAllowance(kind: Kind, now: number): number {
    const whole = kind === "requests" ? 1 : (wholeAmount(this.#lastShort?.[kind] ?? null) ?? 1);
    const levels = this.levels(now).filter(({ limit }) => limit.kind === kind);
    const missing = levels.map((level) => {
      const { used, held } = takenInAll(level);
      return used + held + whole - level.max;
    });
    return Math.max(Math.min(...levels.map(({ max, extra }) => max - extra)), ...missing);
  }

  /** What is lacking by the daemon's own clock, whatever is granted. */
  #ownShortages(need: Amounts, now: number, windows: WindowCounts, ownNow: number): Shortage[] {
    const shortages: Shortage[] = [];
    for (const kind of KINDS) {
      for (const { max, per } of this.#terms.limits[kind]) {
        const use = this.#useAt(kind, per, windows, ownNow);
        const extra = this.#extra(kind, per, now);
        const level = { limit: { kind, per }, ...use, grant: null, max: max + extra, extra };
        const shortage = levelShortage(level, need[kind]);
        if (shortage === null) continue;
        const { capacityAt } = shortage;
        shortages.push({ ...shortage, capacityAt: capacityAt === null ? null : capacityAt - ownNow + now });
      }
    }
    return shortages;
  }
}

function estimatedAmount(kind: Kind, { estimated_tokens, estimated_spend }: Counted): number {
  if (kind === "tokens") return estimated_tokens;
  return kind === "spend" ? estimated_spend : 0;
}

/** What is not known counts as held, and is an estimate. */
export function countUsed(used: Used, held: Pick<Reservation, "tokens" | "spend">): Counted {
  const tokens = used.tokens ?? held.tokens;
  const spend = used.spend ?? held.spend ?? 0;
  return {
    tokens,
    spend,
    estimated_tokens: used.tokens === null || used.areTokensEstimated ? tokens : 0,
    estimated_spend: used.spend === null || used.isSpendEstimated ? spend : 0,
  };
}

/** null: not reported, or not an amount. */
function wholeAmount(amount: number | null): number | null {
  if (amount === null || !Number.isFinite(amount) || amount < 0) return null;
  return Math.min(Math.ceil(amount), MAX_AMOUNT);
}

/** What a request takes from a limit. The quota counts spend. */
function amountFor({ kind }: CountedLimit, need: Amounts): number {
  if (kind === "concurrent") return 1;
  return kind === "quota" ? need.spend : need[kind];
}

export function remaining(level: Level): number {
  const { used, held } = takenInAll(level);
  return Math.max(0, level.max - used - held);
}

/** What is used of a limit and held for requests in flight, here and elsewhere. */
export function takenInAll({ used, held, grant }: Level): { readonly used: number; readonly held: number } {
  if (grant === null) return { used, held };
  return { used: used + grant.usedElsewhere, held: held + grant.heldElsewhere };
}

/** null: it has room for what a request needs. */
function levelShortage(level: Level, need: number): Shortage | null {
  const { limit, window, grant, used, estimated, held, max, extra } = level;
  const possible = grant === null ? max : Math.min(max, grant.granted);
  // A request that costs nothing, such as a list of models, passes a limit that is used up.
  if (need === 0 || used + held + need <= possible) return null;
  const taken = takenInAll(level);
  return {
    limit,
    ...taken,
    estimated,
    max,
    extra,
    need,
    elsewhere: taken.used + taken.held - used - held,
    // $0/day is a limit too: its windows never have capacity.
    capacityAt: max - extra > 0 ? (window?.end ?? null) : null,
    mayEndSooner: limit.kind === "concurrent" || taken.used + need <= max,
    isUngranted: used + held + need <= max,
  };
}

function priceUnknown(): Shortage {
  const limit = { kind: "price" } as const;
  const nothing = { used: 0, estimated: 0, held: 0, max: 0, extra: 0, need: 0, elsewhere: 0 };
  return { limit, ...nothing, capacityAt: null, mayEndSooner: false, isUngranted: false };
}

/**
 * The shortage that lasts longest: a retry before its end would be refused again. A grant covers all limits of a tool or none.
 * So a limit with room may lack its grant because of another limit, and the message names that other one.
 */
function longestLasting(shortages: readonly Shortage[]): Shortage | null {
  const [first, ...others] = shortages;
  if (first === undefined) return null;
  return others.reduce((worst, next) => {
    if (hasRoom(next) !== hasRoom(worst)) return hasRoom(next) ? worst : next;
    return endOf(next) > endOf(worst) ? next : worst;
  }, first);
}

/** By what is used and held in all. */
export function hasRoom({ used, held, need, max }: Shortage): boolean {
  return used + held + need <= max;
}

function endOf({ capacityAt, mayEndSooner }: Shortage): number {
  if (mayEndSooner) return Number.NEGATIVE_INFINITY;
  return capacityAt ?? Number.POSITIVE_INFINITY;
}
