import type { Action } from "../actions/action.ts";

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

export interface Choice {
  readonly value: string;
  readonly label: string;
}

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

export function isForm(asked: Action | ActionForm): asked is ActionForm {
  return "actionFor" in asked;
}
