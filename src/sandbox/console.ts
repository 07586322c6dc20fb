import { randomBytes } from "node:crypto";
import type { Clock } from "../core/clock.ts";
import { type JsonObject, numberAt, parseObject, textAt } from "../core/json.ts";
import { Secret } from "../core/secret.ts";
import { DAY_MS, HOUR_MS } from "../core/units.ts";
import { type Account, type Group, type SandboxKey, type UsageRow, WINDOW_NAMES } from "./account.ts";
import type { Exchange } from "./http.ts";

interface Result {
  readonly status: number;
  readonly body: object;
  readonly headers?: Readonly<Record<string, string>>;
}

/** A key that was created with an Idempotency-Key. Like sub2api, the sandbox keeps the response for a day, with the key. */
interface Creation {
  /** The request's body. */
  readonly request: string;
  readonly result: Result;
  readonly expiresAt: number;
}

export const CONSOLE_PREFIX = "/api/v1";

const MAX_BODY_BYTES = 1024 * 1024;
const ID_AT_END = /\/(\d{1,15})$/;
const ACCESS_SECONDS = HOUR_MS / 1000;
const REFRESH_SECONDS = (30 * DAY_MS) / 1000;
/** A program that logs in again and again must not fill the memory. */
const MAX_TOKENS = 1000;
const MAX_CREATIONS = 1000;
const DEFAULT_PAGE_SIZE = 20;
const MAX_PAGE_SIZE = 1000;
/** The account has one user. */
const USER_ID = 1;
const KEY_NOT_FOUND = failure(404, "api key not found", "API_KEY_NOT_FOUND");

/** The control plane: the API of the web console in sub2api's shapes, with as much of it as keybearer uses. */
export class Console {
  readonly #account: Account;
  readonly #clock: Clock;
  /** Tokens of logins, with the time when each expires. */
  readonly #accessTokens = new Map<string, number>();
  readonly #refreshTokens = new Map<string, number>();
  /** By Idempotency-Key. */
  readonly #creations = new Map<string, Creation>();

  constructor(account: Account, clock: Clock) {
    this.#account = account;
    this.#clock = clock;
  }

  async serve(exchange: Exchange): Promise<void> {
    const bytes = await exchange.readBody(MAX_BODY_BYTES);
    if (bytes === "disconnected") return;
    const body = bytes === "too-large" ? null : parseObject(bytes.toString("utf8"));
    const result = this.#answer(exchange, body);
    if (result === null) exchange.send(404, "text/plain", "404 page not found");
    else exchange.sendJson(result.status, result.body, result.headers);
  }

  /** null: no such path. */
  #answer(exchange: Exchange, json: JsonObject | null): Result | null {
    // A body that is not JSON counts as an empty one: handlers report the fields that it lacks.
    const body = json ?? {};
    const { query } = exchange;
    const { authorization, host = "" } = exchange.request.headers;
    const path = exchange.path.slice(CONSOLE_PREFIX.length);
    const route = `${exchange.method} ${path.replace(ID_AT_END, "/:id")}`;
    switch (route) {
      case "POST /auth/login":
        return this.#login(body);
      case "POST /auth/refresh":
        return this.#refresh(body);
      case "GET /settings/public":
        return success({
          site_name: "keybearer sandbox",
          api_base_url: `http://${host}`,
          version: "sandbox",
        });
    }
    const sessionError = this.#sessionError(authorization);
    if (sessionError !== null) return sessionError;
    switch (route) {
      case "GET /auth/me":
        return success(this.#userShape());
      case "GET /groups/available":
        return success(this.#account.groups.filter(({ enabled }) => enabled).map(groupShape));
      case "GET /groups/rates":
        return success({});
      case "GET /usage":
        return this.#listUsage(query);
      case "GET /keys":
        return this.#listKeys(query);
      case "POST /keys":
        return this.#createOnce(exchange.request.headers["idempotency-key"], body);
      case "GET /keys/:id":
        return this.#showKey(this.#keyAt(path));
      case "PUT /keys/:id":
        // An update needs no field, so an empty one would succeed.
        if (json === null) return failure(400, "Invalid request: the body is not a JSON object");
        return this.#updateKey(this.#keyAt(path), body);
      case "DELETE /keys/:id":
        return this.#deleteKey(this.#keyAt(path));
      default:
        return null;
    }
  }

  #login(body: JsonObject): Result {
    const email = textAt(body, "email");
    const password = textAt(body, "password");
    if (email === null || password === null) {
      return failure(400, "Invalid request: email and password are required");
    }
    const isRight = email === this.#account.email && this.#account.password.equals(new Secret(password));
    if (!isRight) return failure(401, "invalid email or password", "INVALID_CREDENTIALS");
    return success({ ...this.#openSession(), user: this.#userShape() });
  }

  /** Each refresh token works once. */
  #refresh(body: JsonObject): Result {
    const token = textAt(body, "refresh_token");
    if (token === null) return failure(400, "Invalid request: refresh_token is required");
    const expiresAt = this.#refreshTokens.get(token) ?? 0;
    this.#refreshTokens.delete(token);
    return expiresAt > this.#clock.now()
      ? success(this.#openSession())
      : failure(401, "invalid refresh token", "REFRESH_TOKEN_INVALID");
  }

  #openSession(): object {
    const now = this.#clock.now();
    const accessToken = `sat_${randomBytes(24).toString("base64url")}`;
    const refreshToken = `rt_${randomBytes(32).toString("hex")}`;
    addBounded(this.#accessTokens, accessToken, now + ACCESS_SECONDS * 1000, MAX_TOKENS);
    addBounded(this.#refreshTokens, refreshToken, now + REFRESH_SECONDS * 1000, MAX_TOKENS);
    return {
      access_token: accessToken,
      refresh_token: refreshToken,
      expires_in: ACCESS_SECONDS,
      token_type: "Bearer",
    };
  }

  /** null: the session is valid. */
  #sessionError(header: string | undefined): Result | null {
    if (header === undefined) return middlewareError("UNAUTHORIZED", "Authorization header is required");
    const token = /^bearer (.+)$/i.exec(header)?.[1];
    if (token === undefined) {
      const message = "Authorization header format must be 'Bearer {token}'";
      return middlewareError("INVALID_AUTH_HEADER", message);
    }
    const expiresAt = this.#accessTokens.get(token);
    if (expiresAt === undefined) return middlewareError("INVALID_TOKEN", "Invalid token");
    return expiresAt <= this.#clock.now() ? middlewareError("TOKEN_EXPIRED", "Token has expired") : null;
  }

  /** Newest first unless asked otherwise. Rows are in order of their ids and of their times at once. */
  #listUsage(query: URLSearchParams): Result {
    const rows = this.#account.usage();
    const isAscending = query.get("sort_order") === "asc";
    return page(isAscending ? rows : rows.toReversed(), query, (row) => this.#usageShape(row));
  }

  #listKeys(query: URLSearchParams): Result {
    const keys = this.#account.keys.filter(({ deletedAt }) => deletedAt === null);
    return page(keys.reverse(), query, (key) => this.#keyShape(key));
  }

  /** A request that comes again with the same Idempotency-Key gets the same response. Failed ones are executed again. */
  #createOnce(idempotencyKey: string | string[] | undefined, body: JsonObject): Result {
    if (typeof idempotencyKey !== "string") return this.#createKey(body);
    const now = this.#clock.now();
    const request = JSON.stringify(body);
    const before = this.#creations.get(idempotencyKey);
    if (before !== undefined && before.expiresAt > now) {
      if (before.request === request) {
        return { ...before.result, headers: { "X-Idempotency-Replayed": "true" } };
      }
      return failure(409, "idempotency key reused with different payload", "IDEMPOTENCY_KEY_CONFLICT");
    }
    const result = this.#createKey(body);
    if (result.status === 200) {
      const creation = { request, result, expiresAt: now + DAY_MS };
      addBounded(this.#creations, idempotencyKey, creation, MAX_CREATIONS);
    }
    return result;
  }

  /** sub2api writes 0 for "no limit". */
  #createKey(body: JsonObject): Result {
    const name = textAt(body, "name") ?? "";
    if (name.trim() === "") return failure(400, "name is required", "INVALID_REQUEST");
    const group = this.#account.groupWithId(numberAt(body, "group_id") ?? 0);
    if (group === null) return failure(404, "group not found", "GROUP_NOT_FOUND");
    const customKey = textAt(body, "custom_key") || undefined;
    const error = limitError(body) ?? this.#customKeyError(customKey);
    if (error !== null) return error;
    const days = numberAt(body, "expires_in_days") || 0;
    const { key, text } = this.#account.createKey({
      name,
      group: group.name,
      ...(days > 0 ? { expiresAt: this.#clock.now() + days * DAY_MS } : {}),
      ...(customKey === undefined ? {} : { customKey }),
    });
    setLimits(key, body);
    // The only response that shows the whole key.
    return success({ ...this.#keyShape(key), key: text });
  }

  #showKey(key: SandboxKey | null): Result {
    return key === null ? KEY_NOT_FOUND : success(this.#keyShape(key));
  }

  #updateKey(key: SandboxKey | null, body: JsonObject): Result {
    if (key === null) return KEY_NOT_FOUND;
    const name = textAt(body, "name") ?? key.name;
    if (name.trim() === "") return failure(400, "name is required");
    const group = this.#account.groupWithId(numberAt(body, "group_id") ?? key.group.id);
    if (group === null) return failure(400, "group not found");
    const status = textAt(body, "status");
    if (status !== null && status !== "active" && status !== "inactive") {
      return failure(400, "Invalid status, use active or inactive");
    }
    const expires = textAt(body, "expires_at");
    const expiresAt = expires === null ? key.expiresAt : expires === "" ? null : Date.parse(expires);
    if (Number.isNaN(expiresAt)) return failure(400, "Invalid expires_at format, use RFC3339");
    const error = limitError(body);
    if (error !== null) return error;

    key.name = name;
    key.group = group;
    if (status !== null) key.disabled = status === "inactive";
    key.expiresAt = expiresAt;
    setLimits(key, body);
    if (body.reset_quota === true) key.quotaUsed = 0;
    if (body.reset_rate_limit_usage === true) {
      for (const name of WINDOW_NAMES) key.spending[name].startedAt = null;
    }
    key.updatedAt = this.#clock.now();
    return success(this.#keyShape(key));
  }

  #deleteKey(key: SandboxKey | null): Result {
    if (key === null) return KEY_NOT_FOUND;
    this.#account.deleteKey(key);
    return success({ message: "API key deleted successfully" });
  }

  #customKeyError(text: string | undefined): Result | null {
    if (text === undefined) return null;
    if (text.length < 16) return failure(400, "api key must be at least 16 characters", "API_KEY_TOO_SHORT");
    if (!/^[A-Za-z0-9_-]+$/.test(text)) {
      const message = "api key can only contain letters, numbers, underscores, and hyphens";
      return failure(400, message, "API_KEY_INVALID_CHARS");
    }
    if (this.#account.keyWithText(text) === null) return null;
    return failure(409, "api key already exists", "API_KEY_EXISTS");
  }

  /** The key with the id at the end of a path. null: there is none, or it is deleted. */
  #keyAt(path: string): SandboxKey | null {
    const key = this.#account.keyWithId(Number(ID_AT_END.exec(path)?.[1]));
    return key?.deletedAt === null ? key : null;
  }

  #userShape(): object {
    const { email, balance } = this.#account;
    return { id: USER_ID, email, username: "sandbox", role: "user", balance, status: "active" };
  }

  /** sub2api's list shows whole keys. Here they are masked: a key is shown once, when it is made. */
  #keyShape(key: SandboxKey): object {
    return {
      id: key.id,
      user_id: USER_ID,
      key: key.mask,
      name: key.name,
      group_id: key.group.id,
      status: this.#account.statusOf(key),
      last_used_at: timeOrNull(key.lastUsedAt),
      quota: key.quota ?? 0,
      quota_used: key.quotaUsed,
      expires_at: timeOrNull(key.expiresAt),
      created_at: time(key.createdAt),
      updated_at: time(key.updatedAt),
      current_concurrency: key.inFlight,
      // sub2api's keys have no such limits.
      rpm_limit: key.perMinute ?? 0,
      concurrency: key.concurrent ?? 0,
      ...this.#spendingShape(key),
      group: groupShape(key.group),
    };
  }

  #spendingShape(key: SandboxKey): object {
    const fields: Record<string, number | string> = {};
    for (const name of WINDOW_NAMES) {
      const spent = this.#account.spentIn(key, name);
      fields[`rate_limit_${name}`] = key.spending[name].limit ?? 0;
      fields[`usage_${name}`] = spent?.used ?? 0;
      if (spent !== null) fields[`reset_${name}_at`] = time(spent.endsAt);
    }
    return fields;
  }

  #usageShape(row: UsageRow): object {
    const { tokens } = row;
    const key = this.#account.keyWithId(row.keyId);
    return {
      id: row.id,
      user_id: USER_ID,
      api_key_id: row.keyId,
      request_id: row.requestId,
      model: row.model,
      inbound_endpoint: row.endpoint,
      group_id: row.group.id,
      input_tokens: tokens.input,
      output_tokens: tokens.output,
      cache_creation_tokens: tokens.cacheWrite,
      cache_read_tokens: tokens.cacheRead,
      total_cost: row.cost.total,
      actual_cost: row.cost.actual,
      rate_multiplier: row.multiplier,
      billing_type: 0,
      request_type: row.stream ? "stream" : "sync",
      stream: row.stream,
      openai_ws_mode: false,
      duration_ms: row.durationMs,
      ip_address: row.ipAddress,
      created_at: time(row.createdAt),
      api_key: key === null ? null : { id: key.id, name: key.name, key: key.mask },
      group: groupShape(row.group),
    };
  }
}

function success(data: object): Result {
  return { status: 200, body: { code: 0, message: "success", data } };
}

/** An error of a handler: the code is the status. */
function failure(status: number, message: string, reason?: string): Result {
  return { status, body: { code: status, message, ...(reason === undefined ? {} : { reason }) } };
}

/** An error of the login check, before any handler: the code is a name. */
function middlewareError(code: string, message: string): Result {
  return { status: 401, body: { code, message } };
}

/** A page size above the maximum is ignored, not reduced, as in sub2api. */
function page<T>(all: readonly T[], query: URLSearchParams, shape: (item: T) => object): Result {
  const number = positiveInteger(query.get("page")) ?? 1;
  const requested = positiveInteger(query.get("page_size")) ?? DEFAULT_PAGE_SIZE;
  const size = requested <= MAX_PAGE_SIZE ? requested : DEFAULT_PAGE_SIZE;
  return success({
    items: all.slice((number - 1) * size, number * size).map(shape),
    total: all.length,
    page: number,
    page_size: size,
    pages: Math.max(1, Math.ceil(all.length / size)),
  });
}

function positiveInteger(text: string | null): number | null {
  const value = Number(text);
  return Number.isInteger(value) && value >= 1 ? value : null;
}

const WHOLE_LIMITS = ["rpm_limit", "concurrency"];
const DOLLAR_LIMITS = ["quota", ...WINDOW_NAMES.map((name) => `rate_limit_${name}`)];

function limitError(body: JsonObject): Result | null {
  for (const name of [...WHOLE_LIMITS, ...DOLLAR_LIMITS]) {
    const value = body[name] ?? 0;
    const isNumber = typeof value === "number" && value >= 0;
    const isValid = isNumber && (DOLLAR_LIMITS.includes(name) || Number.isInteger(value));
    if (!isValid) return failure(400, `Invalid ${name}`);
  }
  return null;
}

/** Absent: unchanged. 0: no limit. */
function setLimits(key: SandboxKey, body: JsonObject): void {
  key.quota = limitAt(body, "quota", key.quota);
  key.perMinute = limitAt(body, "rpm_limit", key.perMinute);
  key.concurrent = limitAt(body, "concurrency", key.concurrent);
  for (const name of WINDOW_NAMES) {
    const window = key.spending[name];
    window.limit = limitAt(body, `rate_limit_${name}`, window.limit);
  }
}

function limitAt(body: JsonObject, name: string, before: number | null): number | null {
  const value = numberAt(body, name);
  return value === null ? before : value || null;
}

/** Drops the oldest entry where there are too many. */
function addBounded<T>(map: Map<string, T>, name: string, value: T, max: number): void {
  map.set(name, value);
  if (map.size <= max) return;
  const [oldest = ""] = map.keys();
  map.delete(oldest);
}

function time(milliseconds: number): string {
  return new Date(milliseconds).toISOString();
}

function timeOrNull(milliseconds: number | null): string | null {
  return milliseconds === null ? null : time(milliseconds);
}

function groupShape(group: Group): object {
  return {
    id: group.id,
    name: group.name,
    platform: "openai",
    rate_multiplier: group.multiplier,
    status: group.enabled ? "active" : "inactive",
    subscription_type: "standard",
    models: group.models.map(({ id }) => id),
  };
}
