import { advice } from "../core/advice.ts";
import { failed, type Problem } from "../core/display.ts";
import { type EditResult, readForEdit, removeValue, setValue } from "./edit.ts";
import type { YamlMap, YamlValue } from "./edit-layout.ts";
import { noSuchTool } from "./edit-tools.ts";
import { withDollarSign } from "./values.ts";

/** A setting of a tool as it is typed: `limits.spend=5/day`. */
export interface Assignment {
  /** Below the tool: limits.spend */
  readonly path: readonly string[];
  /** null: the setting is removed, and its default counts. */
  readonly value: YamlValue | null;
}

/** Changes settings of a tool. Fails if there is no such tool. */
export function assign(text: string, tool: string, assignments: readonly Assignment[]): EditResult {
  const source = readForEdit(text);
  if (!source.ok) return source;
  const { tools = {} } = source.value;
  if (typeof tools === "string" || !Object.hasOwn(tools, tool))
    return failed(noSuchTool(tool, Object.keys(tools)));
  let edited = text;
  for (const { path, value } of assignments) {
    const whole = ["tools", tool, ...path] as const;
    const result = value === null ? removeValue(edited, whole) : setValue(edited, whole, value);
    if (!result.ok) return result;
    edited = result.text;
  }
  return { ok: true, text: edited };
}

/** Settings that hold a list: `limits.spend=5/day,60/month`. */
const LISTS = ["limits.requests", "limits.tokens", "limits.spend", "allow_origins"];
const MONEY = ["limits.spend", "limits.session.spend", "quota"];

/** Reads `name=value`. Nothing after the sign removes the setting. */
export function readAssignment(tool: string, text: string): Assignment | Problem {
  const match = /^([a-z_]+(?:\.[a-z_]+)*)=(.*)$/s.exec(text);
  if (match === null)
    return {
      problem: "each setting is written as name=value",
      next: "such as limits.spend=5/day or enabled=false",
    };
  const [, name = "", value = ""] = match;
  // A secret must not be an argument: every user of the machine can list those.
  if (/^key(\.|$)/.test(name))
    return { problem: "a key is not a setting of tools set", next: advice.rotate(tool) };
  if (/^token(\.|$)/.test(name))
    return { problem: "a token is not a setting of tools set", next: advice.newToken(tool) };
  const path = name.split(".");
  if (value === "") return { path, value: null };
  const parts = (LISTS.includes(name) ? value.split(",") : [value]).map((part) =>
    MONEY.includes(name) ? withDollarSign(part) : part.trim(),
  );
  return { path, value: parts.length === 1 ? (parts[0] ?? "") : parts };
}

/** Those of the named settings that the tool has in the text, as readAssignment() takes them; null: a map, which it does not take. */
export function readAssigned(
  text: string,
  tool: string,
  names: readonly string[],
): Readonly<Record<string, string | null>> {
  const source = readForEdit(text);
  if (!source.ok) return {};
  const found: Record<string, string | null> = {};
  for (const name of names) {
    let value: YamlValue | undefined = source.value;
    for (const part of ["tools", tool, ...name.split(".")]) value = isMap(value) ? value[part] : undefined;
    if (value === undefined) continue;
    if (isMap(value)) {
      found[name] = null;
      continue;
    }
    const parts = typeof value === "string" ? [value] : value;
    found[name] = parts.map((part) => String(part).replace(/^\$/, "")).join(",");
  }
  return found;
}

function isMap(value: YamlValue | undefined): value is YamlMap {
  return typeof value === "object" && !Array.isArray(value);
}
