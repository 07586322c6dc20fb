import type { Gateway, Tool } from "../config/shape.ts";
import type { KeyState } from "../core/key-source.ts";
import { type Refusal, refuse } from "../core/refusal.ts";
import type { Secret } from "../core/secret.ts";
import { systemCalendar } from "./windows.ts";
import { endInWords } from "./words.ts";

export type Admitted =
  | { readonly ok: true; readonly key: Secret }
  | { readonly ok: false; readonly refusal: Refusal };

/** Whether a tool may send a request now, as far as is known before the body is read. */
export function admit(tool: Tool, gateway: Gateway, key: KeyState, now: number): Admitted {
  if (!tool.enabled) {
    return refused(
      "tool-disabled",
      `tool ${tool.name} is disabled. the owner can type: keybearer tools enable ${tool.name}`,
    );
  }
  if (tool.expires !== null && now >= tool.expires) {
    return refused(
      "tool-expired",
      `tool ${tool.name} expired at ${endInWords(tool.expires, systemCalendar)}. ` +
        `the owner can change tools.${tool.name}.expires in config.yaml`,
    );
  }
  const group = tool.group === null ? undefined : gateway.groups[tool.group];
  if (group !== undefined && !group.enabled) {
    return refused(
      "group-disabled",
      `group ${tool.group} of tool ${tool.name} is disabled on gateway ${gateway.name}`,
    );
  }
  switch (key.state) {
    case "ready":
      return { ok: true, key: key.key };
    case "unavailable":
      return refused("key-unavailable", `the key of tool ${tool.name} cannot be had: ${key.reason}`);
    case "needs-trust":
      return refused(
        "needs-trust",
        `tool ${tool.name} is held: ${key.what} changed from ${key.from} to ${key.to}. ` +
          `if you did that, type: keybearer trust ${tool.name}`,
      );
  }
}

function refused(code: Refusal["code"], message: string): Admitted {
  return { ok: false, refusal: refuse(code, message) };
}
