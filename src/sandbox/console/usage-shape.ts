import type { Groups } from "../groups.ts";
import type { Keys } from "../keys.ts";
import type { UsageRow } from "../usage-log.ts";
import type { Zone } from "../zone.ts";
import { groupShape, USER_ID } from "./key-shape.ts";

/** A row of the usage log with the names that sub2api gives its fields. */
export function usageShape(row: UsageRow, keys: Keys, groups: Groups, zone: Zone): object {
  const { tokens, cost } = row;
  const key = keys.withId(row.keyId);
  const group = groups.withId(row.groupId);
  return {
    id: row.id,
    user_id: USER_ID,
    api_key_id: row.keyId,
    account_id: 1,
    request_id: row.requestId,
    model: row.model,
    inbound_endpoint: row.endpoint,
    upstream_endpoint: row.endpoint,
    group_id: row.groupId,
    subscription_id: null,
    input_tokens: tokens.input,
    output_tokens: tokens.output,
    cache_creation_tokens: tokens.cacheWrite,
    cache_read_tokens: tokens.cacheRead,
    cache_creation_5m_tokens: tokens.cacheWrite,
    cache_creation_1h_tokens: 0,
    input_cost: cost.input,
    output_cost: cost.output,
    cache_creation_cost: cost.cacheWrite,
    cache_read_cost: cost.cacheRead,
    total_cost: cost.total,
    actual_cost: cost.actual,
    rate_multiplier: row.multiplier,
    long_context_billing_applied: false,
    billing_type: 0,
    request_type: row.stream ? "stream" : "sync",
    stream: row.stream,
    openai_ws_mode: false,
    duration_ms: row.durationMs,
    first_token_ms: row.firstTokenMs,
    image_count: 0,
    image_size: null,
    image_input_tokens: 0,
    image_input_cost: 0,
    image_output_tokens: 0,
    image_output_cost: 0,
    media_type: null,
    user_agent: row.userAgent,
    ip_address: row.ipAddress,
    session_id: row.sessionId,
    cache_ttl_overridden: false,
    billing_mode: "token",
    created_at: zone.format(row.createdAt),
    api_key: key === null ? null : { id: key.id, name: key.name, key: key.mask },
    group: group === null ? null : groupShape(group),
  };
}
