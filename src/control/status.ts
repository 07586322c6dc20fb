import { freemem } from "node:os";
import type { ConfigProblem } from "../config/problems.ts";
import type { Gateway, Tool } from "../config/schema.ts";
import type { Snapshot } from "../config/snapshot.ts";
import { advice } from "../core/advice.ts";
import type { Clock } from "../core/clock.ts";
import type { ListedEvent } from "../events/event.ts";
import type { UnfinishedChange } from "../lifecycle/lifecycle.ts";
import type { Limiter } from "../limits/limiter.ts";
import type { Mirror } from "../mirror/mirror.ts";
import type { ConsoleStatus } from "../mirror/report/shape.ts";
import type { NotifyStatus } from "../notify/status.ts";
import type { GatewayCondition, GatewayHealth } from "../proxy/gateway-health.ts";
import type { KeyHealth } from "../proxy/key-health/key-health.ts";
import type { OtherModels } from "../proxy/other-models.ts";
import type { Shared } from "../shared/shared.ts";
import type { SharedStatus } from "../shared/status.ts";
import type { IndexState } from "../usage/index/indexer.ts";
import { type GatewayUse, readGatewayUse } from "../usage/reports/gateways.ts";
import type { UsageLog } from "../usage/usage-log.ts";
import { type ToolStatus, toolStatus } from "./tool-status.ts";

/** What `keybearer status --json` prints. Keys appear as fingerprints, times in milliseconds UTC. */
export interface Status {
  readonly version: string;
  readonly pid: number;
  readonly uptime_s: number;
  /** A stop waits this much longer for requests in flight. null: it is not stopping. */
  readonly drain_left_s: number | null;
  readonly listen: readonly string[];
  readonly sandbox: boolean;
  readonly config: {
    readonly path: string;
    readonly revision: number;
    readonly loaded_at: number;
  };
  /** In the file as it is now. If one is an error, the last good configuration is in force. */
  readonly problems: readonly ConfigProblem[];
  readonly tools: readonly ToolStatus[];
  readonly gateways: readonly GatewayStatus[];
  readonly usage: UsageStatus;
  /** How each gateway's console is read. */
  readonly consoles: readonly ConsoleStatus[];
  /** The store that several machines share; null: config.yaml names none. */
  readonly shared: SharedStatus | null;
  /** Where alerts are sent. */
  readonly notify: NotifyStatus;
  /** Changes of keys that are not finished, and what they wait for. */
  readonly key_changes: readonly KeyChangeStatus[];
  readonly dashboard: DashboardStatus;
  /** What was reported and lasts, latest first. */
  readonly events: readonly ListedEvent[];
  /** null: `metrics:` is off. */
  readonly metrics: MetricsStatus | null;
  /** Latest first. */
  readonly actions: readonly Action[];
  readonly machine: {
    readonly node: string;
    readonly platform: string;
    readonly memory_free: number;
    readonly rss: number;
  };
}

export interface KeyChangeStatus {
  readonly tool: string;
  /** Why it is not finished. keybearer tries again every minute. */
  readonly why: string;
  /** What to type next; null: nothing is needed. */
  readonly next: string | null;
}

export interface DashboardStatus {
  /** `dashboard.when` in config.yaml. */
  readonly mode: "asked" | "always" | "never";
  /** null: the port is closed. */
  readonly address: string | null;
  /** Why it is closed although it should be open; keybearer tries again. */
  readonly why: string | null;
}

export interface MetricsStatus {
  /** Where Prometheus reads; null: the port is closed. */
  readonly address: string | null;
  /** Why it is closed; keybearer tries again. */
  readonly why: string | null;
}

/** A gateway, and whether it can be reached. */
export interface GatewayStatus extends Omit<GatewayCondition, "problem" | "failedForMs"> {
  /** GatewayCondition's problem. */
  readonly why: string | null;
  readonly name: string;
  readonly base_url: string;
  readonly messages_url: string;
  readonly tools: number;
  readonly groups: readonly string[];
  /** A login at its console can make keys. */
  readonly makes_keys: boolean;
  /** What to type next; null: nothing is needed. */
  readonly next: string | null;
  /** null: its state is known since the start, or the usage log cannot be read. */
  readonly before: GatewayUse | null;
}

export interface UsageStatus {
  /** unavailable: requests are refused until it can be written again. */
  readonly state: "ok" | "unavailable";
  readonly since: number | null;
  readonly why: string | null;
  readonly next: string | null;
  /** Of the journal. */
  readonly folder: string;
  /** Of the journal and the index together. */
  readonly bytes: number;
  /** Finished records that wait for the disk. */
  readonly waiting: number;
  /** Records that were dropped because the disk was full and memory for them, too. */
  readonly lost: number;
  /** The same of refusals. */
  readonly refusals_not_recorded: number;
  readonly warnings: readonly string[];
  readonly index: UsageIndexStatus;
  /** When old days were last deleted and compressed; null: not since the start. */
  readonly maintained_at: number | null;
}

/** How far the index, which reports read, has caught up with the journal. */
export interface UsageIndexStatus {
  readonly current: boolean;
  /** From 0 to 1. */
  readonly share: number;
  readonly rebuilding: boolean;
  /** Why it is stuck; null: it is not. */
  readonly waiting_for: string | null;
  /** Lines of the journal that cannot be read; null: not counted yet. */
  readonly damaged_lines: number | null;
}

export interface Action {
  readonly at: number;
  readonly what: string;
}

const MAX_ACTIONS = 10;

/**
 * What was trusted, lifted or acknowledged through the control socket since the start: the last ten. Every program of this
 * user can open the socket, and Node does not know which one did, so the owner must be able to see what was done.
 */
export class ActionLog {
  readonly #clock: Clock;
  #latest: readonly Action[] = [];

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  add(what: string): void {
    this.#latest = [{ at: this.#clock.now(), what }, ...this.#latest].slice(0, MAX_ACTIONS);
  }

  /** Latest first. */
  latest(): readonly Action[] {
    return this.#latest;
  }
}

interface StatusDeps {
  readonly version: string;
  readonly clock: Clock;
  /** clock.elapsed() when the daemon started. */
  readonly startedAt: number;
  readonly drainLeftSeconds: number | null;
  readonly listen: readonly string[];
  readonly sandbox: boolean;
  readonly configPath: string;
  readonly reload: {
    readonly snapshot: Snapshot;
    readonly problems: readonly ConfigProblem[];
    readonly loadedAt: number;
  };
  readonly keyHealth: KeyHealth;
  readonly gatewayHealth: GatewayHealth;
  readonly limiter: Pick<Limiter, "levels">;
  readonly usage: Pick<UsageLog, "state" | "readNow" | "journal">;
  readonly mirror: Pick<Mirror, "status" | "factsOf" | "canChangeKeys">;
  readonly shared: Pick<Shared, "status" | "listParts">;
  readonly notify: NotifyStatus;
  readonly otherModels: Pick<OtherModels, "status">;
  readonly dashboard: DashboardStatus;
  readonly metrics: MetricsStatus | null;
  readonly keyChanges: readonly UnfinishedChange[];
  readonly actions: readonly Action[];
  readonly freeMemory: FreeMemory;
  readonly events: readonly ListedEvent[];
}

export async function readStatus(deps: StatusDeps): Promise<Status> {
  const { keyHealth, limiter, clock } = deps;
  const { snapshot, problems, loadedAt } = deps.reload;
  const tools = Object.values(snapshot.config.tools);
  const toolDeps = {
    keyHealth,
    journal: deps.usage.journal,
    limiter,
    shared: deps.shared,
    mirror: deps.mirror,
    otherModels: deps.otherModels,
    config: snapshot.config,
    now: clock.now(),
  };
  return {
    version: deps.version,
    pid: process.pid,
    uptime_s: Math.floor((clock.elapsed() - deps.startedAt) / 1000),
    drain_left_s: deps.drainLeftSeconds,
    listen: deps.listen,
    sandbox: deps.sandbox,
    config: { path: deps.configPath, revision: snapshot.revision, loaded_at: loadedAt },
    problems: [...problems, ...snapshot.warnings],
    tools: tools.map((tool) => toolStatus(tool, snapshot.keyOf(tool), toolDeps)),
    gateways: gatewayStatuses(Object.values(snapshot.config.gateways), tools, deps),
    usage: usageStatus(deps),
    consoles: await deps.mirror.status(),
    shared: deps.shared.status(),
    notify: deps.notify,
    dashboard: deps.dashboard,
    events: deps.events,
    metrics: deps.metrics,
    key_changes: deps.keyChanges.map(({ tool, problem, next }) => ({ tool, why: problem, next })),
    actions: deps.actions,
    machine: await machineStatus(deps.freeMemory),
  };
}

/** The log is read only for a gateway that has no known state since the start. */
function gatewayStatuses(
  gateways: readonly Gateway[],
  tools: readonly Tool[],
  { gatewayHealth, usage, clock, mirror }: Pick<StatusDeps, "gatewayHealth" | "usage" | "clock" | "mirror">,
): GatewayStatus[] {
  const unknown = gateways.filter((gateway) => gatewayHealth.of(gateway).state === "unknown");
  const uses =
    unknown.length === 0
      ? null
      : usage.readNow(
          (db) => new Map(unknown.map(({ name }) => [name, readGatewayUse(db, name, clock.now())])),
        );
  return gateways.map((gateway) => {
    const { name, baseUrl: base_url, messagesUrl: messages_url, groups } = gateway;
    const { state, since, failures, problem } = gatewayHealth.of(gateway);
    return {
      name,
      base_url,
      messages_url,
      tools: tools.filter((tool) => tool.gateway === name).length,
      groups: Object.keys(groups),
      makes_keys: mirror.canChangeKeys(name),
      state,
      since,
      failures,
      why: problem,
      next: state === "failing" ? advice.doctor() : null,
      before: uses?.get(name) ?? null,
    };
  });
}

function usageStatus({ usage }: StatusDeps): UsageStatus {
  const {
    unavailable,
    waiting,
    lost,
    refusalsLost,
    folder,
    bytes,
    maintainedAt,
    index,
    fileProblem,
    changed,
  } = usage.state();
  const warnings = [changed, fileProblem].filter((problem) => problem !== null);
  if (index.damagedLines !== null && index.damagedLines > 0)
    warnings.push(`damaged lines of the usage log that were skipped: ${index.damagedLines}`);
  return {
    state: unavailable === null ? "ok" : "unavailable",
    since: unavailable?.since ?? null,
    why: unavailable === null ? null : `${folder} cannot be written: ${unavailable.problem}`,
    next:
      unavailable === null ? null : `free disk space, or check ${folder}; keybearer then resumes by itself`,
    folder,
    bytes,
    waiting,
    lost,
    refusals_not_recorded: refusalsLost,
    warnings,
    index: indexStatus(index),
    maintained_at: maintainedAt,
  };
}

export function indexStatus(index: IndexState): UsageIndexStatus {
  return {
    current: index.current,
    share: index.share,
    rebuilding: index.rebuilding,
    waiting_for: index.waitingFor,
    damaged_lines: index.damagedLines,
  };
}

const MEMORY_MAX_AGE_MS = 10_000;

/** The machine's free memory, read at most every ten seconds: an open dashboard asks for the status every second. */
export class FreeMemory {
  readonly #clock: Clock;
  readonly #readNow: () => Promise<number>;
  #last: Promise<number> | null = null;
  #readAt = 0;

  constructor(clock: Clock, readNow = readFreeMemory) {
    this.#clock = clock;
    this.#readNow = readNow;
  }

  read(): Promise<number> {
    const elapsed = this.#clock.elapsed();
    if (this.#last === null || elapsed - this.#readAt >= MEMORY_MAX_AGE_MS) {
      this.#readAt = elapsed;
      this.#last = this.#readNow();
    }
    return this.#last;
  }
}

/** On macOS, Node's own number leaves out memory that is available at once. */
async function readFreeMemory(): Promise<number> {
  try {
    // Loaded on first use, because it takes 8 MB.
    const { mem } = await import("systeminformation");
    return (await mem()).available;
  } catch {
    // After an upgrade of a running daemon, the package may be gone.
    return freemem();
  }
}

async function machineStatus(freeMemory: FreeMemory): Promise<Status["machine"]> {
  return {
    node: process.version,
    platform: `${process.platform}-${process.arch}`,
    memory_free: await freeMemory.read(),
    rss: process.memoryUsage.rss(),
  };
}
