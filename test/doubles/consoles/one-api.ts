import type { Test } from "tap";
import type { BookedKey, BookedRow } from "./book.ts";
import type { ConsoleDouble, DoubleOptions } from "./console-double.ts";
import {
  cutKey,
  exhausted,
  expired,
  INDEX_HTML,
  type Kind,
  type KindMeans,
  LOGIN,
  numberIn,
  oneapiId,
  type Question,
  type Reply,
  shownIn,
} from "./kind.ts";
import { noLimit, slidingWindow } from "./rate-limit.ts";
import { startDouble } from "./server.ts";

export function startOneApi(t: Test, options: DoubleOptions = {}): Promise<ConsoleDouble> {
  return startDouble(t, options, createOneApi);
}

const QUOTA_PER_UNIT = 500_000;
const PAGE = 10;
/** 5 is a test of a channel here, and an error at new-api. */
const TYPES = { topup: 1, use: 2, manage: 3, login: 4, test: 5, error: 0, refund: 0 } as const;

function createOneApi({ book, now, limits }: KindMeans): Kind {
  const login = { ...LOGIN };
  const limit = limits ? slidingWindow(480, 180) : noLimit;
  const tooMany: Reply = { status: 429, body: "" };
  const refused: Reply = {
    status: 200,
    body: { success: false, message: "无权进行此操作，access token 无效" },
  };

  function console(question: Question): Reply | null {
    const { path, method, headers } = question;
    if (limit(now()) > 0) return tooMany;
    if (method !== "GET") return null;
    if (path === "/api/token") return { status: 301, headers: { location: "/api/token/" }, body: "" };
    if (path === "/api/status") return ok(STATUS);
    const routes: Record<string, () => unknown> = {
      "/api/log/self": () => page(question, selectRows(book.rows, question.query)).map(rowShape),
      "/api/token/": () => page(question, [...book.keys].reverse()).map(keyShape),
      "/api/user/self": () => ({
        id: Number(LOGIN.user),
        username: "owner",
        display_name: "owner",
        role: 1,
        status: 1,
        email: LOGIN.email,
        quota: Math.round(book.balance * QUOTA_PER_UNIT),
        used_quota: 0,
        request_count: 0,
        group: "default",
      }),
    };
    const route = routes[path];
    if (route === undefined) return null;
    const shown = shownIn(headers);
    if (shown === "") {
      return {
        status: 401,
        body: { success: false, message: "无权进行此操作，未登录且未提供 access token" },
      };
    }
    return shown === login.accessToken ? ok(route()) : refused;
  }

  const error = (status: number, message: string, id: string): Reply => ({
    status,
    body: { error: { message: `${message} (request id: ${id})`, type: "one_api_error" } },
  });

  return {
    kind: "one-api",
    config: [`login: { access_token: ${LOGIN.accessToken} }`],
    login,
    listsErrors: false,
    others: ["topup", "test", "manage"],
    keyText: cutKey,
    isConsole: (path) => path.startsWith("/api/"),
    console,
    refuse(how) {
      if (how === "401") return refused;
      if (how === "429") return tooMany;
      return how === "500" ? { status: 500, body: "" } : ok("nothing");
    },
    elsewhere: ({ method, path }) =>
      /^\/(?:v1|api)(?:\/|$)/.test(path)
        ? {
            status: 404,
            body: {
              error: {
                message: `Invalid URL (${method} ${path})`,
                type: "invalid_request_error",
                param: "",
                code: "",
              },
            },
          }
        : INDEX_HTML,
    ids(_stream, given) {
      const own = given ?? oneapiId(now(), "");
      return { own, handed: own, upstream: null };
    },
    headers: ({ own }) => ({ "x-oneapi-request-id": own }),
    // No messages, and no responses.
    serves: (method, path) => (method === "GET" ? path === "/v1/models" : path === "/v1/chat/completions"),
    refuseKey(key, shown, { own }) {
      if (shown === "") return error(401, "未提供令牌", own);
      if (key === null) return error(401, "无效的令牌", own);
      if (key.disabled === true) return error(401, "该令牌状态不可用", own);
      if (expired(key, now())) return error(401, "该令牌已过期", own);
      return exhausted(key) ? error(401, "该令牌额度已用尽", own) : null;
    },
    failure: (status, _path, { own }) => error(status, `bad response status code ${status}`, own),
    models: () => ({
      object: "list",
      data: [
        {
          id: "gpt-5.1",
          object: "model",
          created: 1626777600,
          owned_by: "openai",
          root: "gpt-5.1",
          parent: null,
        },
      ],
    }),
    endSessions() {
      login.accessToken = "pat-made-anew-elsewhere";
    },
  };
}

const ok = (data: unknown): Reply => ({ status: 200, body: { success: true, message: "", data } });

const STATUS = {
  version: "v0.6.11-alpha",
  start_time: 1_780_000_000,
  system_name: "One API",
  quota_per_unit: QUOTA_PER_UNIT,
  display_in_currency: true,
};

/** Counted from 0, ten at a time whatever is asked for, and nobody says how many there are. */
function page<T>({ query }: Question, all: readonly T[]): T[] {
  const start = Math.max(0, numberIn(query, ["p"], 0)) * PAGE;
  return all.slice(start, start + PAGE);
}

function selectRows(rows: readonly BookedRow[], query: URLSearchParams): BookedRow[] {
  const type = numberIn(query, ["type"], 0);
  const start = numberIn(query, ["start_timestamp"], 0);
  const end = numberIn(query, ["end_timestamp"], 0);
  const token = query.get("token_name") ?? "";
  const model = query.get("model_name") ?? "";
  return rows
    .filter((row) => {
      const at = Math.floor(row.createdAt / 1000);
      return (
        row.type !== "refund" &&
        (type === 0 || TYPES[row.type] === type) &&
        (start === 0 || at >= start) &&
        (end === 0 || at <= end) &&
        (token === "" || row.key?.name === token) &&
        (model === "" || row.use?.model === model)
      );
    })
    .reverse();
}

/** Whose key it was is told by its name alone, and the cache by nothing. */
function rowShape({ type, createdAt, key, use, requestId, multiplier }: BookedRow): object {
  const { input = 0, cacheRead = 0, cacheWrite = 0, output = 0, dollars = 0, duration = 900 } = use ?? {};
  return {
    id: 0,
    user_id: Number(LOGIN.user),
    created_at: Math.floor(createdAt / 1000),
    type: TYPES[type],
    content:
      type === "use" ? `倍率：1.50 × ${multiplier.toFixed(2)} × 4.00` : "通过兑换码充值 ＄10.000000 额度",
    username: "owner",
    token_name: key?.name ?? "",
    model_name: use?.model ?? "",
    quota: Math.round(dollars * QUOTA_PER_UNIT),
    prompt_tokens: input + cacheRead + cacheWrite,
    completion_tokens: output,
    channel: use === null ? 0 : 3,
    request_id: requestId,
    elapsed_time: use === null ? 0 : duration,
    is_stream: use?.stream ?? false,
    system_prompt_reset: false,
  };
}

/** The whole key, though without its `sk-`; and no group, which is the account's. */
function keyShape(key: BookedKey): object {
  const used = Math.round(key.usedDollars * QUOTA_PER_UNIT);
  return {
    id: key.id,
    user_id: Number(LOGIN.user),
    key: key.key.replace(/^sk-/, ""),
    status: key.disabled === true ? 2 : 1,
    name: key.name,
    created_time: Math.floor(key.createdAt / 1000),
    accessed_time: Math.floor((key.lastUsedAt ?? key.createdAt) / 1000),
    expired_time: key.expiresAt === undefined ? -1 : Math.floor(key.expiresAt / 1000),
    remain_quota: Math.round((key.quota ?? 0) * QUOTA_PER_UNIT) - used,
    unlimited_quota: key.quota === undefined,
    used_quota: used,
    models: "",
    subnet: "",
  };
}
