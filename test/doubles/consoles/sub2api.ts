// Stands for the console of sub2api 0.1.179 and, by options, older ones. test/real runs the real 0.1.135 and 0.1.27.
import { randomBytes, randomUUID } from "node:crypto";
import {
  type AccountKey,
  type Call,
  ConsoleDouble,
  type DoubleOptions,
  type Group,
  INDEX_HTML,
  LOGIN,
  numberIn,
  type Reply,
  type Row,
  SECOND_LOGIN,
  type User,
} from "./console-double.ts";

export interface Sub2apiOptions extends DoubleOptions {
  /** false: rows have ids that no response carries, as in version 0.1.106. Default true. */
  readonly handsOutIds?: boolean;
  /** A login needs a second factor. */
  readonly secondFactor?: boolean;
  /** A login needs a browser. */
  readonly captcha?: boolean;
  /** Keys have a name and a group, and everything else is ignored, as in version 0.1.27. */
  readonly ignoresLimits?: boolean;
}

export async function startSub2api(t: User, options: Sub2apiOptions = {}): Promise<Sub2apiDouble> {
  const double = new Sub2apiDouble(options);
  await double.listen(t);
  return double;
}

const ACCESS_SECONDS = 3600;
/** A larger page size is not cut to this but ignored. */
const MAX_PAGE_SIZE = 1000;
const DEFAULT_PAGE_SIZE = 20;
/** The server is in Shanghai, and its times have that offset. */
const UTC_OFFSET_MS = 8 * 60 * 60_000;
const DAY_MS = 24 * 60 * 60_000;
/** A creation that failed may be repeated after this time. */
const BACKOFF_MS = 5000;
const KEY_PATH = /^\/api\/v1\/keys\/(\d+)$/;
const ACCOUNT_PATH = /^\/api\/v1\/(?:auth\/me|groups\/(?:rates|available)|keys(?:\/\d+)?|usage)$/;
const KEY_NOT_FOUND = failure(404, "api key not found", "API_KEY_NOT_FOUND");
/** Below these a wrong path is a plain 404; anywhere else it is the web page. */
const NO_PAGE = /^\/(?:api|v1)\//;

interface Session {
  /** When the access token expires. */
  until: number;
  /** Another User-Agent ends the session. */
  readonly agent: string;
  revoked: boolean;
  readonly isSecond: boolean;
}

/** A creation that came with an Idempotency-Key. */
interface Creation {
  readonly body: string;
  readonly reply: Reply;
  readonly at: number;
}

export class Sub2apiDouble extends ConsoleDouble {
  readonly kind = "sub2api";
  private readonly options: Sub2apiOptions;
  /** When a new refresh token says that it ends. null: it does not say. */
  refreshEnd: (() => number) | null = null;
  /** By access token. */
  private readonly sessions = new Map<string, Session>();
  /** Each works once. */
  private readonly refreshTokens = new Set<string>();
  /** Those of the second account, used or not. */
  private readonly secondTokens = new Set<string>();
  /** Logins that wait for their second factor. */
  private readonly temporaryTokens = new Set<string>();
  /** By Idempotency-Key. */
  private readonly creations = new Map<string, Creation>();

  constructor(options: Sub2apiOptions) {
    super(options);
    this.options = options;
  }

  /** A new refresh token, as a person would copy it out of a browser. */
  refreshToken(): string {
    const random = randomBytes(32).toString("hex");
    const payload = { jti: random, exp: Math.floor((this.refreshEnd?.() ?? 0) / 1000) };
    const token =
      this.refreshEnd === null
        ? `rt_${random}`
        : `eyJhbGciOiJIUzI1NiJ9.${Buffer.from(JSON.stringify(payload)).toString("base64url")}.${random}`;
    this.refreshTokens.add(token);
    return token;
  }

  /** access: access tokens expire now. all: refresh tokens stop working too. */
  endSessions(which: "access" | "all"): void {
    for (const session of this.sessions.values()) {
      session.until = 0;
      if (which === "all") session.revoked = true;
    }
    if (which === "all") this.refreshTokens.clear();
  }

  protected loginConfig(): string[] {
    const isByHand = this.options.secondFactor === true || this.options.captcha === true;
    const password = isByHand ? "" : `, password: ${LOGIN.password}`;
    return [`login: { email: ${LOGIN.email}${password} }`];
  }

  protected answerConsole(call: Call): Reply | null {
    switch (`${call.method} ${call.path}`) {
      case "POST /api/v1/auth/login":
        return this.logIn(call);
      case "POST /api/v1/auth/login/2fa":
        return this.checkSecondFactor(call);
      case "POST /api/v1/auth/refresh":
        return this.refresh(call);
      case "GET /api/v1/settings/public":
        return success({ site_name: "Gateway", api_base_url: "", version: "0.1.179" });
    }
    // An unknown path is a 404, with or without a session.
    if (!ACCOUNT_PATH.test(call.path)) return null;
    return this.refuseSession(call) ?? this.answerAccount(call);
  }

  private logIn(call: Call): Reply {
    if (this.options.captcha === true) {
      return failure(400, "turnstile verification failed", "TURNSTILE_VERIFICATION_FAILED");
    }
    const { email, password } = call.body;
    if ((email !== LOGIN.email && email !== SECOND_LOGIN.email) || password !== LOGIN.password) {
      return failure(401, "invalid email or password", "INVALID_CREDENTIALS");
    }
    if (this.options.secondFactor !== true) return this.openSession(call, email === SECOND_LOGIN.email);
    const token = randomBytes(16).toString("hex");
    this.temporaryTokens.add(token);
    return success({ requires_2fa: true, temp_token: token, user_email_masked: "o***@gateway.example" });
  }

  private checkSecondFactor(call: Call): Reply {
    const token = String(call.body.temp_token);
    if (!this.temporaryTokens.has(token)) return failure(400, "Invalid or expired 2FA session");
    if (call.body.totp_code !== LOGIN.code) return failure(400, "invalid totp code", "TOTP_INVALID_CODE");
    this.temporaryTokens.delete(token);
    return this.openSession(call);
  }

  private refresh(call: Call): Reply {
    const token = String(call.body.refresh_token);
    const isKnown = this.refreshTokens.delete(token);
    return isKnown
      ? this.openSession(call, this.secondTokens.has(token))
      : failure(401, "invalid refresh token", "REFRESH_TOKEN_INVALID");
  }

  private openSession({ headers }: Call, isSecond = false): Reply {
    const token = `eyJhbGciOiJIUzI1NiJ9.${randomBytes(48).toString("base64url")}`;
    const until = this.now() + ACCESS_SECONDS * 1000;
    this.sessions.set(token, { until, agent: headers["user-agent"] ?? "", revoked: false, isSecond });
    const refreshToken = this.refreshToken();
    if (isSecond) this.secondTokens.add(refreshToken);
    return success({
      access_token: token,
      refresh_token: refreshToken,
      expires_in: ACCESS_SECONDS,
      token_type: "Bearer",
    });
  }

  /** null: the request belongs to a session. */
  private refuseSession({ headers }: Call): Reply | null {
    const header = headers.authorization;
    if (header === undefined) return refusal(401, "UNAUTHORIZED", "Authorization header is required");
    const session = this.sessions.get(header.replace(/^Bearer /, ""));
    if (session === undefined) return refusal(401, "INVALID_TOKEN", "Invalid token");
    if (session.revoked) return refusal(401, "TOKEN_REVOKED", "Token has been revoked");
    if (session.until <= this.now()) return refusal(401, "TOKEN_EXPIRED", "Token has expired");
    if (session.agent === headers["user-agent"]) return null;
    session.revoked = true;
    return refusal(401, "SESSION_BINDING_MISMATCH", "Session environment changed, please log in again");
  }

  private answerAccount(call: Call): Reply | null {
    const token = String(call.headers.authorization).replace(/^Bearer /, "");
    const isSecond = this.sessions.get(token)?.isSecond ?? false;
    const id = KEY_PATH.exec(call.path)?.[1];
    if (id !== undefined) {
      return this.answerKey(call, this.keysOf(isSecond).find((key) => key.id === Number(id)) ?? null);
    }
    switch (call.path) {
      case "/api/v1/auth/me":
        return success({ id: 7, email: LOGIN.email, balance: this.balance, status: "active" });
      case "/api/v1/groups/rates":
        return success({});
      case "/api/v1/groups/available":
        return success(this.groups.map(groupShape));
      case "/api/v1/keys":
        if (call.method === "POST") return this.createOnce(call, isSecond);
        return page(call, this.searchedKeys(call.query, isSecond), (key) => this.keyShape(key));
      case "/api/v1/usage":
        return page(call, this.sortedRows(call.query, this.rowsOf(isSecond)), (row) => this.rowShape(row));
      default:
        return null;
    }
  }

  /** Newest first. 0.1.27 does not search. */
  private searchedKeys(query: URLSearchParams, isSecond: boolean): AccountKey[] {
    const search = this.options.ignoresLimits === true ? "" : (query.get("search") ?? "");
    return this.keysOf(isSecond)
      .filter(({ name }) => name.includes(search))
      .reverse();
  }

  private createOnce(call: Call, isSecond: boolean): Reply {
    const id = call.headers["idempotency-key"];
    if (typeof id !== "string") return this.create(call, isSecond);
    const body = JSON.stringify(call.body);
    const before = this.creations.get(id);
    if (before !== undefined) {
      if (before.body !== body) {
        return failure(409, "idempotency key reused with different payload", "IDEMPOTENCY_KEY_CONFLICT");
      }
      if (before.reply.status === 200) {
        return { ...before.reply, headers: { "x-idempotency-replayed": "true" } };
      }
      if (this.now() < before.at + BACKOFF_MS) {
        const reply = failure(409, "idempotent request is in retry backoff", "IDEMPOTENCY_RETRY_BACKOFF");
        return { ...reply, headers: { "retry-after": "5" } };
      }
    }
    const reply = this.create(call, isSecond);
    this.creations.set(id, { body, reply, at: this.now() });
    return reply;
  }

  private create({ body }: Call, isSecond: boolean): Reply {
    const group = this.groups.find(({ id }) => id === body.group_id);
    if (body.group_id !== undefined && group === undefined) {
      return failure(404, "group not found", "GROUP_NOT_FOUND");
    }
    const key = String(body.custom_key);
    if (this.keys.some((one) => one.key === key)) {
      return failure(409, "api key already exists", "API_KEY_EXISTS");
    }
    const { quota, expires_in_days: days, ip_whitelist, ip_blacklist } = body;
    const isLimited = this.options.ignoresLimits !== true;
    const created = this.addKey({
      name: escapeHtml(String(body.name)),
      key,
      ...(group === undefined ? {} : { group: group.name }),
      ...(isLimited && Number(quota) > 0 ? { quota: Number(quota) } : {}),
      ...(isLimited && days !== undefined ? { expiresAt: this.now() + Number(days) * DAY_MS } : {}),
      ...(isSecond ? { second: true } : {}),
      fields: isLimited ? { rate_limit_1d: 0, ...rateLimits(body), ip_whitelist, ip_blacklist } : {},
    });
    return success(this.keyShape(created));
  }

  private answerKey({ method, body }: Call, key: AccountKey | null): Reply {
    if (key === null) return KEY_NOT_FOUND;
    if (method === "DELETE") {
      this.deleteKey(key);
      return success({ message: "API key deleted successfully" });
    }
    if (method === "PUT") {
      if (body.status !== undefined) key.disabled = body.status === "inactive";
      if (typeof body.expires_at === "string" && this.options.ignoresLimits !== true) {
        key.expiresAt = Date.parse(body.expires_at);
      }
      // 0.1.135 clears the lists of addresses that a request lacks.
      const { ip_whitelist, ip_blacklist } = body;
      key.fields = { ...key.fields, ...rateLimits(body), ip_whitelist, ip_blacklist };
    }
    return success(this.keyShape(key));
  }

  /** Newest first: by time, unless the query asks for another order. */
  private sortedRows(query: URLSearchParams, rows: readonly Row[]): Row[] {
    if (query.get("sort_by") === "id") return rows.toReversed();
    return rows.toSorted((a, b) => b.createdAt - a.createdAt || b.id - a.id);
  }

  /** With the whole key. */
  private keyShape(key: AccountKey): object {
    const group = this.groupOf(key);
    return {
      id: key.id,
      user_id: 7,
      key: key.key,
      name: key.name,
      group_id: group.id,
      status: keyStatus(key),
      last_used_at: key.lastUsedAt === null ? null : timeText(key.lastUsedAt),
      quota: key.quota ?? 0,
      quota_used: key.usedDollars,
      // The status stays "active" until the key is used after its expiry.
      expires_at: key.expiresAt === undefined ? null : timeText(key.expiresAt),
      created_at: timeText(key.createdAt),
      rate_limit_5h: 0,
      rate_limit_1d: key.quota === undefined ? 0 : 20,
      rate_limit_7d: 0,
      usage_5h: 0,
      usage_1d: key.quota === undefined ? 0 : key.usedDollars,
      usage_7d: 0,
      group: groupShape(group),
      ...key.fields,
    };
  }

  private rowShape({ id, createdAt, key, use, requestId, multiplier, listDollars }: Row): object {
    if (key === null || use === null) throw new Error("sub2api lists nothing but usage");
    const group = this.groupOf(key);
    const endpoint = use.endpoint ?? "/v1/chat/completions";
    return {
      id,
      user_id: 7,
      api_key_id: key.id,
      request_id: requestId,
      model: use.model,
      inbound_endpoint: endpoint,
      upstream_endpoint: endpoint,
      group_id: group.id,
      input_tokens: use.input,
      output_tokens: use.output,
      cache_creation_tokens: use.cacheWrite ?? 0,
      cache_read_tokens: use.cacheRead ?? 0,
      total_cost: listDollars,
      actual_cost: use.dollars,
      rate_multiplier: multiplier,
      request_type: use.stream ? "stream" : "sync",
      stream: use.stream,
      openai_ws_mode: false,
      duration_ms: use.duration ?? 900,
      user_agent: "claude-cli/2.0",
      ...(use.ip === undefined ? {} : { ip_address: use.ip }),
      created_at: timeText(createdAt),
      user: { id: 7, email: LOGIN.email },
      api_key: this.keyShape(key),
      group: groupShape(group),
    };
  }

  protected faultReply(fault: "401" | "429" | "500" | "data"): Reply {
    switch (fault) {
      case "401":
        return refusal(401, "TOKEN_REVOKED", "Token has been revoked");
      case "429":
        return {
          ...refusal(429, "RATE_LIMITED", "Too many requests, please slow down and try again later"),
          headers: { "retry-after": "30" },
        };
      case "500":
        return failure(500, "internal error");
      case "data":
        return success("nothing");
    }
  }

  protected notFound({ path }: Call): Reply {
    if (!NO_PAGE.test(path)) return INDEX_HTML;
    return { status: 404, headers: { "content-type": "text/plain" }, body: "404 page not found" };
  }

  protected newRequestId(): string {
    return randomUUID();
  }

  protected override rowRequestId(requestId: string): string {
    return `client:${requestId}`;
  }

  protected responseHeaders(requestId: string, { path, headers, body }: Call): Record<string, string> {
    // The client's own id comes back, and is in no row. 0.1.135 adds the provider's to a plain answer.
    const id = String(headers["x-request-id"] ?? randomUUID());
    const isPlain = path.startsWith("/v1/") && body.stream !== true;
    const own = { "x-request-id": isPlain ? `${id}, req_${randomBytes(8).toString("hex")}` : id };
    const isHandedOut = path.startsWith("/v1/") && this.options.handsOutIds !== false;
    return isHandedOut ? { ...own, "x-client-request-id": requestId } : own;
  }

  protected refuseKey(key: AccountKey | null): Reply | null {
    if (key === null) return refusal(401, "INVALID_API_KEY", "Invalid API key");
    switch (keyStatus(key)) {
      case "disabled":
        return refusal(401, "API_KEY_DISABLED", "API key is disabled");
      case "quota_exhausted":
        return refusal(429, "API_KEY_QUOTA_EXHAUSTED", "API key 额度已用完");
      case "active":
        return null;
    }
  }
}

function success(data: unknown): Reply {
  return { status: 200, body: { code: 0, message: "success", data } };
}

/** From a handler: the code is a number. */
function failure(status: number, message: string, reason?: string): Reply {
  return { status, body: { code: status, message, ...(reason === undefined ? {} : { reason }) } };
}

/** From the middleware before the handlers: the code is a word. */
function refusal(status: number, code: string, message: string): Reply {
  return { status, body: { code, message } };
}

function page<T>({ query }: Call, all: readonly T[], shape: (item: T) => object): Reply {
  const number = Math.max(1, numberIn(query, "page", 1));
  const wanted = numberIn(query, "page_size", DEFAULT_PAGE_SIZE);
  const size = wanted >= 1 && wanted <= MAX_PAGE_SIZE ? wanted : DEFAULT_PAGE_SIZE;
  return success({
    items: all.slice((number - 1) * size, number * size).map(shape),
    total: all.length,
    page: number,
    page_size: size,
    pages: Math.max(1, Math.ceil(all.length / size)),
  });
}

function keyStatus(key: AccountKey): "disabled" | "quota_exhausted" | "active" {
  if (key.disabled === true) return "disabled";
  return key.quota !== undefined && key.usedDollars >= key.quota ? "quota_exhausted" : "active";
}

function groupShape({ id, name, multiplier }: Group): object {
  return { id, name, platform: "anthropic", rate_multiplier: multiplier, status: "active" };
}

function rateLimits(body: Call["body"]): Record<string, unknown> {
  return Object.fromEntries(Object.entries(body).filter(([name]) => name.startsWith("rate_limit_")));
}

/** As Go's html.EscapeString writes it. */
function escapeHtml(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&#34;");
}

/** RFC 3339 with an offset and microseconds, as Go writes what PostgreSQL keeps. */
function timeText(at: number): string {
  return new Date(at + UTC_OFFSET_MS).toISOString().replace(/\.(\d{3})Z$/, ".$1417+08:00");
}
