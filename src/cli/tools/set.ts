import { type EditResult, readForEdit, removeValue, setValue } from "../../config/edit.ts";
import type { YamlValue } from "../../config/edit-layout.ts";
import { advice } from "../../core/advice.ts";
import { failed, type Problem } from "../../core/display.ts";
import { EXIT } from "../../core/errors.ts";
import { activeRevision, editChecked, noSuchTool, reportEffect, waitUntilActive } from "../config-change.ts";
import { fail, print } from "../ui/messages.ts";
import { commandPaths } from "../ui/stdio.ts";
import { withDollarSign } from "../ui/units.ts";

interface Assignment {
  /** Below the tool: limits.spend */
  readonly path: readonly string[];
  /** null: the setting is removed, and its default counts. */
  readonly value: YamlValue | null;
}

/** `tools set codex limits.spend=$5/day`: changes settings of a tool, if config.yaml is still valid with them. */
export async function set(
  tool: string,
  texts: readonly string[],
  options: { readonly config?: string },
): Promise<void> {
  const assignments: Assignment[] = [];
  for (const text of texts) {
    const assignment = readAssignment(tool, text);
    if ("problem" in assignment) return fail(assignment, EXIT.usage);
    assignments.push(assignment);
  }
  const paths = commandPaths(options.config);
  const revision = await activeRevision(paths);
  const isChanged = await editChecked(paths, (text) => assign(text, tool, assignments));
  if (isChanged === null) return;
  if (!isChanged) return print(`${tool} has these settings already`);
  reportEffect(await waitUntilActive(paths, tool, (_tool, current) => current > revision));
}

function assign(text: string, tool: string, assignments: readonly Assignment[]): EditResult {
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

function readAssignment(tool: string, text: string): Assignment | Problem {
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
