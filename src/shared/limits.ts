import type { Config, Period, Tool } from "../config/schema.ts";
import { advice } from "../core/advice.ts";
import { background } from "../core/background.ts";
import type { Clock } from "../core/clock.ts";
import type { Logger } from "../core/log.ts";
import { type Refusal, refuse } from "../core/refusal.ts";
import { HOUR_MS, MINUTE_MS, twoDigits } from "../core/units.ts";
import type { CountedLimit, Grant, Level } from "../limits/counters.ts";
import type { Demand, Granter, Limiter } from "../limits/limiter.ts";
import { type Calendar, contains, type Window } from "../limits/windows.ts";
import { StoreError } from "./connection.ts";
import { HEARTBEAT_TIMEOUT_MS } from "./scripts.ts";
import type { SharedHold } from "./status.ts";
import type { GrantAnswer, GrantAsk, Part, Presence, Store } from "./store.ts";
import type { Mark } from "./store-clock.ts";

interface SharedLimiterDeps {
  readonly store: Store;
  readonly limiter: Limiter;
  readonly tools: () => Config["tools"];
  readonly calendar: Calendar;
  readonly clock: Clock;
  readonly log: Logger;
  /** The store's address, for messages. */
  readonly address: string;
  readonly machine: { readonly id: () => string; readonly name: string };
  readonly whenUnreachable: "grant" | "refuse";
  readonly presence: () => Presence;
  /** The store has answered, and listed the machines. */
  readonly onAnswer: () => void;
  /** Cuts the requests of a tool that are in flight. Returns how many there were. */
  readonly cut: (tool: string) => number;
}

/** What one machine has of a limit. */
export interface MachinePart {
  readonly name: string;
  readonly granted: number;
  readonly used: number;
}

/** What the store granted to this machine of one limit, in one window. */
interface Holding {
  readonly key: string;
  readonly tool: string;
  readonly limit: CountedLimit;
  /** null: the limit does not depend on time. */
  readonly window: Window | null;
  granted: number;
  /** The limit under which it was granted. */
  max: number;
  /** What this machine had used and held at the last regular report. */
  ownAtReport: number;
  /** How much the last refill brought. The next one is due when half of it is left. */
  step: number;
  others: readonly MachinePart[];
  othersGranted: number;
  othersUsed: number;
  /** Of all machines, as of the store's last answer. */
  parts: readonly Part[];
  /** When a request last took from it, on the clock that only goes forward. */
  takenAt: number;
}

/** This machine reports at least this often that it is there. */
const REPORT_MS = 10_000;
/** What requests do not take for this long goes back to the store. */
const IDLE_MS = 10_000;
/** The same for `concurrent`, where another machine may wait for it. */
const IDLE_CONCURRENT_MS = 1000;
/** After this long without an answer, requests in flight are cut: soon the other machines stop counting them. */
const SILENCE_MS = HEARTBEAT_TIMEOUT_MS - 10_000;
/** A grant ends a tenth of its window before the window does, at most a minute: clocks are never exactly equal. */
const MARGIN_DIVISOR = 10;
const MAX_MARGIN_MS = MINUTE_MS;
/** In shorter windows every request asks the store. */
const SHORTEST_GRANT_MS = 10_000;
/** The store keeps a window this much longer than it lasts, in case its clock is set back. */
const KEEP_WINDOW_MS = HOUR_MS;
/** For how long a machine reports a window that has ended: its estimate of the store's clock may be ahead. */
const REPORT_ENDED_MS = MINUTE_MS;
/** An older answer no longer shows the present time: the process was stopped before it read it. */
const FRESH_MS = 2000;
const RETRY_AFTER_SECONDS = 5;
/** The end of a window that has none. */
const NEVER = Number.MAX_SAFE_INTEGER;

/**
 * The limits that several machines share. In each window the store holds what every machine was granted, and grants no more
 * than the limit. A machine spends its grant without asking, and gets more in the background.
 *
 * One call is in flight at a time, and it carries what all tools need. Before a machine returns a part of its grant, it
 * stops spending it; what it was granted it spends only after the answer. So whatever call or answer is lost, the store
 * never counts less than the machine holds.
 */
export class SharedLimiter {
  readonly #deps: SharedLimiterDeps;
  /** By store key. */
  readonly #holdings = new Map<string, Holding>();
  readonly #granters = new Map<string, Granter>();
  /** The tools that the next call is about; null: all. */
  #due: Set<string> | null = new Set();
  /** The keys of the grants that get more, although no request waits for it. */
  readonly #refills = new Set<string>();
  /** To be called after the store's next answer, or when there will be none. Those that waited longer come first. */
  #askers: (() => void)[] = [];
  /** The tools of which a request took something in this turn of the event loop. */
  readonly #taken = new Set<string>();
  #isCalling = false;
  /** Nothing was reported yet on this connection. */
  #isFirstCall = true;
  /** When the last call was sent that the store answered; null: none was. */
  #lastContact: Mark | null;
  /** When the last call was sent that was about all tools, on the clock that only goes forward. */
  #lastReport = Number.NEGATIVE_INFINITY;
  /** The store's time in its last answer. */
  #lastAnswerTime: number | null = null;
  /** The store's time while its answer is taken; null: at other times. */
  #appliedAnswerTime: number | null = null;
  /** Another one counts now, or the daemon stops. */
  #isRetired = false;

  /** @param before the one that this one replaces. Its requests are still in flight. */
  constructor(deps: SharedLimiterDeps, before: SharedLimiter | null) {
    this.#deps = deps;
    this.#lastContact = before === null ? null : before.#lastContact;
  }

  /** null: the tool shares its limits with no other machine. */
  granterFor(name: string): Granter | null {
    if (this.#deps.tools()[name]?.shared !== true) return null;
    let granter = this.#granters.get(name);
    if (granter === undefined) {
      granter = this.#createGranter(name);
      this.#granters.set(name, granter);
    }
    return granter;
  }

  #createGranter(name: string): Granter {
    return {
      now: () => this.#now(),
      calendar: this.#deps.calendar,
      grantFor: (limit, window, max) => this.#grantFor(name, limit, window, max),
      refusal: () => (this.#mustRefuse(name) ? this.#unavailable(name, "") : null),
      notGranted: () => this.#notGranted(name),
      ask: (then) => this.#ask(name, then),
      taken: () => this.#noteTaken(name),
    };
  }

  /** There is a new connection: everything that this machine holds is reported on it first. */
  connected(): void {
    this.#isFirstCall = true;
    this.#callAll();
  }

  /** Requests that wait for an answer get none. */
  disconnected(): void {
    if (!this.#isCalling) this.#answerAskers(this.#takeAskers());
  }

  /** What was granted to this machine is no longer its own. */
  forfeit(): void {
    for (const holding of this.#holdings.values()) holding.granted = 0;
  }

  /** To be called every second. */
  tick(): void {
    this.#cutWhenSilent();
    this.#forgetWindows();
    for (const tool of this.#toolsThatShare()) {
      if (this.#deps.limiter.isWaiting(tool.name)) this.#due?.add(tool.name);
    }
    this.#scheduleReturns();
    if (this.#isReportDue()) this.#due = null;
    this.#call();
  }

  /** Brings what is known of the other machines up to date. */
  async refresh(): Promise<void> {
    if (this.#deps.store.generation === null) return;
    await new Promise<void>((resolve) => {
      this.#askers.push(resolve);
      this.#callAll();
    });
  }

  /** From now on, this one only reports and returns what it holds. */
  retire(): void {
    this.#isRetired = true;
  }

  /** Returns everything that is not used. */
  async stop(): Promise<void> {
    this.retire();
    await this.refresh();
  }

  /** The store's keys of the tool's limits, as far as they count now. */
  keysOf(tool: Tool): string[] {
    return this.#deps.limiter
      .demands(tool, this.#now())
      .map(({ limit, window }) => this.#keyOf(tool.name, limit, window));
  }

  /** What a machine holds of running limits, as of the store's last answer. */
  listHolds(machineId: string): SharedHold[] {
    const holds: SharedHold[] = [];
    for (const { tool, limit, window, parts } of this.#holdings.values()) {
      const part = parts.find(({ machine }) => machine === machineId);
      if (part === undefined || (window !== null && !contains(window, this.#now()))) continue;
      // What is used of `concurrent` are requests in flight.
      const amount = limit.kind === "concurrent" ? part.granted : part.granted - part.used;
      const per = "per" in limit ? limit.per : null;
      if (amount > 0) holds.push({ tool, limit: limit.kind, per, amount });
    }
    return holds;
  }

  /** Never behind the store's clock. Without any contact, nothing is granted, and the time does not matter. */
  #now(): number {
    return this.#appliedAnswerTime ?? this.#deps.store.clock.now() ?? this.#deps.clock.now();
  }

  #toolsThatShare(): Tool[] {
    return Object.values(this.#deps.tools()).filter(({ shared }) => shared);
  }

  #grantFor(tool: string, limit: CountedLimit, window: Window | null, max: number): Grant {
    const holding = this.#holdings.get(this.#keyOf(tool, limit, window));
    if (holding === undefined) return { granted: 0, usedElsewhere: 0, heldElsewhere: 0 };
    const { othersGranted, othersUsed } = holding;
    return {
      // After the limit was lowered, the store must be asked again.
      granted: holding.max <= max ? this.#spendable(holding) : 0,
      usedElsewhere: othersUsed,
      heldElsewhere: Math.max(0, othersGranted - othersUsed),
    };
  }

  /** What each machine used of a limit and was granted, this one first. Empty: the tool shares its limits with none. */
  listParts(tool: string, { limit, window, used, held }: Level): readonly MachinePart[] {
    if (this.granterFor(tool) === null) return [];
    const holding = this.#holdings.get(this.#keyOf(tool, limit, window));
    const granted = holding === undefined ? 0 : this.#spendable(holding);
    const own = { name: this.#deps.machine.name, used, granted: Math.max(granted, used + held) };
    return [own, ...(holding?.others ?? [])];
  }

  #spendable(holding: Holding): number {
    return this.#isSpendable(holding) ? holding.granted : 0;
  }

  #isSpendable({ limit, window }: Holding): boolean {
    if (window === null) return limit.kind === "quota" || this.#silentFor() < SILENCE_MS;
    // At the moment of the store's answer, its own clock decides.
    if (this.#appliedAnswerTime !== null) return contains(window, this.#appliedAnswerTime);
    return canSpend(window, this.#now());
  }

  #mustRefuse(name: string): boolean {
    const { whenUnreachable, store, tools } = this.#deps;
    const isReachable = store.generation !== null || store.state === "connecting";
    const tool = tools()[name];
    return whenUnreachable === "refuse" && !isReachable && tool !== undefined && hasLimits(tool);
  }

  #notGranted(tool: string): Refusal | null {
    const { store } = this.#deps;
    if (store.generation === null)
      return this.#unavailable(tool, ". what this machine was granted is used up");
    if (store.isSettled) return null;
    const names = store.machines.filter(({ isUnreported }) => isUnreported).map(({ name }) => name);
    const [first] = names;
    const until =
      first === undefined
        ? "for some seconds, in which the machines join again"
        : `until these machines have reported: ${names.join(", ")}. if one of them is lost, the owner can type: ` +
          advice.releaseMachine(tool, first);
    return refuse(
      "store-unavailable",
      `tool ${tool} shares its limits through ${this.#deps.address}, which may have lost data. it grants nothing in ` +
        `running windows ${until}`,
      RETRY_AFTER_SECONDS,
    );
  }

  #unavailable(tool: string, more: string): Refusal {
    const { store, address } = this.#deps;
    const problem = store.problem === null ? "" : ` (${store.problem})`;
    return refuse(
      "store-unavailable",
      `tool ${tool} shares its limits with other machines through ${address}, which cannot be used now${problem}${more}. ` +
        `the owner can type: ${advice.doctor()}`,
      RETRY_AFTER_SECONDS,
    );
  }

  #ask(tool: string, then: () => void): void {
    const { store } = this.#deps;
    if (store.generation === null && store.state !== "connecting") {
      then();
      return;
    }
    this.#askers.push(then);
    this.#due?.add(tool);
    this.#call();
  }

  /** Checks once in a turn of the event loop, after its requests, whether a refill is due. */
  #noteTaken(tool: string): void {
    if (this.#taken.size === 0) setImmediate(() => this.#checkRefills());
    this.#taken.add(tool);
  }

  #checkRefills(): void {
    const elapsed = this.#deps.clock.elapsed();
    for (const name of this.#taken) {
      const tool = this.#deps.tools()[name];
      if (tool === undefined) continue;
      for (const demand of this.#deps.limiter.demands(tool, this.#now())) {
        const holding = this.#holdings.get(this.#keyOf(name, demand.limit, demand.window));
        if (holding === undefined) continue;
        holding.takenAt = elapsed;
        const left = holding.granted - demand.used - demand.held;
        const hasRoom = holding.granted + holding.othersGranted < demand.max;
        // Nothing is taken of `concurrent` in advance: another machine may wait for it.
        const isConcurrent = demand.limit.kind === "concurrent";
        if (isConcurrent || !hasRoom || left >= holding.step / 2 || !canSpend(demand.window, this.#now()))
          continue;
        this.#refills.add(holding.key);
        this.#due?.add(name);
      }
    }
    this.#taken.clear();
    if (this.#refills.size > 0) this.#call();
  }

  #callAll(): void {
    this.#due = null;
    this.#call();
  }

  /** Calls the store if something is due and no call is in flight. After a call, it is checked again. */
  #call(): void {
    const isDue = this.#due === null || this.#due.size > 0;
    if (this.#isCalling || !isDue || this.#deps.store.generation === null) return;
    if (this.#isRetired && this.#isFirstCall) {
      // A first call must report everything. The one that counts now does that on its own connection.
      this.#answerAskers(this.#takeAskers());
      return;
    }
    this.#isCalling = true;
    background(
      this.#callStore().finally(() => {
        this.#isCalling = false;
        if (this.#deps.store.generation === null) this.disconnected();
        this.#call();
      }),
      this.#deps.log,
      "asking the shared store for grants",
    );
  }

  async #callStore(): Promise<void> {
    const { store, presence } = this.#deps;
    const askers = this.#takeAskers();
    const asks = [...this.#collect().values()];
    const sentAt = store.clock.mark();
    try {
      const { time, answers } = await store.grant(
        asks.map(({ ask }) => ask),
        presence(),
      );
      const isLate = this.#lastAnswerTime !== null && time - this.#lastAnswerTime > SILENCE_MS;
      if (isLate) this.#cutRequests();
      this.#deps.onAnswer();
      this.#isFirstCall = false;
      this.#lastContact = sentAt;
      this.#lastAnswerTime = time;
      const age = (store.clock.now() ?? time) - time;
      if (age < FRESH_MS) this.#appliedAnswerTime = time;
      for (const [at, asked] of asks.entries()) this.#take(asked, answers[at]);
    } catch (error) {
      // Everything that is held must be reported again on the next connection.
      if (!(error instanceof StoreError)) throw error;
    } finally {
      this.#answerAskers(askers);
      this.#appliedAnswerTime = null;
    }
  }

  #takeAskers(): readonly (() => void)[] {
    const askers = this.#askers;
    this.#askers = [];
    return askers;
  }

  /** Requests that already waited in the limiter's queue come first. */
  #answerAskers(askers: readonly (() => void)[]): void {
    if (this.#appliedAnswerTime !== null)
      for (const tool of this.#toolsThatShare()) this.#deps.limiter.granted(tool.name);
    for (const then of askers) then();
  }

  /** What the call is about, by store key. */
  #collect(): Map<string, Asked> {
    const isAll = this.#isRetired || this.#isFirstCall || this.#due === null;
    const isRegularReport = isAll && !this.#isFirstCall && this.#isReportDue();
    if (isAll) this.#lastReport = this.#deps.clock.elapsed();
    const due = this.#due ?? new Set();
    this.#due = new Set();
    const asks = new Map<string, Asked>();
    // The limiter has the calendar of the one that counts now. So #collectRest() reports what this one holds.
    const tools = this.#isRetired ? [] : this.#toolsThatShare();
    for (const tool of tools) {
      if (!isAll && !due.has(tool.name)) continue;
      for (const demand of this.#deps.limiter.demands(tool, this.#now())) {
        const asked = this.#askFor(tool.name, demand, isRegularReport);
        const { key, limit } = asked.ask;
        // Of two limits with the same period, the lower one counts.
        if (limit < (asks.get(key)?.ask.limit ?? Number.POSITIVE_INFINITY)) asks.set(key, asked);
      }
    }
    this.#refills.clear();
    if (isAll) this.#collectRest(asks);
    return asks;
  }

  #askFor(tool: string, demand: Demand, isRegularReport: boolean): Asked {
    const { limit, window, used, held, max, need, least } = demand;
    const holding = this.#holdingFor(tool, limit, window);
    const own = used + held;
    // From here on the rest is not spent, and the call returns it.
    holding.granted = Math.min(holding.granted, this.#mayKeep(holding, demand, isRegularReport));
    if (isRegularReport) holding.ownAtReport = own;
    const keep = Math.max(own, holding.granted);
    const spare = canSpend(window, this.#now());
    const report = { ...reportHolding(holding, keep, used), held, limit: max };
    if (need > 0) return { holding, ask: { ...report, need: own + need, least: own + least, spare } };
    const isRefill = spare && this.#refills.has(holding.key);
    return { holding, ask: isRefill ? { ...report, need: keep + 1, spare } : report };
  }

  /** How much of its grant this machine may keep. */
  #mayKeep(holding: Holding, { used, held, max, need }: Demand, isRegularReport: boolean): number {
    const own = used + held;
    // While a request lacks something, all that is unused goes back: otherwise two machines could each hold a part of what
    // both need.
    if (need > 0 || this.#isIdle(holding)) return own;
    // The limit was lowered. What was granted under the higher one goes back.
    if (max < holding.max) return own;
    // Twice what was taken since the last report. A machine with little to do leaves the rest to the others.
    const busy = own + 2 * Math.max(0, own - holding.ownAtReport);
    return isRegularReport ? busy : holding.granted;
  }

  /** Adds the grants that no limit in force covers: of a window that just ended, or of a limit that config.yaml no longer has. */
  #collectRest(asks: Map<string, Asked>): void {
    for (const holding of this.#holdings.values()) {
      const { key, tool, limit, window } = holding;
      if (asks.has(key)) continue;
      const hasEnded = window !== null && this.#now() >= window.end;
      const own = this.#deps.limiter.countUse(tool, limit, window);
      // By the store's clock the window may still run, so its grant stays.
      if (!hasEnded) holding.granted = own;
      asks.set(key, { holding, ask: reportHolding(holding, Math.max(own, holding.granted), own) });
    }
  }

  #take({ holding, ask }: Asked, answer: GrantAnswer | undefined): void {
    if (answer === undefined) return;
    const { machine, store } = this.#deps;
    const names = new Map(store.machines.map(({ id, name }) => [id, name]));
    if (answer.granted > ask.keep) holding.step = answer.granted - ask.keep;
    holding.granted = answer.granted;
    holding.max = ask.limit;
    holding.parts = answer.parts;
    // No machine takes of `concurrent` in advance, so a place is granted for a request before it is reported in flight.
    const isConcurrent = holding.limit.kind === "concurrent";
    const others = answer.parts
      .filter((part) => part.machine !== machine.id())
      .map((part) => (isConcurrent ? { ...part, used: part.granted } : part));
    holding.others = others.map(({ machine: id, granted, used }) => ({
      name: names.get(id) ?? "a machine that is gone",
      granted,
      used,
    }));
    holding.othersGranted = sum(others.map(({ granted, used }) => Math.max(granted, used)));
    holding.othersUsed = sum(others.map(({ used }) => used));
  }

  #holdingFor(tool: string, limit: CountedLimit, window: Window | null): Holding {
    const key = this.#keyOf(tool, limit, window);
    let holding = this.#holdings.get(key);
    if (holding === undefined) {
      holding = {
        key,
        tool,
        limit,
        window: window === null ? null : { start: window.start, end: window.end },
        granted: 0,
        max: 0,
        ownAtReport: 0,
        step: 0,
        others: [],
        othersGranted: 0,
        othersUsed: 0,
        parts: [],
        takenAt: this.#deps.clock.elapsed(),
      };
      this.#holdings.set(key, holding);
    }
    return holding;
  }

  /** Days and months by their names: machines whose zone data differ still share them. */
  #keyOf(tool: string, limit: CountedLimit, window: Window | null): string {
    const { store, calendar } = this.#deps;
    if (window === null || !("per" in limit)) return store.key("window", tool, limit.kind);
    return store.key("window", tool, limit.kind, limit.per, windowName(limit.per, window, calendar));
  }

  /** Requests have not taken from it for a while. */
  #isIdle({ limit, granted, takenAt }: Holding): boolean {
    const idleAfter = limit.kind === "concurrent" ? IDLE_CONCURRENT_MS : IDLE_MS;
    return granted > 0 && this.#deps.clock.elapsed() - takenAt > idleAfter;
  }

  /** Makes the tools due that have an idle grant to return. */
  #scheduleReturns(): void {
    const idle = new Set<string>();
    for (const holding of this.#holdings.values()) if (this.#isIdle(holding)) idle.add(holding.tool);
    for (const name of idle) {
      const tool = this.#deps.tools()[name];
      if (tool === undefined) continue;
      for (const { limit, window, used, held } of this.#deps.limiter.demands(tool, this.#now())) {
        const holding = this.#holdings.get(this.#keyOf(name, limit, window));
        if (holding !== undefined && this.#isIdle(holding) && holding.granted > used + held)
          this.#due?.add(name);
      }
    }
  }

  #isReportDue(): boolean {
    return this.#deps.clock.elapsed() - this.#lastReport >= REPORT_MS;
  }

  /** How long the store has not answered, by the larger of two clocks: one stops while the machine sleeps. */
  #silentFor(): number {
    const { wall, elapsed } = this.#silence();
    return Math.max(wall, elapsed);
  }

  #silence(): Mark {
    if (this.#lastContact === null)
      return { elapsed: Number.POSITIVE_INFINITY, wall: Number.POSITIVE_INFINITY };
    const { wall, elapsed } = this.#deps.store.clock.mark();
    return { wall: wall - this.#lastContact.wall, elapsed: elapsed - this.#lastContact.elapsed };
  }

  /**
   * The other machines no longer count the requests in flight of a machine that is silent. So it ends them in time, or at
   * once when it wakes.
   */
  #cutWhenSilent(): void {
    const { wall, elapsed } = this.#silence();
    if (this.#lastContact === null || Math.max(wall, elapsed) < SILENCE_MS) return;
    // The machine slept, or its clock was set. The store's answer shows which.
    if (elapsed < SILENCE_MS && this.#deps.store.generation !== null) this.#callAll();
    else this.#cutRequests();
  }

  #cutRequests(): void {
    for (const holding of this.#holdings.values())
      if (holding.limit.kind === "concurrent") holding.granted = 0;
    for (const name of this.#toolsWithConcurrent()) {
      const cut = this.#deps.cut(name);
      if (cut > 0)
        this.#deps.log.warn(
          { tool: name, cut },
          `tool ${name}: requests in flight were cut, because the shared store did not answer for too long`,
        );
    }
  }

  /** Also of tools that config.yaml no longer has: they may have requests in flight. */
  #toolsWithConcurrent(): readonly string[] {
    const { tools, limiter } = this.#deps;
    const holdings = [...this.#holdings.values()].filter(({ limit }) => limit.kind === "concurrent");
    const removed = holdings.filter(({ tool }) => tools()[limiter.currentName(tool)] === undefined);
    const shared = this.#toolsThatShare().filter(({ limits }) => limits.concurrent !== null);
    return [...shared.map(({ name }) => name), ...removed.map(({ tool }) => tool)];
  }

  #forgetWindows(): void {
    const now = this.#now();
    for (const [key, { window }] of this.#holdings) {
      if (window !== null && window.end + REPORT_ENDED_MS < now) this.#holdings.delete(key);
    }
  }
}

function hasLimits({ limits, quota }: Tool): boolean {
  const { requests, tokens, spend, concurrent } = limits;
  return requests.length + tokens.length + spend.length > 0 || concurrent !== null || quota !== null;
}

interface Asked {
  readonly holding: Holding;
  readonly ask: GrantAsk;
}

/** Says what this machine holds, and asks for nothing. */
function reportHolding({ key, tool, limit, window }: Holding, keep: number, used: number): GrantAsk {
  const common = { key, tool, keep, need: 0, least: 0, spare: false, used, held: 0, limit: keep };
  const isConcurrent = limit.kind === "concurrent";
  if (window === null) return { ...common, start: 0, end: NEVER, expires: 0, isConcurrent };
  const { start, end } = window;
  const expires = end + Math.max(KEEP_WINDOW_MS, end - start);
  return { ...common, start, end, expires, isConcurrent };
}

function isShort({ start, end }: Window): boolean {
  return end - start < SHORTEST_GRANT_MS;
}

function safetyMargin({ start, end }: Window): number {
  return Math.min((end - start) / MARGIN_DIVISOR, MAX_MARGIN_MS);
}

/** Whether requests can spend a grant of this window without asking. */
function canSpend(window: Window | null, now: number): boolean {
  return window === null || (!isShort(window) && now < window.end - safetyMargin(window));
}

function windowName(per: Period, { start }: Window, calendar: Calendar): string {
  if (per !== "day" && per !== "month") return String(start);
  // An hour later: where clocks change at midnight, zone data may disagree on the first moment.
  const { year, month, day } = calendar.at(start + HOUR_MS);
  const name = `${year}-${twoDigits(month)}`;
  return per === "month" ? name : `${name}-${twoDigits(day)}`;
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
