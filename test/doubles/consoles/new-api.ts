import type { Test } from "tap";
import type { Book, BookedKey } from "./book.ts";
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
import { keyShape, type RowMeans, rowShape, selectRows } from "./new-api-rows.ts";
import { noLimit, slidingWindow } from "./rate-limit.ts";
import { startDouble } from "./server.ts";

export interface NewApiOptions extends DoubleOptions {
  /** Default v1.0.0-rc.25. */
  readonly version?: "v0.13.2" | "v1.0.0-rc.25";
  /** config.yaml has no access token: only what the keys themselves may ask. */
  readonly keyOnly?: boolean;
  /** The service behind is another gateway of this family, with ids of its own. */
  readonly relayed?: boolean;
  /** Default 500000. */
  readonly quotaPerUnit?: number;
  /** false: whole keys, as before v0.12.0. */
  readonly masked?: boolean;
}

export function startNewApi(t: Test, options: NewApiOptions = {}): Promise<ConsoleDouble> {
  return startDouble(t, options, (means) => createNewApi(means, options));
}

/** The count of rows is given up at this many; the rows themselves go on. */
const MOST_TOTAL = 10_000;
const MOST_OF_KEY = 1000;

function createNewApi(means: KindMeans, options: NewApiOptions): Kind {
  const { book, now } = means;
  const { quotaPerUnit = 500_000, relayed = false, masked = true } = options;
  const version = options.version ?? "v1.0.0-rc.25";
  const recent = version !== "v0.13.2";
  const shape: RowMeans = { quotaPerUnit, recent };
  const login = { ...LOGIN };
  const limit = means.limits ? slidingWindow(360, 180) : noLimit;
  // One room for all routes that are critical, and for all keys.
  const critical = means.limits ? slidingWindow(20, 1200) : noLimit;
  const tooMany = (wait: number): Reply => ({
    status: 429,
    headers: recent ? { "retry-after": String(wait) } : {},
    body: "",
  });

  function stranger({ headers }: Question): Reply | null {
    const shown = shownIn(headers);
    if (recent) return shown === login.accessToken ? null : unauthorized();
    if (shown === "")
      return { status: 401, body: failed("Unauthorized, not logged in and no access token provided") };
    // The status says that all is well.
    if (shown !== login.accessToken) return unauthorized();
    const user = headers["new-api-user"];
    if (user === undefined)
      return { status: 401, body: failed("Unauthorized, New-Api-User header not provided") };
    if (user === LOGIN.user) return null;
    return { status: 401, body: failed("Unauthorized, New-Api-User does not match the logged in user") };
  }

  const unauthorized = (): Reply =>
    recent
      ? { status: 401, body: { ...failed("Unauthorized, invalid access token"), code: "AUTH_UNAUTHORIZED" } }
      : { status: 200, body: failed("无权进行此操作，access token 无效") };

  function ofKey(question: Question): Reply {
    const wait = critical(now());
    if (wait > 0) return tooMany(wait);
    const key = book.find(cutKey(shownIn(question.headers)));
    if (key === null) return { status: 401, body: failed("Invalid token") };
    if (recent && key.disabled === true) return { status: 401, body: failed("token.status_unavailable") };
    if (question.path === "/api/usage/token/") return { status: 200, body: tokenUsage(key, quotaPerUnit) };
    const rows = book.rows
      .filter((row) => row.key === key)
      .slice(-MOST_OF_KEY)
      .reverse();
    return ok(rows.map((row, n) => rowShape(row, n + 1, shape)));
  }

  function ofAccount(question: Question): Reply | null {
    const { path, query } = question;
    if (path === "/api/log/self") {
      const rows = selectRows(book.rows, query, recent);
      return page(question, rows, MOST_TOTAL, (row, place) => rowShape(row, place, shape));
    }
    if (path === "/api/token/") {
      return page(question, [...book.keys].reverse(), Number.MAX_SAFE_INTEGER, (key) =>
        keyShape(key, quotaPerUnit, masked),
      );
    }
    if (path === "/api/user/self") return ok(self(book, quotaPerUnit));
    if (path === "/api/user/self/groups") return ok(groups(book));
    return null;
  }

  function console(question: Question): Reply | null {
    const { path, method } = question;
    const wait = limit(now());
    if (wait > 0) return tooMany(wait);
    if (method !== "GET") return null;
    // The routes end in a slash, and the router sends whoever forgot it there.
    if (path === "/api/token" || path === "/api/usage/token") {
      return { status: 301, headers: { location: `${path}/` }, body: "" };
    }
    if (path === "/api/status") return ok(status(version, quotaPerUnit));
    if (path === "/api/log/token" || path === "/api/usage/token/") return ofKey(question);
    const known = ["/api/log/self", "/api/token/", "/api/user/self", "/api/user/self/groups"].includes(path);
    return known ? (stranger(question) ?? ofAccount(question)) : null;
  }

  return {
    kind: "new-api",
    config: options.keyOnly ? [] : [`login: { user: "${LOGIN.user}", access_token: ${LOGIN.accessToken} }`],
    login,
    listsErrors: true,
    others: ["topup", "login", "manage"],
    keyText: cutKey,
    isConsole: (path) => path.startsWith("/api/"),
    console,
    refuse(how) {
      if (how === "401") return unauthorized();
      if (how === "429") return tooMany(600);
      if (how === "data") return ok("nothing");
      return {
        status: 500,
        body: { error: { message: "Panic detected, error: nil", type: "new_api_panic" } },
      };
    },
    elsewhere: ({ method, path }) =>
      /^\/(?:v1|api|assets)(?:\/|$)/.test(path)
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
    ids(stream, given) {
      const own = given ?? oneapiId(now(), recent ? "5f3a91c2" : "");
      const upstream = relayed ? oneapiId(now(), "") : null;
      // Old versions copy the head of an answer that is no stream, and its id over their own.
      return { own, upstream, handed: recent || stream ? own : (upstream ?? own) };
    },
    headers: ({ own, handed }, _question, fromBehind) => ({
      "x-new-api-version": version,
      "x-oneapi-request-id": fromBehind ? handed : own,
    }),
    serves: (method, path) =>
      method === "GET"
        ? path === "/v1/models"
        : ["/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens"].includes(path),
    refuseKey(key, _shown, { own }) {
      const dead = key === null || key.disabled === true || expired(key, now()) || exhausted(key);
      const message = `Invalid token (request id: ${own})`;
      return dead ? { status: 401, body: { error: { message, type: "new_api_error", code: "" } } } : null;
    },
    failure(status, path, { own }) {
      const message = `bad response status code ${status} (request id: ${own})`;
      return path.startsWith("/v1/messages")
        ? { status, body: { type: "error", error: { type: "api_error", message } } }
        : {
            status,
            body: { error: { message, type: "openai_error", param: "", code: "bad_response_status_code" } },
          };
    },
    models: () => ({
      success: true,
      object: "list",
      data: [
        {
          id: "gpt-5.1",
          object: "model",
          created: 1626777600,
          owned_by: "custom",
          supported_endpoint_types: ["openai"],
        },
      ],
    }),
    endSessions() {
      // A new token replaces the old one.
      login.accessToken = "pat-made-anew-elsewhere";
    },
  };
}

export function ok(data: unknown): Reply {
  return { status: 200, body: { success: true, message: "", data } };
}

export function failed(message: string): object {
  return { success: false, message };
}

function page<T>(
  { query }: Question,
  all: readonly T[],
  mostTotal: number,
  shape: (item: T, place: number) => object,
): Reply {
  const number = Math.max(1, numberIn(query, ["p"], 1));
  const wanted = numberIn(query, ["page_size", "ps", "size"], 10);
  const size = wanted < 1 ? 10 : Math.min(100, wanted);
  const start = (number - 1) * size;
  return ok({
    page: number,
    page_size: size,
    total: Math.min(all.length, mostTotal),
    items: all.slice(start, start + size).map((item, n) => shape(item, start + n + 1)),
  });
}

function tokenUsage(key: BookedKey, quotaPerUnit: number): object {
  const granted = Math.round((key.quota ?? 0) * quotaPerUnit);
  const used = Math.round(key.usedDollars * quotaPerUnit);
  return {
    code: true,
    message: "ok",
    data: {
      object: "token_usage",
      name: key.name,
      total_granted: granted,
      total_used: used,
      total_available: granted - used,
      unlimited_quota: key.quota === undefined,
      model_limits: {},
      model_limits_enabled: false,
      expires_at: key.expiresAt === undefined ? 0 : Math.floor(key.expiresAt / 1000),
    },
  };
}

function self({ balance, keys }: Book, quotaPerUnit: number): object {
  const used = keys.reduce((sum, { usedDollars }) => sum + usedDollars, 0);
  return {
    id: Number(LOGIN.user),
    username: "owner",
    display_name: "owner",
    role: 1,
    status: 1,
    email: LOGIN.email,
    group: "default",
    quota: Math.round(balance * quotaPerUnit),
    used_quota: Math.round(used * quotaPerUnit),
    request_count: 0,
  };
}

/** The group that chooses among others has a word where the others have a number. */
function groups(book: Book): object {
  const named = book.groups.map(({ name, multiplier }) => [name, { ratio: multiplier, desc: name }]);
  return { ...Object.fromEntries(named), auto: { ratio: "自动", desc: "auto" } };
}

function status(version: string, quotaPerUnit: number): object {
  return {
    version,
    start_time: 1_780_000_000,
    system_name: "New API",
    server_address: "https://gateway.example",
    quota_per_unit: quotaPerUnit,
    display_in_currency: true,
    quota_display_type: "USD",
    usd_exchange_rate: 7.3,
    price: 7.3,
    custom_currency_symbol: "¤",
    custom_currency_exchange_rate: 1,
  };
}
