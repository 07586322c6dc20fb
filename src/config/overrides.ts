import { createHash } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import { type Failed, failed } from "../core/display.ts";
import { compareConfigs } from "./compare.ts";
import { readForEdit, removeValue, setValue } from "./edit.ts";
import { formatInline, isList, type YamlMap, type YamlValue } from "./edit-layout.ts";
import { type NewToken, removeToken, setKey, setToken } from "./edit-tools.ts";
import { parseConfig } from "./parse.ts";
import { type ConfigProblem, warning } from "./problems.ts";
import type { Config } from "./schema.ts";

/*
 * What the system service changes: it is applied over config.yaml, which only root changes. It holds where a key is now, the
 * tokens that were added and revoked, and settings that narrow what root allows.
 */

/** The settings of a tool that may be narrowed here. */
const SETTINGS = [
  "enabled",
  "quota",
  "expires",
  "limits.requests",
  "limits.tokens",
  "limits.spend",
  "limits.concurrent",
  "limits.wait",
  "limits.session.requests",
  "limits.session.tokens",
  "limits.session.spend",
];

/** What is applied to one tool. */
interface ToolOverrides {
  readonly settings: Readonly<Record<string, YamlValue>>;
  /** Counts only while root's config.yaml has the source whose digest is `from`. */
  readonly key: { readonly from: string; readonly to: string } | null;
  readonly added: readonly NewToken[];
  /** Their hashes. */
  readonly revoked: readonly string[];
}

type Overrides = Readonly<Record<string, ToolOverrides>>;

export interface Layered {
  readonly ok: true;
  /** config.yaml as it is in force. */
  readonly text: string;
  readonly problems: readonly ConfigProblem[];
  /** The paths of the settings that do not come from config.yaml: tools.codex.limits.spend */
  readonly overridden: readonly string[];
}

/**
 * config.yaml with what is applied over it. What would allow more than root does is left out. Fails if the overrides cannot be
 * understood: without them, a tool that an owner disabled would be enabled.
 */
export function applyOverrides(root: string, overrides: string, home: string): Layered | Failed {
  const read = readOverrides(overrides);
  if (!read.ok) return read;
  const problems: ConfigProblem[] = [];
  const overridden: string[] = [];
  let text = root;
  for (const [tool, own] of Object.entries(read.overrides)) {
    const known = toolsIn(root)[tool];
    // Root has removed it.
    if (known === undefined) continue;
    for (const [setting, value] of Object.entries(own.settings)) {
      const path = `tools.${tool}.${setting}`;
      const narrowed = setValue(text, ["tools", tool, ...setting.split(".")], value);
      if (!narrowed.ok) return narrowed;
      if (mayReplace(text, narrowed.text, home)) {
        if (narrowed.text !== text) overridden.push(path);
        text = narrowed.text;
      } else
        problems.push(warning(path, "config.yaml allows less now than an owner did, so config.yaml counts"));
    }
    if (own.key?.from === digest(known.key)) {
      const moved = setKey(text, tool, own.key.to);
      if (!moved.ok) return moved;
      text = moved.text;
      overridden.push(`tools.${tool}.key`);
    }
    const tokens = applyTokens(text, tool, own);
    if (!tokens.ok) return tokens;
    if (tokens.text !== text) overridden.push(`tools.${tool}.token`);
    text = tokens.text;
  }
  return { ok: true, text, problems, overridden };
}

function mayReplace(before: string, after: string, home: string): boolean {
  const old = parseConfig(before, home).config;
  const next = parseConfig(after, home).config;
  return old !== null && next !== null && compareConfigs(old, next) !== "widens";
}

function applyTokens(
  before: string,
  tool: string,
  { added, revoked }: ToolOverrides,
): { readonly ok: true; readonly text: string } | Failed {
  let text = before;
  for (const hash of revoked) {
    const name = tokensIn(text, tool).find((token) => token.hash === hash)?.name;
    if (name === undefined) continue;
    const removed = removeToken(text, tool, name);
    if (!removed.ok) return removed;
    text = removed.text;
  }
  for (const token of added) {
    const isThere = tokensIn(text, tool).some(({ name, hash }) => hash === token.hash || name === token.name);
    if (isThere) continue;
    const set = setToken(text, tool, token, "add");
    if (!set.ok) return set;
    text = set.text;
  }
  return { ok: true, text };
}

/**
 * The overrides with which config.yaml becomes the wanted text. Fails if that allows more than root does, or changes something
 * that only root may change.
 */
export function overridesFor(
  root: string,
  wanted: string,
  home: string,
): { readonly ok: true; readonly text: string } | Failed {
  const tools: Record<string, YamlMap> = {};
  const wantedTools = toolsIn(wanted);
  for (const [tool, before] of Object.entries(toolsIn(root))) {
    const after = wantedTools[tool];
    if (after === undefined) return failed(NEEDS_ROOT);
    const own: Record<string, YamlValue> = {};
    for (const setting of SETTINGS) {
      const value = valueAt(after, setting);
      if (value !== undefined && !isDeepStrictEqual(value, valueAt(before, setting))) own[setting] = value;
    }
    if (!isDeepStrictEqual(after.key, before.key) && typeof after.key === "string")
      own.key = { from: digest(before.key), to: after.key };
    const old = tokensIn(root, tool);
    const now = tokensIn(wanted, tool);
    const added = now.filter(({ hash }) => !old.some((token) => token.hash === hash));
    const revoked = old.filter(({ hash }) => !now.some((token) => token.hash === hash));
    if (added.length > 0) own.tokens_added = added.map((token) => ({ ...token }));
    if (revoked.length > 0) own.tokens_revoked = revoked.map(({ hash }) => hash);
    if (Object.keys(own).length > 0) tools[tool] = own;
  }
  const lines = Object.entries(tools).map(([tool, own]) => `  ${formatInline(tool)}: ${formatInline(own)}\n`);
  const text = `${HEADER}tools:${lines.length === 0 ? " {}" : ""}\n${lines.join("")}`;
  const applied = applyOverrides(root, text, home);
  if (!applied.ok) return applied;
  const result = parseConfig(applied.text, home).config;
  const expected = parseConfig(wanted, home).config;
  if (result === null || expected === null || !isSame(result, expected)) return failed(NEEDS_ROOT);
  return { ok: true, text };
}

const HEADER = `# Written by keybearer: what its system service changes over /etc/keybearer/config.yaml.\n`;
const NEEDS_ROOT = "only root may change that: config.yaml of the system service belongs to root";

/** The order of tokens means nothing. */
function isSame(one: Config, other: Config): boolean {
  const sorted = (config: Config) => ({
    ...config,
    tools: Object.fromEntries(
      Object.entries(config.tools).map(([name, tool]) => [
        name,
        { ...tool, tokens: tool.tokens.toSorted((a, b) => a.hash.localeCompare(b.hash)) },
      ]),
    ),
  });
  return isDeepStrictEqual(sorted(one), sorted(other));
}

type Read = { readonly ok: true; readonly overrides: Overrides } | Failed;

function readOverrides(text: string): Read {
  if (text.trim() === "") return { ok: true, overrides: {} };
  const source = readForEdit(text);
  if (!source.ok) return failed("overrides.yaml cannot be read, so no tool may be used");
  const { tools = {} } = source.value;
  const overrides: Record<string, ToolOverrides> = {};
  for (const [tool, own] of Object.entries(mapIn(tools))) {
    const { key, tokens_added: added = [], tokens_revoked: revoked = [], ...settings } = mapIn(own);
    const unknown = Object.keys(settings).find((setting) => !SETTINGS.includes(setting));
    if (unknown !== undefined)
      return failed(`overrides.yaml has ${unknown} of ${tool}, which it may not set`);
    const { from, to } = mapIn(key);
    overrides[tool] = {
      settings,
      key: typeof from === "string" && typeof to === "string" ? { from, to } : null,
      added: listIn(added).map(readToken),
      revoked: listIn(revoked).map(String),
    };
  }
  return { ok: true, overrides };
}

function readToken(value: YamlValue): NewToken {
  const { name = "", hash = "", created = "" } = mapIn(value);
  return { name: String(name), hash: String(hash), created: String(created) };
}

/** Without tools whose overrides root has taken into config.yaml. */
export function forgetOverrides(text: string, tools: readonly string[]): string | Failed {
  let left = text;
  for (const tool of tools) {
    const source = readForEdit(left);
    if (!source.ok) return source;
    if (mapIn(source.value.tools)[tool] === undefined) continue;
    const removed = removeValue(left, ["tools", tool]);
    if (!removed.ok) return removed;
    left = removed.text;
  }
  return left;
}

/** What is applied over these tools alone; empty: nothing. */
export function onlyOverrides(text: string, tools: readonly string[]): string | Failed {
  const source = readForEdit(text.trim() === "" ? "tools: {}" : text);
  if (!source.ok) return source;
  const own = Object.entries(mapIn(source.value.tools)).filter(([tool]) => tools.includes(tool));
  return own.length === 0 ? "" : `tools: ${formatInline(Object.fromEntries(own))}\n`;
}

/** The tools that two texts of config.yaml have in common and describe differently. */
export function toolsThatDiffer(one: string, other: string): string[] {
  const tools = toolsIn(other);
  return Object.entries(toolsIn(one)).flatMap(([name, tool]) =>
    isDeepStrictEqual(tool, tools[name]) ? [] : [name],
  );
}

/** Of a source as config.yaml has it: it may be a key itself. */
function digest(key: YamlValue | undefined): string {
  return createHash("sha256")
    .update(JSON.stringify(key ?? null))
    .digest("hex");
}

function toolsIn(text: string): Readonly<Record<string, YamlMap>> {
  const source = readForEdit(text);
  if (!source.ok) return {};
  return Object.fromEntries(
    Object.entries(mapIn(source.value.tools)).map(([name, tool]) => [name, mapIn(tool)]),
  );
}

/** As edit-tools.ts writes them. */
function tokensIn(text: string, tool: string): NewToken[] {
  const { token = [] } = toolsIn(text)[tool] ?? {};
  return listIn(token).map((each) => {
    const { hash, name, created = "" } = typeof each === "string" ? { hash: each } : mapIn(each);
    const shown = String(hash).toLowerCase();
    return {
      name: name === undefined ? shown.slice("sha256:".length).slice(0, 8) : String(name),
      hash: shown,
      created: String(created),
    };
  });
}

function valueAt(tool: YamlMap, setting: string): YamlValue | undefined {
  let value: YamlValue | undefined = tool;
  for (const name of setting.split(".")) value = mapIn(value)[name];
  return value;
}

function mapIn(value: YamlValue | undefined): YamlMap {
  return value === undefined || typeof value === "string" || isList(value) ? {} : value;
}

function listIn(value: YamlValue): readonly YamlValue[] {
  return value === "" ? [] : isList(value) ? value : [value];
}
