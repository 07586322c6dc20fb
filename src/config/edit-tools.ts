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

/** "replace" ends all older tokens. "add" keeps them, and changes nothing if the hash is there already. */
export function setToken(text: string, tool: string, hash: string, mode: "replace" | "add"): EditResult {
  // The file keeps hashes only: a token that came here by mistake must not be written.
  if (!/^sha256:[0-9a-f]{64}$/.test(hash)) throw new TypeError("a token is kept as sha256:<64 hex digits>");
  const found = findTool(text, tool);
  if (!found.ok) return found;
  const path: Path = ["tools", tool, "token"];
  if (mode === "replace") return setValue(text, path, hash);
  const { token } = found.settings;
  const isThere = token === hash || (Array.isArray(token) && token.includes(hash));
  return isThere ? { ok: true, text } : appendItem(text, path, hash);
}

export function setEnabled(text: string, tool: string, enabled: boolean): EditResult {
  const found = findTool(text, tool);
  if (!found.ok) return found;
  const isSo = (found.settings.enabled ?? "true") === String(enabled);
  return isSo ? { ok: true, text } : setValue(text, ["tools", tool, "enabled"], String(enabled));
}

export function setKey(text: string, tool: string, source: string): EditResult {
  const found = findTool(text, tool);
  return found.ok ? setValue(text, ["tools", tool, "key"], source) : found;
}

/** Adds a tool behind the last one, in the style of the others. */
export function addTool(text: string, tool: string, settings: YamlMap): EditResult {
  const source = readForEdit(text);
  if (!source.ok) return source;
  const { tools = {} } = source.value;
  if (typeof tools !== "string" && Object.hasOwn(tools, tool)) {
    const reason = `there is a tool ${tool} in config.yaml already`;
    return { ok: false, reason: `${reason}. a new key for it: keybearer tools rotate ${tool}` };
  }
  return setValue(text, ["tools", tool], settings);
}

export type ToolRemoved =
  /** commentAbove: comments above it stayed. They may be about it, or about what follows. */
  | { readonly ok: true; readonly text: string; readonly commentAbove: boolean }
  | { readonly ok: false; readonly reason: string };

/** Removes a tool with the comments inside it. What is above it stays. */
export function removeTool(text: string, tool: string): ToolRemoved {
  const found = findTool(text, tool);
  if (!found.ok) return found;
  if (found.names.length === 1) {
    const reason = `${tool} is the only tool, and config.yaml must have one`;
    return { ok: false, reason: `${reason}: disable it instead → keybearer tools disable ${tool}` };
  }
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
  if (mapIn(gateways)[gateway] === undefined)
    return { ok: false, reason: `there is no gateway ${gateway} in config.yaml` };
  return setValue(text, ["gateways", gateway, "groups", group], {});
}

interface FoundTool {
  readonly ok: true;
  readonly settings: YamlMap;
  /** Of all tools. */
  readonly names: readonly string[];
}

function findTool(text: string, tool: string): FoundTool | { readonly ok: false; readonly reason: string } {
  const source = readForEdit(text);
  if (!source.ok) return source;
  const { tools } = source.value;
  if (tools === undefined || typeof tools === "string" || Array.isArray(tools))
    return { ok: false, reason: "config.yaml has no map of tools: run `keybearer check`" };
  const names = Object.keys(tools);
  if (!names.includes(tool)) {
    const reason = `there is no tool ${tool} in config.yaml; its tools are ${names.join(", ")}`;
    return { ok: false, reason };
  }
  return { ok: true, settings: mapIn(mapIn(tools)[tool]), names };
}

function mapIn(value: YamlValue | undefined): YamlMap {
  return value === undefined || typeof value === "string" || Array.isArray(value) ? {} : (value as YamlMap);
}
