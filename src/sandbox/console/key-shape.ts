import type { Group, Groups } from "../groups.ts";
import { type Keys, quotaExhausted, type SandboxKey } from "../keys.ts";
import type { Zone } from "../zone.ts";

/** The one account has this number. */
export const USER_ID = 1;

/** The console's word for a key's state. It knows one more than the specification: a spent quota. */
export function statusOf(key: SandboxKey, keys: Keys): string {
  const state = keys.stateOf(key);
  return state === "active" && quotaExhausted(key) ? "quota_exhausted" : state;
}

/**
 * A key as the console lists it. sub2api shows the whole string in its list; here it is masked, because the full
 * string is shown once, at creation (SPEC.md section 2, rule 2).
 */
export function keyShape(key: SandboxKey, keys: Keys, groups: Groups, zone: Zone): object {
  const time = (at: number | null) => (at === null ? null : zone.format(at));
  const group = groups.withId(key.groupId);
  return {
    id: key.id,
    user_id: USER_ID,
    key: key.mask,
    name: key.name,
    group_id: key.groupId,
    status: statusOf(key, keys),
    ip_whitelist: [],
    ip_blacklist: [],
    last_used_at: time(key.lastUsedAt),
    quota: key.quota ?? 0,
    quota_used: key.quotaUsed,
    expires_at: time(key.expiresAt),
    created_at: zone.format(key.createdAt),
    updated_at: zone.format(key.updatedAt),
    current_concurrency: key.running,
    // Requests a minute and requests at once are the specification's rate limit; sub2api's is dollars a window.
    rpm_limit: key.perMinute ?? 0,
    concurrency: key.concurrent ?? 0,
    rate_limit_5h: 0,
    rate_limit_1d: 0,
    rate_limit_7d: 0,
    usage_5h: 0,
    usage_1d: 0,
    usage_7d: 0,
    group: group === null ? null : groupShape(group),
  };
}

export function groupShape(group: Group): object {
  return {
    id: group.id,
    name: group.name,
    description: "",
    platform: "openai",
    rate_multiplier: group.multiplier,
    is_exclusive: false,
    status: group.enabled ? "active" : "inactive",
    subscription_type: "standard",
    daily_limit_usd: null,
    weekly_limit_usd: null,
    monthly_limit_usd: null,
    models: group.models.map((model) => model.id),
  };
}
