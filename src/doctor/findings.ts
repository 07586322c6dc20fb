import type { ConfigProblem } from "../config/problems.ts";
import type { Config, Gateway, Tool } from "../config/schema.ts";
import { advice } from "../core/advice.ts";
import { MINUTE_MS } from "../core/units.ts";
import { durationInWords } from "../limits/format.ts";
import { type CauseDetail, NO_MODELS_LISTED } from "../proxy/key-health/cause.ts";
import { nextForProbe } from "../proxy/key-health/key-problem.ts";
import { count } from "../usage/reports/format.ts";
import type { LastFailure, ModelUse } from "./history.ts";
import { type FailingName, failingNames, isAllowed } from "./models.ts";
import type { ProbeResult, ToolProbe } from "./probe.ts";
import { concernsGateway, type FailedProbe } from "./probe-failure.ts";
import { type ToolProblemCode, toolProblems } from "./tool-problems.ts";

/** "problem" needs action and makes doctor exit with 1; "warning" is worth reading and does not. */
export type FindingLevel = "ok" | "warning" | "problem";

export interface Finding {
  /** A stable name for scripts that read --json, such as "key" or "base-url"; several findings may share one. */
  readonly id: string;
  readonly level: FindingLevel;
  /** "config.yaml", "the daemon", "tool claude-code", "gateway main". Findings are grouped by it. */
  readonly about: string;
  readonly what: string;
  /** What to type or do next; null: nothing is needed. */
  readonly next: string | null;
}

// config.yaml

interface ConfigCheck {
  readonly file: string;
  readonly found: boolean;
  readonly usable: boolean;
  readonly problems: readonly ConfigProblem[];
}

export function configFindings(
  { file, found, usable, problems }: ConfigCheck,
  isSandbox: boolean,
): Finding[] {
  const about = "config.yaml";
  if (!found) {
    const effect = isSandbox ? "the sandbox answers" : "only the sandbox can be served";
    const what = `there is no ${file} yet, so ${effect}`;
    return [{ id: "config", level: "warning", about, what, next: advice.init() }];
  }
  const findings = problems.map((problem) => configProblem(problem, file));
  if (!usable) return findings;
  return [{ id: "config", level: "ok", about, what: `${file} is valid`, next: null }, ...findings];
}

function configProblem({ severity, path, line, message, hint }: ConfigProblem, file: string): Finding {
  // A probe finds a wrong base url, too, so both have the same id and begin with the same words.
  const isAddress = severity === "error" && /(?:^|\.)(?:base_url|gateway)$/.test(path);
  const where = `${line > 0 ? `line ${line}: ` : ""}${path === "" ? "" : `${path}: `}`;
  return {
    id: isAddress ? "base-url" : "config",
    level: severity === "error" ? "problem" : "warning",
    about: "config.yaml",
    what: `${where}${isAddress ? "wrong base url: " : ""}${message}`,
    next: hint ?? (severity === "error" ? `correct ${file}, then: ${advice.check()}` : null),
  };
}

// Gateways

/** Whether a gateway answers, by the probes of its tools' keys. */
export function gatewayFindings(gateway: Gateway, probes: readonly ToolProbe[]): Finding[] {
  const about = `gateway ${gateway.name}`;
  const results = probes
    .filter((probe) => probe.gateway === gateway.name)
    .map(({ probed }) => probed)
    .filter((probed) => probed !== null);
  if (results.length === 0) {
    const what = `${gateway.baseUrl} was not checked, because none of its tools has a usable key`;
    return [{ id: "gateway", level: "warning", about, what, next: null }];
  }
  for (const result of results) {
    if (result.ok || !concernsGateway(result)) continue;
    const isAddress = result.cause === "html" || result.cause === "wrong-base-url";
    const { problem: what, next } = result;
    return [{ id: isAddress ? "base-url" : "gateway", level: "problem", about, what, next }];
  }
  const via = gateway.proxy === null ? "" : `, through the outbound proxy ${gateway.proxy}`;
  const what = `${gateway.baseUrl} answers${via}`;
  const skews = results.map(({ skew }) => skew).filter((skew) => skew !== null);
  return [{ id: "gateway", level: "ok", about, what, next: null }, ...clockFindings(about, skews)];
}

/** A Date header has whole seconds, and the response takes time. */
const SKEW_WARNING_MS = 30_000;
const SKEW_PROBLEM_MS = 5 * MINUTE_MS;

/** Expiries, windows of limits and the mirror depend on this machine's clock. */
function clockFindings(about: string, skews: readonly number[]): Finding[] {
  // The smallest one: a slow response only adds to it.
  const [skew = 0] = skews.toSorted((one, other) => Math.abs(one) - Math.abs(other));
  if (Math.abs(skew) < SKEW_WARNING_MS) return [];
  const seconds = Math.round(Math.abs(skew) / 1000);
  const amount = seconds < 120 ? `${seconds} s` : `${Math.round(seconds / 60)} min`;
  const what = `this machine's clock is ${amount} ${skew > 0 ? "behind" : "ahead of"} the gateway's`;
  const level = Math.abs(skew) < SKEW_PROBLEM_MS ? "warning" : "problem";
  const next = "set the clock by the network: timedatectl set-ntp true; on macOS in Date & Time";
  return [{ id: "clock", level, about, what, next }];
}

// Tools

interface ToolFindingDeps {
  readonly config: Pick<Config, "gateways">;
  /** undefined: the key was not probed. */
  readonly probe: ToolProbe | undefined;
  /** The daemon's status of the tool after the probe; undefined: no daemon runs. */
  readonly known: KnownTool | undefined;
  readonly uses: readonly ModelUse[];
  readonly lastFailures: readonly LastFailure[];
  readonly now: number;
}

/** What findings need of a tool's status. */
interface KnownTool {
  readonly state: string;
  readonly key: string | null;
  readonly why: string | null;
  readonly next: string | null;
  readonly refused: { readonly detail: CauseDetail | null } | null;
  /** Requests are refused here, because the gateway keeps refusing the key. */
  readonly paused: object | null;
}

/** What keeps one tool from working, in config.yaml and at the gateway. */
export function toolFindings(tool: Tool, deps: ToolFindingDeps): Finding[] {
  if (!tool.enabled) {
    const what = "disabled, so it was not checked";
    return [{ id: "tool", level: "ok", about: aboutTool(tool.name), what, next: null }];
  }
  return [...stateFindings(tool, deps), ...keyFindings(tool, deps), ...modelFindings(tool, deps)];
}

export function aboutTool(name: string): string {
  return `tool ${name}`;
}

const STATE_IDS: Readonly<Record<ToolProblemCode, string>> = {
  disabled: "tool",
  expired: "tool",
  "group-disabled": "group",
  "no-token": "token",
};

function stateFindings(tool: Tool, { config, now }: ToolFindingDeps): Finding[] {
  return toolProblems(tool, config, now).map(({ code, problem, next }) => ({
    id: STATE_IDS[code],
    level: "problem",
    about: aboutTool(tool.name),
    what: problem,
    next,
  }));
}

function keyFindings(tool: Tool, { probe, known }: ToolFindingDeps): Finding[] {
  const about = aboutTool(tool.name);
  if (probe === undefined) return [];
  const { missing, probed, key } = probe;
  if (missing !== null)
    return [{ id: "key", level: "problem", about, what: missing.problem, next: missing.next }];
  if (probed?.ok && probed.models.length === 0) {
    const { problem, next } = NO_MODELS_LISTED;
    return [{ id: "group", level: "problem", about, what: `${problem}; key ${key}`, next }];
  }
  // The daemon's knowledge counts only for this very key: config.yaml may name another one by now.
  const isSameKey = known !== undefined && known.key === key;
  const isAboutKey = known?.state === "key-refused" || known?.state === "active";
  if (isSameKey && isAboutKey && known.why !== null && isLessPrecise(probed, known))
    return [{ id: "key", level: "problem", about, what: known.why, next: known.next }];
  if (probed === null) {
    const what = `key ${key} was not checked: there was no time left`;
    return [{ id: "key", level: "warning", about, what, next: advice.doctor() }];
  }
  if (!probed.ok) return [refusalFinding(tool, key, probed, isSameKey ? known : undefined)];
  const what = `the gateway accepts key ${key} and lists ${count(probed.models.length, "model")}`;
  return [{ id: "key", level: "ok", about, what, next: null }];
}

/**
 * The daemon has remembered the probe, and knows the tool's requests and the console, too: gateways list models to keys whose
 * requests they refuse, and answer the same to several problems of a key.
 */
function isLessPrecise(probed: ProbeResult | null, known: KnownTool): boolean {
  if (probed === null || probed.ok || known.paused !== null) return true;
  if (concernsGateway(probed) || probed.detail !== null) return false;
  return known.refused === null ? probed.refused === null : known.refused.detail !== null;
}

function refusalFinding(
  { name, gateway }: Tool,
  key: string | null,
  probed: FailedProbe,
  known: KnownTool | undefined,
): Finding {
  const about = aboutTool(name);
  if (concernsGateway(probed)) {
    const what = `key ${key} could not be checked: see gateway ${gateway}`;
    return { id: "key", level: "warning", about, what, next: null };
  }
  const { cause, detail } = probed;
  const isKnown = detail !== null && known?.state === "key-refused" && known.refused?.detail === detail;
  return {
    id: cause === "group-unavailable" ? "group" : "key",
    level: cause === "rate-limit" ? "warning" : "problem",
    about,
    what: `${probed.problem}; key ${key}`,
    // The daemon knows whether a login can make a new key.
    next: isKnown ? known.next : nextForProbe(probed, name),
  };
}

function modelFindings(tool: Tool, deps: ToolFindingDeps): Finding[] {
  const { config, probe, uses, lastFailures, now } = deps;
  const found: Finding[] = [];
  const failed = lastFailures.filter((each) => each.tool === tool.name);
  const { model, name, group } = tool;
  if (model !== null && !isAllowed(model, tool, config)) {
    const what = `group unavailable: group ${group} in config.yaml does not have model ${model} of this tool`;
    const next = `change tools.${name}.model or .group; see: ${advice.models(name)}`;
    found.push({ id: "model", level: "problem", about: aboutTool(name), what, next });
  }
  if (probe?.probed?.ok !== true || probe.probed.models.length === 0) return found;
  for (const last of failed.filter(isWithoutAccount)) found.push(noAccount(last, now));
  for (const failing of failingNames(tool, probe.probed.models, uses)) {
    const last = failed.find(({ model }) => model === failing.name);
    if (last !== undefined && isWithoutAccount(last)) continue;
    const isExplained = last !== undefined && !isModelRefusal(last);
    if (failing.in_config || (failing.requests > 0 && failing.answered === 0 && !isExplained))
      found.push(missingModel(failing, tool));
  }
  return found;
}

/** sub2api answers this to a group without accounts, and lists models all the same (0.1.27, 0.1.135). */
function isWithoutAccount({ cause, detail }: LastFailure): boolean {
  return cause === "group-unavailable" && detail === "no-capacity";
}

/** Another cause, such as an empty account, explains the failure without the model. */
function isModelRefusal({ cause, detail }: LastFailure): boolean {
  return detail === null && (cause === "group-unavailable" || cause === "unknown");
}

function noAccount({ tool, model, at }: LastFailure, now: number): Finding {
  const age = durationInWords(Math.max(0, now - at));
  return {
    id: "group",
    level: "warning",
    about: aboutTool(tool),
    what: `group unavailable: at the last request, ${age} ago, the gateway had no account for model ${model} in the key's group`,
    next: "try again later; if it stays so, choose another group for the key in the console, or ask the gateway's operator",
  };
}

function missingModel({ name, in_config, requests, instead }: FailingName, tool: Tool): Finding {
  const source = in_config ? `tools.${tool.name}.model` : `${count(requests, "request")}, none answered`;
  const similar = instead.length === 0 ? "" : `; it has ${instead.join(", ")}`;
  return {
    id: "model",
    level: in_config ? "problem" : "warning",
    about: aboutTool(tool.name),
    what: `group unavailable: the key's list lacks model ${name} (${source})${similar}`,
    next: advice.models(tool.name),
  };
}
