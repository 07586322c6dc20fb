import type { RefusalCode } from "../../core/refusal.ts";
import type { CauseDetail, CauseName } from "../../proxy/key-health/cause.ts";
import type { MessageId, Values } from "./messages/messages.ts";

/** What to do about each refusal; null: nothing here, it was the caller's mistake or it passes by itself. */
const NEXT: Readonly<Record<RefusalCode, MessageId | null>> = {
  "token-missing": "refusal-next.token",
  "token-incomplete": "refusal-next.token-lost",
  "token-unknown": "refusal-next.token-lost",
  "foreign-key": "refusal-next.foreign-key",
  "tool-disabled": "refusal-next.enable",
  "tool-expired": "refusal-next.expired",
  "key-unavailable": "refusal-next.key",
  "needs-trust": "refusal-next.trust",
  "group-disabled": "refusal-next.group",
  "model-not-in-group": "refusal-next.model",
  "price-unknown": "refusal-next.price",
  "quota-exhausted": "refusal-next.quota",
  "session-limited": "refusal-next.session-limited",
  "session-stopped": "refusal-next.session-stopped",
  "rate-limited": "refusal-next.limit",
  "tokens-limited": "refusal-next.limit",
  "spend-limited": "refusal-next.limit",
  "too-many-at-once": "refusal-next.concurrent",
  "wrong-base-url": "refusal-next.base-url",
  "host-not-allowed": "refusal-next.host",
  "browser-request": "refusal-next.browser",
  "other-user": "refusal-next.other-user",
  "bad-request": null,
  "headers-too-large": null,
  "body-too-large": null,
  loop: "refusal-next.loop",
  "websockets-off": "refusal-next.websockets",
  "gateway-unreachable": "refusal-next.gateway",
  "gateway-timeout": "refusal-next.gateway",
  "gateway-broken": "refusal-next.gateway",
  "log-unavailable": "refusal-next.log",
  "store-unavailable": "refusal-next.store",
  overloaded: null,
  "shutting-down": null,
};

/** The limit for `keybearer tools lift`, which finds out how much is needed. */
const LIFT: Readonly<Partial<Record<string, string>>> = {
  "rate-limited": "--requests",
  "tokens-limited": "--tokens",
  "spend-limited": "--spend",
};

export interface Advice {
  readonly words: MessageId;
  readonly next: MessageId | null;
  /** What goes into `next`. */
  readonly values: Values;
}

interface Refused {
  readonly refusal: string | null;
  readonly tool: string | null;
  readonly model: string | null;
}

/** The messages of a refusal; null: a code that this page does not know, of a newer daemon. */
export function refusalAdvice({ refusal, tool, model }: Refused): Advice | null {
  if (refusal === null) return { words: "refusal.none", next: null, values: {} };
  if (!isKnown(refusal)) return null;
  const values = { tool: tool ?? "<tool>", model: model ?? "<model>", option: LIFT[refusal] ?? "" };
  return { words: `refusal.${refusal}`, next: NEXT[refusal], values };
}

function isKnown(code: string): code is RefusalCode {
  return Object.hasOwn(NEXT, code);
}

const CAUSES: Readonly<Record<CauseName | CauseDetail, MessageId>> = {
  "incomplete-key": "cause.incomplete-key",
  "group-unavailable": "cause.group-unavailable",
  "balance-or-quota": "cause.balance-or-quota",
  "wrong-base-url": "cause.wrong-base-url",
  "rate-limit": "cause.rate-limit",
  unknown: "cause.unknown",
  "key-disabled": "cause.key-disabled",
  "key-expired": "cause.key-expired",
  "key-deleted": "cause.key-deleted",
  "key-quota": "cause.key-quota",
  "account-balance": "cause.account-balance",
  "account-disabled": "cause.account-disabled",
  "ip-not-allowed": "cause.ip-not-allowed",
  "window-used-up": "cause.window-used-up",
  "group-deleted": "cause.group-deleted",
  "group-disabled": "cause.group-disabled",
  "group-not-allowed": "cause.group-not-allowed",
  "no-group": "cause.no-group",
  "no-models": "cause.no-models",
  "no-capacity": "cause.no-capacity",
};

/** Why the gateway refused, and what to do; null: it gave no cause, or one of a newer daemon. */
export function causeMessage({ cause, cause_detail: detail }: Failed): MessageId | null {
  const known = [detail, cause].find((name) => name !== null && Object.hasOwn(CAUSES, name));
  return known === undefined ? null : CAUSES[known as CauseName | CauseDetail];
}

interface Failed {
  readonly cause: string | null;
  readonly cause_detail: string | null;
}
