import { actionChange } from "../../control/reach.ts";
import { HttpError } from "../../core/errors.ts";
import type { Action } from "./action.ts";
import { CONFIG_ACTIONS } from "./config-actions.ts";
import { DAEMON_ACTIONS } from "./daemon-actions.ts";
import type { Plan, PlanDeps, Planned, Planners } from "./plan.ts";

const PLANNERS: Planners = { ...CONFIG_ACTIONS, ...DAEMON_ACTIONS };

/** Throws an HttpError if it cannot be done. */
export async function planAction(deps: PlanDeps, action: Action): Promise<Plan> {
  const { tools } = deps.controls.reload.snapshot.config;
  if ("tool" in action && action.kind !== "create" && !Object.hasOwn(tools, action.tool))
    throw new HttpError(404, `there is no tool ${action.tool}`);
  const plan = PLANNERS[action.kind] as (deps: PlanDeps, action: Action) => Planned | Promise<Planned>;
  return { change: actionChange(action.kind), diff: [], undo: null, ...(await plan(deps, action)) };
}
