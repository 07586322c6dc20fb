import { advice } from "../core/advice.ts";

/** What is done to a key at its gateway's console. */
export type KeyAction = "disable" | "enable" | "delete";

export const PAST: Readonly<Record<KeyAction, string>> = {
  disable: "disabled",
  enable: "enabled",
  delete: "deleted",
};

export function isKeyAction(value: unknown): value is KeyAction {
  return value === "disable" || value === "enable" || value === "delete";
}

/** What to type for a key that a tool has. */
export function heldKeyRemedy(tool: string, action: KeyAction): string {
  if (action !== "delete") return advice.changeAtGateway(action, tool);
  return `${advice.rotate(tool)}, or ${advice.changeAtGateway("remove", tool)}`;
}
