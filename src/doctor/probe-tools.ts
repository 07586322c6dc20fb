import type { Agent } from "node:http";
import type { Config, Gateway, Tool } from "../config/shape.ts";
import type { Clock } from "../core/clock.ts";
import type { KeyState } from "../core/key-source.ts";
import type { Secret } from "../core/secret.ts";
import { createGate } from "../keys/gate.ts";
import { workedName } from "./history.ts";
import type { KeyCheck } from "./key-check.ts";
import { keyStep } from "./key-trouble.ts";
import { GATEWAY_CAUSES, type Probed, probeKey } from "./probe.ts";

export interface MissingKey {
  readonly state: "unavailable" | "needs-trust";
  readonly why: string;
  readonly next: string;
}

/** What became of a tool's key at its gateway. */
export interface ToolProbe {
  readonly tool: string;
  readonly gateway: string;
  /** Fingerprint; null: there is no key to ask with. */
  readonly key: string | null;
  /** Why there is none; null: there is one. */
  readonly missing: MissingKey | null;
  /** null: there is no key, or the time was over before its turn. */
  readonly probed: Probed | null;
}

export interface ProbeToolsDeps {
  readonly config: Pick<Config, "gateways">;
  readonly keyOf: (tool: Tool) => KeyState;
  readonly agentFor: (gateway: Gateway, origin: string) => Agent;
  readonly clock: Clock;
  /** Tool and key that were answered before, see workedName. */
  readonly worked: ReadonlySet<string>;
  readonly keyCheck: KeyCheck;
  /** Milliseconds for one tool; default 10 s. */
  readonly patience?: number | undefined;
  /** Milliseconds for all of them; default 16 s. */
  readonly allPatience?: number | undefined;
}

const AT_ONCE = 4;
const ALL_MS = 16_000;
/** Every tool's key, a few at a time. A gateway that hangs holds up only its own tools. */
export async function probeTools(tools: readonly Tool[], deps: ProbeToolsDeps): Promise<ToolProbe[]> {
  const signal = AbortSignal.timeout(deps.allPatience ?? ALL_MS);
  const inTurn = createGate(AT_ONCE);
  const found = new Map<string, ToolProbe>();
  const probe = async (tool: Tool): Promise<Probed | null> => {
    const made = await inTurn(() => probeTool(tool, deps, signal));
    found.set(tool.name, made);
    return made.probed;
  };
  const gateways = [...new Set(tools.map(({ gateway }) => gateway))];
  await Promise.all(
    gateways.map(async (name) => {
      const own = tools.filter(({ gateway }) => gateway === name);
      const [first, ...rest] = own.toSorted((one, other) => readiness(other, deps) - readiness(one, deps));
      const met = first === undefined ? null : await probe(first);
      const shared = met !== null && !met.ok && GATEWAY_CAUSES.includes(met.cause) ? met : null;
      if (shared === null) return void (await Promise.all(rest.map(probe)));
      for (const tool of rest) {
        const bare = withoutProbe(tool, deps.keyOf(tool));
        found.set(tool.name, bare.missing === null ? { ...bare, probed: shared } : bare);
      }
    }),
  );
  return tools.flatMap(({ name }) => found.get(name) ?? []);
}

/** A tool whose key can be had goes first: only it learns something of the gateway. */
function readiness(tool: Tool, { keyOf }: ProbeToolsDeps): number {
  return keyOf(tool).state === "ready" ? 1 : 0;
}

async function probeTool(tool: Tool, deps: ProbeToolsDeps, signal: AbortSignal): Promise<ToolProbe> {
  const key = deps.keyOf(tool);
  const gateway = deps.config.gateways[tool.gateway];
  const bare = withoutProbe(tool, key);
  if (key.state !== "ready" || gateway === undefined || signal.aborted) return bare;
  return { ...bare, probed: await probeWith(tool, gateway, key.key, deps, signal) };
}

function probeWith(
  tool: Tool,
  gateway: Gateway,
  key: Secret,
  { agentFor, clock, patience, worked, keyCheck }: ProbeToolsDeps,
  signal: AbortSignal,
): Promise<Probed> {
  const known = worked.has(workedName(tool.name, key.fingerprint));
  return probeKey({ gateway, key, agentFor, clock, patience, signal, keyCheck, worked: known });
}

function withoutProbe(tool: Tool, key: KeyState): ToolProbe {
  const { name, gateway } = tool;
  const bare = { tool: name, gateway, key: null, missing: null, probed: null };
  switch (key.state) {
    case "ready":
      return { ...bare, key: key.key.fingerprint };
    case "unavailable":
      return { ...bare, missing: { state: key.state, why: key.reason, next: keyStep(tool, key) } };
    case "needs-trust": {
      const why = `${key.what}: ${key.from} → ${key.to}`;
      return { ...bare, missing: { state: key.state, why, next: `keybearer trust ${name}` } };
    }
  }
}
