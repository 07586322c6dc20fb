// Stands for the console of new-api v0.13.2 and v1.0.0-rc.25. test/real runs the real v0.13.2 and 2d8e50bf.
import type { Test } from "tap";
import {
  type AccountKey,
  type Call,
  ConsoleDouble,
  credentialIn,
  type DoubleOptions,
  LOGIN,
  numberIn,
  type Reply,
  type Row,
  SECOND_LOGIN,
} from "./console-double.ts";
import {
  answerTokens,
  cutKey,
  invalidUrl,
  keyShape,
  ok,
  oneApiRequestId,
  QUOTA_PER_UNIT,
  type RowTypes,
  seconds,
  selectRows,
} from "./one-api.ts";

export interface NewApiOptions extends DoubleOptions {
  /** Default v1.0.0-rc.25. */
  readonly version?: "v0.13.2" | "v1.0.0-rc.25";
  /** config.yaml has no access token, so the daemon asks with the tools' keys. */
  readonly keyOnly?: boolean;
}

export async function startNewApi(t: Test, options: NewApiOptions = {}): Promise<ConsoleDouble> {
  const double = new NewApiDouble(options);
  await double.listen(t);
  return double;
}

const TYPES: RowTypes = { topup: 1, use: 2, manage: 3, error: 5, refund: 6, login: 7 };
const CONTENT: Partial<Record<Row["type"], string>> = {
  topup: "通过兑换码充值 ＄10.000000 额度",
  manage: "管理员增加用户额度",
  error: "status_code=502, bad response status code 502",
  refund: "异步任务执行失败",
  login: "用户登录",
};
const REVEAL_PATH = /^\/api\/token\/(\d+)\/key$/;
const ACCOUNT_PATH = /^\/api\/(?:log\/self|user\/self(?:\/groups)?|token\/(?:search|\d+(?:\/key)?)?)$/;
const API_LIMIT_MS = 180_000;
/** The newest rows of a key, and no further page. */
const KEY_ROWS = 1000;
/** All keys together may ask about themselves this often. */
const KEY_LIMIT = { requests: 20, milliseconds: 1_200_000 };

class NewApiDouble extends ConsoleDouble {
  readonly kind = "new-api";
  protected override readonly listsErrors = true;
  protected override readonly otherTypes = ["topup", "login", "manage"] as const;
  private readonly version: string;
  /** rc.25 refuses with 401, sends Retry-After, and says more of the cache. */
  private readonly isRecent: boolean;
  private readonly keyOnly: boolean;
  private readonly limits: boolean;
  /** All calls to the web API: 180 in 180 s up to rc.10, 360 from rc.11 on. */
  private calls: number[] = [];
  /** When keys asked about themselves. */
  private keyRequests: number[] = [];

  constructor(options: NewApiOptions) {
    super(options);
    this.version = options.version ?? "v1.0.0-rc.25";
    this.isRecent = this.version !== "v0.13.2";
    this.keyOnly = options.keyOnly ?? false;
    this.limits = options.limits ?? false;
  }

  protected loginConfig(): string[] {
    return this.keyOnly ? [] : [`login: { user: "${LOGIN.user}", access_token: ${LOGIN.accessToken} }`];
  }

  protected answerConsole(call: Call): Reply | null {
    const now = this.now();
    this.calls = this.calls.filter((at) => at > now - API_LIMIT_MS);
    if (this.limits && this.calls.length >= (this.isRecent ? 360 : 180)) return this.tooManyRequests();
    this.calls.push(now);
    switch (call.path) {
      case "/api/status":
        return ok({
          version: this.version,
          system_name: "New API",
          quota_per_unit: QUOTA_PER_UNIT,
          quota_display_type: "USD",
        });
      case "/api/log/token":
      case "/api/usage/token/":
        return this.answerKey(call);
    }
    // An unknown path is a 404, with or without an access token.
    if (!ACCOUNT_PATH.test(call.path)) return null;
    return this.refuseAccount(call) ?? this.answerAccount(call);
  }

  /** null: one more request is allowed, and counted. */
  private refuseKeyRequest(): Reply | null {
    const now = this.now();
    this.keyRequests = this.keyRequests.filter((at) => at > now - KEY_LIMIT.milliseconds);
    if (this.limits && this.keyRequests.length >= KEY_LIMIT.requests) return this.tooManyRequests();
    this.keyRequests.push(now);
    return null;
  }

  private answerKey(call: Call): Reply {
    const refusal = this.refuseKeyRequest();
    if (refusal !== null) return refusal;
    const text = cutKey(credentialIn(call.headers));
    const key = this.keys.find((one) => one.key === text);
    if (key === undefined) return failed(401, "Invalid token");
    // Head (2d8e50bf) refuses a disabled key here; v0.13.2 still lists its rows.
    if (key.disabled === true && this.isRecent) return failed(401, "This token status is unavailable");
    if (this.banned) return failed(403, "User has been banned");
    if (call.path === "/api/usage/token/") return { status: 200, body: tokenUsage(key) };
    const rows = this.rows
      .filter((row) => row.key === key)
      .reverse()
      .slice(0, KEY_ROWS);
    return ok(rows.map((row, index) => this.rowShape(row, index + 1)));
  }

  /** null: the request has what it needs to read the account. */
  private refuseAccount({ headers }: Call): Reply | null {
    const token = credentialIn(headers);
    const login = [LOGIN, SECOND_LOGIN].find(({ accessToken }) => accessToken === token);
    if (login === undefined) return this.unauthorized();
    // Head ignores the header; v0.13.2 refuses a wrong one.
    if (this.isRecent || headers["new-api-user"] === login.user) return null;
    return failed(401, "Unauthorized, New-Api-User does not match the logged in user");
  }

  private answerAccount(call: Call): Reply | null {
    const isSecond = credentialIn(call.headers) === SECOND_LOGIN.accessToken;
    switch (call.path) {
      case "/api/log/self": {
        const rows = selectRows(this.rowsOf(isSecond), call.query, TYPES);
        return page(call, rows, (row, place) => this.rowShape(row, place));
      }
      case "/api/user/self":
        return ok({ id: 7, username: "owner", quota: Math.round(this.balance * QUOTA_PER_UNIT) });
      case "/api/user/self/groups": {
        const groups = this.groups.map(({ name, multiplier }) => [name, { ratio: multiplier, desc: name }]);
        // The group that chooses among the others has a word instead of a number.
        return ok({ ...Object.fromEntries(groups), auto: { ratio: "自动", desc: "auto" } });
      }
    }
    const keys = this.keysOf(isSecond);
    if (call.path === "/api/token/" && call.method === "GET") return page(call, keys.toReversed(), maskedKey);
    if (call.path === "/api/token/search") {
      const keyword = call.query.get("keyword");
      return page(
        call,
        keys.filter(({ name }) => name === keyword),
        maskedKey,
      );
    }
    const shown = REVEAL_PATH.exec(call.path)?.[1];
    if (shown !== undefined) return this.reveal(keys.find(({ id }) => id === Number(shown)) ?? null);
    return answerTokens(this, call, { keys, isSecond, maxName: 50, shape: maskedKey });
  }

  private reveal(key: AccountKey | null): Reply {
    const refusal = this.refuseKeyRequest();
    if (refusal !== null) return refusal;
    return key === null ? failed(200, "record not found") : ok({ key: key.key.replace(/^sk-/, "") });
  }

  /** The id of a row is its place in the response, so it differs between responses. */
  private rowShape(row: Row, place: number): object {
    const { type, key, use } = row;
    const isUse = type === "use";
    const quota = isUse || type === "refund" ? Math.round((use?.dollars ?? 0) * QUOTA_PER_UNIT) : 0;
    return {
      id: place,
      user_id: 7,
      created_at: seconds(row.createdAt),
      type: TYPES[type],
      content: CONTENT[type] ?? "",
      username: "owner",
      token_name: key?.name ?? "",
      model_name: use?.model ?? "",
      quota,
      prompt_tokens: isUse ? promptTokens(row) : 0,
      completion_tokens: isUse ? use?.output : 0,
      // The difference of two whole seconds, not a rounded duration: 30 ms can be 1 (head and v0.13.2).
      use_time: seconds(row.createdAt) - seconds(row.createdAt - (use?.duration ?? 900)),
      is_stream: use?.stream ?? false,
      channel: use === null ? 0 : 3,
      token_id: key?.id ?? 0,
      group: key?.group ?? "",
      ip: use?.ip ?? "",
      request_id: row.requestId,
      // Head keeps the id of a gateway behind it here; v0.13.2 has no such column.
      ...(this.isRecent ? { upstream_request_id: "" } : {}),
      other: this.otherText(row),
    };
  }

  /** A string with JSON in it, empty where there is nothing to say. */
  private otherText(row: Row): string {
    const { use } = row;
    if (use === null) return "";
    const request_path = use.endpoint ?? "/v1/chat/completions";
    if (row.type === "error") return JSON.stringify({ status_code: 502, channel_id: 3, request_path });
    const { cacheRead = 0, cacheWrite = 0 } = use;
    return JSON.stringify({
      model_ratio: 1.5,
      group_ratio: row.multiplier,
      // -1: this account has no ratio of its own.
      user_group_ratio: -1,
      completion_ratio: 5,
      cache_tokens: cacheRead,
      cache_ratio: 0.1,
      model_price: -1,
      request_path,
      // Milliseconds to the first part; -1000 where there was none, as in every plain answer.
      frt: use.stream ? 200 : -1000,
      ...(use.stream ? { stream_status: { status: "ok", end_reason: "done" } } : {}),
      ...(cacheWrite > 0 ? { cache_creation_tokens: cacheWrite } : {}),
      ...(this.isRecent && cacheWrite > 0 ? { cache_write_tokens: cacheWrite } : {}),
      ...(isAnthropic(row) ? { claude: true, usage_semantic: "anthropic" } : {}),
    });
  }

  private unauthorized(): Reply {
    if (!this.isRecent) return failed(200, "无权进行此操作，access token 无效");
    const body = { success: false, message: "Unauthorized, invalid access token", code: "AUTH_UNAUTHORIZED" };
    return { status: 401, body };
  }

  private tooManyRequests(): Reply {
    return { status: 429, headers: this.isRecent ? { "retry-after": "600" } : {}, body: "" };
  }

  protected faultReply(fault: "401" | "429" | "500" | "data"): Reply {
    switch (fault) {
      case "401":
        return this.unauthorized();
      case "429":
        return this.tooManyRequests();
      case "500":
        return { status: 500, body: { error: { message: "Panic detected", type: "new_api_panic" } } };
      case "data":
        return ok("nothing");
    }
  }

  protected notFound(call: Call): Reply {
    return invalidUrl(call);
  }

  protected newRequestId(): string {
    // Both have the eight digits of the build; v0.13.2 does not pad the nanoseconds.
    return oneApiRequestId(this.now(), { build: "5f3a91c2", padded: this.isRecent });
  }

  protected responseHeaders(requestId: string): Record<string, string> {
    return { "x-new-api-version": this.version, "x-oneapi-request-id": requestId };
  }

  protected override keyText(sent: string): string {
    return cutKey(sent);
  }

  /** The same words whether the key is deleted, disabled, expired or used up (v0.13.2 and 2d8e50bf). */
  protected refuseKey(key: AccountKey | null, requestId: string): Reply | null {
    const isValid = key !== null && key.disabled !== true && !this.isExpired(key) && !isUsedUp(key);
    if (isValid && !this.banned) return null;
    const words = isValid ? "User has been banned" : "Invalid token";
    const error = { code: "", message: `${words} (request id: ${requestId})`, type: "new_api_error" };
    return { status: isValid ? 403 : 401, body: { error } };
  }

  /** v0.13.2 and 2d8e50bf, in every language. */
  protected override refuseUnpaid(requestId: string): Reply | null {
    if (this.balance > 0) return null;
    const message = `用户额度不足, 剩余额度: ＄0.000000 (request id: ${requestId})`;
    const error = { message, type: "new_api_error", param: "", code: "insufficient_user_quota" };
    return { status: 403, body: { error } };
  }

  private isExpired({ expiresAt }: AccountKey): boolean {
    return expiresAt !== undefined && seconds(expiresAt) < seconds(this.now());
  }
}

function failed(status: number, message: string): Reply {
  return { status, body: { success: false, message } };
}

function page<T>({ query }: Call, all: readonly T[], shape: (item: T, place: number) => object): Reply {
  const number = Math.max(1, numberIn(query, "p", 1));
  const size = Math.min(100, numberIn(query, "page_size", 10));
  const start = (number - 1) * size;
  return ok({
    page: number,
    page_size: size,
    total: all.length,
    items: all.slice(start, start + size).map((item, index) => shape(item, start + index + 1)),
  });
}

function isAnthropic({ use }: Row): boolean {
  return use?.endpoint === "/v1/messages";
}

/** The column has two meanings: with the cache, unless `other` says anthropic. */
function promptTokens(row: Row): number {
  const { input = 0, cacheRead = 0, cacheWrite = 0 } = row.use ?? {};
  return isAnthropic(row) ? input : input + cacheRead + cacheWrite;
}

function maskedKey(key: AccountKey): object {
  const bare = key.key.replace(/^sk-/, "");
  return { ...keyShape(key), key: `${bare.slice(0, 4)}**********${bare.slice(-4)}`, group: key.group };
}

function isUsedUp({ quota, usedDollars }: AccountKey): boolean {
  return quota !== undefined && usedDollars >= quota;
}

function tokenUsage(key: AccountKey): object {
  const granted = Math.round((key.quota ?? 0) * QUOTA_PER_UNIT);
  const used = Math.round(key.usedDollars * QUOTA_PER_UNIT);
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
      expires_at: key.expiresAt === undefined ? 0 : seconds(key.expiresAt),
    },
  };
}
