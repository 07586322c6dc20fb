import type { Config, Tool } from "../config/shape.ts";
import type { Prices } from "../metering/prices.ts";
import { microdollars } from "../metering/prices.ts";
import { NO_TOKENS, type Tokens } from "../metering/usage.ts";
import type { ModelUse } from "./history.ts";
import { type FailingName, failingNames, isAllowed } from "./model-use.ts";
import type { ProbeCause } from "./probe.ts";
import { type ProbeToolsDeps, probeTools, type ToolProbe } from "./probe-tools.ts";

/** A model of the gateway's list. Prices are the maker's, or config.yaml's, per million tokens, before the multiplier. */
export interface ListedModel {
  readonly id: string;
  /** false: config.yaml does not let the tool ask for it. */
  readonly in_group: boolean;
  readonly input_microdollars: number | null;
  readonly output_microdollars: number | null;
}

/** What `keybearer models --json` prints, one for each tool. */
export interface ToolModels {
  readonly tool: string;
  readonly gateway: string;
  readonly group: string | null;
  /** The group's factor on the prices. */
  readonly multiplier: number;
  /** Fingerprint. */
  readonly key: string | null;
  /** Why there is no list; null: there is one. */
  readonly problem: {
    readonly cause: ProbeCause | "key-unavailable" | "needs-trust" | "not-asked";
    readonly why: string;
    readonly next: string | null;
  } | null;
  readonly models: readonly ListedModel[];
  readonly failing: readonly FailingName[];
}

export interface ModelsDeps extends ProbeToolsDeps {
  readonly config: Pick<Config, "gateways" | "prices">;
  readonly prices: Prices;
  readonly uses: readonly ModelUse[];
}

/** The gateway's list as each of these tools sees it. */
export async function modelsFor(tools: readonly Tool[], deps: ModelsDeps): Promise<ToolModels[]> {
  const probes = await probeTools(tools, deps);
  return tools.flatMap((tool) => {
    const probe = probes.find((each) => each.tool === tool.name);
    return probe === undefined ? [] : [modelsOf(tool, probe, deps)];
  });
}

function modelsOf(tool: Tool, probe: ToolProbe, deps: ModelsDeps): ToolModels {
  const { probed } = probe;
  const group = tool.group === null ? undefined : deps.config.gateways[tool.gateway]?.groups[tool.group];
  const list = probed?.ok === true ? probed.models : [];
  return {
    tool: tool.name,
    gateway: tool.gateway,
    group: tool.group,
    multiplier: group?.multiplier ?? 1,
    key: probe.key,
    problem: problemOf(probe),
    models: list.map((id) => ({ id, in_group: isAllowed(id, tool, deps.config), ...pricesOf(id, deps) })),
    failing: probed?.ok === true ? failingNames(tool, list, deps.uses) : [],
  };
}

function problemOf({ missing, probed }: ToolProbe): ToolModels["problem"] {
  if (missing !== null) {
    const cause = missing.state === "needs-trust" ? "needs-trust" : "key-unavailable";
    return { cause, why: missing.why, next: missing.next };
  }
  if (probed === null) return { cause: "not-asked", why: "there was no time to ask", next: "try again" };
  return probed.ok ? null : { cause: probed.cause, why: probed.why, next: probed.next };
}

/** So few that no tier for long prompts is reached. */
const SOME = 1000;

function pricesOf(
  model: string,
  { prices, config, clock }: ModelsDeps,
): Pick<ListedModel, "input_microdollars" | "output_microdollars"> {
  const perMillion = (tokens: Partial<Tokens>) => {
    const names = { asked: model, answered: null };
    const price = prices.priceOf(names, { ...NO_TOKENS, ...tokens }, clock.now(), config.prices);
    return price === null ? null : microdollars(price * (1_000_000 / SOME));
  };
  return {
    input_microdollars: perMillion({ input: SOME }),
    output_microdollars: perMillion({ output: SOME }),
  };
}
