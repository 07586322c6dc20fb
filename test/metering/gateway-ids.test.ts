import { randomUUID } from "node:crypto";
import t from "tap";
import { idsInBody, idsInHead } from "../../src/metering/gateway-ids.ts";

const idsOf = (rawHeaders: readonly string[], bodyId: string | null, errorText: string | null) => ({
  ...idsInHead(rawHeaders),
  ...idsInBody(bodyId, errorText),
});

t.test("every id by which a console or an operator knows the request is kept", (t) => {
  const uuid = randomUUID();
  const headers = [
    ["Content-Type", "application/json"],
    ["X-Client-Request-ID", uuid],
    ["X-Oneapi-Request-Id", "20260821010203123456789AbCdEfGh"],
    ["x-litellm-call-id", uuid],
    ["X-Generation-Id", "gen-1763164800-aB3dE5fG7h"],
    ["x-request-id", "req_011CSHoEeqs5C35K2UUqR7Fy"],
    ["Request-Id", " req_011CSHoEeqs5C35K2UUqR7Fz "],
    ["cf-ray", "8f2c1a7b9d3e4f5a-FRA"],
    ["x-request-id", "the second one"],
  ].flat();
  t.strictSame(idsOf(headers, "chatcmpl-BkQ7zUaYh2LwX9vT3mN5pR8sK1jD", null), {
    "x-client-request-id": uuid,
    "x-oneapi-request-id": "20260821010203123456789AbCdEfGh",
    "x-litellm-call-id": uuid,
    "x-generation-id": "gen-1763164800-aB3dE5fG7h",
    "x-request-id": "req_011CSHoEeqs5C35K2UUqR7Fy",
    "request-id": "req_011CSHoEeqs5C35K2UUqR7Fz",
    body: "chatcmpl-BkQ7zUaYh2LwX9vT3mN5pR8sK1jD",
  });
  t.end();
});

t.test("the id in an error's text is found, and of several the last, which is our gateway's", (t) => {
  for (const [text, id] of [
    [
      '{"error":{"message":"Invalid token (request id: 202608210102031234abcd)","type":"new_api_error"}}',
      "202608210102031234abcd",
    ],
    ["无效的令牌（request id：2026ab）", "2026ab"],
    ["无效的令牌 (请求ID: 2026-ab.c)", "2026-ab.c"],
    ["額度不足（請求 id：2026ab）", "2026ab"],
    ["bad (request id: upstream1) (request id: ours2)", "ours2"],
    ["bad (Request_ID: r3)", "r3"],
    ["no id (request id: )", undefined],
    ["request id: without brackets", undefined],
  ] as const)
    t.equal(idsOf([], null, text).error, id, text);
  t.end();
});

t.test("what is too long, not printable or shaped like a key is no id", (t) => {
  for (const value of [
    "",
    "a".repeat(129),
    "with space",
    "tab\there",
    "héllo",
    "sk-abcdefghijklmnop",
    "kb_abcdefghijk",
    "AIzaSyA1234567890abcdef",
  ]) {
    t.strictSame(idsOf(["x-request-id", value], value, `(request id: ${value})`), {}, value.slice(0, 30));
  }
  t.strictSame(idsOf(["x-request-id", "a".repeat(128)], null, null), {
    "x-request-id": "a".repeat(128),
  });
  t.strictSame(
    idsOf(["__proto__", "x", "x-request-id"], null, null),
    {},
    "and a header without a value none",
  );
  t.end();
});
