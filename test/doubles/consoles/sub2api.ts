import { randomBytes, randomUUID } from "node:crypto";
import type { Test } from "tap";
import type { Book, BookedKey } from "./book.ts";
import type { ConsoleDouble, DoubleOptions } from "./console-double.ts";
import {
  exhausted,
  expired,
  INDEX_HTML,
  type Kind,
  type KindMeans,
  LOGIN,
  numberIn,
  type Question,
  type Reply,
  shownIn,
} from "./kind.ts";
import { fixedWindow, noLimit } from "./rate-limit.ts";
import { startDouble } from "./server.ts";
import { groupShape, keyShape, rowShape, SERVER_ZONE, selectRows, timeText } from "./sub2api-rows.ts";
import { createSessions, failure, flat, type SessionOptions, success, tooMany } from "./sub2api-sessions.ts";

export interface Sub2apiOptions extends DoubleOptions, SessionOptions {
  /**
   * 0.1.179: the default. 0.1.106: rows have ids that nobody is handed, and no panel limits. 0.1.27: pages of 100 at most,
   * and the id is that of the service behind, in x-request-id.
   */
  readonly version?: "0.1.179" | "0.1.106" | "0.1.27";
}

export interface Sub2apiDouble extends ConsoleDouble {
  /** A refresh token as a person would copy it out of a browser. */
  refreshToken(): string;
}

export async function startSub2api(t: Test, options: Sub2apiOptions = {}): Promise<Sub2apiDouble> {
  let open = (): string => "";
  const double = await startDouble(t, options, (means) => {
    const built = createSub2api(means, options);
    open = built.open;
    return built.kind;
  });
  // Not spread: its turnable parts are accessors.
  return Object.assign(double, { refreshToken: () => open() });
}

const API = "/api/v1";
/** Below these a wrong path is a plain 404; anywhere else it is the web page. */
const NO_PAGE = /^\/(?:api|v1|v1beta|backend-api|antigravity|setup|images|videos)\/|^\/responses(?:\/|$)/;

function createSub2api(means: KindMeans, options: Sub2apiOptions): { kind: Kind; open: () => string } {
  const { book, now } = means;
  const version = options.version ?? "0.1.179";
  const sessions = createSessions(options, now, means.limits);
  const panel = createPanel(means.limits && version === "0.1.179", now);
  const paged = (question: Question, all: readonly unknown[], shape: (item: never) => object) =>
    page(question, all, shape as (item: unknown) => object, version === "0.1.27" ? 100 : 1000);

  function console(question: Question): Reply | null {
    if (question.path.startsWith("/v1/")) return keyOnly(question, book, now(), version);
    const about = sessions.serve(question);
    if (about !== null) return about;
    const path = question.path.slice(API.length);
    if (path === "/settings/public") return success(publicSettings(version));
    const routes: Record<string, () => Reply> = {
      "/auth/me": () => success(me(book)),
      "/groups/available": () => success(book.groups.map(groupShape)),
      "/groups/rates": () => success({}),
      "/keys": () =>
        paged(question, [...book.keys].reverse(), (key: BookedKey) => keyShape(key, book, now())),
      "/usage": () => listUsage(question),
      "/usage/errors": () => failure(403, "Error requests view is disabled"),
    };
    const route = routes[path] ?? (/^\/usage\/\d+$/.test(path) ? () => showUsage(path) : undefined);
    if (route === undefined || question.method !== "GET") return null;
    return sessions.check(question) ?? panel(path) ?? route();
  }

  function listUsage(question: Question): Reply {
    const keyId = question.query.get("api_key_id");
    if (keyId && !book.keys.some(({ id }) => String(id) === keyId)) {
      return failure(403, "Not authorized to access this API key's usage records");
    }
    const rows = selectRows(book.rows, question.query);
    if (typeof rows === "string") return failure(400, rows);
    return paged(question, rows, (row: (typeof rows)[number]) => rowShape(row, book, now()));
  }

  function showUsage(path: string): Reply {
    const row = book.rows.find(({ id }) => path === `/usage/${id}`);
    return row === undefined ? failure(404, "usage log not found") : success(rowShape(row, book, now()));
  }

  const kind: Kind = {
    kind: "sub2api",
    config: [
      `login: { email: ${LOGIN.email}${options.secondFactor || options.captcha ? "" : `, password: ${LOGIN.password}`} }`,
    ],
    login: LOGIN,
    listsErrors: false,
    others: [],
    keyText: (shown) => shown,
    isConsole: (path) => path.startsWith("/api/") || path === "/v1/usage" || path === "/v1/sub2api/billing",
    console,
    refuse(how) {
      if (how === "401") return flat(401, "TOKEN_REVOKED", "Token has been revoked");
      if (how === "429") return tooMany(30);
      return how === "500" ? failure(500, "internal error") : success("nothing");
    },
    elsewhere: ({ path }) =>
      NO_PAGE.test(path)
        ? { status: 404, headers: { "content-type": "text/plain" }, body: "404 page not found" }
        : INDEX_HTML,
    ids(_stream, own) {
      if (version === "0.1.27") {
        const upstream = own ?? `req_${randomBytes(12).toString("hex")}`;
        return { own: upstream, handed: upstream, upstream: null };
      }
      const uuid = own ?? randomUUID();
      return { own: `client:${uuid}`, handed: version === "0.1.179" ? uuid : "", upstream: null };
    },
    headers({ handed }, { path, headers }) {
      if (version === "0.1.27") return path.startsWith("/v1/") ? { "x-request-id": handed } : {};
      // What the client says of itself is said back, and is in no row.
      const said = headers["x-request-id"];
      const echoed = { "x-request-id": typeof said === "string" && said !== "" ? said : randomUUID() };
      return handed === "" || !path.startsWith("/v1/")
        ? echoed
        : { ...echoed, "x-client-request-id": handed };
    },
    serves: (method, path) =>
      method === "GET"
        ? path === "/v1/models"
        : ["/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens"].includes(path),
    refuseKey: (key, shown) => refuseKey(key, shown, now()),
    failure: (status, path) => ({
      status,
      body: {
        ...(path.startsWith("/v1/messages") ? { type: "error" } : {}),
        error: { type: "api_error", message: "Upstream request failed" },
      },
    }),
    models: () => ({
      object: "list",
      data: [
        {
          id: "claude-sonnet-4-5",
          type: "model",
          display_name: "Claude Sonnet 4.5",
          created_at: timeText(0),
        },
      ],
    }),
    endSessions: sessions.end,
  };
  return { kind, open: sessions.open };
}

function createPanel(limits: boolean, now: () => number): (path: string) => Reply | null {
  const all = limits ? fixedWindow(240, 60) : noLimit;
  const heavy = limits ? fixedWindow(60, 60) : noLimit;
  return (path) => {
    const wait = all(now()) || (path.startsWith("/usage") ? heavy(now()) : 0);
    return wait === 0 ? null : tooMany(wait);
  };
}

/** A size beyond the most is not cut to it: it is as if none had been asked for. */
function page(
  { query }: Question,
  all: readonly unknown[],
  shape: (item: unknown) => object,
  most: number,
): Reply {
  const number = Math.max(1, numberIn(query, ["page"], 1));
  const wanted = numberIn(query, ["page_size", "limit"], 20);
  const size = wanted >= 1 && wanted <= most ? wanted : 20;
  return success({
    items: all.slice((number - 1) * size, number * size).map(shape),
    total: all.length,
    page: number,
    page_size: size,
    pages: Math.max(1, Math.ceil(all.length / size)),
  });
}

function me({ balance }: Book): object {
  const { email } = LOGIN;
  return { id: 7, email, username: "owner", role: "user", balance, concurrency: 5, status: "active" };
}

function publicSettings(version: string): object {
  return { site_name: "Gateway", api_base_url: "", version, hide_ccs_import_button: false };
}

function refuseKey(key: BookedKey | null, shown: string, now: number): Reply | null {
  const where = "Authorization header (Bearer scheme), x-api-key header, or x-goog-api-key header";
  if (shown === "") return flat(401, "API_KEY_REQUIRED", `API key is required in ${where}`);
  if (key === null) return flat(401, "INVALID_API_KEY", "Invalid API key");
  if (key.disabled === true) return flat(401, "API_KEY_DISABLED", "API key is disabled");
  if (expired(key, now)) return flat(403, "API_KEY_EXPIRED", "API key 已过期");
  return exhausted(key) ? flat(429, "API_KEY_QUOTA_EXHAUSTED", "API key 额度已用完") : null;
}

/** What the key alone may ask: totals, never rows, and without the envelope. */
function keyOnly({ path, headers }: Question, book: Book, now: number, version: string): Reply | null {
  if (path === "/v1/sub2api/billing" && version !== "0.1.179") return null;
  const shown = shownIn(headers);
  const key = book.find(shown);
  if (key === null || key.disabled === true) return refuseKey(key, shown, now);
  const rate = book.groups.find(({ name }) => name === key.group)?.multiplier ?? 1;
  if (path === "/v1/sub2api/billing") {
    return {
      status: 200,
      body: {
        object: "sub2api.key_billing",
        schema_version: 1,
        billing_scope: "token",
        group_rate_multiplier: rate,
        resolved_rate_multiplier: rate,
        peak_rate_enabled: false,
        effective_rate_multiplier: rate,
        timezone: SERVER_ZONE,
        observed_at: timeText(now),
      },
    };
  }
  const remaining = key.quota === undefined ? book.balance : key.quota - key.usedDollars;
  const body = { isValid: true, remaining, unit: "USD" };
  if (key.quota === undefined) {
    return {
      status: 200,
      body: { mode: "unrestricted", planName: "钱包余额", balance: book.balance, ...body },
    };
  }
  const quota = { limit: key.quota, used: key.usedDollars, remaining, unit: "USD" };
  return { status: 200, body: { mode: "quota_limited", status: "active", quota, ...body } };
}
