import t from "tap";
import { REFUSALS, type RefusalCode, refusalAnswer, refuse } from "../../src/core/refusal.ts";

const NO_RETRY: Record<number, RefusalCode[]> = {
  401: ["token-missing", "token-incomplete", "token-unknown"],
  400: [
    "foreign-key",
    "tool-disabled",
    "tool-expired",
    "key-unavailable",
    "needs-trust",
    "group-disabled",
    "model-not-in-group",
    "price-unknown",
    "quota-exhausted",
    "session-stopped",
    "wrong-base-url",
    "bad-request",
    "gateway-unreachable",
  ],
  421: ["host-not-allowed"],
  403: ["browser-request", "other-user"],
  431: ["headers-too-large"],
  413: ["body-too-large"],
  508: ["loop"],
  426: ["websockets-off"],
};
const MAY_RETRY: Record<number, RefusalCode[]> = {
  429: ["rate-limited", "tokens-limited", "spend-limited", "too-many-at-once", "session-limited"],
  502: ["gateway-broken"],
  504: ["gateway-timeout"],
  503: ["log-unavailable", "store-unavailable", "overloaded", "shutting-down"],
};

t.test(
  "a limit without a time at which it has capacity again is a 400 that asks not to try again",
  async (t) => {
    for (const code of MAY_RETRY[429] ?? []) {
      const answer = refusalAnswer(refuse(code, "words"), "messages", "id-1");
      t.same([answer.status, answer.headers["x-should-retry"]], [400, "false"], code);
      t.notOk("retry-after" in answer.headers);
    }
  },
);

t.test(
  "every code has its promised status, and only what may pass by itself leaves a retry to the client",
  async (t) => {
    const seen: string[] = [];
    for (const [table, retry] of [
      [NO_RETRY, "false"],
      [MAY_RETRY, undefined],
    ] as const) {
      for (const [status, codes] of Object.entries(table)) {
        for (const code of codes) {
          // A limit invites to come back only where it is said when.
          const refusal = refuse(code, "words", status === "429" ? 1 : undefined);
          const answer = refusalAnswer(refusal, "openai", "id-1");
          t.equal(answer.status, Number(status), code);
          t.equal(answer.headers["x-should-retry"], retry, code);
          t.equal(answer.headers["x-keybearer-refusal"], code);
          t.equal(answer.headers["x-keybearer-request-id"], "id-1");
          seen.push(code);
        }
      }
    }
    t.strictSame(seen.toSorted(), Object.keys(REFUSALS).toSorted(), "there is no other code");
  },
);

const ERROR_INFO = {
  "@type": "type.googleapis.com/google.rpc.ErrorInfo",
  reason: "token-missing",
  domain: "keybearer",
};

t.test("a Gemini client reads in RetryInfo how long it should wait", async (t) => {
  const { body } = refusalAnswer(refuse("rate-limited", "words", 11.2), "gemini", "id");
  t.strictSame(JSON.parse(body).error.details, [
    { ...ERROR_INFO, reason: "rate-limited" },
    { "@type": "type.googleapis.com/google.rpc.RetryInfo", retryDelay: "12s" },
  ]);
});

t.test("the body is in the caller's protocol and says who is talking", async (t) => {
  const refusal = refuse("token-missing", "make one ✓");
  const message = "keybearer: make one ✓";
  const body = (protocol: "openai" | "messages" | "gemini") => {
    const answer = refusalAnswer(refusal, protocol, "id");
    t.equal(answer.headers["content-length"], String(Buffer.byteLength(answer.body)), "in bytes");
    t.equal(answer.headers["content-type"], "application/json");
    return JSON.parse(answer.body);
  };
  t.strictSame(body("openai"), {
    error: { message, type: "keybearer_refusal", param: null, code: "token-missing" },
  });
  t.strictSame(body("messages"), { type: "error", error: { type: "authentication_error", message } });
  t.strictSame(body("gemini"), {
    error: { code: 401, message, status: "UNAUTHENTICATED", details: [ERROR_INFO] },
  });
});

t.test("messages clients get the error type of each status", async (t) => {
  for (const [code, type] of [
    ["browser-request", "permission_error"],
    ["body-too-large", "request_too_large"],
    ["rate-limited", "rate_limit_error"],
    ["tool-disabled", "invalid_request_error"],
    ["gateway-timeout", "api_error"],
  ] as const) {
    t.equal(
      JSON.parse(
        refusalAnswer(refuse(code, "x", code === "rate-limited" ? 1 : undefined), "messages", "id").body,
      ).error.type,
      type,
    );
  }
});

t.test("Retry-After is whole seconds, rounded up, and only where it was said", async (t) => {
  t.equal(refusalAnswer(refuse("rate-limited", "x", 1.2), "openai", "id").headers["retry-after"], "2");
  t.equal(refusalAnswer(refuse("rate-limited", "x"), "openai", "id").headers["retry-after"], undefined);
});
