import type { Change } from "../../config/compare.ts";
import { isText } from "../../control/body.ts";
import { type Controls, callRoute, NOT_FOUND } from "../../control/routes.ts";
import type { Problem } from "../../core/display.ts";
import { HttpError } from "../../core/errors.ts";
import { isObject } from "../../core/json.ts";
import type { Bookmarks } from "../bookmarks/bookmarks.ts";
import type { DashboardDeps } from "../deps.ts";

/** What a page can ask for: the fields that it sends, with the check of each, and how that is planned. */
export interface ActionKind<Fields extends Checks> {
  readonly fields: Fields;
  /** Throws an HttpError if it cannot be done. */
  readonly plan: (deps: PlanDeps, asked: Checked<Fields>) => Planned | Promise<Planned>;
}

type Checks = Readonly<Record<string, (value: unknown) => boolean>>;

export type Checked<Fields> = {
  readonly [Name in keyof Fields]: Fields[Name] extends (value: unknown) => value is infer Value
    ? Value
    : never;
};

/** So that the plan's parameters have the types that the checks ensure. */
export function actionKind<Fields extends Checks>(
  fields: Fields,
  plan: ActionKind<Fields>["plan"],
): ActionKind<Fields> {
  return { fields, plan };
}

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
  readonly note?: string | null;
  /** For `keybearer confirm`, which prints it. */
  readonly token?: string | null;
}

/** What an action does not say: the table says its change, it leaves config.yaml as it is, and nothing undoes it. */
export type Planned = Pick<Plan, "what" | "run"> & Partial<Plan>;

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

/** On one line and without direction marks: a person reads it in a terminal before it is confirmed. */
export function isLineOrEmpty(value: unknown): value is string {
  return (
    typeof value === "string" && value.length <= 200 && !/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/u.test(value)
  );
}

export function isLine(value: unknown): value is string {
  return isText(value) && isLineOrEmpty(value);
}

/** What can be typed as an argument without quotes. */
export function isPlainName(value: unknown): value is string {
  return isLine(value) && /^[A-Za-z0-9][\w.-]{0,39}$/.test(value);
}

/** Settings by name, as `keybearer tools set` takes them; an empty text removes one. */
export function areSettings(value: unknown): value is Readonly<Record<string, string>> {
  if (!isObject(value)) return false;
  const settings = Object.values(value);
  return settings.length > 0 && settings.length <= 20 && settings.every(isLineOrEmpty);
}
