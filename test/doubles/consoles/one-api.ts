// Stands for the console of one-api v0.6.11-alpha. new-api, its fork, shares parts of it.
import { randomBytes, randomInt } from "node:crypto";
import type { Test } from "tap";
import {
  type AccountKey,
  type Call,
  ConsoleDouble,
  credentialIn,
  type DoubleOptions,
  INDEX_HTML,
  LOGIN,
  numberIn,
  type Reply,
  type Row,
  type RowType,
  SECOND_LOGIN,
} from "./console-double.ts";

export async function startOneApi(t: Test, options: DoubleOptions = {}): Promise<ConsoleDouble> {
  const double = new OneApiDouble(options);
  await double.listen(t);
  return double;
}

export const QUOTA_PER_UNIT = 500_000;
const PAGE_SIZE = 10;
/** 5 is a test of a channel here, and an error in new-api. */
const TYPES: RowTypes = { topup: 1, use: 2, manage: 3, test: 5 };
const ACCOUNT_PATH = /^\/api\/(?:log\/self|user\/self|token\/(?:search|\d+)?)$/;
const REFUSED: Reply = {
  status: 200,
  body: { success: false, message: "无权进行此操作，access token 无效" },
};

class OneApiDouble extends ConsoleDouble {
  readonly kind = "one-api";
  protected override readonly otherTypes = ["topup", "test", "manage"] as const;
  protected override readonly endpoints = ["/v1/chat/completions"];

  protected loginConfig(): string[] {
    return [`login: { access_token: ${LOGIN.accessToken} }`];
  }

  protected answerConsole(call: Call): Reply | null {
    if (call.path === "/api/status") {
      return ok({ version: "v0.6.11-alpha", system_name: "One API", quota_per_unit: QUOTA_PER_UNIT });
    }
    // An unknown path is a 404, with or without an access token.
    if (!ACCOUNT_PATH.test(call.path)) return null;
    const tokens = [LOGIN.accessToken, SECOND_LOGIN.accessToken];
    return tokens.includes(credentialIn(call.headers)) ? this.answerAccount(call) : REFUSED;
  }

  private answerAccount(call: Call): Reply | null {
    const isSecond = credentialIn(call.headers) === SECOND_LOGIN.accessToken;
    switch (call.path) {
      case "/api/log/self":
        return ok(page(call, selectRows(this.rowsOf(isSecond), call.query, TYPES)).map(rowShape));
      case "/api/user/self":
        return ok({ id: 7, username: "owner", quota: Math.round(this.balance * QUOTA_PER_UNIT) });
    }
    if (call.path === "/api/token/" && call.method === "GET") {
      return ok(page(call, this.keysOf(isSecond).toReversed()).map(keyShape));
    }
    const keys = this.keysOf(isSecond);
    if (call.path === "/api/token/search") {
      // Not by page, and all names that begin with the keyword.
      const keyword = call.query.get("keyword") ?? "";
      return ok(keys.filter(({ name }) => name.startsWith(keyword)).map(keyShape));
    }
    return answerTokens(this, call, { keys, isSecond, maxName: 30, shape: keyShape });
  }

  protected faultReply(fault: "401" | "429" | "500" | "data"): Reply {
    switch (fault) {
      case "401":
        return REFUSED;
      case "429":
        return { status: 429, body: "" };
      case "500":
        return { status: 500, body: "" };
      case "data":
        return ok("nothing");
    }
  }

  protected notFound(call: Call): Reply {
    return invalidUrl(call);
  }

  protected newRequestId(): string {
    return oneApiRequestId(this.now());
  }

  protected responseHeaders(requestId: string): Record<string, string> {
    return { "x-oneapi-request-id": requestId };
  }

  protected override keyText(sent: string): string {
    return cutKey(sent);
  }

  protected refuseKey(key: AccountKey | null, requestId: string): Reply | null {
    if (key !== null && key.disabled !== true) return null;
    const message = `无效的令牌 (request id: ${requestId})`;
    return { status: 401, body: { error: { message, type: "one_api_error" } } };
  }
}

/** Pages count from 0, have ten items whatever the request asks for, and no total. */
function page<T>({ query }: Call, all: readonly T[]): T[] {
  const start = numberIn(query, "p", 0) * PAGE_SIZE;
  return all.slice(start, start + PAGE_SIZE);
}

/** A row has the name of its key but not its id, and nothing about the cache. */
function rowShape({ type, createdAt, key, use, requestId }: Row): object {
  const { input = 0, cacheRead = 0, cacheWrite = 0, output = 0, dollars = 0, duration = 900 } = use ?? {};
  return {
    id: 0,
    user_id: 7,
    created_at: seconds(createdAt),
    type: TYPES[type],
    content: type === "use" ? "倍率：1.50 × 1.00 × 4.00" : "通过兑换码充值 ＄10.000000 额度",
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
  };
}

/** The numbers that a console has for the types of its rows. */
export type RowTypes = Partial<Record<RowType, number>>;

/** The rows that a query of GET /api/log/self asks for, newest first. Its times are whole seconds, both inclusive. */
export function selectRows(rows: readonly Row[], query: URLSearchParams, types: RowTypes): Row[] {
  const type = numberIn(query, "type", 0);
  const start = numberIn(query, "start_timestamp", 0);
  const end = numberIn(query, "end_timestamp", 0) || Number.MAX_SAFE_INTEGER;
  return rows
    .filter((row) => {
      const at = seconds(row.createdAt);
      return (type === 0 || types[row.type] === type) && at >= start && at <= end;
    })
    .reverse();
}

/** The whole key, but without its `sk-`. */
export function keyShape(key: AccountKey): object {
  const used = Math.round(key.usedDollars * QUOTA_PER_UNIT);
  return {
    id: key.id,
    user_id: 7,
    key: key.key.replace(/^sk-/, ""),
    // Expired and exhausted keys have status 1 too.
    status: key.disabled === true ? 2 : 1,
    name: key.name,
    created_time: seconds(key.createdAt),
    accessed_time: seconds(key.lastUsedAt ?? key.createdAt),
    expired_time: key.expiresAt === undefined ? -1 : seconds(key.expiresAt),
    remain_quota: Math.round((key.quota ?? 0) * QUOTA_PER_UNIT) - used,
    unlimited_quota: key.quota === undefined,
    used_quota: used,
    ...key.fields,
  };
}

interface TokenOptions {
  /** Of the account. */
  readonly keys: readonly AccountKey[];
  readonly isSecond: boolean;
  /** Bytes. */
  readonly maxName: number;
  readonly shape: (key: AccountKey) => object;
}

const LISTED_FIELDS = [
  "model_limits_enabled",
  "model_limits",
  "allow_ips",
  "cross_group_retry",
  "auto_groups",
  "models",
  "subnet",
];

/** Everything below /api/token/ that new-api and one-api have in common, except lists. null: there is no such path. */
export function answerTokens(console: ConsoleDouble, call: Call, options: TokenOptions): Reply | null {
  const { keys, shape } = options;
  const { method, path, body } = call;
  if (method === "POST" && path === "/api/token/") return createToken(console, call, options);
  const id = method === "PUT" ? Number(body.id) : Number(path.replace("/api/token/", ""));
  const key = keys.find((one) => one.id === id);
  if (key === undefined) return failed("record not found");
  switch (method) {
    case "GET":
      return ok(shape(key));
    case "PUT":
      // A test would notice a key whose other fields became 0.
      if (!call.query.has("status_only")) return failed("this double changes the status only");
      key.disabled = body.status === 2;
      return ok(shape(key));
    case "DELETE":
      console.deleteKey(key);
      return { status: 200, body: { success: true, message: "" } };
    default:
      return null;
  }
}

/** The response does not contain the key. */
function createToken(console: ConsoleDouble, { body }: Call, { isSecond, maxName }: TokenOptions): Reply {
  const name = String(body.name);
  if (Buffer.byteLength(name) > maxName) return failed("令牌名称过长");
  const expires = Number(body.expired_time);
  const fields = LISTED_FIELDS.filter((field) => body[field] !== undefined);
  console.addKey({
    name,
    key: `sk-${randomBytes(24).toString("hex")}`,
    group: String(body.group ?? "") || "default",
    ...(body.unlimited_quota === true ? {} : { quota: Number(body.remain_quota) / QUOTA_PER_UNIT }),
    ...(expires === -1 ? {} : { expiresAt: expires * 1000 }),
    ...(isSecond ? { second: true } : {}),
    fields: Object.fromEntries(fields.map((field) => [field, body[field]])),
  });
  return { status: 200, body: { success: true, message: "" } };
}

function failed(message: string): Reply {
  return { status: 200, body: { success: false, message } };
}

export function ok(data: unknown): Reply {
  return { status: 200, body: { success: true, message: "", data } };
}

export function invalidUrl({ method, path }: Call): Reply {
  if (!/^\/(?:v1|api)(?:\/|$)/.test(path)) return INDEX_HTML;
  const error = { message: `Invalid URL (${method} ${path})`, type: "invalid_request_error" };
  return { status: 404, body: { error } };
}

export function seconds(milliseconds: number): number {
  return Math.floor(milliseconds / 1000);
}

/** new-api and one-api ignore what follows the first hyphen after `sk-`, and accept a key without `sk-`. */
export function cutKey(sent: string): string {
  return `sk-${sent.replace(/^sk-/, "").split("-")[0]}`;
}

/** The start: UTC to the second, nanoseconds, the digits of the build that new-api adds, and eight random digits. */
export function oneApiRequestId(at: number, { build = "", padded = true } = {}): string {
  const time = new Date(at).toISOString().replace(/\D/g, "").slice(0, 14);
  const nanoseconds = String((at % 1000) * 1_000_000 + randomInt(1_000_000)).padStart(padded ? 9 : 0, "0");
  return `${time}${nanoseconds}${build}${randomBytes(4).toString("hex")}`;
}
