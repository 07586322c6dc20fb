import type { Book, BookedKey, BookedRow, Group } from "./book.ts";
import { exhausted, expired } from "./kind.ts";

/** The server stands in Shanghai: times carry its offset, and days without a time zone are its days. */
export const SERVER_ZONE = "Asia/Shanghai";
const OFFSET_MS = 8 * 60 * 60_000;

/** RFC 3339 with an offset and microseconds, as Go writes what PostgreSQL keeps. */
export function timeText(at: number): string {
  return new Date(at + OFFSET_MS).toISOString().replace(/\.(\d{3})Z$/, ".$1417+08:00");
}

export function groupShape({ id, name, multiplier }: Group): object {
  return {
    id,
    name,
    description: "",
    platform: "anthropic",
    rate_multiplier: multiplier,
    is_exclusive: false,
    status: "active",
    subscription_type: "standard",
    daily_limit_usd: null,
    weekly_limit_usd: null,
    monthly_limit_usd: null,
  };
}

/** With the whole key, as this console tells it to its owner. */
export function keyShape(key: BookedKey, book: Book, now: number): object {
  const group = book.groups.find(({ name }) => name === key.group);
  const left = exhausted(key) ? "quota_exhausted" : "active";
  return {
    id: key.id,
    user_id: 7,
    key: key.key,
    name: key.name,
    group_id: group?.id ?? null,
    status: key.disabled === true ? "disabled" : expired(key, now) ? "expired" : left,
    ip_whitelist: [],
    ip_blacklist: [],
    last_used_at: key.lastUsedAt === null ? null : timeText(key.lastUsedAt),
    last_used_ip: null,
    quota: key.quota ?? 0,
    quota_used: key.usedDollars,
    expires_at: key.expiresAt === undefined ? null : timeText(key.expiresAt),
    created_at: timeText(key.createdAt),
    updated_at: timeText(key.createdAt),
    current_concurrency: 0,
    rate_limit_5h: 0,
    rate_limit_1d: key.quota === undefined ? 0 : 20,
    rate_limit_7d: 0,
    usage_5h: 0,
    usage_1d: key.quota === undefined ? 0 : key.usedDollars,
    usage_7d: 0,
    window_5h_start: null,
    window_1d_start: null,
    window_7d_start: null,
    ...(group === undefined ? {} : { group: groupShape(group) }),
  };
}

export function rowShape(row: BookedRow, book: Book, now: number): object {
  const { key, use } = row;
  if (key === null || use === null) throw new Error("sub2api lists nothing but usage");
  const { input, cacheRead = 0, cacheWrite = 0, output } = use;
  const all = input + cacheRead + cacheWrite + output;
  const share = (tokens: number) => (all === 0 ? 0 : (row.listDollars * tokens) / all);
  const group = book.groups.find(({ name }) => name === key.group);
  return {
    id: row.id,
    user_id: 7,
    api_key_id: key.id,
    account_id: 31,
    request_id: row.requestId,
    model: use.model,
    inbound_endpoint: use.endpoint ?? "/v1/chat/completions",
    upstream_endpoint: use.endpoint ?? "/v1/chat/completions",
    group_id: group?.id ?? null,
    subscription_id: null,
    input_tokens: input,
    output_tokens: output,
    cache_creation_tokens: cacheWrite,
    cache_read_tokens: cacheRead,
    cache_creation_5m_tokens: cacheWrite,
    cache_creation_1h_tokens: 0,
    input_cost: share(input),
    output_cost: share(output),
    cache_creation_cost: share(cacheWrite),
    cache_read_cost: share(cacheRead),
    total_cost: row.listDollars,
    actual_cost: use.dollars,
    rate_multiplier: row.multiplier,
    long_context_billing_applied: false,
    billing_type: 0,
    request_type: use.stream ? "stream" : "sync",
    stream: use.stream,
    openai_ws_mode: false,
    duration_ms: use.duration ?? 900,
    first_token_ms: use.stream ? Math.floor((use.duration ?? 900) / 3) : null,
    image_count: 0,
    image_size: null,
    image_input_size: null,
    image_output_size: null,
    image_input_tokens: 0,
    image_input_cost: 0,
    image_output_tokens: 0,
    image_output_cost: 0,
    image_size_source: null,
    image_size_breakdown: null,
    media_type: null,
    user_agent: "claude-cli/2.0",
    ...(use.ip === undefined ? {} : { ip_address: use.ip }),
    cache_ttl_overridden: false,
    created_at: timeText(row.createdAt),
    user: { id: 7, email: "owner@gateway.example" },
    api_key: keyShape(key, book, now),
    ...(group === undefined ? {} : { group: groupShape(group) }),
  };
}

/** Which of the rows a query of GET /usage means, in its order; words: what is wrong with it. */
export function selectRows(rows: readonly BookedRow[], query: URLSearchParams): BookedRow[] | string {
  const start = query.get("start_date") || null;
  const end = query.get("end_date") || null;
  if (start !== null && !isDay(start)) return "Invalid start_date format, use YYYY-MM-DD";
  if (end !== null && !isDay(end)) return "Invalid end_date format, use YYYY-MM-DD";
  const day = dayIn(query.get("timezone") || SERVER_ZONE);
  const keyId = query.get("api_key_id") || null;
  const model = query.get("model") || null;
  const type = query.get("request_type") || null;
  const stream = query.get("stream") || null;
  const up = query.get("sort_order")?.toLowerCase() === "asc" ? 1 : -1;
  const by = query.get("sort_by") || "created_at";
  return rows
    .filter(({ createdAt, key, use }) => {
      if (keyId !== null && String(key?.id) !== keyId) return false;
      if (model !== null && use?.model !== model) return false;
      if (type !== null && type !== (use?.stream === true ? "stream" : "sync")) return false;
      if (type === null && stream !== null && String(use?.stream) !== stream) return false;
      if (start === null && end === null) return true;
      const on = day(createdAt);
      return (start === null || on >= start) && (end === null || on <= end);
    })
    .sort((a, b) => {
      const time = by === "created_at" ? a.createdAt - b.createdAt : 0;
      const name = by === "model" ? (a.use?.model ?? "").localeCompare(b.use?.model ?? "") : 0;
      return (time || name || a.id - b.id) * up;
    });
}

function isDay(text: string): boolean {
  return /^\d{4}-\d{2}-\d{2}$/.test(text) && !Number.isNaN(Date.parse(`${text}T00:00:00Z`));
}

function dayIn(timeZone: string): (at: number) => string {
  if (timeZone === "UTC") return (at) => new Date(at).toISOString().slice(0, 10);
  try {
    const days = new Intl.DateTimeFormat("sv-SE", { timeZone });
    return (at) => days.format(at);
  } catch {
    // A place that does not exist is passed over.
    return dayIn(SERVER_ZONE);
  }
}
