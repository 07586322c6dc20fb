import { advice } from "../core/advice.ts";
import { type Failed, failed } from "../core/display.ts";
import type { EditResult } from "./edit.ts";
import type { YamlMap, YamlValue } from "./edit-layout.ts";
import { addGroup, addTool, type NewToken } from "./edit-tools.ts";
import { parseConfig } from "./parse.ts";
import { describeProblems } from "./problems.ts";
import type { Config, Gateway, Tool } from "./schema.ts";
import { withDollarSign } from "./values.ts";
import { joinPath } from "./yaml.ts";

/** The settings of a new tool as the command line takes them: as in config.yaml, with or without the dollar sign. */
export interface ToolOptions {
  readonly gateway?: string;
  readonly group?: string;
  readonly quota?: string;
  readonly requests?: string;
  readonly tokens?: string;
  readonly spend?: string;
  readonly concurrent?: string;
  readonly expires?: string;
  readonly model?: string;
}

interface Secrets {
  /** The key's source as config.yaml has it. */
  readonly key: string;
  /** null: only the other settings are tried. */
  readonly token: NewToken | null;
}

/** A tool whose settings are valid, and not saved yet. */
export interface NewTool {
  readonly ok: true;
  readonly config: Config;
  readonly tool: Tool;
  readonly gateway: Gateway;
  /** A group that is not in config.yaml yet and will be added. */
  readonly newGroup: string | null;
  insert(text: string, secrets: Secrets): EditResult;
}

type Planned = NewTool | (Failed & { readonly bad: "options" | "file" });

/** Tries the edit on the text, and checks the result as the daemon would. */
export function planTool(text: string, home: string, name: string, options: ToolOptions): Planned {
  const placeholder = { key: `keychain:keybearer/${name}`, token: null };
  const { group, ...rest } = options;
  const ungrouped = addTool(text, name, toSettings(rest, placeholder));
  if (!ungrouped.ok) return { ...ungrouped, bad: "file" };
  const { config: known } = parseConfig(ungrouped.text, home);
  const gatewayName = known?.tools[name]?.gateway ?? "main";
  const groups = known?.gateways[gatewayName]?.groups ?? {};
  // If the gateway has groups, one that is not among them may be a typing mistake.
  const newGroup = group !== undefined && Object.keys(groups).length === 0 ? group : null;
  const insert = (before: string, secrets: Secrets): EditResult => {
    if (newGroup === null) return addTool(before, name, toSettings(options, secrets));
    const grouped = addGroup(before, gatewayName, newGroup);
    return grouped.ok ? addTool(grouped.text, name, toSettings(options, secrets)) : grouped;
  };
  const edited = insert(text, placeholder);
  if (!edited.ok) return { ...edited, bad: "file" };
  const { config, problems } = parseConfig(edited.text, home);
  const tool = config?.tools[name];
  const gateway = config?.gateways[tool?.gateway ?? ""];
  if (config !== null && tool !== undefined && gateway !== undefined)
    return { ok: true, config, tool, gateway, newGroup, insert };
  const errors = problems.filter(({ severity }) => severity === "error");
  const toolPath = joinPath("tools", name);
  const isOfTool = errors.every(({ path }) => path === toolPath || path.startsWith(`${toolPath}.`));
  if (isOfTool) return { ...failed(describeProblems(errors)), bad: "options" };
  return { ...failed("config.yaml has problems, so nothing can be added", advice.check()), bad: "file" };
}

function toSettings(options: ToolOptions, { key, token }: Secrets): YamlMap {
  const limits = entries([
    ["requests", list(options.requests)],
    ["tokens", list(options.tokens)],
    ["spend", list(options.spend, withDollarSign)],
    ["concurrent", options.concurrent],
  ]);
  return entries([
    ["gateway", options.gateway],
    ["group", options.group],
    ["key", key],
    ["token", token === null ? undefined : [{ ...token }]],
    ["model", options.model],
    ["limits", Object.keys(limits).length === 0 ? undefined : limits],
    ["quota", options.quota === undefined ? undefined : withDollarSign(options.quota)],
    ["expires", options.expires],
  ]);
}

function entries(all: readonly (readonly [string, YamlValue | undefined])[]): YamlMap {
  return Object.fromEntries(
    all.flatMap(([key, value]) => (value === undefined ? [] : [[key, value] as const])),
  );
}

/** `$5/day,$60/month` */
function list(text: string | undefined, each = (part: string) => part): YamlValue | undefined {
  const items = text?.split(",").map((part) => each(part.trim()));
  return items === undefined || items.length > 1 ? items : items[0];
}
