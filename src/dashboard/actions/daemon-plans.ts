import { actionChange } from "../../control/reach.ts";
import { type HeldTool, heldTools, trustHeld } from "../../control/routes.ts";
import { advice } from "../../core/advice.ts";
import { withNext } from "../../core/display.ts";
import { HttpError } from "../../core/errors.ts";
import { Refused } from "../../lifecycle/refused.ts";
import { explainError } from "../../lifecycle/steps.ts";
import { amountInWords } from "../../limits/format.ts";
import { ConsoleError } from "../../mirror/consoles/console.ts";
import type { Action, ActionOf } from "./action.ts";
import { DONE, type Done, PEER, type Plan, type PlanDeps } from "./plan.ts";

/* Actions that the daemon does, as the control socket has it do them. They leave config.yaml as it is. */

export function planGive({ controls }: PlanDeps, { kind, tool, limit, amount }: ActionOf<"give">): Plan {
  const what = `give ${tool} ${amountInWords(limit, amount)} more`;
  return plan(kind, what, advice.takeBackLift(tool), async () => {
    requireDone(controls.allow(tool, { kind: limit, amount, until: null }, PEER));
    controls.actions.add(`dashboard: ${what}`);
    return DONE;
  });
}

export function planTakeBack({ controls }: PlanDeps, { kind, tool }: ActionOf<"take-back">): Plan {
  const what = `take back the extra allowances of ${tool}`;
  return plan(kind, what, null, async () => {
    for (const limit of ["requests", "tokens", "spend"] as const) {
      const hasLimit = (controls.reload.snapshot.config.tools[tool]?.limits[limit].length ?? 0) > 0;
      if (hasLimit) requireDone(controls.allow(tool, { kind: limit, amount: 0, until: null }, PEER));
    }
    controls.actions.add(`dashboard: ${what}`);
    return DONE;
  });
}

export async function planRotate({ controls }: PlanDeps, { kind, tool }: ActionOf<"rotate">): Promise<Plan> {
  const { lifecycle, actions, reload } = controls;
  const found = reload.snapshot.config.tools[tool];
  const gateway = found?.gateway ?? "";
  const options = { store: null, force: false, renew: false } as const;
  const listed = await byConsole(gateway, () => lifecycle.rotatable(tool, options));
  if (listed.renewed !== null)
    throw new HttpError(
      409,
      withNext({
        problem: `the old key's expiry or quota is over, so a person must agree to what the new one gets`,
        next: advice.rotate(tool),
      }),
    );
  const moved = found?.key.kind === "literal" ? ", and move it from config.yaml to a file" : "";
  const what = `rotate the key of ${tool} (${listed.key ?? "not shown"}) at the console of ${gateway}${moved}`;
  return plan(kind, what, null, async () => {
    const change = await byConsole(gateway, () => lifecycle.rotate(tool, { ...options, reason: "asked" }));
    actions.add(`dashboard: ${what}`);
    const later = change.state === "retiring" ? "the old key is deleted when no request uses it" : null;
    return { ...DONE, note: change.why ?? later };
  });
}

export function planStop(
  { controls }: PlanDeps,
  { kind, tool, session }: ActionOf<"stop-session" | "allow-session">,
): Plan {
  const stopped = kind === "stop-session";
  const what = stopped ? `stop session ${session} of ${tool}` : `allow session ${session} of ${tool} again`;
  const undo = stopped ? advice.allowSession(session, tool) : null;
  return plan(kind, what, undo, async () => {
    requireDone(controls.stopSession(tool, { session, stopped }, PEER));
    controls.actions.add(`dashboard: ${what}`);
    return DONE;
  });
}

export function planGiveSession(
  { controls }: PlanDeps,
  { kind, tool, session, limit, amount }: ActionOf<"give-session">,
): Plan {
  const what = `give session ${session} of ${tool} ${amountInWords(limit, amount)} more`;
  return plan(kind, what, advice.takeBackSessionLift(session, tool), async () => {
    requireDone(controls.liftSession(tool, { session, kind: limit, amount }, PEER));
    controls.actions.add(`dashboard: ${what}`);
    return DONE;
  });
}

export function planAcknowledge({ controls }: PlanDeps, { kind, alarm }: ActionOf<"acknowledge">): Plan {
  const { gateway, key, count } = alarm;
  const what = `acknowledge ${count} foreign ${count === 1 ? "row" : "rows"} of key ${key} at ${gateway}`;
  return plan(kind, what, null, async () => {
    const acknowledged = await controls.mirror.acknowledge(alarm, PEER);
    if (acknowledged === null)
      throw new HttpError(409, "there are other rows than the page showed: look at them again");
    controls.actions.add(`dashboard: ${what}`);
    return DONE;
  });
}

export function planSync({ controls }: PlanDeps, { kind, gateway }: ActionOf<"sync">): Plan {
  return plan(kind, `read the console of ${gateway}`, null, async () => {
    const synced = await controls.mirror.sync(gateway);
    if (synced === null) throw new HttpError(404, `there is no gateway with a console called ${gateway}`);
    return DONE;
  });
}

/** What is held is shown in place of a difference, and only that is trusted. */
export function planTrust({ controls }: PlanDeps, { kind, name }: ActionOf<"trust">): Plan {
  const held = heldTools(controls.reload.snapshot, name) ?? [];
  if (held.length === 0) throw new HttpError(409, `nothing of ${name} is held`);
  return {
    ...plan(kind, `trust the change of ${name}`, null, async () => {
      const { granted, problems } = await trustHeld(controls, name, held, PEER);
      if (problems.length > 0) throw new HttpError(409, problems.join("; "));
      if (granted.length === 0) throw new HttpError(409, `nothing of ${name} is held any more`);
      return DONE;
    }),
    diff: held.flatMap(describeHeld),
  };
}

function describeHeld({ tool, what, from, to }: HeldTool): string[] {
  return [`${tool}: ${what}`, `- ${from}`, `+ ${to}`];
}

function plan(kind: Action["kind"], what: string, undo: string | null, run: () => Promise<Done>): Plan {
  return { what, change: actionChange(kind), diff: [], undo, run };
}

/** What consoles and the lifecycle refuse becomes an answer. */
export async function byConsole<T>(gateway: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof Refused || error instanceof ConsoleError)
      throw new HttpError(409, withNext(explainError(error, gateway)));
    throw error;
  }
}

function requireDone(answer: { readonly problem: string | null } | null): void {
  if (answer === null) throw new HttpError(404, "the tool was removed meanwhile");
  if (answer.problem !== null) throw new HttpError(409, answer.problem);
}
