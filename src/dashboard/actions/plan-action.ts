import { HttpError } from "../../core/errors.ts";
import type { Action } from "./action.ts";
import { planRemember, planRevokeBrowser } from "./browser-plans.ts";
import { planCreate, planRevoke, planSet, planSwitch, planToken } from "./config-plans.ts";
import {
  planAcknowledge,
  planGive,
  planGiveSession,
  planRotate,
  planStop,
  planSync,
  planTakeBack,
  planTrust,
} from "./daemon-plans.ts";
import type { Plan, PlanDeps } from "./plan.ts";

/** Throws an HttpError if it cannot be done. */
export function planAction(deps: PlanDeps, action: Action): Promise<Plan> | Plan {
  if ("tool" in action && action.kind !== "create") requireTool(deps, action.tool);
  switch (action.kind) {
    case "set":
      return planSet(deps, action);
    case "enable":
    case "disable":
      return planSwitch(deps, action);
    case "token":
      return planToken(deps, action);
    case "revoke":
      return planRevoke(deps, action);
    case "create":
      return planCreate(deps, action);
    case "give":
      return planGive(deps, action);
    case "take-back":
      return planTakeBack(deps, action);
    case "rotate":
      return planRotate(deps, action);
    case "stop-session":
    case "allow-session":
      return planStop(deps, action);
    case "give-session":
      return planGiveSession(deps, action);
    case "acknowledge":
      return planAcknowledge(deps, action);
    case "sync":
      return planSync(deps, action);
    case "trust":
      return planTrust(deps, action);
    case "remember-browser":
      return planRemember(deps, action);
    case "revoke-browser":
      return planRevokeBrowser(deps, action);
  }
}

function requireTool({ controls }: PlanDeps, tool: string): void {
  if (!Object.hasOwn(controls.reload.snapshot.config.tools, tool))
    throw new HttpError(404, `there is no tool ${tool}`);
}
