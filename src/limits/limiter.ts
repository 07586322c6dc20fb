import type { Clock } from "../clock.ts";
import type { Config, Period, Tool } from "../config/shape.ts";
import { type Refusal, refuse } from "../refusal.ts";
import type { Correction } from "./correction.ts";
import type { Ask, Reservation, Span, Sums, Used } from "./counters.ts";
import type { CallTokens } from "./estimate.ts";
import type { Lift } from "./frames.ts";
import { Gate } from "./gate.ts";
import { limitRefusal, type Unseen, unknownSpent } from "./refusals.ts";
import type { Level } from "./shortage.ts";
import type { Calendar } from "./windows.ts";

/** What is held for one request until it is settled or given back. */
export interface Lease {
  readonly tool: string;
  readonly reservation: Reservation;
}

export type Taken =
  | { readonly ok: true; readonly lease: Lease }
  /** A null refusal: the client left while it waited. */
  | { readonly ok: false; readonly refusal: Refusal | null };

/** What a request asks for, and how it is called in a refusal. */
export interface Wanted {
  readonly ask: Ask;
  readonly model: string | null;
  readonly unseen?: Unseen | null;
  /** False: where others of the tool would wait, it is refused at once. */
  readonly mayWait: boolean;
}

/** What the usage log says a tool has used. */
export interface Spent {
  readonly sums: Readonly<Record<Period, Sums>>;
  readonly ever: number;
  readonly lifts: readonly Lift[];
}

/** How full a tool's limits are. */
export interface Standing {
  readonly levels: readonly Level[];
  readonly running: number;
  readonly waiting: number;
}

export interface Limiter {
  /**
   * Takes what a request asks for where there is room at once, as there is nearly always. null: there may be none, and
   * take() says why, or waits for it.
   */
  takeNow(tool: Tool, ask: Ask): Lease | null;
  /** Whether a request would have to wait, were it to take() in this very moment. */
  wouldWait(tool: Tool, ask: Ask): boolean;
  /**
   * Takes what the request asks for from all limits of the tool, or from none. Waits for room as long as the tool says;
   * `whenLeft` is called with what ends the waiting when the client is gone.
   */
  take(tool: Tool, wanted: Wanted, whenLeft: (leave: () => void) => void): Promise<Taken>;
  /** It has its record, and is counted among the requests that the log tells of. */
  recorded(lease: Lease | null): void;
  /** The call has ended. `used` is what the gateway told; null: nobody told. */
  settle(lease: Lease, used: Used): void;
  /** Nothing of it reached the gateway: as if it had not been. */
  giveBack(lease: Lease): void;
  /** The console told what an ended call really used. It stands in the log already. */
  correct(tool: string, correction: Correction): void;
  /** What the tool's last calls used, for the next one's reservation. */
  usual(tool: string): CallTokens | null;
  note(tool: string, call: CallTokens): void;
  levels(tool: Tool): Standing;
  /** Adds the headers that tell a client how much is left: name, value, name, value. */
  rateHeaders(tool: Tool, headers: string[]): void;
  /** Counts an allowance that was written to the log. */
  lift(tool: Tool, lift: Lift): void;
  /** A new configuration: those that wait for a tool that is gone or disabled are told. */
  change(config: Config): void;
  /** Records of an earlier log were saved: what was used is read anew. What is counted already is never taken back. */
  restoreAgain(): void;
  /** Whoever waits is refused. */
  stop(): void;
}

export interface LimiterMeans {
  readonly clock: Clock;
  readonly calendar: Calendar;
  /** null: the log cannot be read, be it for a moment. Until it can, no limit has room. */
  readonly spent: (tool: Tool, spans: Readonly<Record<Period, Span>>) => Spent | null;
}

/** An hour. At a start the log is asked for what began so long before a window, and was let in inside it. */
const LONGEST_WAIT = 3_600_000;

export function createLimiter({ clock, calendar, spent }: LimiterMeans): Limiter {
  /** Kept also for a tool that is gone: its calls under way are settled here, and it may come back. */
  const gates = new Map<string, Gate>();
  /** In force. A request may be on its way under an older one, by which its tool's limits must not be set up. */
  let latest: Config["tools"] | null = null;
  const gateFor = (tool: Tool): Gate => {
    const known = gates.get(tool.name);
    if (known !== undefined) return known;
    const gate = new Gate(latest?.[tool.name] ?? tool, calendar, clock, spent);
    gates.set(tool.name, gate);
    return gate;
  };
  const gateOf = (tool: Tool): Gate => {
    const gate = gateFor(tool);
    gate.restore();
    return gate;
  };

  return {
    takeNow(tool, ask) {
      const gate = gateOf(tool);
      const reservation = gate.known ? gate.enterNow(ask) : null;
      return reservation === null ? null : { tool: tool.name, reservation };
    },
    wouldWait(tool, ask) {
      const wait = waitOf(tool);
      if (wait === 0) return false;
      const gate = gateOf(tool);
      return gate.known && gate.wouldWait(ask, wait);
    },
    async take(tool, { ask, model, unseen = null, mayWait }, whenLeft) {
      const since = clock.elapsed();
      const gate = gateOf(tool);
      if (!gate.known) return { ok: false, refusal: unknownSpent(tool.name) };
      let waits = false;
      const admission = await gate.enter(ask, mayWait ? waitOf(tool) : 0, (leave) => {
        waits = true;
        whenLeft(leave);
      });
      if (admission.kind === "go")
        return { ok: true, lease: { tool: tool.name, reservation: admission.reservation } };
      if (admission.kind === "told") return { ok: false, refusal: admission.refusal };
      if (admission.kind === "left") return { ok: false, refusal: null };
      // On a busy machine some time passes here also for one that was refused at once.
      const waited = waits ? Math.round(clock.elapsed() - since) : 0;
      const context = { tool: tool.name, model, unseen, waited, now: clock.now(), calendar };
      return { ok: false, refusal: limitRefusal(admission.shortage, context) };
    },
    recorded: (lease) => lease && gates.get(lease.tool)?.logged(lease.reservation),
    settle: ({ tool, reservation }, used) => gates.get(tool)?.settle(reservation, used),
    giveBack: ({ tool, reservation }) => gates.get(tool)?.cancel(reservation),
    correct: (tool, correction) => gates.get(tool)?.correct(correction),
    usual: (tool) => gates.get(tool)?.recent.median() ?? null,
    note: (tool, call) => gates.get(tool)?.recent.note(call),
    levels: (tool) => gateOf(tool).standing(),
    rateHeaders: (tool, headers) => gateOf(tool).rateHeaders(headers),
    lift(tool, lift) {
      const gate = gateFor(tool);
      // It stands in the log already: where that is read only now, it is among those that were given.
      if (!gate.restore()) gate.lift(lift);
    },
    change(config) {
      latest = config.tools;
      for (const [name, gate] of gates) {
        const tool = config.tools[name];
        if (!tool?.enabled) gate.turnAway(gone(name, tool !== undefined));
        if (tool !== undefined) gate.change(tool);
      }
    },
    restoreAgain() {
      for (const gate of gates.values()) gate.restoreAgain();
    },
    stop() {
      const refusal = refuse("shutting-down", "keybearer is stopping. try again in a moment", 2);
      for (const gate of gates.values()) gate.turnAway(refusal);
    },
  };
}

function waitOf({ limits }: Tool): number {
  return Math.min(limits.wait, LONGEST_WAIT);
}

function gone(tool: string, there: boolean): Refusal {
  return there
    ? refuse("tool-disabled", `tool ${tool} was disabled while this request waited`)
    : refuse("token-unknown", `tool ${tool} was removed while this request waited`);
}
