import type { EditResult } from "../../config/edit.ts";
import type { YamlMap, YamlValue } from "../../config/edit-layout.ts";
import { addGroup, addTool, type NewToken } from "../../config/edit-tools.ts";
import { parseConfig } from "../../config/parse.ts";
import type { Problem } from "../../config/problems.ts";
import type { Config, Gateway, Tool } from "../../config/schema.ts";
import { joinPath } from "../../config/yaml.ts";

/** The settings of a new tool as the command line takes them: written like config.yaml, the dollar sign left to taste. */
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

export interface Secrets {
  /** Where the key lies, as config.yaml writes it. */
  readonly key: string;
  /** null: only the other settings are tried. */
  readonly token: NewToken | null;
}

export type Planned =
  | {
      readonly ok: true;
      readonly config: Config;
      readonly tool: Tool;
      readonly gateway: Gateway;
      /** The group is not in config.yaml yet, and will be written there. */
      readonly newGroup: string | null;
      splice(text: string, secrets: Secrets): EditResult;
    }
  | { readonly ok: false; readonly reason: string; readonly bad: "options" | "file" };

/** Tries the edit on the text, and has the outcome read as the daemon would: nothing of that is written twice. */
export function planTool(text: string, home: string, name: string, options: ToolOptions): Planned {
  const any = { key: `keychain:keybearer/${name}`, token: null };
  const { group, ...rest } = options;
  const without = addTool(text, name, settingsOf(rest, any));
  if (!without.ok) return { ...without, bad: "file" };
  const { config: alone } = parseConfig(without.text, home);
  const groups = alone?.gateways[alone.tools[name]?.gateway ?? ""]?.groups ?? {};
  // Where some are listed, one that is not may be a slip of the pen.
  const newGroup = group !== undefined && Object.keys(groups).length === 0 ? group : null;
  const at = alone?.tools[name]?.gateway ?? "main";
  const splice = (from: string, secrets: Secrets): EditResult => {
    const grouped = newGroup === null ? { ok: true as const, text: from } : addGroup(from, at, newGroup);
    return grouped.ok ? addTool(grouped.text, name, settingsOf(options, secrets)) : grouped;
  };
  const edited = splice(text, any);
  if (!edited.ok) return { ...edited, bad: "file" };
  const { config, problems } = parseConfig(edited.text, home);
  const tool = config?.tools[name];
  const gateway = config?.gateways[tool?.gateway ?? ""];
  if (config !== null && tool !== undefined && gateway !== undefined)
    return { ok: true, config, tool, gateway, newGroup, splice };
  const errors = problems.filter(({ severity }) => severity === "error");
  const below = joinPath("tools", name);
  const ours = errors.filter(({ path }) => path === below || path.startsWith(`${below}.`));
  if (ours.length === errors.length) return { ok: false, reason: inWords(ours), bad: "options" };
  return {
    ok: false,
    reason: "config.yaml has problems, so nothing can be added → keybearer check",
    bad: "file",
  };
}

/** Their lines are those of a text that nobody wrote. */
function inWords(problems: readonly Problem[]): string {
  return problems
    .map(({ path, message, hint }) => `${path}: ${message}${hint === null ? "" : ` → ${hint}`}`)
    .join("\n");
}

function settingsOf(options: ToolOptions, { key, token }: Secrets): YamlMap {
  const limits = entries([
    ["requests", list(options.requests)],
    ["tokens", list(options.tokens)],
    ["spend", list(options.spend, dollars)],
    ["concurrent", options.concurrent],
  ]);
  return entries([
    ["gateway", options.gateway],
    ["group", options.group],
    ["key", key],
    ["token", token === null ? undefined : [{ ...token }]],
    ["model", options.model],
    ["limits", Object.keys(limits).length === 0 ? undefined : limits],
    ["quota", options.quota === undefined ? undefined : dollars(options.quota)],
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

/** A shell takes $5 for one of its variables. */
function dollars(text: string): string {
  return /^\d/.test(text) ? `$${text}` : text;
}
