// Stands for LiteLLM's proxy, version 1.106.2, in the words that the real one answered.
import { createHash, randomBytes, randomUUID } from "node:crypto";
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

export async function startLiteLlm(t: Test, options: DoubleOptions = {}): Promise<LiteLlmDouble> {
  const double = new LiteLlmDouble(options);
  await double.listen(t);
  return double;
}

const CONSOLE_PATH =
  /^\/(?:api\/.*|health\/\w+|user\/info|key\/(?:list|generate|update|delete|block)|spend\/logs\/v2|v2\/login)$/;
const KEY_PREFIX = "sk-";
/** It counts no further. */
const MAX_TOTAL = 10_000;

export class LiteLlmDouble extends ConsoleDouble {
  readonly kind = "litellm";
  protected override readonly listsErrors = true;
  protected override readonly endpoints = ["/v1/chat/completions", "/v1/messages", "/v1/embeddings"];
  /** The ids that the provider gave to its answers, in this order; then ids of their own. */
  readonly providerIds: string[] = [];
  /** The call id of every request to a model, as it arrived. */
  readonly callIds: (string | undefined)[] = [];
  /** How many attempts timed out before the last one, by the call id of a request that failed. */
  readonly timedOut = new Map<string, number>();
  /** The operator allows no user to change a key. */
  locked = false;
  /** The user that logs in has these keys until the double ends. */
  private readonly sessions: string[] = [];
  /** The provider's id of each row that is listed. A second row with one of these is lost. */
  private readonly listed = new Map<string, Row>();

  protected loginConfig(): string[] {
    return [`login: { access_token: ${LOGIN.accessToken} }`];
  }

  protected override isConsolePath(path: string): boolean {
    return CONSOLE_PATH.test(path);
  }

  protected override requestIdOf(call: Call): string {
    const given = call.headers["x-litellm-call-id"];
    this.callIds.push(typeof given === "string" ? given : undefined);
    return typeof given === "string" ? given : this.newRequestId();
  }

  protected answerConsole(call: Call): Reply | null {
    switch (call.path) {
      case "/health/liveliness":
        return { status: 200, headers: JSON_TYPE, body: `"I'm alive!"` };
      case "/health/readiness":
        return { status: 200, body: { status: "healthy", db: "connected" } };
      case "/v2/login":
        return this.logIn(call);
    }
    if (call.path.startsWith("/api/")) return null;
    const sent = credentialIn(call.headers);
    const isOwn = [LOGIN.accessToken, SECOND_LOGIN.accessToken, ...this.sessions].includes(sent);
    return isOwn ? this.answerAccount(call, sent === SECOND_LOGIN.accessToken) : unknownKey(sent);
  }

  private logIn({ body }: Call): Reply {
    if (body.username !== LOGIN.email || body.password !== LOGIN.password) {
      const message =
        "Invalid credentials used to access UI. Check 'UI_USERNAME' and 'UI_PASSWORD', or the password set for your user";
      return refusal(401, message, "auth_error", "invalid_credentials");
    }
    const key = newKey();
    this.sessions.push(key);
    const payload = Buffer.from(JSON.stringify({ user_id: "me", key })).toString("base64url");
    return { status: 200, body: { redirect_url: `${this.url}/ui?login=success`, token: `e30.${payload}.x` } };
  }

  /** The sessions that password logins made have expired. */
  endSessions(): void {
    this.sessions.length = 0;
  }

  private answerAccount(call: Call, isSecond: boolean): Reply | null {
    const { path, query, body } = call;
    const keys = this.keysOf(isSecond);
    switch (path) {
      case "/user/info":
        return {
          status: 200,
          body: { user_id: "me", user_info: { max_budget: 100, spend: 100 - this.balance } },
        };
      case "/spend/logs/v2":
        return this.listRows(query, isSecond);
      case "/key/list":
        return listKeys(keys, query);
      case "/key/generate":
        return this.generate(call, isSecond);
      case "/key/block":
        return {
          status: 403,
          body: { detail: { error: "Only proxy admins, team admins, or org admins can call /key/block." } },
        };
      case "/key/update": {
        const key = keys.find((one) => hashOf(one.key) === body.key);
        if (this.locked) return refusal(403, "Only proxy admins can change keys", "auth_error");
        if (key === undefined) return refusal(404, "Key not found", "not_found_error", "key");
        key.disabled = body.blocked === true;
        return { status: 200, body: keyShape(key) };
      }
      case "/key/delete": {
        const [hash] = body.keys as string[];
        const key = keys.find((one) => hashOf(one.key) === hash);
        if (key === undefined) return refusal(404, "{'error': 'No keys found'}", "internal_server_error");
        this.deleteKey(key);
        return { status: 200, body: { deleted_keys: [hash] } };
      }
      default:
        return null;
    }
  }

  /** Newest first. It knows a row by the time at which its request began, and its id is that of the provider's answer. */
  private listRows(query: URLSearchParams, isSecond: boolean): Reply {
    const from = Date.parse(`${query.get("start_date")}Z`);
    const to = Date.parse(`${query.get("end_date")}Z`);
    const size = numberIn(query, "page_size", 50);
    const shapes = this.rowsOf(isSecond)
      .filter((row) => this.ownsProviderId(row))
      .flatMap((row) => this.shapesOf(row).map((shape) => ({ began: startOf(row), shape })))
      .filter(({ began }) => began >= from && began <= to)
      .toSorted((a, b) => b.began - a.began);
    const start = (numberIn(query, "page", 1) - 1) * size;
    const total = Math.min(shapes.length, MAX_TOTAL);
    const data = shapes.slice(start, start + size).map(({ shape }) => shape);
    return {
      status: 200,
      body: { data, total, page: 1, page_size: size, total_pages: Math.ceil(total / size) },
    };
  }

  private shapesOf(row: Row): object[] {
    const last = rowShape(row, this.providerId(row));
    const length = this.timedOut.get(row.requestId) ?? 0;
    const ids = Array.from({ length }, (_, number) => `${row.requestId}-attempt-${number}`);
    return [last, ...ids.map((requestId) => rowShape({ ...row, requestId }, requestId))];
  }

  private ownsProviderId(row: Row): boolean {
    const id = this.providerId(row);
    const owner = this.listed.get(id) ?? row;
    this.listed.set(id, owner);
    return owner === row;
  }

  private providerId(row: Row): string {
    if (row.type === "error") return row.requestId;
    return this.providerIds[this.rows.indexOf(row)] ?? `chatcmpl-${row.id}`;
  }

  private generate({ body }: Call, isSecond: boolean): Reply {
    const alias = String(body.key_alias);
    if (this.keys.some(({ name }) => name === alias)) {
      const message = `Key with alias '${alias}' already exists. Unique key aliases across all keys are required.`;
      return refusal(400, message, "bad_request_error", "key_alias");
    }
    const seconds = /^(\d+)s$/.exec(String(body.duration ?? ""))?.[1];
    const key = this.addKey({
      name: alias,
      key: newKey(),
      ...(typeof body.max_budget === "number" ? { quota: body.max_budget } : {}),
      ...(seconds === undefined ? {} : { expiresAt: this.now() + Number(seconds) * 1000 }),
      ...(isSecond ? { second: true } : {}),
      fields: { models: body.models ?? [], key_type: body.key_type ?? "default" },
    });
    return { status: 200, body: { ...keyShape(key), key: key.key } };
  }

  protected faultReply(fault: "401" | "429" | "500" | "data"): Reply {
    switch (fault) {
      case "401":
        return unknownKey(LOGIN.accessToken);
      case "429":
        return refusal(429, "Rate limit exceeded for user: me.", "throttling_error");
      case "500":
        return refusal(500, "Internal Server Error", "internal_server_error");
      case "data":
        return { status: 200, body: { data: 5, keys: 5 } };
    }
  }

  protected notFound(): Reply {
    return { status: 404, body: { detail: "Not Found" } };
  }

  protected newRequestId(): string {
    return randomUUID();
  }

  /** What it refuses for its key has none. */
  protected responseHeaders(requestId: string, { path, headers }: Call): Record<string, string> {
    const key = this.keys.find((one) => one.key === credentialIn(headers));
    if (this.isConsolePath(path) || key === undefined || key.disabled === true) return {};
    return { "x-litellm-call-id": requestId, "x-litellm-version": "1.106.2" };
  }

  /** A refusal is listed under an id that nobody gets. */
  protected refuseKey(key: AccountKey | null, _requestId: string, call: Call): Reply | null {
    if (key === null) return unknownKey("sk-nobody");
    if (key.disabled !== true) return null;
    const model = String(call.body.model ?? "");
    const use = { key: key.key, model, stream: false, input: 0, output: 0, dollars: 0, duration: 5 };
    this.writeError(use, this.newRequestId());
    const message = "Authentication Error, Key is blocked. Update via `/key/unblock` if you're an admin.";
    return refusal(401, message, "auth_error", "None");
  }
}

const JSON_TYPE = { "content-type": "application/json" };

function newKey(): string {
  return KEY_PREFIX + randomBytes(16).toString("base64url").replace(/[-_]/g, "a");
}

function hashOf(key: string): string {
  return createHash("sha256").update(key).digest("hex");
}

function refusal(status: number, message: string, type: string, param: string | null = null): Reply {
  return { status, body: { error: { message, type, param, code: String(status) } } };
}

function unknownKey(sent: string): Reply {
  const message = `Authentication Error, Invalid proxy server token passed. Received API Key = sk-...${sent.slice(-4)}, Key Hash (Token) =${hashOf(sent)}. Unable to find token in cache or \`LiteLLM_VerificationTokenTable\``;
  return refusal(401, message, "token_not_found_in_db", "key");
}

function listKeys(all: readonly AccountKey[], query: URLSearchParams): Reply {
  const alias = query.get("key_alias");
  const hash = query.get("key_hash");
  const found = all.filter(
    ({ name, key }) => (alias === null || name === alias) && (hash === null || hashOf(key) === hash),
  );
  const size = numberIn(query, "size", 10);
  const start = (numberIn(query, "page", 1) - 1) * size;
  const keys = found.slice(start, start + size).map(keyShape);
  const pages = Math.ceil(found.length / size);
  return { status: 200, body: { keys, total_count: found.length, current_page: 1, total_pages: pages } };
}

function keyShape({
  key,
  name,
  quota,
  usedDollars,
  disabled,
  expiresAt,
  createdAt,
  lastUsedAt,
  fields,
}: AccountKey) {
  return {
    token: hashOf(key),
    token_id: hashOf(key),
    key_name: `sk-...${key.slice(-4)}`,
    key_alias: name,
    spend: usedDollars,
    max_budget: quota ?? null,
    expires: expiresAt === undefined ? null : isoTime(expiresAt),
    models: [],
    user_id: "me",
    team_id: null,
    budget_duration: null,
    blocked: disabled ?? null,
    created_at: isoTime(createdAt),
    last_active: lastUsedAt === null ? null : isoTime(lastUsedAt),
    ...fields,
  };
}

function isoTime(time: number): string {
  return new Date(time).toISOString();
}

function startOf({ createdAt, use }: Row): number {
  return createdAt - (use?.duration ?? 900);
}

/** The cache is part of prompt_tokens. What failed has an estimate of its input, and costs nothing. */
function rowShape(row: Row, providerId: string): object {
  const { key, use, requestId, createdAt, type } = row;
  const { input = 0, cacheRead = 0, cacheWrite = 0, output = 0, dollars = 0, model = "" } = use ?? {};
  const isFailure = type === "error";
  const list = row.listDollars;
  return {
    request_id: providerId,
    call_type: use?.endpoint === "/v1/messages" ? "anthropic_messages" : "acompletion",
    api_key: hashOf(key?.key ?? ""),
    spend: isFailure ? 0 : dollars,
    prompt_tokens: isFailure ? 128 : input + cacheRead + cacheWrite,
    completion_tokens: isFailure ? 0 : output,
    startTime: isoTime(startOf(row)),
    endTime: isoTime(createdAt),
    model: `openai/${model}`,
    model_group: model,
    user: "me",
    metadata: {
      litellm_call_id: requestId,
      original_model_group: model,
      attempted_retries: 0,
      ...(isFailure
        ? { status: "failure", error_information: { error_code: "500" } }
        : {
            usage_object: {
              prompt_tokens_details: { cached_tokens: cacheRead, cache_creation_tokens: cacheWrite },
            },
            cost_breakdown: {
              original_cost: list,
              total_cost: dollars,
              discount_percent: 0,
              margin_percent: 0,
            },
          }),
    },
    cache_hit: "None",
    requester_ip_address: use?.ip ?? "127.0.0.1",
    status: isFailure ? "failure" : "success",
    litellm_call_id: requestId,
    request_duration_ms: use?.duration ?? 900,
  };
}
