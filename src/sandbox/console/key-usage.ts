import type { Clock } from "../../core/clock.ts";
import type { Account } from "../account.ts";
import { rounded } from "../billing.ts";
import type { Group } from "../groups.ts";
import type { Keys, SandboxKey } from "../keys.ts";
import type { UsageLog, UsageRow } from "../usage-log.ts";
import type { Zone } from "../zone.ts";
import { statusOf } from "./key-shape.ts";

export interface KeyUsageNeeds {
  readonly usage: UsageLog;
  readonly account: Account;
  readonly keys: Keys;
  readonly clock: Clock;
  readonly zone: Zone;
}

const DAY = 24 * 60 * 60 * 1000;
const DEFAULT_DAYS = 30;
const MOST_DAYS = 90;

/** GET /v1/usage: what a key may know about itself. Sums only, and not in the console's envelope. */
export function keyUsage(
  key: SandboxKey,
  group: Group,
  query: URLSearchParams,
  needs: KeyUsageNeeds,
): object {
  const now = needs.clock.now();
  const rows = needs.usage.list().filter((row) => row.keyId === key.id);
  const today = needs.zone.startOf(needs.zone.dayOf(now)) ?? now;
  const common = {
    unit: "USD",
    usage: {
      today: sumOf(rows.filter((row) => row.createdAt >= today)),
      total: sumOf(rows),
      ...pulse(rows, now),
    },
    model_stats: modelStats(rows.filter((row) => row.createdAt >= now - daysOf(query) * DAY)),
  };
  const status = statusOf(key, needs.keys);
  if (key.quota === null) {
    const balance = needs.account.balance;
    return {
      mode: "unrestricted",
      isValid: status === "active",
      planName: "钱包余额",
      remaining: balance,
      balance,
      group: group.name,
      ...common,
    };
  }
  const remaining = Math.max(0, rounded(key.quota - key.quotaUsed));
  return {
    mode: "quota_limited",
    isValid: status === "active",
    status,
    quota: { limit: key.quota, used: key.quotaUsed, remaining, unit: "USD" },
    remaining,
    rate_limits: [],
    ...(key.expiresAt === null ? {} : expiry(key.expiresAt, now, needs.zone)),
    ...common,
  };
}

/** GET /v1/sub2api/billing: by this path a console is known to be of this kind. */
export function keyBilling(group: Group, zone: Zone, now: number): object {
  return {
    object: "sub2api.key_billing",
    schema_version: 1,
    billing_scope: "token",
    group_rate_multiplier: group.multiplier,
    resolved_rate_multiplier: group.multiplier,
    peak_rate_enabled: false,
    effective_rate_multiplier: group.multiplier,
    timezone: zone.name,
    observed_at: zone.format(now),
  };
}

function expiry(expiresAt: number, now: number, zone: Zone): object {
  return {
    expires_at: zone.format(expiresAt),
    days_until_expiry: Math.max(0, Math.ceil((expiresAt - now) / DAY)),
  };
}

function daysOf(query: URLSearchParams): number {
  const days = Number(query.get("days") ?? DEFAULT_DAYS);
  return Number.isInteger(days) && days >= 1 && days <= MOST_DAYS ? days : DEFAULT_DAYS;
}

function sumOf(rows: readonly UsageRow[]) {
  const sum = {
    requests: rows.length,
    input_tokens: 0,
    output_tokens: 0,
    cache_creation_tokens: 0,
    cache_read_tokens: 0,
    total_tokens: 0,
    cost: 0,
    actual_cost: 0,
  };
  for (const { tokens, cost } of rows) {
    sum.input_tokens += tokens.input;
    sum.output_tokens += tokens.output;
    sum.cache_creation_tokens += tokens.cacheWrite;
    sum.cache_read_tokens += tokens.cacheRead;
    sum.total_tokens += tokens.input + tokens.output + tokens.cacheWrite + tokens.cacheRead;
    sum.cost = rounded(sum.cost + cost.total);
    sum.actual_cost = rounded(sum.actual_cost + cost.actual);
  }
  return sum;
}

function modelStats(rows: readonly UsageRow[]): readonly object[] {
  const models = [...new Set(rows.map((row) => row.model))].sort();
  return models.map((model) => ({ model, ...sumOf(rows.filter((row) => row.model === model)) }));
}

function pulse(rows: readonly UsageRow[], now: number): object {
  const recent = sumOf(rows.filter((row) => row.createdAt > now - 60_000));
  const duration = rows.reduce((sum, row) => sum + row.durationMs, 0);
  return {
    average_duration_ms: rows.length === 0 ? 0 : duration / rows.length,
    rpm: recent.requests,
    tpm: recent.total_tokens,
  };
}
