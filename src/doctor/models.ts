import type { Config, Tool } from "../config/schema.ts";
import { isInGroup } from "../limits/admit.ts";
import { type Prices, toMicrodollars } from "../metering/prices.ts";
import { NO_TOKENS, type Tokens } from "../metering/usage.ts";
import type { ModelUse } from "./history.ts";
import type { ToolProbe } from "./probe.ts";
import type { ProbeCause } from "./probe-failure.ts";

/** A model of the gateway's list. Prices are per million tokens, before the group's multiplier. */
export interface ListedModel {
  readonly id: string;
  /** false: config.yaml does not let the tool request it. */
  readonly in_group: boolean;
  readonly input_microdollars: number | null;
  readonly output_microdollars: number | null;
}

/** What `keybearer models --json` prints for each tool. */
export interface ToolModels {
  readonly tool: string;
  readonly gateway: string;
  readonly group: string | null;
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

interface ModelContext {
  readonly config: Pick<Config, "gateways" | "prices">;
  readonly prices: Prices;
  readonly uses: readonly ModelUse[];
  readonly now: number;
}

/** The gateway's list as this tool sees it. */
export function toolModels(tool: Tool, probe: ToolProbe, context: ModelContext): ToolModels {
  const { config, uses } = context;
  const group = tool.group === null ? undefined : config.gateways[tool.gateway]?.groups[tool.group];
  const list = probe.probed?.ok === true ? probe.probed.models : null;
  return {
    tool: tool.name,
    gateway: tool.gateway,
    group: tool.group,
    multiplier: group?.multiplier ?? 1,
    key: probe.key,
    problem: findProblem(probe),
    models: (list ?? []).map((id) => listedModel(id, tool, context)),
    failing: list === null ? [] : failingNames(tool, list, uses),
  };
}

function findProblem({ missing, probed }: ToolProbe): ToolModels["problem"] {
  if (missing !== null) {
    const cause = missing.state === "needs-trust" ? "needs-trust" : "key-unavailable";
    return { cause, why: missing.problem, next: missing.next };
  }
  if (probed === null) return { cause: "not-asked", why: "there was no time to ask", next: "try again" };
  return probed.ok ? null : { cause: probed.cause, why: probed.problem, next: probed.next };
}

/** Few enough to stay below every price tier for long prompts. */
const SAMPLE_TOKENS = 1000;

function listedModel(id: string, tool: Tool, { config, prices, now }: ModelContext): ListedModel {
  const perMillion = (tokens: Partial<Tokens>) => {
    const names = { asked: id, answered: null };
    const price = prices.findPrice(names, { ...NO_TOKENS, ...tokens }, now, config.prices);
    return price === null ? null : toMicrodollars(price * (1_000_000 / SAMPLE_TOKENS));
  };
  return {
    id,
    in_group: isAllowed(id, tool, config),
    input_microdollars: perMillion({ input: SAMPLE_TOKENS }),
    output_microdollars: perMillion({ output: SAMPLE_TOKENS }),
  };
}

/** Whether config.yaml lets the tool request this model. */
export function isAllowed(model: string, tool: Tool, { gateways }: Pick<Config, "gateways">): boolean {
  const group = tool.group === null ? undefined : gateways[tool.gateway]?.groups[tool.group];
  return group === undefined || isInGroup(model, group.models);
}

/** A model name that is requested, or likely to be, and that the gateway's list does not have. */
export interface FailingName {
  readonly name: string;
  /** Requests that named it in the last 30 days, and how many of them succeeded anyway. */
  readonly requests: number;
  readonly answered: number;
  /** It is the tool's `model:` in config.yaml. */
  readonly in_config: boolean;
  /** Names in the list that differ only by a prefix, a suffix or a date. */
  readonly instead: readonly string[];
}

/** A release date or "latest" at the end of a name. */
const RELEASE = /[-@](?:20\d\d-?\d\d(?:-?\d\d)?|latest)$/;

/** The names in use that the list lacks, and names that the list has only with a release date. */
export function failingNames(
  tool: Tool,
  list: readonly string[],
  uses: readonly ModelUse[],
): readonly FailingName[] {
  const counts = new Map<string, { requests: number; answered: number }>();
  if (tool.model !== null) counts.set(tool.model, { requests: 0, answered: 0 });
  for (const { tool: name, model, requests, answered } of uses) {
    if (name !== tool.name || model === "") continue;
    const before = counts.get(model) ?? { requests: 0, answered: 0 };
    counts.set(model, { requests: before.requests + requests, answered: before.answered + answered });
  }
  for (const id of list) {
    const undated = id.replace(RELEASE, "");
    if (undated !== id && !counts.has(undated)) counts.set(undated, { requests: 0, answered: 0 });
  }
  return [...counts]
    .filter(([name]) => !list.includes(name))
    .map(([name, sums]) => ({
      name,
      ...sums,
      in_config: name === tool.model,
      instead: similarNames(name, list),
    }))
    .toSorted((one, other) => urgency(one) - urgency(other) || other.requests - one.requests);
}

function urgency({ in_config, requests }: FailingName): number {
  if (in_config) return 0;
  return requests > 0 ? 1 : 2;
}

const MAX_SIMILAR = 3;

function similarNames(name: string, list: readonly string[]): string[] {
  const wanted = plainName(name);
  const same = list.filter((id) => plainName(id) === wanted);
  const longer = list.filter((id) => plainName(id).startsWith(`${wanted}-`));
  return [...same, ...longer].slice(0, MAX_SIMILAR);
}

/** Without a path before it and a release date after it, in lower case, and with one spelling of version numbers. */
function plainName(name: string): string {
  const last = name.slice(name.lastIndexOf("/") + 1).toLowerCase();
  return last.replace(RELEASE, "").replace(/(?<=\d)\.(?=\d)/g, "-");
}
