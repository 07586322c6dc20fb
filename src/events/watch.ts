import type { ConfigProblem } from "../config/problems.ts";
import type { Tool } from "../config/schema.ts";
import type { Snapshot } from "../config/snapshot.ts";
import { advice } from "../core/advice.ts";
import { background } from "../core/background.ts";
import type { Clock } from "../core/clock.ts";
import type { Logger } from "../core/log.ts";
import type { Paths } from "../core/paths.ts";
import type { Ticker } from "../core/ticker.ts";
import type { Limiter } from "../limits/limiter.ts";
import type { Mirror } from "../mirror/mirror.ts";
import type { ConsoleStatus } from "../mirror/report/shape.ts";
import type { GatewayHealth } from "../proxy/gateway-health.ts";
import type { KeyHealth } from "../proxy/key-health/key-health.ts";
import type { Journal } from "../usage/journal/journal.ts";
import type { UsageLog } from "../usage/usage-log.ts";
import {
  alarmOccurrence,
  findOccurrences,
  nameOf,
  type Observed,
  type ObservedConsole,
  type ObservedTool,
  type RejectedConfig,
} from "./conditions.ts";
import type { Events } from "./events.ts";
import { type Ending, findEndings, findUsedLimits } from "./moments.ts";
import { Spending } from "./spending.ts";

export interface WatchDeps {
  readonly clock: Clock;
  readonly ticker: Ticker;
  readonly log: Logger;
  readonly events: Events;
  readonly reload: { readonly snapshot: Snapshot; readonly problems: readonly ConfigProblem[] };
  readonly paths: Pick<Paths, "config" | "explicit">;
  readonly limiter: Pick<Limiter, "levels" | "sessionLevels" | "countUse">;
  readonly keyHealth: Pick<KeyHealth, "report" | "wasAccepted">;
  readonly gatewayHealth: Pick<GatewayHealth, "of">;
  readonly journal: Pick<Journal, "state">;
  readonly usage: Pick<UsageLog, "catchUp" | "readNow">;
  readonly mirror: Pick<Mirror, "status" | "factsOf" | "canChangeKeys" | "loginEnds">;
}

/** In ticks of a second. */
const CHECK_TICKS = 2;
const CONSOLES_TICKS = 60;

/**
 * Compares what the daemon knows with what it knew before, every two seconds, and reports what has begun and what is over. No
 * request does anything for it.
 */
export class EventWatch {
  readonly #deps: WatchDeps;
  readonly #spending: Spending;
  /** What held since this process began. */
  #seen: ReadonlySet<string> = new Set();
  /** null: they were not asked yet. */
  #consoles: readonly ObservedConsole[] | null = null;
  /** The requests of each open alarm. */
  #alarmCounts: ReadonlyMap<string, number> = new Map();
  #loginEnds: readonly Ending[] = [];
  #asking: Promise<void> | null = null;
  #mustAskAgain = false;
  #isRunning = false;

  constructor(deps: WatchDeps) {
    this.#deps = deps;
    this.#spending = new Spending(deps);
  }

  /** Returns how to end it. */
  start(): () => Promise<void> {
    const { ticker } = this.#deps;
    this.#isRunning = true;
    const endChecks = ticker.every(CHECK_TICKS, () => this.check());
    const endQuestions = ticker.every(CONSOLES_TICKS, () => this.askSoon());
    this.askSoon();
    return async () => {
      this.#isRunning = false;
      endChecks();
      endQuestions();
      // A failure was logged.
      await this.#asking?.catch(() => {});
    };
  }

  /** What is known in memory. */
  check(): void {
    const { events, clock } = this.#deps;
    const now = clock.now();
    const { begun, ended, holding } = findOccurrences(
      { lasting: events.lasting(), seen: this.#seen },
      this.#observe(now),
    );
    for (const occurrence of begun) events.report(occurrence);
    for (const { kind, subject, message, said } of ended) events.end(kind, subject, message, said);
    this.#seen = new Set(holding.map(nameOf));
    const wasReported: Events["wasReported"] = (occurrence) => events.wasReported(occurrence);
    const moments = [
      ...findUsedLimits(this.#toolUses(), now, wasReported),
      ...findEndings(this.#endings(), now).filter((one) => !wasReported(one)),
    ];
    for (const occurrence of moments) events.report(occurrence);
    events.tick();
  }

  /**
   * What has to be read first: the consoles' state, and what tools usually spend. Once more if it was asked for meanwhile, so a
   * slow disk does not let these pile up.
   */
  askSoon(): void {
    if (!this.#isRunning) return;
    if (this.#asking !== null) {
      this.#mustAskAgain = true;
      return;
    }
    this.#mustAskAgain = false;
    this.#asking = this.#ask().finally(() => {
      this.#asking = null;
      if (this.#mustAskAgain) this.askSoon();
    });
    background(this.#asking, this.#deps.log, "asking consoles and usage for events");
  }

  async #ask(): Promise<void> {
    const { events, mirror } = this.#deps;
    this.#noteConsoles(await mirror.status());
    // Reading a console renews its login first, which shows whether that moves its end.
    const read = this.#consoles?.filter(({ state }) => state === "read").map(({ gateway }) => gateway) ?? [];
    const ends = mirror.loginEnds().filter(({ gateway }) => read.includes(gateway));
    this.#loginEnds = ends.map(({ gateway, account, at }) => {
      const whose = account === null ? "" : ` of ${account}`;
      const subject = `console ${gateway}`;
      return {
        subject,
        what: `the login${whose} at ${subject}`,
        at,
        next: advice.mirrorLogin(gateway, account),
        said: { code: "login-expires", values: { name: gateway, ends_at: at } },
      };
    });
    this.check();
    const tools = this.#tools().map(({ name }) => name);
    const found = await this.#spending.check(tools, (occurrence) => events.wasReported(occurrence));
    for (const occurrence of found) events.report(occurrence);
  }

  #tools(): Tool[] {
    return Object.values(this.#deps.reload.snapshot.config.tools);
  }

  #observe(now: number): Observed {
    const { reload, journal, gatewayHealth } = this.#deps;
    const { config } = reload.snapshot;
    return {
      now,
      tools: this.#tools().map((tool) => this.#observeTool(tool)),
      gateways: Object.values(config.gateways).map((gateway) => {
        const { state, failedForMs, problem } = gatewayHealth.of(gateway);
        return { name: gateway.name, state, failedForMs, problem };
      }),
      logProblem: journal.state().unavailable?.problem ?? null,
      rejected: this.#rejected(),
      consoles: this.#consoles,
    };
  }

  #observeTool(tool: Tool): ObservedTool {
    const { reload, keyHealth, mirror } = this.#deps;
    const { name } = tool;
    const key = reload.snapshot.keyOf(tool);
    if (key.state !== "ready")
      return { name, key: key.state === "needs-trust" ? "held" : "unknown", refused: null };
    // What its console knows is only needed for a key that is refused.
    const isRefused = keyHealth.report(tool, key, { facts: null, canRotate: false }).state === "refused";
    if (!isRefused)
      return { name, key: keyHealth.wasAccepted(name, key.key) ? "accepted" : "unknown", refused: null };
    const canRotate = mirror.canChangeKeys(tool.gateway);
    const { refusal, next } = keyHealth.report(tool, key, { facts: mirror.factsOf(tool), canRotate });
    // By the console the key works again.
    if (refusal === null) return { name, key: "accepted", refused: null };
    const { problem, detail, name: cause } = refusal.cause;
    return { name, key: "refused", refused: { problem, cause: detail ?? cause, next } };
  }

  #rejected(): RejectedConfig | null {
    const errors = this.#deps.reload.problems.filter(({ severity }) => severity === "error");
    const [first] = errors;
    if (first === undefined) return null;
    const { explicit, config } = this.#deps.paths;
    const line = first.line === 0 ? null : first.line;
    return { count: errors.length, line, check: advice.check(explicit ? config : null) };
  }

  #toolUses() {
    const { limiter } = this.#deps;
    return this.#tools().map((tool) => ({
      tool: tool.name,
      levels: limiter.levels(tool).levels,
      sessions: tool.limits.session === null ? [] : limiter.sessionLevels(tool),
    }));
  }

  #endings(): Ending[] {
    const { mirror } = this.#deps;
    const ofTools = this.#tools().flatMap((tool) => {
      const { name, expires } = tool;
      const subject = `tool ${name}`;
      const found: Ending[] = [];
      if (expires !== null) {
        const next = `change tools.${name}.expires in config.yaml`;
        const said = { code: "tool-expires", values: { name, ends_at: expires } } as const;
        found.push({ subject, what: subject, at: expires, next, said });
      }
      const keyEnds = mirror.factsOf(tool)?.expires_at ?? null;
      if (keyEnds !== null) {
        const rotate = mirror.canChangeKeys(tool.gateway) ? advice.rotate : advice.rotateByHand;
        const said = { code: "key-expires", values: { name, ends_at: keyEnds } } as const;
        found.push({ subject, what: `the key of ${subject}`, at: keyEnds, next: rotate(name), said });
      }
      return found;
    });
    return [...ofTools, ...this.#loginEnds];
  }

  #noteConsoles(statuses: readonly ConsoleStatus[]): void {
    const { events, clock } = this.#deps;
    const before = this.#consoles ?? [];
    this.#consoles = statuses.map((status) => {
      const known = before.find(({ gateway }) => gateway === status.gateway);
      return observeConsole(status, known, clock.now());
    });
    const counts = new Map<string, number>();
    for (const alarm of statuses.flatMap(({ alarms }) => alarms)) {
      const occurrence = alarmOccurrence(alarm);
      const name = nameOf(occurrence);
      const last = this.#alarmCounts.get(name);
      counts.set(name, alarm.count);
      // More requests of a key that is known to be used elsewhere.
      if (last !== undefined && alarm.count > last) events.report(occurrence);
    }
    this.#alarmCounts = counts;
  }
}

const BEING_READ: readonly ConsoleStatus["state"][] = ["waiting", "syncing"];

/** A console that is being read is as it was before. */
function observeConsole(
  { gateway, url, state, why, next, alarms }: ConsoleStatus,
  known: ObservedConsole | undefined,
  now: number,
): ObservedConsole {
  // Removed from config.yaml: only its alarms are left.
  if (state === "ok" || url === "")
    return { gateway, state: "read", blindSince: null, why: null, next: null, alarms };
  if (BEING_READ.includes(state))
    return known === undefined
      ? { gateway, state: "unknown", blindSince: null, why: null, next: null, alarms }
      : { ...known, alarms };
  return { gateway, state: "blind", blindSince: known?.blindSince ?? now, why, next, alarms };
}
