import { freemem } from "node:os";
import type { Problem } from "../config/problem.ts";
import type { Gateway, Tool } from "../config/shape.ts";
import type { Snapshot } from "../config/snapshot.ts";
import type { Clock } from "../core/clock.ts";
import type { Limiter } from "../limits/limiter.ts";
import type { Mirror } from "../mirror/mirror.ts";
import type { ConsoleStatus } from "../mirror/report/shape.ts";
import type { GatewayCondition, GatewayHealth, KeyHealth } from "../proxy/health.ts";
import type { KeyBreaker } from "../proxy/key-breaker.ts";
import type { IndexState } from "../usage/index/indexer.ts";
import type { UsageLog } from "../usage/usage-log.ts";
import type { Action } from "./actions.ts";
import { type ToolStatus, toolStatus } from "./tool-status.ts";

/** What `keybearer status --json` prints. Keys appear as fingerprints, times in milliseconds UTC. */
export interface Status {
  readonly version: string;
  readonly pid: number;
  readonly uptime_s: number;
  readonly listen: readonly string[];
  readonly sandbox: boolean;
  readonly config: {
    readonly path: string;
    readonly revision: number;
    readonly loaded_at: number;
  };
  /** Of the file as it is now; while there are errors among them, the last good configuration serves. */
  readonly problems: readonly Problem[];
  readonly tools: readonly ToolStatus[];
  readonly gateways: readonly GatewayStatus[];
  readonly usage: UsageStatus;
  /** How the consoles of those gateways that have one are read. */
  readonly consoles: readonly ConsoleStatus[];
  readonly dashboard: DashboardStatus;
  /** What was trusted, lifted or acknowledged since the start, the latest first. */
  readonly actions: readonly Action[];
  readonly machine: {
    readonly node: string;
    readonly platform: string;
    readonly memory_free: number;
    readonly rss: number;
  };
}

export interface DashboardStatus {
  /** As config.yaml says it. */
  readonly mode: "asked" | "always" | "never";
  /** null: its port is closed. */
  readonly address: string | null;
  /** Why it is closed though it is to be open; it is tried again. */
  readonly why: string | null;
}

/** A gateway, and whether it can be reached: `state`, `since`, `failures` and `why`. */
export interface GatewayStatus extends GatewayCondition {
  readonly name: string;
  readonly base_url: string;
  readonly messages_url: string;
  readonly tools: number;
  readonly groups: readonly string[];
  /** What to type next; null when nothing is needed. */
  readonly next: string | null;
}

/** How the usage log is. */
export interface UsageStatus {
  /** unavailable: requests are refused until it can be written again. */
  readonly state: "ok" | "unavailable";
  readonly since: number | null;
  readonly why: string | null;
  readonly next: string | null;
  /** The journal's. */
  readonly folder: string;
  /** Of the journal and the index together. */
  readonly bytes: number;
  /** Finished records that wait for the disk. */
  readonly waiting: number;
  /** Records that found no room while the disk said no. */
  readonly lost: number;
  /** Refusals that were not recorded: of unknown callers beyond so many a minute, or for want of room on a full disk. */
  readonly refusals_not_recorded: number;
  readonly warnings: readonly string[];
  readonly index: UsageIndexStatus;
  /** When old days were last deleted and compressed; null: not since the start. */
  readonly maintained_at: number | null;
}

/** How far the index, which reports read, has followed the journal. */
export interface UsageIndexStatus {
  readonly current: boolean;
  /** From 0 to 1. */
  readonly share: number;
  readonly rebuilding: boolean;
  /** Why it does not go on; null: it does. */
  readonly waiting_for: string | null;
  /** Lines of the journal that cannot be read; null: not counted yet. */
  readonly damaged_lines: number | null;
}

export interface StatusDeps {
  readonly version: string;
  readonly clock: Clock;
  /** clock.elapsed() when the daemon started. */
  readonly startedAt: number;
  readonly listen: readonly string[];
  readonly sandbox: boolean;
  readonly configPath: string;
  readonly reload: {
    readonly snapshot: Snapshot;
    readonly problems: readonly Problem[];
    readonly loadedAt: number;
  };
  readonly keyHealth: KeyHealth;
  readonly keyBreaker: Pick<KeyBreaker, "of">;
  readonly gatewayHealth: GatewayHealth;
  readonly limiter: Pick<Limiter, "levels">;
  readonly usage: Pick<UsageLog, "state">;
  readonly mirror: Pick<Mirror, "status" | "factsOf">;
  readonly dashboard: DashboardStatus;
  readonly actions: readonly Action[];
}

export async function statusOf(deps: StatusDeps): Promise<Status> {
  const { keyHealth, keyBreaker, limiter, clock } = deps;
  const { snapshot, problems, loadedAt } = deps.reload;
  const tools = Object.values(snapshot.config.tools);
  const seen = {
    keyHealth,
    keyBreaker,
    limiter,
    mirror: deps.mirror,
    config: snapshot.config,
    now: clock.now(),
  };
  return {
    version: deps.version,
    pid: process.pid,
    uptime_s: Math.floor((clock.elapsed() - deps.startedAt) / 1000),
    listen: deps.listen,
    sandbox: deps.sandbox,
    config: { path: deps.configPath, revision: snapshot.revision, loaded_at: loadedAt },
    problems: [...problems, ...snapshot.warnings],
    tools: tools.map((tool) => toolStatus(tool, snapshot.keyOf(tool), seen)),
    gateways: Object.values(snapshot.config.gateways).map((gateway) =>
      gatewayStatus(gateway, tools, deps.gatewayHealth.of(gateway)),
    ),
    usage: usageStatus(deps),
    consoles: deps.mirror.status(),
    dashboard: deps.dashboard,
    actions: deps.actions,
    machine: await machine(),
  };
}

function gatewayStatus(
  gateway: Gateway,
  tools: readonly Tool[],
  { state, since, failures, why }: GatewayCondition,
): GatewayStatus {
  return {
    name: gateway.name,
    base_url: gateway.baseUrl,
    messages_url: gateway.messagesUrl,
    tools: tools.filter((tool) => tool.gateway === gateway.name).length,
    groups: Object.keys(gateway.groups),
    state,
    since,
    failures,
    why,
    next: state === "failing" ? "keybearer doctor" : null,
  };
}

function usageStatus({ usage }: StatusDeps): UsageStatus {
  const { trouble, waiting, lost, refusalsLost, folder, bytes, maintainedAt, index, incident } =
    usage.state();
  const warnings: string[] = incident === null ? [] : [incident];
  if (index.damagedLines !== null && index.damagedLines > 0)
    warnings.push(`lines of the usage log that cannot be read and were skipped: ${index.damagedLines}`);
  return {
    state: trouble === null ? "ok" : "unavailable",
    since: trouble?.since ?? null,
    why: trouble === null ? null : `${folder} cannot be written: ${trouble.message}`,
    next: trouble === null ? null : `make room, or look at ${folder}; it goes on by itself then`,
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

async function machine(): Promise<Status["machine"]> {
  // Only now, and not at the start: it is 8 MB. After an upgrade under a running daemon it may not be there any more.
  const memory = await import("systeminformation").then(({ mem }) => mem()).catch(() => null);
  return {
    node: process.version,
    platform: `${process.platform}-${process.arch}`,
    // On macOS Node's own number leaves out what can be had at once.
    memory_free: memory?.available ?? freemem(),
    rss: process.memoryUsage.rss(),
  };
}
