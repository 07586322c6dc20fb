import type { Config, Tool } from "../config/shape.ts";
import type { Clock } from "../core/clock.ts";
import { type Refusal, refuse } from "../core/refusal.ts";
import type { Allowance, Ask, Correction, Reservation, Used } from "./counters.ts";
import type { CallTokens } from "./estimate.ts";
import { addRateHeaders, limitRefusal } from "./refusals.ts";
import { type JournalLine, Replay, type ToolCarry } from "./replay.ts";
import { type ToolLevels, ToolLimiter } from "./tool-limiter.ts";
import type { Calendar } from "./windows.ts";

/** What is held for one request until it is settled or canceled. */
export interface Lease {
  readonly tool: string;
  readonly reservation: Reservation;
}

export type Taken =
  | { readonly ok: true; readonly lease: Lease }
  /** A null refusal: the client left while its request waited. */
  | { readonly ok: false; readonly refusal: Refusal | null };

/** What a request asks for, and what a refusal says of it. */
export interface Wanted {
  readonly ask: Ask;
  readonly model: string | null;
  readonly lacksModel?: boolean;
  /** False: it is refused at once where other requests of the tool would wait. */
  readonly mayWait: boolean;
}

export interface LimiterDeps {
  readonly clock: Clock;
  readonly calendar: Calendar;
}

const MAX_WAIT_MS = 3_600_000;

/** The limits of all tools. */
export class Limiter {
  readonly #clock: Clock;
  readonly #calendar: Calendar;
  /** Tools that were removed from config.yaml stay: their requests in flight are settled here, and they may come back. */
  readonly #tools = new Map<string, ToolLimiter>();
  /** The tools of the configuration in force; null: only those that requests came with are known. */
  #config: Config["tools"] | null = null;
  #replay: Replay | null = null;

  constructor({ clock, calendar }: LimiterDeps) {
    this.#clock = clock;
    this.#calendar = calendar;
  }

  /** Takes what a request asks for if there is capacity now. null: take() says why not, or waits for it. */
  takeNow(tool: Tool, ask: Ask): Lease | null {
    const reservation = this.#limited(tool).enterNow(ask);
    return reservation === null ? null : { tool: tool.name, reservation };
  }

  /**
   * Takes what the request asks for from all limits of the tool, or from none. Waits for capacity as long as the tool
   * allows; `onWait` then gets a function that ends the waiting, for when the client leaves.
   */
  async take(tool: Tool, wanted: Wanted, onWait: (leave: () => void) => void): Promise<Taken> {
    const { ask, model, lacksModel = false, mayWait } = wanted;
    const since = this.#clock.elapsed();
    let waits = false;
    const admission = await this.#limited(tool).enter(ask, mayWait ? maxWait(tool) : 0, (leave) => {
      waits = true;
      onWait(leave);
    });
    switch (admission.kind) {
      case "admitted":
        return { ok: true, lease: { tool: tool.name, reservation: admission.reservation } };
      case "turned-away":
        return { ok: false, refusal: admission.refusal };
      case "left":
        return { ok: false, refusal: null };
      case "short": {
        // On a busy machine some time passes even for a request that was refused at once.
        const waited = waits ? Math.round(this.#clock.elapsed() - since) : 0;
        const context = { tool: tool.name, model, lacksModel, waited, now: this.#clock.now() };
        const refusal = limitRefusal(admission.shortage, { ...context, calendar: this.#calendar });
        return { ok: false, refusal };
      }
    }
  }

  /**
   * The request has a record from now on. A carry that is written before this is called leaves the request out, and the
   * journal repeats its `open` line after the carry. So it is counted once.
   */
  recorded(lease: Lease | null, id: string): void {
    if (lease !== null) this.#toolLimiter(lease.tool).counters.recorded(lease.reservation, id);
  }

  /** The request has ended. What was not reported counts as held. */
  settle({ tool, reservation }: Lease, used: Used): void {
    const limiter = this.#toolLimiter(tool);
    limiter.counters.settle(reservation, used);
    limiter.checkQueue();
  }

  /** Nothing of the request reached the gateway, so nothing counts. */
  cancel({ tool, reservation }: Lease): void {
    const limiter = this.#toolLimiter(tool);
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

  /** What the tool's last requests used, which helps to estimate the next one. */
  usual(tool: string): CallTokens | null {
    return this.#toolLimiter(tool).recent.median();
  }

  note(tool: string, call: CallTokens): void {
    this.#toolLimiter(tool).recent.note(call);
  }

  levels(tool: Tool): ToolLevels {
    return this.#limited(tool).levels();
  }

  /** Appends the headers that tell a client how much is left: name, value, name, value. */
  rateHeaders(tool: Tool, headers: string[]): void {
    const { counters } = this.#limited(tool);
    const now = this.#clock.now();
    for (const kind of ["requests", "tokens"] as const) {
      const level = counters.nearest(kind, now);
      if (level !== null) addRateHeaders(headers, kind, level, now);
    }
  }

  /** Applies a new configuration. Requests that wait for a tool that is gone or disabled are refused. */
  change(config: Config): void {
    this.#config = config.tools;
    for (const [name, limiter] of this.#tools) {
      const tool = config.tools[name];
      if (!tool?.enabled) limiter.turnAway(goneRefusal(name, tool !== undefined));
      if (tool !== undefined) limiter.counters.change(tool);
      limiter.checkQueue();
    }
  }

  /** Refuses every request that waits. */
  stop(): void {
    const refusal = refuse("shutting-down", "keybearer is stopping. try again in a moment", 2);
    for (const limiter of this.#tools.values()) limiter.turnAway(refusal);
  }

  /** What a new journal file begins with. */
  carry(): ToolCarry[] {
    const carries = [...this.#tools].map(([tool, { counters }]) => ({ tool, ...counters.carry() }));
    return carries.filter(
      ({ total, windows, allowances, open }) =>
        total > 0 || windows.length + allowances.length + open.length > 0,
    );
  }

  /** Forgets everything, because the lines of the journal are read from the beginning. */
  startReplay(): void {
    this.#tools.clear();
    this.#replay = new Replay((tool) => this.#toolLimiter(tool).counters);
  }

  /** Reads one line of the newest journal file. At start, before any request is served, all of them are read in order. */
  replay(line: JournalLine): void {
    this.#replay?.read(line);
  }

  /** All lines were read. A request that is still in flight has lost its lines: what was held for it counts. */
  endReplay(): void {
    this.#replay = null;
    for (const { counters } of this.#tools.values()) counters.settleAll();
  }

  /**
   * With the limits in force. A request may still come with an older configuration, whose limits must not be applied to
   * the requests after it.
   */
  #limited(tool: Tool): ToolLimiter {
    const limiter = this.#toolLimiter(tool.name);
    limiter.counters.change(this.#config?.[tool.name] ?? tool);
    return limiter;
  }

  #toolLimiter(name: string): ToolLimiter {
    let limiter = this.#tools.get(name);
    if (limiter === undefined) {
      limiter = new ToolLimiter(this.#clock, this.#calendar);
      this.#tools.set(name, limiter);
    }
    return limiter;
  }
}

function maxWait({ limits }: Tool): number {
  return Math.min(limits.wait, MAX_WAIT_MS);
}

function goneRefusal(tool: string, isKnown: boolean): Refusal {
  return isKnown
    ? refuse("tool-disabled", `tool ${tool} was disabled while this request waited`)
    : refuse("token-unknown", `tool ${tool} was removed while this request waited`);
}
