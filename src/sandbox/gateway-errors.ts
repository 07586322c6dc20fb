import type { WindowName } from "./account.ts";
import type { ErrorShape } from "./protocols/protocol.ts";

/** An error response. Codes and messages are sub2api's, word for word. */
export interface GatewayError {
  readonly status: number;
  readonly body: object;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Errors before the body is read have one shape for all protocols. */
export const MISSING_KEY = keyError(
  401,
  "API_KEY_REQUIRED",
  "API key is required in Authorization header (Bearer scheme), x-api-key header, or x-goog-api-key header",
);
export const UNKNOWN_KEY = keyError(401, "INVALID_API_KEY", "Invalid API key");
export const DISABLED_KEY = keyError(401, "API_KEY_DISABLED", "API key is disabled");
export const EXPIRED_KEY = keyError(403, "API_KEY_EXPIRED", "API key 已过期");
export const DISABLED_GROUP = keyError(403, "GROUP_DISABLED", "API Key 所属分组已停用");
export const NO_BALANCE = keyError(403, "INSUFFICIENT_BALANCE", "Insufficient account balance");

function keyError(status: number, code: string, message: string): GatewayError {
  return { status, body: { code, message } };
}

/** /v1/responses has a body of its own, which Codex reads. */
export function quotaExhausted(path: string): GatewayError {
  const message = "API key 额度已用完";
  if (!path.startsWith("/v1/responses")) return keyError(429, "API_KEY_QUOTA_EXHAUSTED", message);
  const type = "insufficient_quota";
  return { status: 429, body: { error: { message, type, param: null, code: type } } };
}

export function rateLimited(shape: ErrorShape, retryAfterSeconds: number): GatewayError {
  const error = shaped(shape, 429, "rate_limit_exceeded", "user requests-per-minute limit exceeded");
  return { ...error, headers: { "Retry-After": String(retryAfterSeconds) } };
}

const WINDOW_MESSAGES: Readonly<Record<WindowName, string>> = {
  "5h": "api key 5小时限额已用完",
  "1d": "api key 日限额已用完",
  "7d": "api key 7天限额已用完",
};

export function windowUsedUp(shape: ErrorShape, window: WindowName): GatewayError {
  return shaped(shape, 429, "rate_limit_exceeded", WINDOW_MESSAGES[window]);
}

export function tooManyAtOnce(shape: ErrorShape): GatewayError {
  return shaped(shape, 429, "rate_limit_error", "Concurrency limit exceeded for user, please retry later");
}

export function unknownModel(shape: ErrorShape, model: string): GatewayError {
  const message = `Model ${JSON.stringify(model)} is not supported by any configured account in this group`;
  return shaped(shape, 404, "model_not_found", message);
}

export function invalidRequest(shape: ErrorShape, message: string): GatewayError {
  return shaped(shape, 400, "invalid_request_error", message);
}

export function bodyTooLarge(shape: ErrorShape, maxBytes: number): GatewayError {
  const message = `Request body too large, limit is ${maxBytes / (1024 * 1024)}MB`;
  return shaped(shape, 413, "invalid_request_error", message);
}

const GEMINI_STATUS: Readonly<Record<number, string>> = {
  400: "INVALID_ARGUMENT",
  404: "NOT_FOUND",
  413: "INVALID_ARGUMENT",
  429: "RESOURCE_EXHAUSTED",
};

function shaped(shape: ErrorShape, status: number, type: string, message: string): GatewayError {
  switch (shape) {
    case "openai":
      return { status, body: { error: { type, message } } };
    case "anthropic":
      return { status, body: { type: "error", error: { type, message } } };
    case "gemini":
      return { status, body: { error: { code: status, message, status: GEMINI_STATUS[status] } } };
  }
}
