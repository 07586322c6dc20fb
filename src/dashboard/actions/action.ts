import { HttpError } from "../../core/errors.ts";
import { isObject } from "../../core/json.ts";
import type { Kind } from "../../limits/counters.ts";
import type { ShownAlarm } from "../../mirror/mirror.ts";

/** What a page can ask for. */
export type Action =
  /** Settings by name, as `keybearer tools set` takes them; an empty text removes one. */
  | { readonly kind: "set"; readonly tool: string; readonly settings: Readonly<Record<string, string>> }
  | { readonly kind: "enable" | "disable"; readonly tool: string }
  | { readonly kind: "rotate"; readonly tool: string }
  /** All extra allowances. */
  | { readonly kind: "take-back"; readonly tool: string }
  /** A further token; `keybearer confirm` prints it. */
  | { readonly kind: "token"; readonly tool: string; readonly name: string }
  | { readonly kind: "revoke"; readonly tool: string; readonly name: string }
  /** A new tool, whose key the gateway's console makes. */
  | { readonly kind: "create"; readonly tool: string; readonly gateway: string; readonly group: string }
  | { readonly kind: "give"; readonly tool: string; readonly limit: Kind; readonly amount: number }
  | { readonly kind: "stop-session" | "allow-session"; readonly tool: string; readonly session: string }
  | {
      readonly kind: "give-session";
      readonly tool: string;
      readonly session: string;
      readonly limit: Kind;
      readonly amount: number;
    }
  | { readonly kind: "acknowledge"; readonly alarm: ShownAlarm }
  | { readonly kind: "sync"; readonly gateway: string }
  /** What is held of a tool or a gateway. */
  | { readonly kind: "trust"; readonly name: string }
  /** The browser of the page, which then opens the dashboard without a terminal. */
  | { readonly kind: "remember-browser"; readonly name: string; readonly public_key: string }
  | { readonly kind: "revoke-browser"; readonly name: string };

type Check = (value: unknown) => boolean;

const FIELDS: Readonly<Record<Action["kind"], Readonly<Record<string, Check>>>> = {
  set: { tool: isName, settings: areSettings },
  enable: { tool: isName },
  disable: { tool: isName },
  rotate: { tool: isName },
  "take-back": { tool: isName },
  token: { tool: isName, name: isPlainName },
  revoke: { tool: isName, name: isName },
  create: { tool: isName, gateway: isName, group: isText },
  give: { tool: isName, limit: isKind, amount: isAmount },
  "stop-session": { tool: isName, session: isSession },
  "allow-session": { tool: isName, session: isSession },
  "give-session": { tool: isName, session: isSession, limit: isKind, amount: isAmount },
  acknowledge: { alarm: isAlarm },
  sync: { gateway: isName },
  trust: { name: isName },
  "remember-browser": { name: isPlainName, public_key: isPublicKey },
  "revoke-browser": { name: isPlainName },
};

export const ACTION_KINDS: readonly string[] = Object.keys(FIELDS);

export type ActionOf<Kind extends Action["kind"]> = Extract<Action, { readonly kind: Kind }>;

/** Throws an HttpError. A misspelled field must not count as a missing one, so the fields must match exactly. */
export function readAction(value: unknown): Action {
  const kind = isObject(value) ? value.kind : undefined;
  if (!isObject(value) || typeof kind !== "string" || !isActionKind(kind))
    throw new HttpError(400, `send an action: one of ${Object.keys(FIELDS).join(", ")}`);
  const checks = Object.entries(FIELDS[kind]);
  const isComplete =
    Object.keys(value).length === checks.length + 1 &&
    checks.every(([name, check]) => Object.hasOwn(value, name) && check(value[name]));
  if (!isComplete) throw new HttpError(400, `${kind} takes ${checks.map(([name]) => name).join(", ")}`);
  return value as unknown as Action;
}

function isActionKind(kind: string): kind is Action["kind"] {
  return Object.hasOwn(FIELDS, kind);
}

/** On one line and without direction marks: a person reads it in a terminal before it is confirmed. */
function isText(value: unknown): value is string {
  return (
    typeof value === "string" && value.length <= 200 && !/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/u.test(value)
  );
}

function isName(value: unknown): boolean {
  return isText(value) && value !== "";
}

/** What can be typed as an argument without quotes. */
function isPlainName(value: unknown): boolean {
  return isText(value) && /^[A-Za-z0-9][\w.-]{0,39}$/.test(value);
}

/** In base64url, as long as one of P-256 is. */
function isPublicKey(value: unknown): boolean {
  return isText(value) && /^[\w-]{122}$/.test(value);
}

function areSettings(value: unknown): boolean {
  if (!isObject(value)) return false;
  const settings = Object.entries(value);
  return settings.length > 0 && settings.length <= 20 && settings.every(([, text]) => isText(text));
}

function isKind(value: unknown): boolean {
  return value === "requests" || value === "tokens" || value === "spend";
}

/** Requests, tokens or micro-dollars. */
function isAmount(value: unknown): boolean {
  return Number.isSafeInteger(value) && Number(value) > 0;
}

function isSession(value: unknown): boolean {
  return typeof value === "string" && /^[\w.:@+/-]{1,100}$/.test(value);
}

function isAlarm(value: unknown): boolean {
  if (!isObject(value) || Object.keys(value).length !== 5) return false;
  const { gateway, key, certain, last_at, count } = value;
  return (
    isName(gateway) &&
    isName(key) &&
    typeof certain === "boolean" &&
    Number.isFinite(last_at) &&
    Number.isSafeInteger(count)
  );
}
