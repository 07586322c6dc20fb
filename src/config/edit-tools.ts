import { advice } from "../core/advice.ts";
import { systemClock } from "../core/clock.ts";
import { type Failed, failed } from "../core/display.ts";
import { hashToken } from "../core/token.ts";
import { dayName } from "../core/units.ts";
import {
  appendItem,
  type EditResult,
  hasCommentAbove,
  type Path,
  readForEdit,
  removeValue,
  renameKey,
  setValue,
} from "./edit.ts";
import type { YamlMap, YamlValue } from "./edit-layout.ts";

/** The edits of tools in config.yaml's text that commands and the dashboard make. */

/** A token as config.yaml keeps it. */
export interface NewToken {
  readonly name: string;
  /** sha256:… */
  readonly hash: string;
  /** The day it was made, such as 2026-11-16. */
  readonly created: string;
}

/** The entry for a token that was made now. */
export function tokenEntry(name: string, token: string): NewToken {
  const created = dayName(systemClock.now());
  return { name, hash: `sha256:${hashToken(token)}`, created };
}

/** "replace" ends all older tokens. "add" keeps them, and changes nothing if the hash is there already. */
export function setToken(
  text: string,
  tool: string,
  token: NewToken | string,
  mode: "replace" | "add",
): EditResult {
  const hash = typeof token === "string" ? token : token.hash;
  // The file keeps hashes only: a token that came here by mistake must not be written.
  if (!/^sha256:[0-9a-f]{64}$/.test(hash)) throw new TypeError("a token is kept as sha256:<64 hex digits>");
  const found = findTool(text, tool);
  if (!found.ok) return found;
  const path: Path = ["tools", tool, "token"];
  const old = mode === "replace" ? [] : listTokens(found.settings);
  if (old.some((each) => readHash(each) === hash)) return { ok: true, text };
  if (typeof token === "string")
    return mode === "replace" ? setValue(text, path, hash) : appendItem(text, path, hash);
  const { name, created } = token;
  if (old.some((each) => readName(each) === name)) {
    const problem = `${tool} already has a token called ${name}`;
    return failed(problem, `choose another name, or revoke that one first: ${advice.revoke(tool, name)}`);
  }
  const entry: YamlMap = { name, hash, created };
  // A single map cannot be appended to, and a list is what the next token needs.
  if (old.length === 0 || isMapValue(found.settings.token)) return setValue(text, path, [...old, entry]);
  return appendItem(text, path, entry);
}

/** A name that no token of the tool has: laptop, else laptop-2. */
export function freeTokenName(text: string, tool: string, name: string): string {
  const found = findTool(text, tool);
  const taken = found.ok ? listTokens(found.settings).map(readName) : [];
  let free = name;
  for (let number = 2; taken.includes(free); number += 1) free = `${name}-${number}`;
  return free;
}

/** How many tokens a tool has; 0 if there is no such tool. */
export function countTokens(text: string, tool: string): number {
  const found = findTool(text, tool);
  return found.ok ? listTokens(found.settings).length : 0;
}

type TokenRemoved =
  /** isLast: the tool has no other token. */
  { readonly ok: true; readonly text: string; readonly isLast: boolean } | Failed;

/** Ends one token, by its name or the first digits of its hash. */
export function removeToken(text: string, tool: string, name: string): TokenRemoved {
  const found = findTool(text, tool);
  if (!found.ok) return found;
  const tokens = listTokens(found.settings);
  const index = tokens.findIndex((token) => readName(token) === name);
  if (index === -1) {
    const names = tokens.map(readName).join(", ");
    const known = names === "" ? "it has none" : `it has ${names}`;
    return failed(`${tool} has no token called ${name}; ${known}`);
  }
  const isLast = tokens.length === 1;
  const removed = removeValue(text, isLast ? ["tools", tool, "token"] : ["tools", tool, "token", index]);
  return removed.ok ? { ...removed, isLast } : removed;
}

function listTokens({ token = "" }: YamlMap): readonly YamlValue[] {
  if (token === "") return [];
  return Array.isArray(token) ? token : [token];
}

function readHash(token: YamlValue): string {
  const hash = isMapValue(token) ? token.hash : token;
  return typeof hash === "string" ? hash.toLowerCase() : "";
}

/** As parse.ts names it. */
function readName(token: YamlValue): string {
  const name = isMapValue(token) ? token.name : undefined;
  return typeof name === "string" ? name : readHash(token).slice("sha256:".length).slice(0, 8);
}

function isMapValue(value: YamlValue | undefined): value is YamlMap {
  return value !== undefined && typeof value !== "string" && !Array.isArray(value);
}

export function setEnabled(text: string, tool: string, enabled: boolean): EditResult {
  const found = findTool(text, tool);
  if (!found.ok) return found;
  const isSo = (found.settings.enabled ?? "true") === String(enabled);
  return isSo ? { ok: true, text } : setValue(text, ["tools", tool, "enabled"], String(enabled));
}

/** Leaves the setting alone if the file has it already, also if it is false there. */
export function setAskUsage(text: string, tool: string): EditResult {
  const found = findTool(text, tool);
  if (!found.ok) return found;
  const isSet = found.settings.ask_usage !== undefined;
  return isSet ? { ok: true, text } : setValue(text, ["tools", tool, "ask_usage"], "true");
}

export function setKey(text: string, tool: string, source: string): EditResult {
  const found = findTool(text, tool);
  return found.ok ? setValue(text, ["tools", tool, "key"], source) : found;
}

/** Gives a tool another name. Its key stays where it is, so a key source that follows from the old name is written out. */
export function renameTool(text: string, tool: string, name: string): EditResult {
  const found = findTool(text, tool);
  if (!found.ok) return found;
  const source = `keychain:keybearer/${tool}`;
  const keyed = found.settings.key === undefined ? setKey(text, tool, source) : { ok: true as const, text };
  return keyed.ok ? renameKey(keyed.text, ["tools", tool], name) : keyed;
}

/** Adds a tool behind the last one, in the style of the others. */
export function addTool(text: string, tool: string, settings: YamlMap): EditResult {
  const source = readForEdit(text);
  if (!source.ok) return source;
  const { tools = {} } = source.value;
  if (typeof tools !== "string" && Object.hasOwn(tools, tool)) {
    return failed(`config.yaml already has a tool ${tool}`, `for a new key: ${advice.rotate(tool)}`);
  }
  return setValue(text, ["tools", tool], settings);
}

type ToolRemoved =
  /** commentAbove: comments above it stayed. They may be about it, or about what follows. */
  { readonly ok: true; readonly text: string; readonly commentAbove: boolean } | Failed;

/** Removes a tool with the comments inside it. What is above it stays. */
export function removeTool(text: string, tool: string): ToolRemoved {
  const found = findTool(text, tool);
  if (!found.ok) return found;
  const removed = removeValue(text, ["tools", tool]);
  return removed.ok ? { ...removed, commentAbove: hasCommentAbove(text, ["tools", tool]) } : removed;
}

/** Adds a group with the defaults: all models, multiplier 1. `gateway: URL` becomes `gateways:` with one called main. */
export function addGroup(text: string, gateway: string, group: string): EditResult {
  const source = readForEdit(text);
  if (!source.ok) return source;
  const { gateway: url, gateways } = source.value;
  if (typeof url === "string") {
    const renamed = renameKey(text, ["gateway"], "gateways");
    const main = { base_url: url, groups: { [group]: {} } };
    return renamed.ok ? setValue(renamed.text, ["gateways"], { main }) : renamed;
  }
  if (mapIn(gateways)[gateway] === undefined) return failed(`there is no gateway ${gateway} in config.yaml`);
  return setValue(text, ["gateways", gateway, "groups", group], {});
}

interface FoundTool {
  readonly ok: true;
  readonly settings: YamlMap;
}

function findTool(text: string, tool: string): FoundTool | Failed {
  const source = readForEdit(text);
  if (!source.ok) return source;
  const { tools } = source.value;
  if (tools === undefined || typeof tools === "string" || Array.isArray(tools))
    return failed("config.yaml has no map of tools", advice.check());
  const names = Object.keys(tools);
  if (!names.includes(tool)) {
    return failed(`there is no tool ${tool} in config.yaml; its tools are ${names.join(", ")}`);
  }
  return { ok: true, settings: mapIn(mapIn(tools)[tool]) };
}

function mapIn(value: YamlValue | undefined): YamlMap {
  return isMapValue(value) ? value : {};
}

export function noSuchTool(name: string, known: readonly string[]): string {
  const tools = known.length === 0 ? "it has no tools" : `its tools are ${known.join(", ")}`;
  return `there is no tool ${name} in config.yaml; ${tools}`;
}
