/* Every refusal of keybearer's, and the response that it becomes. */

/** The protocol of the caller, in which it expects its answer. */
export type Protocol = "openai" | "messages" | "gemini";

interface Rule {
  readonly status: number;
  /**
   * never: only the owner can change it, so the response has x-should-retry: false. Without that header some clients retry
   * a 401 silently for half a minute. 404 hides the text in some clients; all of them show 400 at once.
   */
  readonly retry: "never" | "may";
}

const NEVER = "never";
const MAY = "may";

export const REFUSALS = {
  "token-missing": { status: 401, retry: NEVER },
  "token-incomplete": { status: 401, retry: NEVER },
  "token-unknown": { status: 401, retry: NEVER },
  // Claude Code hides the text of a 401 here.
  "foreign-key": { status: 400, retry: NEVER },
  "tool-disabled": { status: 400, retry: NEVER },
  "tool-expired": { status: 400, retry: NEVER },
  "key-unavailable": { status: 400, retry: NEVER },
  "needs-trust": { status: 400, retry: NEVER },
  "group-disabled": { status: 400, retry: NEVER },
  "model-not-in-group": { status: 400, retry: NEVER },
  "price-unknown": { status: 400, retry: NEVER },
  "quota-exhausted": { status: 400, retry: NEVER },
  // These five are 429 only with a retry-after, and 400 without one: see findRule.
  "rate-limited": { status: 429, retry: MAY },
  "tokens-limited": { status: 429, retry: MAY },
  "spend-limited": { status: 429, retry: MAY },
  "too-many-at-once": { status: 429, retry: MAY },
  "session-limited": { status: 429, retry: MAY },
  "session-stopped": { status: 400, retry: NEVER },
  "wrong-base-url": { status: 400, retry: NEVER },
  "host-not-allowed": { status: 421, retry: NEVER },
  "browser-request": { status: 403, retry: NEVER },
  "other-user": { status: 403, retry: NEVER },
  "bad-request": { status: 400, retry: NEVER },
  "headers-too-large": { status: 431, retry: NEVER },
  "body-too-large": { status: 413, retry: NEVER },
  loop: { status: 508, retry: NEVER },
  /** The status from which real clients fall back to plain requests at once. */
  "websockets-off": { status: 426, retry: NEVER },
  // keybearer has tried for a while (timeouts.retry_connect). Most clients silently retry a 502 for one to three minutes.
  "gateway-unreachable": { status: 400, retry: NEVER },
  "gateway-timeout": { status: 504, retry: MAY },
  "gateway-broken": { status: 502, retry: MAY },
  "log-unavailable": { status: 503, retry: MAY },
  "store-unavailable": { status: 503, retry: MAY },
  overloaded: { status: 503, retry: MAY },
  "shutting-down": { status: 503, retry: MAY },
} as const satisfies Readonly<Record<string, Rule>>;

export type RefusalCode = keyof typeof REFUSALS;

export interface Refusal {
  readonly code: RefusalCode;
  /** What happened, to which tool, and what to type next. */
  readonly message: string;
  /** Whole seconds until another attempt makes sense. */
  readonly retryAfter?: number;
}

export function refuse(code: RefusalCode, message: string, retryAfter?: number): Refusal {
  return retryAfter === undefined ? { code, message } : { code, message, retryAfter };
}

// What more than one module refuses with.

export function shuttingDown(): Refusal {
  return refuse("shutting-down", "keybearer is stopping. try again in a moment", 2);
}

export function toolRemoved(name: string): Refusal {
  return refuse("token-unknown", `tool ${name} was removed while this request waited`);
}

/** An HTTP response with a short body. */
export interface HttpAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** For a limit whose window does not end soon. */
const NO_RETRY: Rule = { status: 400, retry: NEVER };

/** Without retry-after a client would wait out a 429 silently, so such a limit answers 400. */
function findRule({ code, retryAfter }: Refusal): Rule {
  const rule: Rule = REFUSALS[code];
  return rule.status === 429 && retryAfter === undefined ? NO_RETRY : rule;
}

export function refusalAnswer(refusal: Refusal, protocol: Protocol, requestId: string): HttpAnswer {
  const rule = findRule(refusal);
  const body = JSON.stringify(bodyFor(refusal, protocol, rule.status));
  return {
    status: rule.status,
    headers: {
      "content-type": "application/json",
      "content-length": String(Buffer.byteLength(body)),
      "x-keybearer-request-id": requestId,
      "x-keybearer-refusal": refusal.code,
      ...(rule.retry === "never" ? { "x-should-retry": "false" } : {}),
      ...(refusal.retryAfter === undefined ? {} : { "retry-after": String(Math.ceil(refusal.retryAfter)) }),
      ...(rule.status === 426 ? { upgrade: "websocket" } : {}),
    },
    body,
  };
}

function bodyFor(refusal: Refusal, protocol: Protocol, status: number): object {
  // People read this inside their tool, so it says who refused.
  const message = `keybearer: ${refusal.message}`;
  switch (protocol) {
    case "openai":
      return { error: { message, type: "keybearer_refusal", param: null, code: refusal.code } };
    case "messages":
      return { type: "error", error: { type: messagesType(status), message } };
    case "gemini":
      return {
        error: { code: status, message, status: geminiStatus(status), details: geminiDetails(refusal) },
      };
  }
}

/** Gemini CLI does not read Retry-After. It waits for the time in RetryInfo. */
function geminiDetails({ code, retryAfter }: Refusal): object[] {
  const types = "type.googleapis.com/google.rpc";
  const details: object[] = [{ "@type": `${types}.ErrorInfo`, reason: code, domain: "keybearer" }];
  if (retryAfter !== undefined)
    details.push({ "@type": `${types}.RetryInfo`, retryDelay: `${Math.ceil(retryAfter)}s` });
  return details;
}

function messagesType(status: number): string {
  if (status === 401) return "authentication_error";
  if (status === 403) return "permission_error";
  if (status === 413) return "request_too_large";
  if (status === 429) return "rate_limit_error";
  return status >= 500 ? "api_error" : "invalid_request_error";
}

function geminiStatus(status: number): string {
  if (status === 401) return "UNAUTHENTICATED";
  if (status === 403) return "PERMISSION_DENIED";
  if (status === 429) return "RESOURCE_EXHAUSTED";
  if (status === 504) return "DEADLINE_EXCEEDED";
  return status >= 500 ? "UNAVAILABLE" : "INVALID_ARGUMENT";
}
