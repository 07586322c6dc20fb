import t from "tap";
import {
  type CauseDetail,
  type CauseName,
  causeFor,
  findCause,
} from "../../../src/proxy/key-health/cause.ts";
import { gatewayAnswers } from "../gateway-answers.ts";

const flat = (code: string, message: string) => JSON.stringify({ code, message });
const openai = (message: string, code = "") =>
  JSON.stringify({ error: { message, type: "new_api_error", code } });
const messages = (type: string, message: string) =>
  JSON.stringify({ type: "error", error: { type, message } });

const rows: [string, number, string, CauseName][] = [
  // sub2api
  [
    "sub2api no key",
    401,
    flat("API_KEY_REQUIRED", "API key is required in Authorization header"),
    "incomplete-key",
  ],
  ["sub2api unknown key", 401, flat("INVALID_API_KEY", "Invalid API key"), "incomplete-key"],
  [
    "sub2api key in query",
    400,
    flat("api_key_in_query_deprecated", "API key in query parameter is deprecated."),
    "unknown",
  ],
  [
    "sub2api too many bad keys",
    429,
    flat("INVALID_AUTH_RATE_LIMITED", "Too many invalid authentication attempts; retry later"),
    "rate-limit",
  ],
  [
    "sub2api overload",
    503,
    flat("API_KEY_AUTH_OVERLOADED", "API key authentication is temporarily unavailable"),
    "rate-limit",
  ],
  ["sub2api disabled", 401, flat("API_KEY_DISABLED", "API key is disabled"), "unknown"],
  ["sub2api expired", 403, flat("API_KEY_EXPIRED", "API key 已过期"), "unknown"],
  ["sub2api key quota", 429, flat("API_KEY_QUOTA_EXHAUSTED", "API key 额度已用完"), "balance-or-quota"],
  [
    "sub2api key quota on responses",
    429,
    JSON.stringify({
      error: { message: "API key 额度已用完", type: "insufficient_quota", code: "insufficient_quota" },
    }),
    "balance-or-quota",
  ],
  ["sub2api ip", 403, flat("ACCESS_DENIED", "Access denied. Your IP is 1.2.3.4"), "unknown"],
  ["sub2api user", 401, flat("USER_INACTIVE", "User account is not active"), "unknown"],
  ["sub2api group deleted", 403, flat("GROUP_DELETED", "API Key 所属分组已删除"), "group-unavailable"],
  ["sub2api group disabled", 403, flat("GROUP_DISABLED", "API Key 所属分组已停用"), "group-unavailable"],
  [
    "sub2api group withdrawn",
    403,
    flat("GROUP_NOT_ALLOWED", "API Key 所属专属分组不再允许当前用户使用"),
    "group-unavailable",
  ],
  [
    "sub2api no group",
    403,
    messages("permission_error", "API Key is not assigned to any group and cannot be used."),
    "group-unavailable",
  ],
  [
    "sub2api no subscription",
    403,
    flat("SUBSCRIPTION_NOT_FOUND", "No active subscription found for this group"),
    "balance-or-quota",
  ],
  [
    "sub2api subscription used up",
    429,
    flat("USAGE_LIMIT_EXCEEDED", "daily usage limit exceeded"),
    "balance-or-quota",
  ],
  ["sub2api balance", 403, flat("INSUFFICIENT_BALANCE", "Insufficient account balance"), "balance-or-quota"],
  ["sub2api window cap", 429, messages("rate_limit_exceeded", "api key 5小时限额已用完"), "balance-or-quota"],
  [
    "sub2api rpm",
    429,
    messages("rate_limit_exceeded", "user requests-per-minute limit exceeded"),
    "rate-limit",
  ],
  [
    "sub2api platform quota",
    429,
    messages("rate_limit_exceeded", "Daily usage quota exhausted for this platform."),
    "balance-or-quota",
  ],
  [
    "sub2api concurrency",
    429,
    messages("rate_limit_error", "Concurrency limit exceeded for user, please retry later"),
    "rate-limit",
  ],
  [
    "sub2api model",
    404,
    messages("model_not_found", 'Model "m" is not supported by any configured account in this group'),
    "group-unavailable",
  ],
  ["sub2api no account", 503, messages("api_error", "No available accounts: m"), "group-unavailable"],
  ["sub2api billing", 403, messages("billing_error", "insufficient balance"), "balance-or-quota"],
  [
    "sub2api billing down",
    503,
    messages("billing_service_error", "Billing service temporarily unavailable. Please retry later."),
    "unknown",
  ],
  ["sub2api wrong path", 404, "404 page not found", "wrong-base-url"],
  // new-api
  ["new-api key, english", 401, openai("Invalid token (request id: X)"), "incomplete-key"],
  ["new-api key, chinese", 401, openai("无效的令牌 (request id: X)"), "incomplete-key"],
  ["new-api none", 401, openai("未提供令牌"), "incomplete-key"],
  ["new-api disabled", 401, openai("该令牌状态不可用"), "unknown"],
  ["new-api expired", 401, openai("该令牌已过期"), "unknown"],
  [
    "new-api exhausted",
    401,
    openai("该令牌额度已用尽 TokenStatusExhausted[sk-xxx***xxx]"),
    "balance-or-quota",
  ],
  ["new-api ip", 403, openai("您的 IP 不在令牌允许访问的列表中", "access_denied"), "unknown"],
  ["new-api group", 403, openai("无权访问 vip 分组"), "group-unavailable"],
  ["new-api group removed", 403, openai("分组 vip 已被弃用"), "group-unavailable"],
  ["new-api model, english", 403, openai("This token has no access to model gpt-5"), "group-unavailable"],
  ["new-api model, chinese", 403, openai("该令牌无权访问模型 gpt-5"), "group-unavailable"],
  ["new-api no models, english", 403, openai("This token has no access to any models"), "group-unavailable"],
  [
    "new-api channel, english",
    503,
    openai("No available channel for model m under group g (distributor)", "model_not_found"),
    "group-unavailable",
  ],
  ["new-api channel, chinese", 503, openai("分组 g 下模型 m 无可用渠道（distributor）"), "group-unavailable"],
  [
    "new-api retry",
    500,
    openai("分组 g 下模型 m 的可用渠道不存在（retry）", "get_channel_failed"),
    "group-unavailable",
  ],
  [
    "new-api balance",
    403,
    openai("用户额度不足, 剩余额度: 0", "insufficient_user_quota"),
    "balance-or-quota",
  ],
  [
    "new-api pre-charge",
    403,
    openai("预扣费额度失败, 用户剩余额度: 1, 需要预扣费额度: 2", "insufficient_user_quota"),
    "balance-or-quota",
  ],
  [
    "new-api key too small",
    403,
    openai(
      "token quota is not enough, token remain quota: 1, need quota: 2",
      "pre_consume_token_quota_failed",
    ),
    "balance-or-quota",
  ],
  ["new-api rate", 429, openai("您已达到请求数限制：1分钟内最多请求2次"), "rate-limit"],
  ["new-api rate, empty", 429, "", "rate-limit"],
  ["new-api price", 400, openai("model price not set", "model_price_error"), "unknown"],
  [
    "new-api path",
    404,
    JSON.stringify({
      error: { message: "Invalid URL (POST /v1/xyz)", type: "invalid_request_error", code: "" },
    }),
    "wrong-base-url",
  ],
  // one-api
  ["one-api verify", 401, openai("令牌验证失败"), "incomplete-key"],
  ["one-api named", 401, openai("令牌 laptop（#3）额度已用尽"), "balance-or-quota"],
  ["one-api model", 403, openai("该令牌无权使用模型：gpt-5"), "group-unavailable"],
  ["one-api channel", 503, openai("当前分组 g 下对于模型 m 无可用渠道"), "group-unavailable"],
  ["one-api balance", 403, openai("user quota is not enough", "insufficient_user_quota"), "balance-or-quota"],
  ["one-api key quota", 403, openai("令牌额度不足", "pre_consume_token_quota_failed"), "balance-or-quota"],
  ["one-api saturated", 429, openai("当前分组上游负载已饱和，请稍后再试"), "rate-limit"],
  // LiteLLM
  [
    "litellm, its provider does not know the operator's key",
    401,
    openai(
      "litellm.AuthenticationError: AuthenticationError: OpenAIException - Incorrect API key provided: x",
    ),
    "unknown",
  ],
  [
    "litellm, the operator has not paid its provider",
    429,
    openai(
      "litellm.RateLimitError: RateLimitError: OpenAIException - You exceeded your current quota",
      "insufficient_quota",
    ),
    "unknown",
  ],
  ["litellm none", 401, openai("Authentication Error, No api key passed in."), "incomplete-key"],
  ["litellm malformed", 401, openai("Authentication Error, Malformed API Key passed in."), "incomplete-key"],
  [
    "litellm virtual",
    401,
    openai("Authentication Error, LiteLLM Virtual Key expected. Received=x"),
    "incomplete-key",
  ],
  [
    "litellm unknown",
    401,
    openai("Authentication Error, Invalid proxy server token passed.", "token_not_found_in_db"),
    "incomplete-key",
  ],
  [
    "litellm blocked",
    401,
    openai("Authentication Error, Key is blocked. Update via `/key/unblock`"),
    "unknown",
  ],
  ["litellm expired", 401, openai("Authentication Error - Expired Key. Key Expiry time x"), "unknown"],
  [
    "litellm model",
    403,
    openai("key not allowed to access model. This key can only access models=[]", "key_model_access_denied"),
    "group-unavailable",
  ],
  [
    "litellm budget",
    429,
    openai("Budget has been exceeded! Key=x Current cost: 1", "budget_exceeded"),
    "balance-or-quota",
  ],
  [
    "litellm budget, older",
    400,
    openai("Budget has been exceeded! Current cost: 1", "budget_exceeded"),
    "balance-or-quota",
  ],
  ["litellm rate", 429, openai("Rate limit exceeded for key: x. Limit type: requests."), "rate-limit"],
  ["litellm model name", 400, openai("chat: Invalid model name passed in model=m."), "group-unavailable"],
  ["litellm path", 404, '{"detail":"Not Found"}', "wrong-base-url"],
  // OpenRouter
  ["openrouter none", 401, '{"error":{"code":401,"message":"No auth credentials found"}}', "incomplete-key"],
  ["openrouter credits", 402, '{"error":{"code":402,"message":"Insufficient credits"}}', "balance-or-quota"],
  ["openrouter 402 without words", 402, "{}", "balance-or-quota"],
  ["openrouter moderation", 403, '{"error":{"code":403,"message":"flagged"}}', "unknown"],
  ["openrouter rate", 429, '{"error":{"code":429,"message":"Rate limited"}}', "rate-limit"],
  // anything else
  ["overloaded", 529, messages("overloaded_error", "Overloaded"), "rate-limit"],
  ["a 500", 500, "oops", "unknown"],
  ["an empty 404", 404, "", "wrong-base-url"],
  ["a 404 of the gateway's own", 404, openai("no such response: resp_1"), "unknown"],
  ["a body that is not JSON, quoted back", 400, openai("Invalid token 'x' in JSON at position 3"), "unknown"],
  ["a server error that speaks of tokens", 500, openai("tokenizer: invalid token id 7"), "unknown"],
];
for (const [what, status, body, name] of rows) {
  t.test(`${what} (${status}) is ${name}`, async (t) => {
    t.equal(findCause({ status, contentType: "application/json", body })?.name, name);
  });
}

t.test("every error of the real programs has its cause and its detail", async (t) => {
  for (const { seen, isNewApi, requestId, when, status, body, cause, detail } of gatewayAnswers()) {
    const found = findCause({ status, contentType: "application/json", body, isNewApi, requestId });
    t.strictSame([found?.name, found?.detail], [cause, detail], `${seen}: ${when} (${status})`);
  }
});

t.test("a provider's error about the operator's balance does not concern the key", async (t) => {
  const words = "You exceeded your current quota, please check your plan and billing details.";
  // As new-api 2d8e50bf passes it on, on chat and on messages.
  const relayed = [
    { error: { message: words, type: "insufficient_quota", param: "", code: "insufficient_quota" } },
    { error: { type: "insufficient_quota", message: `${words} (request id: 20261117X)` }, type: "error" },
    { error: { message: "insufficient balance (1008)", type: "invalid_request_error", code: "1008" } },
  ];
  const answer = { contentType: "application/json", isNewApi: true, requestId: "20261117X" };
  for (const body of relayed.map((one) => JSON.stringify(one)))
    for (const status of [400, 402, 429, 500]) {
      const cause = findCause({ ...answer, status, body });
      t.match(cause, { name: "unknown", detail: null, concernsKey: false }, `${status} ${body}`);
      t.match(cause?.next, /not your key/);
    }
  // Another gateway says so of its own accounts.
  const own = findCause({ status: 429, contentType: "application/json", body: JSON.stringify(relayed[0]) });
  t.match(own, { name: "balance-or-quota", concernsKey: true });
});

t.test("LiteLLM's provider took too long, which the key cannot change", async (t) => {
  const answers = gatewayAnswers().filter(({ when }) => when === "provider takes too long");
  t.equal(answers.length, 1);
  for (const { status, body } of answers) {
    const cause = findCause({ status, contentType: "application/json", body });
    t.match(cause, { concernsKey: false, next: /the provider behind the gateway failed/ });
  }
});

t.test("a web page is a wrong base url, and a good response has no cause", async (t) => {
  const cause = (status: number, contentType: string) =>
    findCause({ status, contentType, body: "" })?.name ?? null;
  t.equal(cause(200, "text/html"), "wrong-base-url");
  t.equal(cause(200, "Text/HTML; charset=utf-8"), "wrong-base-url");
  t.equal(cause(404, "text/html"), "wrong-base-url");
  t.equal(cause(200, "application/json"), null);
  t.equal(cause(200, "text/event-stream"), null);
  t.equal(cause(302, "text/html"), null);
  t.equal(cause(204, ""), null);
});

const details: [CauseDetail | null, number, string][] = [
  ["key-disabled", 401, flat("API_KEY_DISABLED", "API key is disabled")],
  ["key-disabled", 401, openai("该令牌状态不可用")],
  ["key-disabled", 401, openai("This token status is unavailable")],
  ["key-expired", 403, flat("API_KEY_EXPIRED", "API key 已过期")],
  ["key-expired", 401, openai("该令牌已过期")],
  ["key-expired", 401, openai("該令牌已過期")],
  ["key-quota", 429, flat("API_KEY_QUOTA_EXHAUSTED", "API key 额度已用完")],
  ["key-quota", 401, openai("令牌 laptop（#3）额度已用尽")],
  ["key-quota", 403, openai("token quota is not enough", "pre_consume_token_quota_failed")],
  ["account-balance", 403, flat("INSUFFICIENT_BALANCE", "Insufficient account balance")],
  ["account-balance", 403, openai("用户额度不足, 剩余额度: 0", "insufficient_user_quota")],
  ["account-disabled", 401, flat("USER_INACTIVE", "User account is not active")],
  ["account-disabled", 403, openai("User has been banned")],
  ["account-disabled", 403, openai("用户已被封禁")],
  ["account-disabled", 403, openai("使用者已被封禁")],
  ["ip-not-allowed", 403, flat("ACCESS_DENIED", "Access denied")],
  ["ip-not-allowed", 403, flat("ACCESS_DENIED", "Access denied. Your IP is 1.2.3.4")],
  ["ip-not-allowed", 403, openai("您的 IP 不在令牌允许访问的列表中", "access_denied")],
  ["window-used-up", 429, messages("rate_limit_exceeded", "api key 5小时限额已用完")],
  ["window-used-up", 429, messages("rate_limit_exceeded", "api key 日限额已用完")],
  ["window-used-up", 429, flat("USAGE_LIMIT_EXCEEDED", "weekly usage limit exceeded")],
  [
    "window-used-up",
    429,
    messages("rate_limit_exceeded", "Monthly usage quota exhausted for this platform."),
  ],
  ["no-capacity", 503, messages("api_error", "No available accounts")],
  [
    "no-capacity",
    429,
    messages("rate_limit_error", "Concurrency limit exceeded for user, please retry later"),
  ],
  ["no-capacity", 429, messages("rate_limit_error", "Too many pending requests, please retry later")],
  ["no-capacity", 529, messages("overloaded_error", "Overloaded")],
  // These do not say more than their names.
  [null, 401, openai("Invalid token (request id: X)")],
  [null, 401, flat("INVALID_API_KEY", "Invalid API key")],
  [null, 403, flat("SUBSCRIPTION_NOT_FOUND", "No active subscription found for this group")],
  [null, 402, "{}"],
];
t.test("a detail has what the gateway says", async (t) => {
  for (const [detail, status, body] of details)
    t.equal(findCause({ status, contentType: "application/json", body })?.detail, detail, body);
});

t.test("new-api's answer to every kind of bad key is ambiguous, and its advice says so", async (t) => {
  for (const text of ["Invalid token", "无效的令牌", "無效的令牌"]) {
    const cause = findCause({ status: 401, contentType: "application/json", body: openai(text) });
    t.match(cause, { name: "incomplete-key", detail: null, isAmbiguous: true });
    t.match(cause?.next, /not valid: deleted, disabled, expired or used up/);
  }
  const known = findCause({ status: 401, contentType: "", body: flat("INVALID_API_KEY", "Invalid API key") });
  t.equal(known?.isAmbiguous, false);
  t.match(causeFor("key-quota"), { name: "balance-or-quota", detail: "key-quota", isAmbiguous: false });
});

const aboutTheKey: [string, number, string][] = [
  ["an unknown key", 401, flat("INVALID_API_KEY", "Invalid API key")],
  ["a disabled key", 401, flat("API_KEY_DISABLED", "API key is disabled")],
  ["an expired key", 403, flat("API_KEY_EXPIRED", "API key 已过期")],
  ["a 401 without known words", 401, "who knows"],
  ["the key's quota", 429, flat("API_KEY_QUOTA_EXHAUSTED", "API key 额度已用完")],
  ["the account's balance", 403, flat("INSUFFICIENT_BALANCE", "")],
  ["a bare 402", 402, "{}"],
  ["a deleted group", 403, flat("GROUP_DELETED", "API Key 所属分组已删除")],
  ["a disabled group", 403, flat("GROUP_DISABLED", "API Key 所属分组已停用")],
  ["a withdrawn group", 403, flat("GROUP_NOT_ALLOWED", "API Key 所属专属分组不再允许当前用户使用")],
  ["no group", 403, messages("permission_error", "API Key is not assigned to any group and cannot be used.")],
  ["new-api group", 403, openai("无权访问 vip 分组")],
  ["new-api group removed", 403, openai("分组 vip 已被弃用")],
  ["no models at all", 403, openai("This token has no access to any models")],
  ["no models at all, chinese", 403, openai("该令牌无权访问任何模型")],
  ["a banned account", 403, openai("用户已被封禁")],
  ["an address that is not allowed", 403, flat("ACCESS_DENIED", "Access denied")],
  ["a window that is used up", 429, flat("USAGE_LIMIT_EXCEEDED", "daily usage limit exceeded")],
];
const aboutTheRequest: [string, number, string][] = [
  ["sub2api model", 404, messages("model_not_found", 'Model "m" is not supported by any configured account')],
  ["new-api model, english", 403, openai("This token has no access to model gpt-5")],
  ["new-api model, chinese", 403, openai("该令牌无权访问模型 gpt-5")],
  ["new-api channel", 503, openai("分组 g 下模型 m 无可用渠道（distributor）")],
  ["one-api model", 403, openai("该令牌无权使用模型：gpt-5")],
  ["litellm model", 403, openai("key not allowed to access model", "key_model_access_denied")],
  ["litellm model name", 400, openai("chat: Invalid model name passed in model=m.")],
  ["a wrong path", 404, "404 page not found"],
  ["an empty 404", 404, ""],
  ["a 404 in the gateway's own words", 404, openai("no such response: resp_1")],
  ["a rate limit", 429, openai("Rate limit exceeded for key: x. Limit type: requests.")],
  ["no account", 503, messages("api_error", "No available accounts")],
  ["a 500", 500, "oops"],
];
t.test("a refusal concerns the key, or only this request", async (t) => {
  for (const [what, status, body] of aboutTheKey)
    t.equal(findCause({ status, contentType: "", body })?.concernsKey, true, what);
  for (const [what, status, body] of aboutTheRequest)
    t.equal(findCause({ status, contentType: "", body })?.concernsKey, false, what);
});

t.test("clients may retry only what can recover by itself", async (t) => {
  const canRetry = (status: number, body: string) => findCause({ status, contentType: "", body })?.canRetry;
  for (const [what, status, body] of aboutTheKey)
    if (body !== "who knows") t.equal(canRetry(status, body), false, what);
  t.equal(canRetry(401, "who knows"), true);
  t.equal(canRetry(429, openai("Rate limit exceeded for key: x.")), true);
  t.equal(canRetry(503, messages("api_error", "No available accounts")), true);
  t.equal(canRetry(404, "404 page not found"), false);
  t.equal(canRetry(403, openai("This token has no access to model gpt-5")), false);
});
