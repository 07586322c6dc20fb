import type { IncomingHttpHeaders } from "node:http";
import type { Gateway } from "../config/shape.ts";
import { parsed } from "./model-list.ts";

/** What a gateway tells a key about itself without billing it. */
export interface KeyFacts {
  readonly state:
    | "active"
    | "key-disabled"
    | "key-expired"
    | "key-quota"
    | "account-balance"
    | "subscription";
}

export interface FactsSource {
  readonly url: string;
  /** null: the answer tells nothing. */
  read(text: string, now: number): KeyFacts | null;
}

/**
 * Where to ask, by the kind of gateway: as config.yaml says, else as its answer shows. Asked after a list that was given,
 * since sub2api lists models to keys that it then refuses; of new-api after a refusal, which is `Invalid token` whatever
 * is wrong with the key. new-api allows 20 such questions in 20 minutes, so it is not asked when all is well.
 */
export function factsSource(
  gateway: Gateway,
  { headers, refused }: { readonly headers: IncomingHttpHeaders; readonly refused: boolean },
): FactsSource | null {
  const kind = gateway.console?.kind ?? kindOf(headers);
  if (kind === "sub2api" && !refused) return { url: `${gateway.baseUrl}/usage`, read: sub2apiFacts };
  if (kind !== "new-api" || !refused) return null;
  // Only where the console is the gateway itself: the key goes to no other origin.
  return { url: `${new URL(gateway.baseUrl).origin}/api/usage/token/`, read: newApiFacts };
}

function kindOf(headers: IncomingHttpHeaders): "sub2api" | "new-api" | null {
  if (headers["x-new-api-version"] !== undefined) return "new-api";
  return headers["x-client-request-id"] === undefined ? null : "sub2api";
}

interface Sub2apiUsage {
  readonly mode?: unknown;
  readonly isValid?: unknown;
  readonly status?: unknown;
  readonly remaining?: unknown;
  readonly planName?: unknown;
  readonly balance?: unknown;
  readonly subscription?: unknown;
}

/** What sub2api calls an account that pays from its balance. */
const WALLET = "钱包余额";

function sub2apiFacts(text: string): KeyFacts | null {
  const usage = Object(parsed(text)) as Sub2apiUsage;
  const { isValid, status, remaining } = usage;
  if (typeof isValid !== "boolean") return null;
  if (status === "expired") return { state: "key-expired" };
  if (status === "disabled") return { state: "key-disabled" };
  if (status === "quota_exhausted") return { state: "key-quota" };
  if (typeof remaining !== "number" || remaining > 0) return { state: "active" };
  return { state: spentOf(usage, remaining) };
}

/** Of 0 or less. A balance may be overdrawn; of a subscription -1 says that it has no limit. */
function spentOf(usage: Sub2apiUsage, remaining: number): KeyFacts["state"] {
  if (usage.mode === "quota_limited") return "key-quota";
  if (usage.balance !== undefined || usage.planName === WALLET) return "account-balance";
  if (remaining < 0) return "active";
  return Object(usage.subscription) === usage.subscription ? "subscription" : "account-balance";
}

interface NewApiUsage {
  readonly total_available?: unknown;
  readonly unlimited_quota?: unknown;
  readonly expires_at?: unknown;
}

function newApiFacts(text: string, now: number): KeyFacts | null {
  const { data } = Object(parsed(text)) as { data?: unknown };
  if (typeof data !== "object" || data === null) return null;
  const { total_available: left, unlimited_quota: unlimited, expires_at: expires } = data as NewApiUsage;
  if (typeof expires === "number" && expires > 0 && expires * 1000 <= now) return { state: "key-expired" };
  if (unlimited !== true && typeof left === "number" && left <= 0) return { state: "key-quota" };
  return { state: "active" };
}
