/** How a protocol wraps an error. `flat` is the gateway's own, used before it knows which protocol is spoken. */
export type Shape = "openai" | "anthropic" | "gemini" | "flat";

/** An answer that says no. */
export interface Refusal {
  readonly status: number;
  readonly body: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Refusals of the door: before the body is looked at. Codes and texts are sub2api's, word for word. */
export const DOOR = {
  keyInQuery: flat(
    400,
    "api_key_in_query_deprecated",
    "API key in query parameter is deprecated. Please use Authorization header instead.",
  ),
  noKey: flat(
    401,
    "API_KEY_REQUIRED",
    "API key is required in Authorization header (Bearer scheme), x-api-key header, or x-goog-api-key header",
  ),
  unknownKey: flat(401, "INVALID_API_KEY", "Invalid API key"),
  disabledKey: flat(401, "API_KEY_DISABLED", "API key is disabled"),
  disabledGroup: flat(403, "GROUP_DISABLED", "API Key 所属分组已停用"),
  expiredKey: flat(403, "API_KEY_EXPIRED", "API key 已过期"),
  noBalance: flat(403, "INSUFFICIENT_BALANCE", "Insufficient account balance"),
} as const;

/** The same cause has a second body on /responses, where Codex reads it. */
export function quotaRefusal(path: string): Refusal {
  const message = "API key 额度已用完";
  if (!path.startsWith("/v1/responses")) return flat(429, "API_KEY_QUOTA_EXHAUSTED", message);
  const type = "insufficient_quota";
  return { status: 429, body: { error: { message, type, param: null, code: type } } };
}

export function rateRefusal(shape: Shape, seconds: number): Refusal {
  const refusal = shaped(shape, 429, "rate_limit_exceeded", "user requests-per-minute limit exceeded");
  return { ...refusal, headers: { "Retry-After": String(seconds) } };
}

export function concurrencyRefusal(shape: Shape): Refusal {
  return shaped(shape, 429, "rate_limit_error", "Concurrency limit exceeded for user, please retry later");
}

export function modelRefusal(shape: Shape, model: string): Refusal {
  const message = `Model ${JSON.stringify(model)} is not supported by any configured account in this group`;
  return shaped(shape, 404, "model_not_found", message);
}

export function invalidRequest(shape: Shape, message: string): Refusal {
  return shaped(shape, 400, "invalid_request_error", message);
}

export function tooLarge(shape: Shape, mostBytes: number): Refusal {
  const message = `Request body too large, limit is ${mostBytes / (1024 * 1024)}MB`;
  return shaped(shape, 413, "invalid_request_error", message);
}

const GEMINI_STATUS: Readonly<Record<number, string>> = {
  400: "INVALID_ARGUMENT",
  404: "NOT_FOUND",
  413: "INVALID_ARGUMENT",
  429: "RESOURCE_EXHAUSTED",
};

function shaped(shape: Shape, status: number, type: string, message: string): Refusal {
  switch (shape) {
    case "openai":
      return { status, body: { error: { type, message } } };
    case "anthropic":
      return { status, body: { type: "error", error: { type, message } } };
    case "gemini":
      return {
        status,
        body: { error: { code: status, message, status: GEMINI_STATUS[status] ?? "UNKNOWN" } },
      };
    case "flat":
      return flat(status, type, message);
  }
}

function flat(status: number, code: string, message: string): Refusal {
  return { status, body: { code, message } };
}
