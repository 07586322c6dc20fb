import type { Config, Tool } from "../config/shape.ts";
import { endInWords } from "../limits/format.ts";
import { systemCalendar } from "../limits/windows.ts";
import { count } from "../usage/reports/format.ts";
import type { Finding } from "./finding.ts";
import type { ModelUse } from "./history.ts";
import { type KeyKnowledge, type KeyTrouble, keyTrouble, withRotate } from "./key-trouble.ts";
import { type FailingName, failingNames, isAllowed } from "./model-use.ts";
import { GATEWAY_CAUSES, type Probed, type ProbeFailure } from "./probe.ts";
import type { ToolProbe } from "./probe-tools.ts";

export interface ToolFindingDeps {
  readonly config: Pick<Config, "gateways">;
  /** undefined: nobody asked. */
  readonly probe: ToolProbe | undefined;
  /** What the daemon knows of the tool's key. undefined: no daemon runs. */
  readonly known: (KeyKnowledge & { readonly key: string | null }) | undefined;
  readonly uses: readonly ModelUse[];
  readonly now: number;
}

/** What keeps one tool from working, in config.yaml and at the gateway. */
export function toolFindings(tool: Tool, deps: ToolFindingDeps): Finding[] {
  const about = aboutTool(tool.name);
  if (!tool.enabled)
    return [{ id: "tool", level: "ok", about, what: "disabled, so nothing of it was checked", next: null }];
  return [...stateFindings(tool, deps), ...keyFindings(tool, deps), ...modelFindings(tool, deps)];
}

export function aboutTool(name: string): string {
  return `tool ${name}`;
}

function stateFindings(tool: Tool, { config, now }: ToolFindingDeps): Finding[] {
  const { name, group, expires } = tool;
  const problem = (id: string, what: string, next: string): Finding => ({
    ...{ id, level: "problem", about: aboutTool(name), what, next },
  });
  const found: Finding[] = [];
  if (expires !== null && now >= expires) {
    const what = `expired here at ${endInWords(expires, systemCalendar)}`;
    found.push(problem("tool", what, `change tools.${name}.expires in config.yaml`));
  }
  if (group !== null && config.gateways[tool.gateway]?.groups[group]?.enabled === false) {
    const what = `group unavailable: group ${group} has enabled: false in config.yaml`;
    found.push(problem("group", what, `change gateways.${tool.gateway}.groups.${group}.enabled`));
  }
  if (tool.tokens.length === 0 && tool.process === null && !tool.watchOnly)
    found.push(problem("token", "no token yet, so no client can call", `keybearer use ${name} --new-token`));
  return found;
}

function keyFindings(tool: Tool, { probe, known, now }: ToolFindingDeps): Finding[] {
  const about = aboutTool(tool.name);
  if (probe === undefined) return [];
  const { missing, probed, key } = probe;
  if (missing !== null)
    return [{ id: "key", level: "problem", about, what: missing.why, next: missing.next }];
  // Of this very key: config.yaml may name another one since.
  const trouble = known !== undefined && known.key === key ? keyTrouble(known, now) : null;
  if (trouble !== null && showsLess(probed, trouble)) {
    const { what, next } = trouble;
    return [{ id: "key", level: "problem", about, what, next }];
  }
  if (probed === null) {
    const what = `key ${key}: there was no time left to ask the gateway`;
    return [{ id: "key", level: "warning", about, what, next: "keybearer doctor" }];
  }
  if (!probed.ok) return refusal(tool, key, probed);
  const { length } = probed.models;
  if (length > 0) {
    const what = `key ${key} is accepted, and sees ${length} ${length === 1 ? "model" : "models"}`;
    return [{ id: "key", level: "ok", about, what, next: null }];
  }
  const what = `group unavailable: key ${key} is accepted, but its list of models is empty`;
  const next = "choose another group for the key in the console";
  return [{ id: "group", level: "problem", about, what, next }];
}

/** Gateways list models to keys whose requests they refuse, and answer the same to several faults of a key. */
function showsLess(probed: Probed | null, trouble: KeyTrouble): boolean {
  if (probed === null || probed.ok) return true;
  if (GATEWAY_CAUSES.includes(probed.cause)) return false;
  return probed.detail === null && trouble.detail !== null;
}

function refusal({ name, gateway }: Tool, key: string | null, probed: ProbeFailure): Finding[] {
  const { cause, why, next } = probed;
  const about = aboutTool(name);
  if (GATEWAY_CAUSES.includes(cause)) {
    const what = `key ${key} could not be checked: see gateway ${gateway}`;
    return [{ id: "key", level: "warning", about, what, next: null }];
  }
  return [
    {
      id: cause === "group-unavailable" ? "group" : "key",
      level: cause === "rate-limit" ? "warning" : "problem",
      about,
      what: `${why}; key ${key}`,
      next: withRotate(next, probed, name),
    },
  ];
}

function modelFindings(tool: Tool, { config, probe, uses }: ToolFindingDeps): Finding[] {
  const found: Finding[] = [];
  const { model, name, group } = tool;
  const about = aboutTool(name);
  if (model !== null && !isAllowed(model, tool, config)) {
    const what = `group unavailable: group ${group} in config.yaml does not have model ${model} of this tool`;
    const next = `change tools.${name}.model or .group; see: keybearer models --tool ${name}`;
    found.push({ id: "model", level: "problem", about, what, next });
  }
  if (probe?.probed?.ok !== true || probe.probed.models.length === 0) return found;
  for (const failing of failingNames(tool, probe.probed.models, uses)) {
    if (failing.in_config || (failing.requests > 0 && failing.answered === 0))
      found.push(lacking(failing, tool));
  }
  return found;
}

function lacking({ name, in_config, requests, instead }: FailingName, tool: Tool): Finding {
  const source = in_config ? `tools.${tool.name}.model` : `${count(requests, "request")}, none answered`;
  const like = instead.length === 0 ? "" : `; it has ${instead.join(", ")}`;
  return {
    id: "model",
    level: in_config ? "problem" : "warning",
    about: aboutTool(tool.name),
    what: `group unavailable: the key's list lacks model ${name} (${source})${like}`,
    next: `keybearer models --tool ${tool.name}`,
  };
}
