import { hasOnly, isKind, isPositive, isSession, isShownAlarm, isText } from "../../control/body.ts";
import { HttpError } from "../../core/errors.ts";
import { isObject } from "../../core/json.ts";
import type { ShownAlarm } from "../../mirror/mirror.ts";

/** The fields of what a page can ask for, by its kind, with the check of each. */
const FIELDS = {
  /** Settings by name, as `keybearer tools set` takes them; an empty text removes one. */
  set: { tool: isLine, settings: areSettings },
  enable: { tool: isLine },
  disable: { tool: isLine },
  rotate: { tool: isLine },
  /** All extra allowances. */
  "take-back": { tool: isLine },
  /** A further token; `keybearer confirm` prints it. */
  token: { tool: isLine, name: isPlainName },
  revoke: { tool: isLine, name: isLine },
  /** A new tool, whose key the gateway's console makes. */
  create: { tool: isLine, gateway: isLine, group: isLineOrEmpty },
  /** Requests, tokens or micro-dollars. */
  give: { tool: isLine, limit: isKind, amount: isPositive },
  "stop-session": { tool: isLine, session: isSession },
  "allow-session": { tool: isLine, session: isSession },
  "give-session": { tool: isLine, session: isSession, limit: isKind, amount: isPositive },
  acknowledge: { alarm: isAlarm },
  sync: { gateway: isLine },
  /** What is held of a tool or a gateway. */
  trust: { name: isLine },
  /** The browser of the page, which then opens the dashboard without a terminal. */
  "remember-browser": { name: isPlainName, public_key: isPublicKey },
  "revoke-browser": { name: isPlainName },
};

export type ActionKind = keyof typeof FIELDS;

type Checked<Checks> = {
  readonly [Name in keyof Checks]: Checks[Name] extends (value: unknown) => value is infer Value
    ? Value
    : never;
};

export type ActionOf<Kind extends ActionKind> = { readonly kind: Kind } & Checked<(typeof FIELDS)[Kind]>;

/** What a page can ask for. */
export type Action = { [Kind in ActionKind]: ActionOf<Kind> }[ActionKind];

export const ACTION_KINDS: readonly string[] = Object.keys(FIELDS);

/** Throws an HttpError. */
export function readAction(value: unknown): Action {
  if (!isObject(value) || !isActionKind(value.kind))
    throw new HttpError(400, `send an action: one of ${ACTION_KINDS.join(", ")}`);
  const checks = Object.entries<(value: unknown) => boolean>(FIELDS[value.kind]);
  const names = checks.map(([name]) => name);
  if (!hasOnly(value, ["kind", ...names]) || !checks.every(([name, isValid]) => isValid(value[name])))
    throw new HttpError(400, `${value.kind} takes ${names.join(", ")}`);
  return value as unknown as Action;
}

function isActionKind(kind: unknown): kind is ActionKind {
  return typeof kind === "string" && Object.hasOwn(FIELDS, kind);
}

/** On one line and without direction marks: a person reads it in a terminal before it is confirmed. */
function isLineOrEmpty(value: unknown): value is string {
  return (
    typeof value === "string" && value.length <= 200 && !/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/u.test(value)
  );
}

function isLine(value: unknown): value is string {
  return isText(value) && isLineOrEmpty(value);
}

/** What can be typed as an argument without quotes. */
function isPlainName(value: unknown): value is string {
  return isLine(value) && /^[A-Za-z0-9][\w.-]{0,39}$/.test(value);
}

/** In base64url, as long as one of P-256 is. */
function isPublicKey(value: unknown): value is string {
  return isLine(value) && /^[\w-]{122}$/.test(value);
}

function areSettings(value: unknown): value is Readonly<Record<string, string>> {
  if (!isObject(value)) return false;
  const settings = Object.values(value);
  return settings.length > 0 && settings.length <= 20 && settings.every(isLineOrEmpty);
}

/** One that the page shows, and not any. */
function isAlarm(value: unknown): value is ShownAlarm {
  return (
    isShownAlarm(value) &&
    isLine(value.gateway) &&
    isLine(value.key) &&
    Object.values(value).every((field) => field !== null)
  );
}
