import type { IncomingHttpHeaders } from "node:http";
import type { Gateway } from "../config/shape.ts";
import { type Cause, causeOf, type KeyFault } from "../proxy/cause.ts";
import { parsed } from "./model-list.ts";

/* What a gateway tells a key about itself. It bills nothing for that. */

export type KeyFacts =
  | { readonly state: "active" }
  | { readonly state: "faulty"; readonly fault: KeyFault; readonly window: UsedUpWindow | null }
  /** The answer tells nothing. */
  | { readonly state: "unknown" };

export interface UsedUpWindow {
  /** 5h, 1d, 7d */
  readonly name: string;
  /** null: the gateway does not say when it returns. */
  readonly resetsAt: number | null;
}

export interface FactsAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

export interface FactsSource {
  readonly url: string;
  /** The gateway allows few such questions: see KeyCallBudget. */
  readonly isLimited: boolean;
  read(answer: FactsAnswer, now: number): KeyFacts;
}

/**
 * Where to ask after GET /v1/models, by the kind of gateway: as config.yaml says, else as the answer shows. sub2api is asked
 * if it listed models, because it lists them to keys that it then refuses. new-api is asked if its refusal has several
 * meanings.
 * @param cause why the list was refused; null: it was given
 */
export function factsSource(
  gateway: Gateway,
  headers: IncomingHttpHeaders,
  cause: Cause | null,
): FactsSource | null {
  const kind = gateway.console?.kind ?? kindOf(headers);
  if (kind === "sub2api" && cause === null)
    return { url: `${gateway.baseUrl}/usage`, isLimited: false, read: readSub2apiFacts };
  if (kind !== "new-api" || cause?.isAmbiguous !== true) return null;
  // At the gateway's own origin, also where the console has another one: a key goes nowhere else.
  const url = `${new URL(gateway.baseUrl).origin}/api/usage/token/`;
  return { url, isLimited: true, read: readNewApiFacts };
}

function kindOf(headers: IncomingHttpHeaders): "sub2api" | "new-api" | null {
  if (headers["x-new-api-version"] !== undefined) return "new-api";
  return headers["x-client-request-id"] === undefined ? null : "sub2api";
}

const UNKNOWN: KeyFacts = { state: "unknown" };
const ACTIVE: KeyFacts = { state: "active" };

function faulty(fault: KeyFault, window: UsedUpWindow | null = null): KeyFacts {
  return { state: "faulty", fault, window };
}

interface NewApiUsage {
  readonly total_available?: unknown;
  readonly unlimited_quota?: unknown;
  readonly expires_at?: unknown;
}

/** GET /api/usage/token/ with a key to which model calls answer "Invalid token". */
export function readNewApiFacts({ status, headers, text }: FactsAnswer, now: number): KeyFacts {
  if (status === 401 || status === 403) {
    const cause = causeOf({ status, contentType: headers["content-type"] ?? "", body: text });
    if (cause?.detail === "key-disabled" || cause?.detail === "account-disabled") return faulty(cause.detail);
    // Here only a key that is not in the database is "Invalid token".
    return cause?.isAmbiguous === true ? faulty("key-deleted") : UNKNOWN;
  }
  const { data } = Object(parsed(text)) as { data?: unknown };
  if (status !== 200 || typeof data !== "object" || data === null) return UNKNOWN;
  const { total_available: left, unlimited_quota: unlimited, expires_at: expires } = data as NewApiUsage;
  if (typeof expires === "number" && expires > 0 && expires * 1000 <= now) return faulty("key-expired");
  if (unlimited !== true && typeof left === "number" && left <= 0) return faulty("key-quota");
  // v0.13.2 answers so for a disabled key. Nothing else is left that could be wrong with it.
  return faulty("key-disabled");
}

interface Sub2apiUsage {
  readonly mode?: unknown;
  readonly isValid?: unknown;
  readonly status?: unknown;
  readonly remaining?: unknown;
  readonly planName?: unknown;
  readonly balance?: unknown;
  readonly subscription?: unknown;
  readonly rate_limits?: unknown;
}

/** What sub2api calls an account that pays from its balance. */
const WALLET = "钱包余额";

/** GET /v1/usage */
function readSub2apiFacts({ status, text }: FactsAnswer): KeyFacts {
  const usage = Object(parsed(text)) as Sub2apiUsage;
  if (status !== 200 || typeof usage.isValid !== "boolean") return UNKNOWN;
  if (usage.status === "expired") return faulty("key-expired");
  if (usage.status === "disabled") return faulty("key-disabled");
  if (usage.status === "quota_exhausted") return faulty("key-quota");
  const window = usedUpWindow(usage.rate_limits);
  if (window !== null) return faulty("window-used-up", window);
  const { remaining } = usage;
  if (typeof remaining !== "number" || remaining > 0) return ACTIVE;
  if (usage.mode === "quota_limited") return faulty("key-quota");
  // A balance may be overdrawn; of a subscription -1 says that it has no limit.
  if (usage.balance !== undefined || usage.planName === WALLET) return faulty("account-balance");
  if (remaining < 0) return ACTIVE;
  const hasSubscription = Object(usage.subscription) === usage.subscription;
  return faulty(hasSubscription ? "window-used-up" : "account-balance");
}

/** The one that returns last; null: every window has something left. */
function usedUpWindow(limits: unknown): UsedUpWindow | null {
  let last: UsedUpWindow | null = null;
  for (const limit of Array.isArray(limits) ? limits : []) {
    const { window, remaining, reset_at } = Object(limit) as Record<string, unknown>;
    if (typeof window !== "string" || !/^\w{1,8}$/.test(window)) continue;
    if (typeof remaining !== "number" || remaining > 0) continue;
    const time = Date.parse(typeof reset_at === "string" ? reset_at : "");
    const found = { name: window, resetsAt: Number.isNaN(time) ? null : time };
    if (last === null || (found.resetsAt ?? 0) > (last.resetsAt ?? 0)) last = found;
  }
  return last;
}
