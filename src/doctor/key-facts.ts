import type { KeyFault } from "../proxy/cause.ts";
import { parsed } from "./model-list.ts";

/** What a gateway tells a key about itself. It bills nothing for that. */
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

const UNKNOWN: KeyFacts = { state: "unknown" };
const ACTIVE: KeyFacts = { state: "active" };

export function faulty(fault: KeyFault, window: UsedUpWindow | null = null): KeyFacts {
  return { state: "faulty", fault, window };
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

/** sub2api's answer to GET /v1/usage (0.1.27, 0.1.135). It lists models to keys whose requests it refuses. */
export function sub2apiFacts(text: string): KeyFacts {
  const usage = Object(parsed(text)) as Sub2apiUsage;
  if (typeof usage.isValid !== "boolean") return UNKNOWN;
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
