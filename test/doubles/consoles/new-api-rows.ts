import type { BookedKey, BookedRow } from "./book.ts";
import { numberIn } from "./kind.ts";

export const TYPES = { topup: 1, use: 2, manage: 3, error: 5, refund: 6, login: 7, test: 0 } as const;

export interface RowMeans {
  readonly quotaPerUnit: number;
  /** rc.25: the id of a gateway behind is told, and more is said of the cache. */
  readonly recent: boolean;
}

/** A row as a user sees it. Its id is its place in the answer: another one in every answer. */
export function rowShape(row: BookedRow, place: number, { quotaPerUnit, recent }: RowMeans): object {
  const { type, key, use } = row;
  const dollars = type === "use" || type === "refund" ? (use?.dollars ?? 0) : 0;
  return {
    id: place,
    user_id: 7,
    created_at: Math.floor(row.createdAt / 1000),
    type: TYPES[type],
    content: CONTENT[type],
    username: "owner",
    token_name: key?.name ?? "",
    model_name: use?.model ?? "",
    quota: Math.round(dollars * quotaPerUnit),
    prompt_tokens: type === "use" ? promptOf(row) : 0,
    completion_tokens: type === "use" ? (use?.output ?? 0) : 0,
    use_time: Math.floor((use?.duration ?? 900) / 1000),
    is_stream: use?.stream ?? false,
    channel: type === "use" || type === "error" ? 3 : 0,
    channel_name: "",
    token_id: key?.id ?? 0,
    group: key?.group ?? "",
    ip: use?.ip ?? "",
    ...(row.requestId === "" ? {} : { request_id: row.requestId }),
    ...(recent && row.upstreamId !== null ? { upstream_request_id: row.upstreamId } : {}),
    // A string with JSON in it, and an empty one where there is nothing to say.
    other:
      use === null
        ? ""
        : JSON.stringify(type === "error" ? errorOther(row) : useOther(row, recent, quotaPerUnit)),
  };
}

const CONTENT = {
  topup: "通过兑换码充值 ＄10.000000 额度",
  use: "",
  manage: "管理员增加用户额度",
  error: "status_code=502, bad response status code 502",
  refund: "异步任务执行失败",
  login: "用户登录",
  test: "",
} as const;

function isAnthropic({ use }: BookedRow): boolean {
  return use?.endpoint === "/v1/messages";
}

/** The one column with two meanings: with the cache in it, unless `other` says anthropic. */
function promptOf(row: BookedRow): number {
  const { input = 0, cacheRead = 0, cacheWrite = 0 } = row.use ?? {};
  return isAnthropic(row) ? input : input + cacheRead + cacheWrite;
}

function errorOther({ use }: BookedRow): object {
  return {
    error_type: "openai_error",
    error_code: "bad_response_status_code",
    status_code: 502,
    channel_id: 3,
    channel_name: "",
    channel_type: 1,
    request_path: use?.endpoint ?? "/v1/chat/completions",
  };
}

const COMPLETION = 5;
const CACHE = 0.1;
const CREATION = 1.25;

function useOther(row: BookedRow, recent: boolean, quotaPerUnit: number): object {
  const { input = 0, cacheRead = 0, cacheWrite = 0, output = 0, stream, duration = 900 } = row.use ?? {};
  const weight = input + cacheRead * CACHE + cacheWrite * CREATION + output * COMPLETION;
  const perCall = weight === 0;
  return {
    model_ratio: perCall ? 0 : (row.listDollars * quotaPerUnit) / weight,
    group_ratio: row.multiplier,
    completion_ratio: COMPLETION,
    cache_tokens: cacheRead,
    cache_ratio: CACHE,
    model_price: perCall ? row.listDollars : -1,
    // Not a ratio: nobody gave this account one of its own.
    user_group_ratio: -1,
    frt: Math.floor(duration / 3),
    request_path: row.use?.endpoint ?? "/v1/chat/completions",
    request_conversion: [],
    billing_source: "wallet",
    ...(stream === true ? { stream_status: { status: "ok", end_reason: "done" } } : {}),
    ...(cacheWrite > 0 || isAnthropic(row)
      ? { cache_creation_tokens: cacheWrite, cache_creation_ratio: CREATION }
      : {}),
    ...(recent && cacheWrite > 0 ? { cache_write_tokens: cacheWrite } : {}),
    ...(isAnthropic(row) ? { claude: true, usage_semantic: "anthropic" } : {}),
    ...(recent && isAnthropic(row) ? { input_tokens_total: input + cacheRead + cacheWrite } : {}),
  };
}

/** The rows that a query of GET /api/log/self means, the newest first. */
export function selectRows(rows: readonly BookedRow[], query: URLSearchParams, recent: boolean): BookedRow[] {
  const type = numberIn(query, ["type"], 0);
  const start = numberIn(query, ["start_timestamp"], 0);
  const end = numberIn(query, ["end_timestamp"], 0);
  const is = (name: string, value: string) => !query.get(name) || query.get(name) === value;
  const model = likeness(query.get("model_name") ?? "");
  return rows
    .filter((row) => {
      const at = Math.floor(row.createdAt / 1000);
      return (
        (type === 0 || TYPES[row.type] === type) &&
        (start === 0 || at >= start) &&
        (end === 0 || at <= end) &&
        is("token_name", row.key?.name ?? "") &&
        is("group", row.key?.group ?? "") &&
        is("request_id", row.requestId) &&
        (!recent || is("upstream_request_id", row.upstreamId ?? "")) &&
        model(row.use?.model ?? "")
      );
    })
    .reverse();
}

function likeness(wanted: string): (model: string) => boolean {
  if (wanted === "") return () => true;
  if (!wanted.includes("%")) return (model) => model === wanted;
  const pattern = wanted.split("%").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const like = new RegExp(`^${pattern.join(".*")}$`);
  return (model) => like.test(model);
}

export function keyShape(key: BookedKey, quotaPerUnit: number, masked: boolean): object {
  const bare = key.key.replace(/^sk-/, "");
  const used = Math.round(key.usedDollars * quotaPerUnit);
  return {
    id: key.id,
    user_id: 7,
    key: masked ? `${bare.slice(0, 4)}**********${bare.slice(-4)}` : bare,
    // Never 3 or 4, however old or empty it is: only the other columns tell.
    status: key.disabled === true ? 2 : 1,
    name: key.name,
    created_time: Math.floor(key.createdAt / 1000),
    accessed_time: Math.floor((key.lastUsedAt ?? key.createdAt) / 1000),
    expired_time: key.expiresAt === undefined ? -1 : Math.floor(key.expiresAt / 1000),
    remain_quota: Math.round((key.quota ?? 0) * quotaPerUnit) - used,
    unlimited_quota: key.quota === undefined,
    model_limits_enabled: false,
    model_limits: "",
    allow_ips: "",
    used_quota: used,
    group: key.group,
    cross_group_retry: false,
    DeletedAt: null,
  };
}
