import type { Change } from "../../config/compare.ts";
import { type Controls, callRoute, NOT_FOUND } from "../../control/routes.ts";
import type { Problem } from "../../core/display.ts";
import { HttpError } from "../../core/errors.ts";
import type { Bookmarks } from "../bookmarks/bookmarks.ts";
import type { DashboardDeps } from "../deps.ts";
import type { ActionKind, ActionOf } from "./action.ts";

/** An action as it would be done now. */
export interface Plan {
  /** One sentence, such as "give codex $5 more". It is printed in the terminal and logged. */
  readonly what: string;
  readonly change: Change;
  /** Of config.yaml, without secrets; empty: it stays as it is. */
  readonly diff: readonly string[];
  /** The command that undoes it; null: nothing does. */
  readonly undo: string | null;
  /** Throws an HttpError if it cannot be done. */
  run(): Promise<Done>;
}

export interface Done {
  /** See RunAnswer. */
  readonly note: string | null;
  /** For `keybearer confirm`, which prints it; null: there is none. */
  readonly token: string | null;
}

export const DONE: Done = { note: null, token: null };

/** What an action does not say: the table says its change, it leaves config.yaml as it is, and nothing undoes it. */
export type Planned = Pick<Plan, "what" | "run"> & Partial<Plan>;

/** How each kind is planned. Throws an HttpError if it cannot be done. */
export type Planners = {
  readonly [Kind in ActionKind]: (deps: PlanDeps, action: ActionOf<Kind>) => Planned | Promise<Planned>;
};

export interface PlanDeps extends Pick<DashboardDeps, "paths" | "env" | "clock" | "isSandbox"> {
  readonly controls: Controls;
  /** Reads config.yaml now, instead of when the save is noticed. Answers why it is not in force; null: it is. */
  readonly refresh: () => Promise<string | null>;
  readonly bookmarks: Pick<Bookmarks, "check" | "remember">;
  /** The address of the page that asks: http://localhost:5398 */
  readonly origin: string;
}

/** Has the daemon do what a command asks it for. Throws an HttpError if it is not done. */
export async function call<Answer>(
  { controls }: PlanDeps,
  route: string,
  name: string,
  body: unknown,
): Promise<Answer> {
  const answer = await callRoute(controls, route, { name, body, peer: "the dashboard" });
  if (answer === NOT_FOUND) throw new HttpError(404, `there is no ${name} any more`);
  const { problem = null, next = null } = answer as Partial<Problem>;
  if (problem !== null) throw new HttpError(409, { problem, next });
  return answer as Answer;
}
