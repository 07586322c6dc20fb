import type { Kind } from "../../limits/counters.ts";
import type { Action } from "../actions/actions.ts";
import type { Translate } from "./messages/messages.ts";

/** Of a tool, a token or a browser. */
export const NAME = /^[A-Za-z0-9][\w.-]{0,39}$/;

export type Values = Readonly<Record<string, string>>;

export interface Field {
  readonly name: string;
  readonly label: string;
  /** An example, or what an empty one means. */
  readonly hint?: string;
  readonly initial?: string;
  /** One of these instead of a text; the first one unless `initial` names another. */
  readonly choices?: readonly Choice[];
  /** Why a text cannot be used; null: it can. The daemon checks all of them again. */
  readonly check?: (text: string) => string | null;
}

export type Choice = readonly [value: string, text: string];

/** What is asked first, for an action that needs it. */
export interface ActionForm {
  readonly title: string;
  /** Given what is typed so far. */
  readonly fields: (typed: Values) => readonly Field[];
  /** What to type in a terminal instead; null: the page can do it. */
  readonly command?: (typed: Values) => string | null;
  /** null: nothing was changed. */
  readonly actionFor: (values: Values) => Action | null;
}

/** The name of something new: a tool, a token or a browser. */
export function nameField(field: Omit<Field, "check">, t: Translate): Field {
  return { ...field, check: (text) => (NAME.test(text) ? null : t("form.wrong.name")) };
}

export function isForm(asked: Action | ActionForm): asked is ActionForm {
  return "actionFor" in asked;
}

/** Requests, tokens or micro-dollars, typed as 60, 400k or 2.50; null: it is not an amount above zero. */
export function readAmount(limit: Kind, text: string): number | null {
  const [, digits = "", unit = ""] = /^\$?(\d{1,9}(?:\.\d{1,6})?)([kKmM]?)$/.exec(text) ?? [];
  if (limit === "spend" && unit !== "") return null;
  const scale = limit === "spend" ? 1_000_000 : (MULTIPLES[unit.toLowerCase()] ?? 1);
  const amount = Number(digits) * scale;
  const whole = Math.round(amount);
  const isWhole = Math.abs(amount - whole) < 1e-6;
  return isWhole && whole > 0 ? whole : null;
}

const MULTIPLES: Readonly<Record<string, number>> = { k: 1000, m: 1_000_000 };
