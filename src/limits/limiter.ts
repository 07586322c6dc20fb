import type { Config, Tool } from "../config/schema.ts";
import type { Clock } from "../core/clock.ts";
import { type Refusal, refuse, shuttingDown, toolRemoved } from "../core/refusal.ts";
import { HOUR_MS } from "../core/units.ts";
import {
  type Allowance,
  type Ask,
  type Carry,
  type Correction,
  type CountedLimit,
  Counters,
  type Grants,
  hasRoom,
  type Level,
  type LimitKind,
  type Reservation,
  type SessionLevel,
  type Shortage,
  type Terms,
  type Used,
} from "./counters.ts";
import { type CallTokens, RecentCalls } from "./estimate.ts";
import { type Joined, type Moment, type Waiter, WaitingQueue } from "./queue.ts";
import { addRateHeaders, limitRefusal } from "./refusals.ts";
import type { SessionLift, SessionStop } from "./sessions.ts";
import type { Calendar, Window } from "./windows.ts";

/** What is held for one request until it is settled or canceled. */
export interface Lease {
  /** As it was called when the request began. */
  readonly tool: string;
  /** Of that tool, whatever it is called by now. */
  readonly limiter: ToolLimiter;
  readonly reservation: Reservation;
}

export type Taken =
  | { readonly ok: true; readonly lease: Lease }
  /** A null refusal: the client left while its request waited. */
  | { readonly ok: false; readonly refusal: Refusal | null };

/** What a request asks for, and what a refusal says about it. */
interface CapacityRequest {
  readonly ask: Ask;
  /** null: unknown. */
  readonly model: string | null;
  /** The request should name a model, and does not. */
  readonly lacksModel: boolean;
  /** false: it is refused at once where other requests of the tool would wait. */
  readonly mayWait: boolean;
}

/** How full a tool's limits are. */
export interface ToolLevels {
  readonly levels: readonly Level[];
  /** By the kind of the limits that take an allowance: what Counters.neededAllowance says. */
  readonly neededAllowances: Readonly<Partial<Record<LimitKind, number>>>;
  readonly inFlight: number;
  readonly waiting: number;
}

const MAX_WAIT_MS = HOUR_MS;

/** Grants what may be used here of a tool's limits, if they are used elsewhere, too. */
export interface Granter extends Grants {
  /** The time and the calendar that decide the windows. */
  now(): number;
  readonly calendar: Calendar;
  /** Asks for what Limiter.demands() says. `then` runs at the moment of the answer, or when there will be none. */
  ask(then: () => void): void;
  /** A request took something. */
  taken(): void;
  /** Why nothing can be taken, not even of what was granted; null: it can. */
  refusal(): Refusal | null;
  /** Why nothing more was granted; null: because the limit is reached. */
  notGranted(): Refusal | null;
}

/** null: the tool's limits are used only here. */
type FindGranter = (tool: string) => Granter | null;

/** A limit of a tool, and how much of it its requests need that wait. */
export interface Demand extends Level {
  /** All of them. */
  readonly need: number;
  /** The first of them; 0: none waits. */
  readonly least: number;
}

/** Everything the limits know of one tool. A new journal file begins with these, so that a start reads only that file. */
export interface ToolCarry extends Carry {
  readonly tool: string;
}

/** A tool that has another name now. */
interface Rename {
  readonly from: string;
  readonly to: string;
}

/** The limits of all tools. */
export class Limiter {
  readonly #clock: Clock;
  readonly #calendar: Calendar;
  /** Tools that were removed from config.yaml stay: their requests in flight are settled here, and they may come back. */
  readonly #tools = new Map<string, ToolLimiter>();
  /** The tools of the configuration in force; null: a request brings its own. */
  #config: Config["tools"] | null = null;
  /** Takes effect with the first configuration that has the new name instead of the old one. */
  #expected: Rename | null = null;
  /** New names by old ones, for what still names the old one: requests in flight, and corrections of older requests. */
  readonly #renamed = new Map<string, string>();
  #findGranter: FindGranter = () => null;

  constructor(clock: Clock, calendar: Calendar) {
    this.#clock = clock;
    this.#calendar = calendar;
  }

  /** From now on this says what may be used here of a tool's limits. */
  followGrants(find: FindGranter): void {
    this.#findGranter = find;
    for (const [name, limiter] of this.#tools) limiter.followGrants(find(name));
  }

  /** What requests of a tool used and hold here of a limit, which config.yaml may no longer have. */
  countUse(tool: string, limit: CountedLimit, window: Window | null): number {
    return this.#tools.get(this.currentName(tool))?.counters.countUse(limit, window) ?? 0;
  }

  /** The time that decides the windows of a tool. */
  now(tool: Tool): number {
    return this.#limited(tool).now();
  }

  /** Every limit of a tool at a time of its granter, and what its requests need that wait. */
  demands(tool: Tool, now: number): Demand[] {
    return this.#limited(tool).demands(now);
  }

  /** Whether requests wait for capacity. */
  isWaiting(tool: string): boolean {
    return this.#tools.get(tool)?.isWaiting ?? false;
  }

  /** More was granted: requests that wait may go on. */
  granted(tool: string): void {
    this.#tools.get(tool)?.checkQueue();
  }

  /** Takes what a request asks for if there is capacity now. null: call take(), which waits or says why not. */
  takeNow(tool: Tool, ask: Ask): Lease | null {
    if (this.#isGone(tool.name)) return null;
    const limiter = this.#limited(tool);
    const reservation = limiter.enterNow(ask);
    return reservation === null ? null : { tool: tool.name, limiter, reservation };
  }

  /**
   * Takes what the request asks for from all limits of the tool, or from none. Waits for capacity as long as the tool
   * allows; `onWait` then gets a function that ends the waiting, for when the client leaves.
   */
  async take(tool: Tool, request: CapacityRequest, onWait: (leave: () => void) => void): Promise<Taken> {
    if (this.#isGone(tool.name)) {
      const message = `tool ${tool.name} was removed after this request had begun`;
      return { ok: false, refusal: refuse("token-unknown", message) };
    }
    const { ask, model, lacksModel, mayWait } = request;
    const maxWait = mayWait ? Math.min(tool.limits.wait, MAX_WAIT_MS) : 0;
    const since = this.#clock.elapsed();
    let hasWaited = false;
    const limiter = this.#limited(tool);
    const admission = await limiter.enter(ask, maxWait, (leave) => {
      hasWaited = true;
      onWait(leave);
    });
    switch (admission.kind) {
      case "admitted":
        return { ok: true, lease: { tool: tool.name, limiter, reservation: admission.reservation } };
      case "turned-away":
        return { ok: false, refusal: admission.refusal };
      case "left":
        return { ok: false, refusal: null };
      case "short": {
        const limited = this.#limited(tool);
        const { isUngranted } = admission.shortage;
        const notGranted = isUngranted ? limited.notGranted() : null;
        if (notGranted) return { ok: false, refusal: notGranted };
        const refusal = limitRefusal(admission.shortage, {
          tool: tool.name,
          model,
          lacksModel,
          // On a busy machine some time passes even for a request that is refused at once.
          waited: hasWaited ? Math.round(this.#clock.elapsed() - since) : 0,
          now: limited.now(),
          calendar: this.#calendar,
          neededAllowance: (kind) => limited.counters.neededAllowance(kind, limited.now()),
        });
        return { ok: false, refusal };
      }
    }
  }

  /**
   * The request has a record from now on. A carry that is written before this is called leaves the request out, and the
   * journal repeats its `open` line after the carry. So it is counted once.
   */
  recorded(lease: Lease | null, id: string): void {
    lease?.limiter.counters.recorded(lease.reservation, id);
  }

  /** The request has ended. What is not known counts as held. */
  settle({ limiter, reservation }: Lease, used: Used): void {
    limiter.counters.settle(reservation, used);
    limiter.checkQueue();
  }

  /** Nothing of the request reached the gateway, so nothing counts. */
  cancel({ limiter, reservation }: Lease): void {
    limiter.counters.cancel(reservation);
    limiter.checkQueue();
  }

  /** The console says what a finished request really used. */
  correct(tool: string, correction: Correction): void {
    const limiter = this.#toolLimiter(tool);
    limiter.counters.correct(correction);
    limiter.checkQueue();
  }

  allow(tool: string, allowance: Allowance): void {
    const limiter = this.#toolLimiter(tool);
    limiter.counters.allow(allowance);
    limiter.checkQueue();
  }

  /** Whether it matters which session a request of a tool belongs to. */
  countsSessions(tool: Tool): boolean {
    return this.#limited(tool).counters.sessions.areCounted;
  }

  /** The owner stops a session of a tool, or allows it again. false: too many are stopped. */
  stopSession(tool: string, session: string, stop: SessionStop): boolean {
    return this.#toolLimiter(tool).counters.sessions.stop(session, stop);
  }

  /** The owner gives a session more. An amount of 0 takes back everything given for this limit. */
  liftSession(tool: string, session: string, lift: SessionLift): void {
    this.#toolLimiter(tool).counters.sessions.lift(session, lift);
  }

  /** The sessions of a tool that are counted or stopped. */
  sessionLevels(tool: Tool): SessionLevel[] {
    return this.#limited(tool).counters.sessionLevels();
  }

  /** What the tool's recent requests used, which helps to estimate the next one; null: there was none yet. */
  recentMedian(tool: string): CallTokens | null {
    return this.#toolLimiter(tool).recent.median();
  }

  noteTokens(tool: string, call: CallTokens): void {
    this.#toolLimiter(tool).recent.add(call);
  }

  levels(tool: Tool): ToolLevels {
    return this.#limited(tool).levels();
  }

  /** Appends the headers that show a client how much is left: name, value, name, value. */
  rateHeaders(tool: Tool, headers: string[]): void {
    const limiter = this.#limited(tool);
    const now = limiter.now();
    for (const kind of ["requests", "tokens"] as const) {
      const level = limiter.counters.nearest(kind, now);
      if (level !== null) addRateHeaders(headers, kind, level, now);
    }
  }

  /** The next configuration may have a tool under another name. Then its counters move with it. */
  expectRename(rename: Rename): void {
    this.#expected = rename;
  }

  /**
   * Applies a new configuration. Requests that wait for a tool that is gone or disabled are refused. Returns the rename that
   * took effect; null: none.
   */
  change(config: Config): Rename | null {
    this.#config = config.tools;
    for (const name of this.#renamed.keys()) if (config.tools[name] !== undefined) this.#renamed.delete(name);
    const renamed = this.#takeRename(config.tools);
    for (const [name, limiter] of this.#tools) {
      const tool = config.tools[name];
      if (tool === undefined) limiter.turnAway(toolRemoved(name));
      else if (!tool.enabled)
        limiter.turnAway(refuse("tool-disabled", `tool ${name} was disabled while this request waited`));
      limiter.followGrants(this.#findGranter(name));
      if (tool !== undefined) limiter.change(tool);
      limiter.checkQueue();
    }
    return renamed;
  }

  /** The expected rename, if this configuration makes it. If it has both names, it is no rename. */
  #takeRename(tools: Config["tools"]): Rename | null {
    const expected = this.#expected;
    if (expected === null || tools[expected.to] === undefined) return null;
    this.#expected = null;
    if (tools[expected.from] !== undefined) return null;
    this.rename(expected);
    return expected;
  }

  /** A tool has another name from now on. Its counters move with it. */
  rename({ from, to }: Rename): void {
    // Requests may still name the tool as it was called before the last rename.
    for (const [older, name] of this.#renamed) if (name === from) this.#renamed.set(older, to);
    this.#renamed.set(from, to);
    this.#renamed.delete(to);
    const limiter = this.#tools.get(from);
    if (limiter === undefined) return;
    this.#tools.delete(from);
    this.#tools.set(to, limiter);
    limiter.followGrants(this.#findGranter(to));
  }

  /** Refuses every request that waits. */
  stop(): void {
    for (const limiter of this.#tools.values()) limiter.turnAway(shuttingDown());
  }

  /** What a new journal file begins with. */
  carry(): ToolCarry[] {
    const carries = [...this.#tools].map(([tool, { counters }]) => ({
      tool,
      ...counters.carry(this.#clock.now()),
    }));
    return carries.filter(
      ({ total, windows, allowances, sessions, open }) =>
        total > 0 || windows.length + allowances.length + sessions.length + open.length > 0,
    );
  }

  /** The names that a new journal file repeats after the carry, for lines that still have the old ones. */
  renames(): Rename[] {
    return [...this.#renamed].map(([from, to]) => ({ from, to }));
  }

  /* For the journal, which restores the counters from its lines at start; see LimitsReplay. */

  forgetAll(): void {
    this.#tools.clear();
    this.#renamed.clear();
  }

  /** A tool of this name is a new one, whatever other tool had the name before. */
  forgetRename(name: string): void {
    this.#renamed.delete(name);
  }

  countersFor(tool: string): Counters {
    return this.#toolLimiter(tool).counters;
  }

  /** What is held for the requests in flight counts. */
  settleAll(): void {
    for (const { counters } of this.#tools.values()) counters.settleAll();
  }

  /**
   * With the limits in force. A request may still come with an older configuration, whose limits must not be applied to
   * the requests after it.
   */
  #limited(tool: Tool): ToolLimiter {
    const limiter = this.#toolLimiter(tool.name);
    limiter.change(this.#config?.[this.currentName(tool.name)] ?? tool);
    return limiter;
  }

  /** The configuration in force has no such tool. */
  #isGone(name: string): boolean {
    return this.#config !== null && this.#config[this.currentName(name)] === undefined;
  }

  /** The name of a tool that may have been renamed. */
  currentName(name: string): string {
    return this.#renamed.get(name) ?? name;
  }

  #toolLimiter(name: string): ToolLimiter {
    const current = this.currentName(name);
    let limiter = this.#tools.get(current);
    if (limiter === undefined) {
      limiter = new ToolLimiter(this.#clock, this.#calendar);
      limiter.followGrants(this.#findGranter(current));
      this.#tools.set(current, limiter);
    }
    return limiter;
  }
}

/** How asking for capacity ended. */
type Admission =
  | { readonly kind: "admitted"; readonly reservation: Reservation }
  | { readonly kind: "short"; readonly shortage: Shortage }
  /** The tool was removed or disabled while it waited, the daemon stops, or what was granted cannot be used. */
  | { readonly kind: "turned-away"; readonly refusal: Refusal }
  | { readonly kind: "left" };

/** While requests wait, the queue is checked at least this often, because the wall clock may be set. */
const MAX_SLEEP_MS = 10_000;

/** How often a request asks for a grant, at most: at a window's end the first answer may be for the window before. */
const MAX_ASKS = 3;

/** The limits of one tool: its counters, its queue, and the queue's timer. */
class ToolLimiter {
  readonly counters: Counters;
  readonly recent = new RecentCalls();
  readonly #clock: Clock;
  readonly #queue: WaitingQueue;
  readonly #waiting = new Map<Waiter, (admission: Admission) => void>();
  readonly #ownCalendar: Calendar;
  #calendar: Calendar;
  /** null: the limits are used only here. */
  #granter: Granter | null = null;
  /** What requests ask for that wait for the granter's answer. */
  readonly #asking = new Set<Ask>();
  #timer: NodeJS.Timeout | undefined;

  /** @param ownCalendar while there is no granter */
  constructor(clock: Clock, ownCalendar: Calendar) {
    this.#clock = clock;
    this.#calendar = ownCalendar;
    this.#ownCalendar = ownCalendar;
    this.counters = new Counters({
      at: (time) => this.#calendar.at(time),
      dayStart: (year, month, day) => this.#calendar.dayStart(year, month, day),
      zone: (time) => this.#calendar.zone(time),
    });
    this.#queue = new WaitingQueue(this.counters);
  }

  followGrants(granter: Granter | null): void {
    this.#granter = granter;
    this.#calendar = granter?.calendar ?? this.#ownCalendar;
  }

  change(terms: Terms): void {
    this.counters.change(terms, this.#granter);
  }

  /** Why what a request lacks was not granted; null: because the limit is reached. */
  notGranted(): Refusal | null {
    return this.#granter?.notGranted() ?? null;
  }

  /** The time that decides the windows. */
  now(): number {
    return this.#granter?.now() ?? this.#clock.now();
  }

  get isWaiting(): boolean {
    return this.#queue.length > 0;
  }

  levels(): ToolLevels {
    const now = this.now();
    const levels = this.counters.levels(now);
    const neededAllowances: Partial<Record<LimitKind, number>> = {};
    for (const { limit } of levels)
      if ("per" in limit) neededAllowances[limit.kind] = this.counters.neededAllowance(limit.kind, now);
    return { levels, neededAllowances, inFlight: this.counters.inFlight, waiting: this.#queue.length };
  }

  demands(now: number): Demand[] {
    const asks = [...this.#queue.asks(), ...this.#asking];
    return this.counters.levels(now).map((level) => {
      const needs = asks.map((ask) => this.counters.needAt(level, ask, now));
      const need = needs.reduce((sum, one) => sum + one, 0);
      return { ...level, need, least: needs[0] ?? 0 };
    });
  }

  /** null: there is no capacity now, or other requests wait for it. */
  enterNow(ask: Ask): Reservation | null {
    if (this.#granter !== null) return this.#granter.refusal() === null ? this.#takeGranted(ask) : null;
    const now = this.#clock.now();
    return this.#queue.joinNow(ask, now, now);
  }

  #takeGranted(ask: Ask): Reservation | null {
    const reservation = this.#queue.joinNow(ask, this.now(), this.#clock.now());
    if (reservation !== null) this.#granter?.taken();
    return reservation;
  }

  /** Resolves when there is capacity, or will be none in time. `onWait` gets a function that ends the waiting. */
  async enter(ask: Ask, wait: number, onWait: (leave: () => void) => void): Promise<Admission> {
    const refusal = this.#granter?.refusal() ?? null;
    if (refusal !== null) return { kind: "turned-away", refusal };
    const joined =
      this.#granter === null
        ? this.#queue.join(ask, wait, this.#moment())
        : await this.#joinGranted(ask, wait, this.#granter);
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

  /** Asks for a grant first, unless other requests wait already. */
  async #joinGranted(ask: Ask, wait: number, granter: Granter): Promise<Joined> {
    for (let asks = 0; asks < MAX_ASKS; asks += 1) {
      const shortage = this.counters.check(ask, this.now(), this.#clock.now());
      if (this.isWaiting || shortage === null || !shortage.isUngranted) break;
      // The first time, what is known of the use elsewhere may be old.
      if (asks > 0 && !hasRoom(shortage)) break;
      const reservation = await this.#askForGrant(ask, granter);
      if (reservation !== null) return { state: "admitted", reservation };
    }
    // Where nothing can be granted now, waiting is of no use.
    const canWait = granter.notGranted() === null;
    return this.#queue.join(ask, canWait ? wait : 0, this.#moment());
  }

  /** Takes what the request needs at the moment of the answer. null: not enough was granted. */
  #askForGrant(ask: Ask, granter: Granter): Promise<Reservation | null> {
    this.#asking.add(ask);
    return new Promise((resolve) => {
      granter.ask(() => {
        this.#asking.delete(ask);
        resolve(this.#takeGranted(ask));
      });
    });
  }

  /** Refuses every request that waits. */
  turnAway(refusal: Refusal): void {
    for (const waiter of this.#queue.clear()) this.#answer(waiter, { kind: "turned-away", refusal });
    this.checkQueue();
  }

  /** To be called whenever a request ended, the limits changed, or more was granted. */
  checkQueue(): void {
    clearTimeout(this.#timer);
    if (this.#queue.length === 0) return;
    const unusable = this.#granter?.refusal() ?? null;
    if (unusable !== null) {
      this.turnAway(unusable);
      return;
    }
    const { admitted, refused, againIn } = this.#queue.check(this.#moment());
    if (admitted.length > 0) this.#granter?.taken();
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
    return { now: this.now(), ownNow: this.#clock.now(), elapsed: this.#clock.elapsed() };
  }
}
