import { mem } from "systeminformation";
import type { Clock } from "../clock.ts";
import type { Problem } from "../config/problem.ts";
import type { Tool } from "../config/shape.ts";
import type { Snapshot } from "../config/snapshot.ts";
import { describeSource, type KeyState } from "../key-source.ts";
import type { Refused, Standings } from "../proxy/standing.ts";
import type { Ledger } from "../usage/ledger/ledger.ts";
import type { Aside, Work } from "../usage/ledger/state.ts";
import type { Strangers } from "../usage/strangers.ts";

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
  readonly machine: {
    readonly node: string;
    readonly platform: string;
    readonly memory_free: number;
    readonly rss: number;
  };
}

export type ToolState =
  | "active"
  | "no-token"
  | "disabled"
  | "expired"
  | "key-unavailable"
  | "needs-trust"
  | "key-refused"
  /** No daemon runs, so nobody has read the key. */
  | "not-running";

export interface ToolStatus {
  readonly name: string;
  readonly state: ToolState;
  readonly gateway: string;
  readonly group: string | null;
  /** The key's fingerprint, or null when there is none. */
  readonly key: string | null;
  readonly tokens: number;
  readonly last_use: number | null;
  /** Why it is not simply active, in words; null when it is. */
  readonly why: string | null;
  /** What to type next; null when nothing is needed. */
  readonly next: string | null;
  /** How the gateway refuses this tool's key, since when and why. */
  readonly refused: Refused | null;
}

export interface GatewayStatus {
  readonly name: string;
  readonly base_url: string;
  readonly messages_url: string;
  readonly tools: number;
  readonly groups: readonly string[];
}

/** How the usage log is. */
export interface UsageStatus {
  /** unavailable: requests are refused until it can be written again. */
  readonly state: "ok" | "unavailable";
  readonly since: number | null;
  readonly why: string | null;
  readonly next: string | null;
  readonly file: string;
  readonly bytes: number;
  /** Finished records that wait for the disk. */
  readonly waiting: number;
  /** Records that found no room while the disk said no. */
  readonly lost: number;
  /** Refusals that were not recorded: of unknown callers beyond so many a minute, or for want of room on a full disk. */
  readonly refusals_not_recorded: number;
  readonly warnings: readonly string[];
  /** Damaged files that were kept aside, and what was saved of them. */
  readonly aside: readonly Aside[];
  /** What takes longer than a moment and is under way. */
  readonly work: Work | null;
  readonly upkept_at: number | null;
}

export interface StatusMeans {
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
  readonly standings: Standings;
  readonly usage: { readonly ledger: Ledger; readonly strangers: Strangers };
}

export async function statusOf(means: StatusMeans): Promise<Status> {
  const { standings, clock } = means;
  const { snapshot, problems, loadedAt } = means.reload;
  const tools = Object.values(snapshot.config.tools);
  return {
    version: means.version,
    pid: process.pid,
    uptime_s: Math.floor((clock.elapsed() - means.startedAt) / 1000),
    listen: means.listen,
    sandbox: means.sandbox,
    config: { path: means.configPath, revision: snapshot.revision, loaded_at: loadedAt },
    problems: [...problems, ...snapshot.warnings],
    tools: tools.map((tool) => toolStatus(tool, snapshot.keyOf(tool), standings, clock.now())),
    gateways: Object.values(snapshot.config.gateways).map((gateway) => ({
      name: gateway.name,
      base_url: gateway.baseUrl,
      messages_url: gateway.messagesUrl,
      tools: tools.filter((tool) => tool.gateway === gateway.name).length,
      groups: Object.keys(gateway.groups),
    })),
    usage: usageStatus(means.usage),
    machine: await machine(),
  };
}

function usageStatus({ ledger, strangers }: StatusMeans["usage"]): UsageStatus {
  const { condition, reason, refusalsLost, upkeptAt, ...rest } = ledger.state();
  return {
    state: condition,
    why: reason,
    ...rest,
    refusals_not_recorded: strangers.passedOver + refusalsLost,
    upkept_at: upkeptAt,
  };
}

function toolStatus(tool: Tool, key: KeyState, standings: Standings, now: number): ToolStatus {
  const refused = standings.of(tool.name);
  // What was refused was another key; this one has not been tried.
  const stands = key.state === "ready" && refused?.key === key.key.fingerprint ? refused : null;
  return {
    name: tool.name,
    ...stateInWords(tool, key, stands, now),
    gateway: tool.gateway,
    group: tool.group,
    key: key.state === "ready" ? key.key.fingerprint : null,
    tokens: tool.tokens.length,
    last_use: standings.lastUse(tool.name),
    refused: stands,
  };
}

/** Known by its program, or never calling here at all, it can do without. */
function needsToken(tool: Tool): boolean {
  return tool.tokens.length === 0 && tool.process === null && !tool.watchOnly;
}

/** The same from the file alone: whether the key can be had is not known, and no command is run to find out. */
export function toolStatusOffline(tool: Tool, now: number): ToolStatus {
  const nothing: Standings = { note: () => {}, of: () => null, lastUse: () => null };
  const unread: KeyState = { state: "unavailable", reason: "not read" };
  const status = toolStatus(tool, unread, nothing, now);
  if (status.state !== "key-unavailable") return status;
  const tokenless = needsToken(tool);
  if (tokenless)
    return { ...status, state: "no-token", why: "no token yet", next: `keybearer tools token ${tool.name}` };
  return { ...status, state: "not-running", why: null, next: null };
}

function stateInWords(
  tool: Tool,
  key: KeyState,
  refused: Refused | null,
  now: number,
): Pick<ToolStatus, "state" | "why" | "next"> {
  const { name } = tool;
  if (!tool.enabled)
    return { state: "disabled", why: "enabled: false", next: `set tools.${name}.enabled: true` };
  if (tool.expires !== null && now >= tool.expires) {
    return {
      state: "expired",
      why: `expired ${new Date(tool.expires).toISOString()}`,
      next: `change tools.${name}.expires`,
    };
  }
  if (key.state === "needs-trust") {
    const why = `${key.what}: ${key.from} → ${key.to}`;
    return { state: "needs-trust", why, next: `keybearer trust ${name}` };
  }
  if (key.state === "unavailable") {
    return { state: "key-unavailable", why: key.reason, next: `check tools.${name}.key in config.yaml` };
  }
  if (refused !== null) {
    const why = `the gateway answers ${refused.status} (${refused.cause}) to key ${refused.key}`;
    return {
      state: "key-refused",
      why,
      next: `${refused.advice} (tools.${name}.key: ${describeSource(tool.key)})`,
    };
  }
  if (needsToken(tool)) {
    return { state: "no-token", why: "no token yet", next: `keybearer tools token ${name}` };
  }
  return { state: "active", why: null, next: null };
}

async function machine(): Promise<Status["machine"]> {
  const memory = await mem().catch(() => null);
  return {
    node: process.version,
    platform: `${process.platform}-${process.arch}`,
    memory_free: memory?.available ?? 0,
    rss: process.memoryUsage.rss(),
  };
}
