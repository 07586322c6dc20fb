import type { Gateway, Tool } from "../config/schema.ts";
import type { KeyState } from "../config/snapshot.ts";
import { advice } from "../core/advice.ts";
import { withNext } from "../core/display.ts";
import { type Refusal, refuse } from "../core/refusal.ts";
import type { Secret } from "../core/secret.ts";
import { endInWords, printableModel } from "./format.ts";
import { systemCalendar } from "./windows.ts";

type Admitted =
  | { readonly ok: true; readonly key: Secret }
  | { readonly ok: false; readonly refusal: Refusal };

/** Whether a tool may send a request now, as far as is known before the body is read. */
export function admit(tool: Tool, gateway: Gateway, key: KeyState, now: number): Admitted {
  const { name } = tool;
  if (!tool.enabled)
    return refused("tool-disabled", `tool ${name} is disabled. the owner can type: ${advice.enable(name)}`);
  if (tool.expires !== null && now >= tool.expires)
    return refused(
      "tool-expired",
      `tool ${name} expired at ${endInWords(tool.expires, systemCalendar)}. ` +
        `the owner can change tools.${name}.expires in config.yaml`,
    );
  const group = tool.group === null ? undefined : gateway.groups[tool.group];
  if (group !== undefined && !group.enabled)
    return refused(
      "group-disabled",
      `group ${tool.group} of tool ${name} is disabled on gateway ${gateway.name}`,
    );
  switch (key.state) {
    case "ready":
      return { ok: true, key: key.key };
    case "unavailable":
      return refused("key-unavailable", `the key of tool ${name} is not available: ${withNext(key)}`);
    case "needs-trust":
      return refused(
        "needs-trust",
        `tool ${name} is held: ${key.what} changed from ${key.from} to ${key.to}. ` +
          `if you did that, type: ${advice.trust(name)}`,
      );
  }
}

function refused(code: Refusal["code"], message: string): Admitted {
  return { ok: false, refusal: refuse(code, message) };
}

export function modelRefusal(tool: string, group: string, model: string, models: readonly string[]): Refusal {
  const has = models.length === 0 ? "no model at all" : models.join(", ");
  return refuse(
    "model-not-in-group",
    `model ${printableModel(model)} is not in group ${group} of tool ${tool}, which has ${has}. ` +
      `choose one of these, or the owner can change the group's models in config.yaml`,
  );
}

/** Whether a group has a model. Case matters, as it does in sub2api and in gateways that look the name up in a table. */
export function isInGroup(model: string, patterns: readonly string[]): boolean {
  return patterns.some((pattern) => matches(model, pattern));
}

/**
 * `*` stands for any text, including none. Each piece between two stars is searched for once, from the end of the one before:
 * without backtracking, no pattern can make it slow.
 */
function matches(model: string, pattern: string): boolean {
  const star = pattern.indexOf("*");
  if (star === -1) return model === pattern;
  if (star === pattern.length - 1) return model.startsWith(pattern.slice(0, star));
  const [head = "", ...pieces] = pattern.split("*");
  const tail = pieces.pop() ?? "";
  if (!model.startsWith(head)) return false;
  let at = head.length;
  for (const piece of pieces) {
    const found = model.indexOf(piece, at);
    if (found === -1) return false;
    at = found + piece.length;
  }
  return model.length - tail.length >= at && model.endsWith(tail);
}
