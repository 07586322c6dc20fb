import { Agent } from "node:http";
import t, { type Test } from "tap";
import { Secret } from "../../src/core/secret.ts";
import { findNewApiProblem, KeyCheck } from "../../src/doctor/key-check.ts";
import { KeyCallBudgets } from "../../src/mirror/consoles/key-calls.ts";
import type { KeyDetail } from "../../src/proxy/key-health/cause.ts";
import { startNewApi } from "../doubles/consoles/new-api.ts";
import { heldClock } from "../doubles/held-clock.ts";
import { configOf } from "../doubles/parsed-config.ts";

/** The moment at which the real programs gave the answers below. */
const NOW = 1_794_874_660_000;

/** What new-api's /api/usage/token/ answered, word for word, about keys that its relay refused with 401. */
const ANSWERS: [string, number, string, ReturnType<typeof findNewApiProblem>][] = [
  ["2d8e50bf, a deleted key", 401, '{"message":"Invalid token","success":false}', "key-deleted"],
  ["2d8e50bf, a deleted key, zh-CN", 401, '{"message":"无效的令牌","success":false}', "key-deleted"],
  ["2d8e50bf, a deleted key, zh-TW", 401, '{"message":"無效的令牌","success":false}', "key-deleted"],
  [
    "2d8e50bf, a disabled key",
    401,
    '{"message":"This token status is unavailable","success":false}',
    "key-disabled",
  ],
  ["2d8e50bf, a disabled key, zh-CN", 401, '{"message":"该令牌状态不可用","success":false}', "key-disabled"],
  ["2d8e50bf, a disabled key, zh-TW", 401, '{"message":"該令牌狀態不可用","success":false}', "key-disabled"],
  ["2d8e50bf, a banned user", 403, '{"message":"User has been banned","success":false}', "account-disabled"],
  ["2d8e50bf, a banned user, zh-CN", 403, '{"message":"用户已被封禁","success":false}', "account-disabled"],
  ["2d8e50bf, a banned user, zh-TW", 403, '{"message":"使用者已被封禁","success":false}', "account-disabled"],
  [
    "v0.13.2, a disabled key: nothing else is wrong with it",
    200,
    '{"code":true,"data":{"expires_at":0,"model_limits":{},"model_limits_enabled":false,"name":"k3","object":"token_usage","total_available":0,"total_granted":0,"total_used":0,"unlimited_quota":true},"message":"ok"}',
    "key-disabled",
  ],
  [
    "v0.13.2 and 2d8e50bf, a key that is used up",
    200,
    '{"code":true,"data":{"expires_at":0,"model_limits":{},"model_limits_enabled":false,"name":"k6","object":"token_usage","total_available":-5503,"total_granted":2000,"total_used":7503,"unlimited_quota":false},"message":"ok"}',
    "key-quota",
  ],
  [
    "v0.13.2 and 2d8e50bf, an expired key",
    200,
    '{"code":true,"data":{"expires_at":1794874645,"model_limits":{},"model_limits_enabled":false,"name":"k4","object":"token_usage","total_available":0,"total_granted":0,"total_used":0,"unlimited_quota":true},"message":"ok"}',
    "key-expired",
  ],
  ["too many questions", 429, "", null],
  [
    "2d8e50bf, a deleted user",
    500,
    '{"message":"Database error, please contact the administrator","success":false}',
    null,
  ],
  [
    "2d8e50bf, a key with a channel behind it",
    200,
    '{"message":"Failed to get token info, please try again later","success":false}',
    null,
  ],
  ["a page", 200, "<!doctype html><title>New API</title>", null],
];

t.test("new-api's answer about a key says why its relay refuses it", async (t) => {
  for (const [what, status, text, detail] of ANSWERS)
    t.equal(findNewApiProblem({ status, text }, NOW), detail, what);
});

/** A new-api with one key, and a check that uses it. */
async function newApiWithKey(t: Test) {
  const clock = heldClock();
  const double = await startNewApi(t, { now: clock.now, limits: true });
  const key = double.addKey({ name: "codex", key: "sk-keycheck0123456789" });
  const config = configOf(`gateway: ${double.url}/v1\ntools: { codex: {} }\n`);
  const [gateway] = Object.values(config.gateways);
  if (gateway === undefined) throw new Error("there is no gateway");
  const agent = new Agent();
  const keyCalls = new KeyCallBudgets(clock.now, null);
  const known = { detail: null as KeyDetail | null };
  const listedDetail = async () => known.detail;
  const keyCheck = new KeyCheck({ clock, keyCalls, agentFor: () => agent, listedDetail });
  t.teardown(() => {
    keyCheck.stop();
    agent.destroy();
  });
  return {
    clock,
    double,
    key,
    keyCalls,
    /** What the console lists of the key. */
    known,
    check: (text = key.key) => keyCheck.check(gateway, new Secret(text)),
  };
}

t.test("concurrent checks of a key share one request, and later checks ask again", async (t) => {
  const { clock, double, key, check } = await newApiWithKey(t);
  key.disabled = true;
  t.strictSame(await Promise.all([check(), check(), check()]), Array(3).fill("key-disabled"));
  t.equal(double.asked.length, 1);
  key.disabled = false;
  key.expiresAt = clock.now() - 2000;
  t.equal(await check(), "key-expired");
  t.equal(await check("sk-anotherkey0123456789"), "key-deleted");
  t.equal(double.asked.length, 3);
});

t.test("what a login lists of the key is enough, and takes no lookup with the key", async (t) => {
  const { double, keyCalls, known, check } = await newApiWithKey(t);
  while (keyCalls.of(double.url).take());
  known.detail = "key-expired";
  t.equal(await check(), "key-expired");
  t.equal(double.asked.length, 0);
});

t.test("without budget no call is made, and the cause is unknown", async (t) => {
  const { double, key, keyCalls, check } = await newApiWithKey(t);
  key.disabled = true;
  while (keyCalls.of(double.url).take());
  t.equal(await check(), null);
  t.equal(double.asked.length, 0);
});

t.test("a console that says 429, fails or does not answer leaves the detail unknown", async (t) => {
  for (const fault of ["429", "500", "cut", "html"] as const) {
    const { double, key, check } = await newApiWithKey(t);
    key.disabled = true;
    double.fault = fault;
    t.equal(await check(), null, fault);
  }
});
