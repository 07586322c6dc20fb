import { hasOnly } from "../../control/body.ts";
import { actionChange } from "../../control/reach.ts";
import { HttpError } from "../../core/errors.ts";
import { isObject } from "../../core/json.ts";
import type { Checked, Plan, PlanDeps, Planned } from "./action.ts";
import { CONFIG_ACTIONS } from "./config-actions.ts";
import { DAEMON_ACTIONS } from "./daemon-actions.ts";

/** Everything that a page can change, by its kind. */
export const ACTIONS = { ...CONFIG_ACTIONS, ...DAEMON_ACTIONS };

type Kinds = typeof ACTIONS;

/** What a page can ask for. */
export type Action = {
  [Kind in keyof Kinds]: { readonly kind: Kind } & Checked<Kinds[Kind]["fields"]>;
}[keyof Kinds];

/** Says what an action of a page would do. Nothing is changed yet. Throws an HttpError if it cannot be done. */
export async function planAction(deps: PlanDeps, asked: unknown): Promise<Plan> {
  const { kind = "", ...values } = isObject(asked) ? asked : {};
  if (typeof kind !== "string" || !Object.hasOwn(ACTIONS, kind))
    throw new HttpError(400, `send an action: one of ${Object.keys(ACTIONS).join(", ")}`);
  const { fields, plan } = ACTIONS[kind as keyof Kinds] as unknown as AnyKind;
  const names = Object.keys(fields);
  if (!hasOnly(values, names) || !names.every((name) => fields[name]?.(values[name])))
    throw new HttpError(400, `${kind} takes ${names.join(", ")}`);
  const { tools } = deps.controls.reload.snapshot.config;
  if (typeof values.tool === "string" && kind !== "create" && !Object.hasOwn(tools, values.tool))
    throw new HttpError(404, `there is no tool ${values.tool}`);
  return { change: actionChange(kind), diff: [], undo: null, ...(await plan(deps, values)) };
}

/** An ActionKind, once its values are checked. */
interface AnyKind {
  readonly fields: Readonly<Record<string, (value: unknown) => boolean>>;
  plan(deps: PlanDeps, asked: object): Planned | Promise<Planned>;
}
