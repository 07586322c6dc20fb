import type { IncomingHttpHeaders } from "node:http";
import type { Clock } from "../core/clock.ts";
import { parseObject } from "../core/json.ts";
import { MINUTE_MS } from "../core/units.ts";
import { type Account, type SandboxKey, type Tokens, WINDOW_NAMES } from "./account.ts";
import {
  bodyTooLarge,
  DISABLED_GROUP,
  DISABLED_KEY,
  EXPIRED_KEY,
  type GatewayError,
  invalidRequest,
  MISSING_KEY,
  NO_BALANCE,
  quotaExhausted,
  rateLimited,
  tooManyAtOnce,
  UNKNOWN_KEY,
  unknownModel,
  windowUsedUp,
} from "./gateway-errors.ts";
import type { Exchange } from "./http.ts";
import { geminiModelList, type Model, modelEntry, modelList } from "./models.ts";
import { gemini } from "./protocols/gemini.ts";
import { messages } from "./protocols/messages.ts";
import { chat, completions, embeddings } from "./protocols/openai.ts";
import type { ErrorShape, ModelReply, ModelRequest, PathParams, Protocol } from "./protocols/protocol.ts";
import { responses } from "./protocols/responses.ts";
import { buildReply, countPromptTokens, countTokens, PrefixCache } from "./reply.ts";

/** A request to a model. */
interface ModelRoute {
  readonly kind: "model-request";
  readonly protocol: Protocol;
  readonly path: PathParams | null;
  /** The name in the usage log. */
  readonly endpoint: string;
  /** Only counts the tokens of the prompt, which is free. */
  readonly countsOnly: boolean;
}

type GatewayRoute =
  | ModelRoute
  | { readonly kind: "model-list" }
  | { readonly kind: "gemini-model-list" }
  | { readonly kind: "model"; readonly id: string }
  | { readonly kind: "key-usage" };

const GEMINI_CALL = /^\/v1beta\/models\/([^/:]+):(generateContent|streamGenerateContent|countTokens)$/;
const ONE_MODEL = /^\/v1\/models\/([^/]+)$/;

/** null: not a path of the gateway. A wrong method is an unknown path, as in sub2api's router. */
export function gatewayRoute(method: string, path: string): GatewayRoute | null {
  if (method === "POST") return postRoute(path);
  if (method !== "GET") return null;
  if (path === "/v1/models") return { kind: "model-list" };
  if (path === "/v1beta/models") return { kind: "gemini-model-list" };
  if (path === "/v1/usage") return { kind: "key-usage" };
  const id = ONE_MODEL.exec(path)?.[1];
  return id === undefined ? null : { kind: "model", id };
}

function postRoute(path: string): ModelRoute | null {
  const protocol = protocolAt(path);
  if (protocol !== null) {
    const countsOnly = path === "/v1/messages/count_tokens";
    return { kind: "model-request", protocol, path: null, endpoint: path, countsOnly };
  }
  const [, model, verb] = GEMINI_CALL.exec(path) ?? [];
  if (model === undefined) return null;
  return {
    kind: "model-request",
    protocol: gemini,
    path: { model, stream: verb === "streamGenerateContent" },
    endpoint: "/v1beta/models",
    countsOnly: verb === "countTokens",
  };
}

function protocolAt(path: string): Protocol | null {
  switch (path) {
    case "/v1/chat/completions":
      return chat;
    case "/v1/completions":
      return completions;
    case "/v1/embeddings":
      return embeddings;
    case "/v1/responses":
      return responses;
    case "/v1/messages":
    case "/v1/messages/count_tokens":
      return messages;
    default:
      return null;
  }
}

const MAX_BODY_BYTES = 32 * 1024 * 1024;

/** A request that passed every check. */
interface Call {
  readonly exchange: Exchange;
  readonly route: ModelRoute;
  readonly request: ModelRequest;
  readonly model: Model;
  readonly key: SandboxKey;
  /** On the monotonic clock. */
  readonly startedAt: number;
}

/** The data plane: everything that is called with an API key. */
export class Gateway {
  /** Milliseconds before each word of a stream. */
  wordDelay = 15;
  readonly #account: Account;
  readonly #clock: Clock;
  readonly #cache = new PrefixCache();

  constructor(account: Account, clock: Clock) {
    this.#account = account;
    this.#clock = clock;
  }

  async serve(exchange: Exchange, route: GatewayRoute): Promise<void> {
    const startedAt = this.#clock.elapsed();
    exchange.response.setHeader("X-Client-Request-ID", exchange.id);
    const body = await exchange.readBody(MAX_BODY_BYTES);
    if (body === "disconnected") return;

    const text = keyIn(exchange.request.headers);
    if (text === null) return sendError(exchange, MISSING_KEY);
    const key = this.#account.keyWithText(text);
    if (key === null) return sendError(exchange, UNKNOWN_KEY);
    const error = this.#checkKey(key, exchange.path);
    if (error !== null) return sendError(exchange, error);

    const { models } = key.group;

    switch (route.kind) {
      case "model-list":
        return exchange.sendJson(200, modelList(models));
      case "gemini-model-list":
        return exchange.sendJson(200, geminiModelList(models));
      case "key-usage":
        return exchange.sendJson(200, this.#keyUsage(key));
      case "model": {
        const model = models.find(({ id }) => id === route.id);
        if (model === undefined) return sendError(exchange, unknownModel("openai", route.id));
        return exchange.sendJson(200, modelEntry(model));
      }
      case "model-request": {
        const { errorShape } = route.protocol;
        if (body === "too-large") return sendError(exchange, bodyTooLarge(errorShape, MAX_BODY_BYTES));
        const parsed = parseModelRequest(route, body, models);
        if ("error" in parsed) return sendError(exchange, parsed.error);
        return await this.#serveModel({ exchange, route, key, startedAt, ...parsed });
      }
    }
  }

  /** In sub2api's order: key, group, expiry, quota, balance. */
  #checkKey(key: SandboxKey, path: string): GatewayError | null {
    const status = this.#account.statusOf(key);
    if (status === "disabled") return DISABLED_KEY;
    if (!key.group.enabled) return DISABLED_GROUP;
    // A key may always read its own usage: that shows why everything else is refused.
    if (path === "/v1/usage") return null;
    if (status === "expired") return EXPIRED_KEY;
    if (status === "quota_exhausted") return quotaExhausted(path);
    return this.#account.balance <= 0 ? NO_BALANCE : null;
  }

  /** GET /v1/usage: what a key may know about itself. */
  #keyUsage(key: SandboxKey): object {
    const status = this.#account.statusOf(key);
    const isValid = status === "active";
    if (key.quota === null) {
      const { balance } = this.#account;
      return { mode: "unrestricted", isValid, status, planName: "钱包余额", remaining: balance, balance };
    }
    const remaining = Math.max(0, key.quota - key.quotaUsed);
    const quota = { limit: key.quota, used: key.quotaUsed, remaining, unit: "USD" };
    return { mode: "quota_limited", isValid, status, quota, remaining, rate_limits: [] };
  }

  async #serveModel(call: Call): Promise<void> {
    const { exchange, key, request, route } = call;
    const { errorShape } = route.protocol;
    if (route.countsOnly) {
      const count = countPromptTokens(request);
      const body = errorShape === "gemini" ? { totalTokens: count } : { input_tokens: count };
      return exchange.sendJson(200, body);
    }
    const error = this.#checkRateLimit(key, errorShape);
    if (error !== null) return sendError(exchange, error);
    key.inFlight += 1;
    try {
      const reply: ModelReply = {
        id: exchange.id.replaceAll("-", ""),
        model: call.model.id,
        created: Math.floor(this.#clock.now() / 1000),
        ...buildReply(request, route.protocol, call.model, this.#cache, key.id),
      };
      if (request.stream) await this.#stream(call, reply);
      else {
        // Before the response, so that a client that has it also finds the row.
        this.#bill(call, reply.tokens);
        exchange.sendJson(200, route.protocol.whole(request, reply));
      }
    } finally {
      key.inFlight -= 1;
    }
  }

  /** Refused requests do not count. */
  #checkRateLimit(key: SandboxKey, shape: ErrorShape): GatewayError | null {
    for (const name of WINDOW_NAMES) {
      const { limit } = key.spending[name];
      const used = this.#account.spentIn(key, name)?.used ?? 0;
      if (limit !== null && used >= limit) return windowUsedUp(shape, name);
    }
    if (key.concurrent !== null && key.inFlight >= key.concurrent) return tooManyAtOnce(shape);
    const now = this.#clock.elapsed();
    if (now - key.minuteStartedAt >= MINUTE_MS) {
      key.minuteStartedAt = now;
      key.minuteRequests = 0;
    }
    if (key.perMinute !== null && key.minuteRequests >= key.perMinute) {
      return rateLimited(shape, Math.ceil((key.minuteStartedAt + MINUTE_MS - now) / 1000));
    }
    key.minuteRequests += 1;
    return null;
  }

  async #stream(call: Call, reply: ModelReply): Promise<void> {
    const { exchange, request, route } = call;
    let sent = "";
    exchange.response.writeHead(200, {
      "Content-Type": "text/event-stream",
      "Cache-Control": "no-cache",
      "X-Accel-Buffering": "no",
    });
    exchange.response.flushHeaders();
    for (const { bytes, delta } of route.protocol.events(request, reply)) {
      if (delta !== undefined) await exchange.pause(this.wordDelay);
      if (exchange.closed.aborted) break;
      sent += delta ?? "";
      await exchange.write(bytes);
    }
    // A client that left pays for what was sent to it.
    const output = reply.tokens.reasoning + countTokens(sent);
    this.#bill(call, { ...reply.tokens, output });
    exchange.response.end();
  }

  #bill({ exchange, key, model, request, route, startedAt }: Call, tokens: Tokens): void {
    this.#account.bill(key, model, {
      requestId: `client:${exchange.id}`,
      endpoint: route.endpoint,
      stream: request.stream,
      tokens,
      durationMs: Math.round(this.#clock.elapsed() - startedAt),
      ipAddress: exchange.request.socket.remoteAddress ?? null,
    });
  }
}

function parseModelRequest(
  { protocol, path }: ModelRoute,
  bytes: Buffer,
  models: readonly Model[],
): { readonly request: ModelRequest; readonly model: Model } | { readonly error: GatewayError } {
  const { errorShape, produces } = protocol;
  const body = parseObject(bytes.toString("utf8"));
  if (body === null) return { error: invalidRequest(errorShape, "Failed to parse request body") };
  const request = protocol.parse(body, path);
  if (typeof request === "string") return { error: invalidRequest(errorShape, request) };
  const model = models.find(({ id }) => id === request.model);
  if (model === undefined) return { error: unknownModel(errorShape, request.model) };
  if (model.produces !== produces) {
    const message = `model ${model.id} produces ${model.produces}, not ${produces}`;
    return { error: invalidRequest(errorShape, message) };
  }
  return { request, model };
}

/** The first of sub2api's headers that is not empty. */
function keyIn(headers: IncomingHttpHeaders): string | null {
  const bearer = /^bearer\s+(.*)$/i.exec(headers.authorization ?? "")?.[1];
  for (const value of [bearer, headers["x-api-key"], headers["x-goog-api-key"]]) {
    if (typeof value === "string" && value.trim() !== "") return value.trim();
  }
  return null;
}

function sendError(exchange: Exchange, { status, body, headers }: GatewayError): void {
  exchange.sendJson(status, body, headers);
}
