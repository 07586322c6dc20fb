import type { Config, Gateway, Tool } from "../config/schema.ts";
import type { KeyState, Snapshot } from "../config/snapshot.ts";
import type { Secret } from "../core/secret.ts";
import { Semaphore } from "../core/semaphore.ts";
import { MINUTE_MS } from "../core/units.ts";
import type { Prices } from "../metering/prices.ts";
import {
  type Cause,
  isKeyDetail,
  isModelRefusal,
  type KeyDetail,
  NO_MODELS_LISTED,
} from "../proxy/key-health/cause.ts";
import type { KeyHealth } from "../proxy/key-health/key-health.ts";
import { missingKey } from "../proxy/key-health/key-problem.ts";
import type { UsageLog } from "../usage/usage-log.ts";
import { readUses, readWorked, workedName } from "./history.ts";
import { type ToolModels, toolModels } from "./models.ts";
import { type ProbeDeps, type ProbeResult, probeKey, type ToolProbe } from "./probe.ts";
import { concernsGateway } from "./probe-failure.ts";

export interface ToolProbeDeps extends ProbeDeps {
  readonly config: Pick<Config, "gateways">;
  readonly keyOf: (tool: Tool) => KeyState;
  /** The tools and keys with which requests succeeded before, see workedName. */
  readonly worked: ReadonlySet<string>;
  /** Milliseconds for one tool; default 10 s. */
  readonly timeout?: number | undefined;
  /** Milliseconds for all of them; default 16 s. */
  readonly totalTimeout?: number | undefined;
}

const MAX_CONCURRENT = 4;
const TOTAL_TIMEOUT_MS = 16_000;

/** Probes every tool's key, a few at a time. A gateway that hangs delays only its own tools. */
export async function probeTools(tools: readonly Tool[], deps: ToolProbeDeps): Promise<ToolProbe[]> {
  const signal = AbortSignal.timeout(deps.totalTimeout ?? TOTAL_TIMEOUT_MS);
  const semaphore = new Semaphore(MAX_CONCURRENT);
  const gateways = [...new Set(tools.map(({ gateway }) => gateway))];
  const groups = await Promise.all(
    gateways.map((name) => {
      const own = tools.filter(({ gateway }) => gateway === name);
      return probeToolsOfGateway(own, deps, signal, semaphore);
    }),
  );
  const probes = new Map(groups.flat().map((probe) => [probe.tool, probe]));
  return tools.flatMap(({ name }) => probes.get(name) ?? []);
}

/** One tool asks first. If the gateway itself fails, the others get the same result without asking. */
async function probeToolsOfGateway(
  tools: readonly Tool[],
  deps: ToolProbeDeps,
  signal: AbortSignal,
  semaphore: Semaphore,
): Promise<ToolProbe[]> {
  const first = tools.find((tool) => deps.keyOf(tool).state === "ready");
  if (first === undefined) return tools.map((tool) => withoutProbe(tool, deps));
  const probe = await semaphore.run(() => probeTool(first, deps, signal));
  const rest = tools.filter((tool) => tool !== first);
  const { probed } = probe;
  if (probed === null || probed.ok || !concernsGateway(probed))
    return [
      probe,
      ...(await Promise.all(rest.map((tool) => semaphore.run(() => probeTool(tool, deps, signal))))),
    ];
  const same = rest.map((tool) => {
    const unasked = withoutProbe(tool, deps);
    return unasked.missing === null ? { ...unasked, probed } : unasked;
  });
  return [probe, ...same];
}

async function probeTool(tool: Tool, deps: ToolProbeDeps, signal: AbortSignal): Promise<ToolProbe> {
  const key = deps.keyOf(tool);
  const gateway = deps.config.gateways[tool.gateway];
  const probe = withoutProbe(tool, deps);
  if (key.state !== "ready" || gateway === undefined || signal.aborted) return probe;
  const worked = deps.worked.has(workedName(tool.name, key.key.fingerprint));
  const probed = await probeKey(deps, gateway, key.key, { signal, worked, timeout: deps.timeout });
  return { ...probe, probed };
}

function withoutProbe(tool: Tool, { keyOf }: ToolProbeDeps): ToolProbe {
  const key = keyOf(tool);
  return {
    tool: tool.name,
    gateway: tool.gateway,
    key: key.state === "ready" ? key.key.fingerprint : null,
    missing: key.state === "ready" ? null : missingKey(tool, key),
    probed: null,
  };
}

interface ProberDeps extends ProbeDeps {
  readonly snapshot: () => Snapshot;
  readonly prices: Prices;
  readonly usage: Pick<UsageLog, "read">;
  readonly keyHealth: Pick<KeyHealth, "accept" | "refuse" | "learn" | "wasAsked">;
}

/** After a request that was refused for its model, the gateway is not asked for its models again for this long. */
const GROUP_CHECK_MS = 10 * MINUTE_MS;

/** What the running daemon asks gateways for its owner, with the keys that only it has read. */
export class Prober {
  readonly #deps: ProberDeps;
  /** By tool: whose group was last checked, and when. */
  readonly #groupChecks = new Map<string, { readonly key: Secret; readonly at: number }>();

  constructor(deps: ProberDeps) {
    this.#deps = deps;
  }

  /** Probes the key of every enabled tool. */
  async probes(): Promise<ToolProbe[]> {
    const snapshot = this.#deps.snapshot();
    return this.#probe(snapshot, enabledTools(snapshot));
  }

  /** The models of one tool, or of all that are enabled. null: there is no such tool. */
  async models(name: string | null): Promise<ToolModels[] | null> {
    const { snapshot, prices, usage, clock } = this.#deps;
    const current = snapshot();
    const tools = name === null ? enabledTools(current) : [current.config.tools[name]];
    const known = tools.filter((tool) => tool !== undefined);
    if (name !== null && known.length === 0) return null;
    const now = clock.now();
    const probes = await this.#probe(current, known);
    const uses = (await usage.read((db) => readUses(db, now))) ?? [];
    return known.flatMap((tool) => {
      const probe = probes.find((each) => each.tool === tool.name);
      return probe === undefined
        ? []
        : [toolModels(tool, probe, { config: current.config, prices, uses, now })];
    });
  }

  /** The gateway refused a request in words that do not say what is wrong with the key or its group: finds it out. */
  async checkKey(tool: string, gateway: Gateway, key: Secret, cause: Cause): Promise<void> {
    if (isModelRefusal(cause)) return this.#checkGroup(tool, gateway, key);
    const { keyHealth, keyCheck } = this.#deps;
    if (keyHealth.wasAsked(tool, key)) return;
    const detail = cause.isAmbiguous
      ? await keyCheck.check(gateway, key)
      : await this.#findUnknownKey(tool, gateway, key);
    keyHealth.learn(tool, key, detail);
  }

  /** The gateway does not know the key. If requests of an earlier run succeeded with it, it was deleted. */
  async #findUnknownKey(tool: string, gateway: Gateway, key: Secret): Promise<KeyDetail | null> {
    const listed = await this.#deps.keyCheck.listed(gateway, key);
    if (listed !== null) return listed;
    const worked = await this.#deps.usage.read(readWorked);
    return worked?.has(workedName(tool, key.fingerprint)) === true ? "key-deleted" : null;
  }

  /** A request was refused for its model. If the gateway lists no models at all, `status` says so. */
  async #checkGroup(tool: string, gateway: Gateway, key: Secret): Promise<void> {
    const now = this.#deps.clock.now();
    const last = this.#groupChecks.get(tool);
    if (last?.key.equals(key) && Math.abs(now - last.at) < GROUP_CHECK_MS) return;
    this.#groupChecks.set(tool, { key, at: now });
    this.#remember(tool, key, await probeKey(this.#deps, gateway, key, { brief: true }));
  }

  async #probe(snapshot: Snapshot, tools: readonly Tool[]): Promise<ToolProbe[]> {
    const { clock, agentFor, keyCheck, usage } = this.#deps;
    const worked = (await usage.read(readWorked)) ?? new Set<string>();
    const { config } = snapshot;
    const keyOf = (tool: Tool) => snapshot.keyOf(tool);
    const probes = await probeTools(tools, { clock, agentFor, keyCheck, config, keyOf, worked });
    for (const tool of tools) {
      const key = snapshot.keyOf(tool);
      const probed = probes.find((probe) => probe.tool === tool.name)?.probed ?? null;
      if (key.state === "ready" && probed !== null) this.#remember(tool.name, key.key, probed);
    }
    return probes;
  }

  /** `status` knows what the probe found, and a key that is accepted again is used again. */
  #remember(tool: string, key: Secret, probed: ProbeResult): void {
    const { keyHealth } = this.#deps;
    if (probed.ok) {
      keyHealth.accept(tool, key, probed.tested);
      if (probed.models.length === 0) keyHealth.refuse(tool, key, NO_MODELS_LISTED, null, null);
    } else if (probed.refused !== null) {
      // Where it lists its models, it reported the problem when it was asked.
      const status = (probed.status ?? 0) >= 400 ? probed.status : null;
      const { cause, message } = probed.refused;
      keyHealth.refuse(tool, key, cause, status, message);
      if (isKeyDetail(cause.detail)) keyHealth.learn(tool, key, cause.detail);
    }
  }
}

function enabledTools({ config }: Snapshot): Tool[] {
  return Object.values(config.tools).filter((tool) => tool.enabled);
}
