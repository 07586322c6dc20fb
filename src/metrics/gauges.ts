import { Counter, Gauge, type Registry } from "prom-client";
import type { Snapshot } from "../config/snapshot.ts";
import { limitStatuses } from "../control/tool-status.ts";
import type { Limiter } from "../limits/limiter.ts";
import type { Mirror } from "../mirror/mirror.ts";
import type { GatewayHealth } from "../proxy/gateway-health.ts";
import type { InFlight } from "../proxy/in-flight.ts";
import type { OtherModels } from "../proxy/other-models.ts";
import type { Shared } from "../shared/shared.ts";

/** What is read when somebody scrapes, and costs nothing in between. */
export interface GaugeDeps {
  readonly version: string;
  readonly snapshot: () => Snapshot;
  readonly limiter: Pick<Limiter, "levels" | "currentName">;
  readonly shared: Pick<Shared, "listParts">;
  readonly gatewayHealth: Pick<GatewayHealth, "of">;
  readonly inFlight: Pick<InFlight, "sessions">;
  readonly mirror: Pick<Mirror, "lastSyncs">;
  readonly otherModels: Pick<OtherModels, "status">;
}

export function addGauges(registry: Registry, deps: GaugeDeps): void {
  const { version, snapshot, limiter, shared, gatewayHealth, inFlight, mirror } = deps;
  const registers = [registry];
  new Gauge({
    name: "keybearer_build_info",
    help: "1, with the version that runs.",
    labelNames: ["version"],
    registers,
  }).set({ version }, 1);
  new Gauge({
    name: "keybearer_limit_used_ratio",
    help: "How much of a limit, a quota or the places at once is used: 0 to 1.",
    labelNames: ["tool", "limit", "per"],
    registers,
    collect() {
      this.reset();
      for (const tool of Object.values(snapshot().config.tools)) {
        const statuses = limitStatuses(limiter.levels(tool), (level) => shared.listParts(tool.name, level));
        for (const { limit, per, used, most } of statuses)
          this.set({ tool: tool.name, limit, per: per ?? "" }, most === 0 ? 1 : (used ?? 0) / most);
      }
    },
  });
  new Gauge({
    name: "keybearer_gateway_up",
    help: "1: it answers; 0: it fails. Missing: no request has shown it since the start.",
    labelNames: ["gateway"],
    registers,
    collect() {
      this.reset();
      for (const gateway of Object.values(snapshot().config.gateways)) {
        const { state } = gatewayHealth.of(gateway);
        if (state !== "unknown") this.set({ gateway: gateway.name }, state === "reachable" ? 1 : 0);
      }
    },
  });
  new Gauge({
    name: "keybearer_requests_in_flight",
    help: "Requests that have begun and not ended, those that wait included.",
    labelNames: ["tool"],
    registers,
    collect() {
      this.reset();
      for (const tool of Object.keys(snapshot().config.tools)) this.set({ tool }, 0);
      for (const { tool, calls } of inFlight.sessions()) this.inc({ tool }, calls);
    },
  });
  new Gauge({
    name: "keybearer_last_sync_timestamp_seconds",
    help: "When a gateway's console was last read completely.",
    labelNames: ["gateway"],
    registers,
    collect() {
      this.reset();
      for (const { gateway, at } of mirror.lastSyncs()) this.set({ gateway }, at / 1000);
    },
  });
  addOtherModels(registry, deps);
}

/** Counted since the start of the daemon, whether or not there are metrics. Read when somebody scrapes. */
function addOtherModels(registry: Registry, { snapshot, otherModels }: GaugeDeps): void {
  new Counter({
    name: "keybearer_other_model_answers_total",
    help: "Answers of another model than the one that was asked for.",
    labelNames: ["tool"],
    registers: [registry],
    collect() {
      this.reset();
      for (const tool of Object.keys(snapshot().config.tools))
        this.inc({ tool }, otherModels.status(tool)?.other ?? 0);
    },
  });
}

/** Rows of consoles, counted when they get their verdict. */
export function createRowCounter(registry: Registry): Counter {
  return new Counter({
    name: "keybearer_mirror_rows_total",
    help: "Console rows, counted when they get a verdict, and again when it becomes another one.",
    labelNames: ["gateway", "verdict"],
    registers: [registry],
  });
}
