import type { Agent } from "node:http";
import type { Gateway, Tool } from "../config/shape.ts";
import type { Snapshot } from "../config/snapshot.ts";
import type { Clock } from "../core/clock.ts";
import type { Prices } from "../metering/prices.ts";
import type { UsageLog } from "../usage/usage-log.ts";
import { readUses, readWorked } from "./history.ts";
import type { KeyCheck } from "./key-check.ts";
import { modelsFor, type ToolModels } from "./models.ts";
import { probeTools, type ToolProbe } from "./probe-tools.ts";

export interface ProbingDeps {
  readonly clock: Clock;
  readonly snapshot: () => Snapshot;
  readonly agentFor: (gateway: Gateway, origin: string) => Agent;
  readonly prices: Prices;
  readonly usage: Pick<UsageLog, "read">;
  readonly keyCheck: KeyCheck;
}

/** What the running daemon can be asked about its gateways. */
export function createProbing(deps: ProbingDeps) {
  const { clock, agentFor, prices, usage, keyCheck } = deps;
  const depsNow = async (snapshot: Snapshot) => ({
    clock,
    agentFor,
    prices,
    keyCheck,
    config: snapshot.config,
    keyOf: (tool: Tool) => snapshot.keyOf(tool),
    worked: (await usage.read(readWorked)) ?? new Set<string>(),
  });
  const enabled = ({ config }: Snapshot) => Object.values(config.tools).filter((tool) => tool.enabled);
  return {
    models(name: string | null): Promise<ToolModels[]> | null {
      const snapshot = deps.snapshot();
      const tool = name === null ? undefined : snapshot.config.tools[name];
      if (name !== null && tool === undefined) return null;
      const tools = tool === undefined ? enabled(snapshot) : [tool];
      return depsNow(snapshot).then(async (now) => {
        const uses = (await usage.read((db) => readUses(db, clock.now()))) ?? [];
        return modelsFor(tools, { ...now, uses });
      });
    },
    async probes(): Promise<ToolProbe[]> {
      const snapshot = deps.snapshot();
      return probeTools(enabled(snapshot), await depsNow(snapshot));
    },
  };
}
