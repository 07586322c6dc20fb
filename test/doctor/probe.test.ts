import { once } from "node:events";
import { createServer as createTlsServer } from "node:https";
import { createServer } from "node:net";
import t, { type Test } from "tap";
import { gatewayFromUrl } from "../../src/config/parse.ts";
import type { Gateway } from "../../src/config/schema.ts";
import { systemClock } from "../../src/core/clock.ts";
import { Secret } from "../../src/core/secret.ts";
import { KeyCheck } from "../../src/doctor/key-check.ts";
import { type ProbeDeps, type ProbeOptions, type ProbeResult, probeKey } from "../../src/doctor/probe.ts";
import { KeyCallBudgets } from "../../src/mirror/consoles/key-calls.ts";
import { Agents } from "../../src/proxy/agents.ts";
import { makeCertificates } from "../doubles/certificates.ts";
import { startConnectProxy } from "../doubles/connect-proxy.ts";
import { type GatewayCall, startRawGateway } from "../doubles/raw-gateway.ts";
import { TestGateway } from "../doubles/sandbox.ts";

process.env.TZ = "UTC";

const sandbox = new TestGateway();
const agents = new Agents(systemClock);
t.before(() => sandbox.start());
t.teardown(async () => {
  agents.close();
  await sandbox.stop();
});

function probe(
  gateway: Gateway | string,
  key: Secret,
  more: Partial<ProbeDeps> & ProbeOptions = {},
): Promise<ProbeResult> {
  const made = typeof gateway === "string" ? gatewayFromUrl("main", gateway) : gateway;
  const { agentFor } = agents;
  const { clock = systemClock, worked, timeout } = more;
  const keyCalls = new KeyCallBudgets(() => clock.now(), null);
  const keyCheck =
    more.keyCheck ?? new KeyCheck({ clock, keyCalls, agentFor, listedDetail: async () => null });
  return probeKey({ clock, agentFor, keyCheck }, made, key, { worked, timeout });
}

function newKey(more: Partial<Parameters<typeof sandbox.createKey>[0]> = {}) {
  return sandbox.createKey({ name: "probe", group: "default", ...more });
}

/** The failure, after a check that it does not contain the key. */
function failure(t: Test, probed: ProbeResult, key: Secret) {
  if (probed.ok) throw new Error("it was accepted");
  t.notOk(key.isIn(JSON.stringify(probed)), "it does not contain the key");
  t.ok(probed.problem !== "" && probed.next !== "", "what happened, and what to do");
  return probed;
}

t.test("a good key gets its group's models, and the gateway's clock is compared with ours", async (t) => {
  const { key } = newKey({ group: "coding" });
  const probed = await probe(sandbox.baseUrl, key);
  t.match(probed, { ok: true, status: 200, models: ["sandbox-large", "sandbox-code"] });
  t.type(probed.skew, "number");
  t.equal(sandbox.usage().length, 0, "nothing was billed");
  const now = Date.UTC(2026, 10, 15, 12);
  const ahead = await startRawGateway(t, (call) =>
    call.answer("200 OK", { Date: new Date(now + 600_000).toUTCString() }, '{"data":[]}'),
  );
  const slow = { now: () => now, elapsed: () => 0 };
  const late = await probe(`${ahead.origin}/v1`, key, { clock: slow });
  // The header is rounded to the second.
  t.ok(Math.abs((late.skew ?? 0) - 600_000) <= 1000, "ten minutes behind");
});

t.test("a key with a space or a placeholder is not sent at all", async (t) => {
  sandbox.clearRequests();
  for (const text of ["sk-abc def0123456789", "sk-abc\ndef0123456789", "<your key here>", "short"]) {
    const key = new Secret(text);
    t.match(failure(t, await probe(sandbox.baseUrl, key), key), { cause: "incomplete-key", status: null });
  }
  t.equal(sandbox.requests().length, 0);
});

t.test("the causes of a refused key are distinguished", async (t) => {
  const failed = async (key: Secret, more: ProbeOptions = {}) =>
    failure(t, await probe(sandbox.baseUrl, key, more), key);

  const whole = newKey().key.reveal();
  const cut = new Secret(whole.slice(0, -7));
  t.match(await failed(cut), {
    cause: "incomplete-key",
    status: 401,
    problem: /^incomplete key: it is shorter than such keys are/,
  });

  const deleted = newKey();
  sandbox.deleteKey(deleted.id);
  t.match(await failed(deleted.key), { cause: "incomplete-key", problem: /^key not valid / });
  t.match(await failed(deleted.key, { worked: true }), { cause: "deleted", problem: /^deleted key \(/ });

  const disabled = newKey();
  sandbox.disableKey(disabled.id);
  t.match(await failed(disabled.key), { cause: "disabled", status: 401, problem: /^disabled key \(/ });

  const expired = newKey({ expiresAt: Date.now() - 1000 });
  t.match(await failed(expired.key), { cause: "expired", status: 403, problem: /^expired key \(/ });

  const retired = newKey({ group: "retired" });
  t.match(await failed(retired.key), {
    cause: "group-unavailable",
    status: 403,
    problem: /^group unavailable: the key's group is disabled \(/,
  });

  const poor = newKey();
  const before = sandbox.account.balance;
  sandbox.account.balance = 0;
  t.match(await failed(poor.key), {
    cause: "balance-or-quota",
    status: 403,
    problem: /the account's balance/,
  });
  sandbox.account.balance = before;
});

t.test("a key's spent quota is distinguished from an empty account", async (t) => {
  const { key } = newKey({ quota: 0.000001 });
  const asking = await fetch(`${sandbox.baseUrl}/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key.reveal()}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "sandbox-large", messages: [{ role: "user", content: "hello" }] }),
  });
  await asking.text();
  const { cause, problem, status } = failure(t, await probe(sandbox.baseUrl, key), key);
  t.match(
    { cause, problem, status },
    { cause: "balance-or-quota", problem: /the key's own quota/, status: 429 },
  );
});

t.test("a wrong base url is reported, with the right one if that answers", async (t) => {
  const { key } = newKey();
  const { origin, baseUrl } = sandbox;
  const failed = async (url: string) => failure(t, await probe(url, key), key);
  t.match(await failed(`${baseUrl}/chat/completions`), {
    cause: "wrong-base-url",
    next: `${baseUrl} answers`,
  });
  t.match(await failed(origin), { cause: "html", status: 200, next: `${baseUrl} answers` });
  t.match(await failed(`${origin}/keys`), {
    cause: "html",
    problem: /a web page/,
    next: `${baseUrl} answers`,
  });
});

t.test("dead, unknown and silent hosts are distinguished", async (t) => {
  const { key } = newKey();
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  const port = typeof address === "object" ? address?.port : 0;
  await new Promise((resolve) => server.close(resolve));
  const dead = await probe(`http://127.0.0.1:${port}/v1`, key);
  t.match(failure(t, dead, key), { cause: "unreachable", status: null, problem: /nothing listens there/ });

  const unknown = await probe("https://no-such-host.invalid/v1", key);
  t.match(failure(t, unknown, key), { cause: "dns", problem: /DNS/ });

  const silent = await startRawGateway(t, () => {});
  const waited = await probe(`${silent.origin}/v1`, key, { timeout: 150 });
  t.match(failure(t, waited, key), { cause: "timeout", problem: /did not answer within 0\.2 s/ });

  const plain = await startRawGateway(t, () => {}, {
    onConnection: (socket) => void socket.end("HTTP/1.1 400 Bad Request\r\n\r\n"),
  });
  const spoken = await probe(`https://127.0.0.1:${plain.port}/v1`, key);
  t.match(failure(t, spoken, key), { cause: "tls", problem: /TLS with it failed/ });
});

t.test("a self-signed certificate is reported as such", async (t) => {
  const certificates = makeCertificates(t);
  if (certificates === null) return;
  const server = createTlsServer(certificates.selfSigned, (_req, res) => void res.end("{}"));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => server.close());
  const address = server.address();
  const port = typeof address === "object" ? address?.port : 0;
  const { key } = newKey();
  const failed = failure(t, await probe(`https://127.0.0.1:${port}/v1`, key), key);
  t.match(failed, {
    cause: "tls",
    problem: /its certificate is self-signed/,
    next: /gateways\.\w+\.ca_file/,
  });
});

t.test("an outbound proxy is used, and named if it fails", async (t) => {
  const { key } = newKey();
  const through = (proxy: string): Gateway => ({ ...gatewayFromUrl("main", sandbox.baseUrl), proxy });
  const good = await startConnectProxy(t);
  t.match(await probe({ ...through(good.url), name: "good" }, key), { ok: true });
  t.equal(good.heads.length > 0, true, "it was asked for a tunnel");
  const bad = await startConnectProxy(t, "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n");
  const failed = failure(t, await probe({ ...through(bad.url), name: "bad" }, key), key);
  t.match(failed, {
    cause: "unreachable",
    problem: /the outbound proxy .* answered 407/,
    next: /gateways\.bad\.proxy/,
  });
});

/** Answers every request by its path. */
async function answering(t: Test, answers: Readonly<Record<string, (call: GatewayCall) => void>>) {
  return startRawGateway(t, (call) =>
    (answers[call.target] ?? (() => call.answer("404 Not Found", {}, "")))(call),
  );
}

const JSON_TYPE = { "Content-Type": "application/json" };

/** new-api's answers to GET /v1/models and to GET /api/usage/token/ with the same key. */
const NEW_API_LIST =
  '{"error":{"code":"","message":"Invalid token (request id: 202611170015174650030228268d9d601Io4EFp)","type":"new_api_error"}}';
const facts = (more: string) =>
  `{"code":true,"data":{${more},"model_limits":{},"model_limits_enabled":false,"name":"k6","object":"token_usage"},"message":"ok"}`;
const NEW_API_FACTS: readonly [state: string, version: string, status: string, body: string][] = [
  ["deleted", "2d8e50bf", "401 Unauthorized", '{"message":"Invalid token","success":false}'],
  ["deleted", "v0.13.2", "401 Unauthorized", '{"message":"无效的令牌","success":false}'],
  [
    "disabled",
    "2d8e50bf",
    "401 Unauthorized",
    '{"message":"This token status is unavailable","success":false}',
  ],
  ["disabled", "2d8e50bf", "401 Unauthorized", '{"message":"该令牌状态不可用","success":false}'],
  [
    "disabled",
    "v0.13.2",
    "200 OK",
    facts('"expires_at":0,"total_available":0,"total_granted":0,"total_used":0,"unlimited_quota":true'),
  ],
  [
    "expired",
    "2d8e50bf",
    "200 OK",
    facts(
      '"expires_at":1694874520,"total_available":0,"total_granted":0,"total_used":0,"unlimited_quota":true',
    ),
  ],
  [
    "balance-or-quota",
    "2d8e50bf",
    "200 OK",
    facts(
      '"expires_at":0,"total_available":-5503,"total_granted":2000,"total_used":7503,"unlimited_quota":false',
    ),
  ],
  // Beyond 20 questions in 20 minutes the answer is empty: that says nothing about the key.
  ["incomplete-key", "2d8e50bf", "429 Too Many Requests", ""],
  [
    "incomplete-key",
    "2d8e50bf",
    "200 OK",
    '{"message":"Failed to get token info, please try again later","success":false}',
  ],
];

async function newApi(t: Test, status: string, body: string, version = "v0.0.0") {
  return answering(t, {
    "/v1/models": (call) =>
      call.answer("401 Unauthorized", { ...JSON_TYPE, "X-New-Api-Version": version }, NEW_API_LIST),
    "/api/usage/token/": (call) => call.answer(status, JSON_TYPE, body),
  });
}

for (const [state, version, status, body] of NEW_API_FACTS)
  t.test(`new-api ${version}, ${status} ${body.slice(0, 40)}: the cause is ${state}`, async (t) => {
    const gateway = await newApi(t, status, body);
    const { key } = newKey();
    // Accepted before or not: a disabled key is never called deleted.
    for (const worked of [false, true]) {
      const failed = failure(t, await probe(`${gateway.origin}/v1`, key, { worked }), key);
      t.equal(failed.cause, state);
      t.match(failed.problem, "(401: Invalid token");
      if (state === "incomplete-key")
        t.match(failed.next, "not valid: deleted, disabled, expired or used up");
    }
  });

t.test(
  "when the budget for questions to new-api is used up, the result says when it can be asked again",
  async (t) => {
    const gateway = await newApi(t, "401 Unauthorized", '{"message":"Invalid token","success":false}');
    const now = Date.UTC(2026, 10, 17, 12);
    const clock = { now: () => now, elapsed: () => 0 };
    const keyCalls = new KeyCallBudgets(clock.now, null);
    const keyCheck = new KeyCheck({
      clock,
      keyCalls,
      agentFor: agents.agentFor,
      listedDetail: async () => null,
    });
    // As the mirror does.
    for (let n = 0; n < 16; n += 1) keyCalls.of(gateway.origin).spend();
    const { key } = newKey();
    const { cause, problem } = failure(t, await probe(`${gateway.origin}/v1`, key, { clock, keyCheck }), key);
    t.equal(cause, "incomplete-key");
    t.match(problem, /was not checked: the gateway allows 20 key lookups .* can be asked again at 12:20$/);
    t.notOk(gateway.calls.some(({ target }) => target === "/api/usage/token/"));
  },
);

/** What sub2api 0.1.135 answers to GET /v1/usage with a key to which it lists its models. */
const SUB2API_USAGE: readonly [why: string, body: string][] = [
  [
    "the 5h window is used up, and resets at 05:28",
    '{"isValid":true,"mode":"quota_limited","rate_limits":[{"limit":0.001,"remaining":0,"reset_at":"2026-11-17T05:27:11.4633Z","used":0.30015,"window":"5h","window_start":"2026-11-17T00:27:11.4633Z"}],"status":"active"}',
  ],
  [
    "the 1d window is used up, and resets tomorrow at 00:00",
    '{"isValid":true,"mode":"quota_limited","rate_limits":[{"limit":0.001,"remaining":0,"reset_at":"2026-11-18T00:00:00Z","used":0.30015,"window":"1d","window_start":"2026-11-17T00:00:00Z"}],"status":"active"}',
  ],
  [
    "the 7d window is used up, and resets on 2026-11-24",
    '{"isValid":true,"mode":"quota_limited","rate_limits":[{"limit":0.001,"remaining":0,"reset_at":"2026-11-24T00:00:00Z","used":0.30015,"window":"7d","window_start":"2026-11-17T00:00:00Z"}],"status":"active"}',
  ],
  [
    "the 5h window is used up, and resets at 05:28",
    '{"days_until_expiry":29,"expires_at":"2026-12-17T00:27:17.530697Z","isValid":true,"mode":"quota_limited","quota":{"limit":100,"remaining":100,"unit":"USD","used":0},"rate_limits":[{"limit":0.001,"remaining":0,"reset_at":"2026-11-17T05:27:17.550945Z","used":0.30015,"window":"5h","window_start":"2026-11-17T00:27:17.550945Z"},{"limit":50,"remaining":49.69985,"reset_at":"2026-11-18T00:00:00Z","used":0.30015,"window":"1d","window_start":"2026-11-17T00:00:00Z"}],"remaining":100,"status":"active","unit":"USD"}',
  ],
  [
    "the account's balance is used up",
    '{"balance":-0.29915,"isValid":true,"mode":"unrestricted","planName":"钱包余额","remaining":-0.29915,"unit":"USD"}',
  ],
  [
    "a window of the quota is used up",
    '{"isValid":true,"mode":"unrestricted","planName":"subscription daily limit used up-a","remaining":0,"subscription":{"daily_limit_usd":0.001,"daily_usage_usd":0.30015,"expires_at":"2026-12-17T00:27:44.603688Z","monthly_limit_usd":null,"monthly_usage_usd":0.30015,"weekly_limit_usd":null,"weekly_usage_usd":0.30015},"unit":"USD"}',
  ],
];

for (const [why, body] of SUB2API_USAGE)
  t.test(`sub2api lists models to a key, but ${why}`, async (t) => {
    const gateway = await answering(t, {
      "/v1/models": (call) =>
        call.answer("200 OK", { ...JSON_TYPE, "X-Client-Request-ID": "x" }, '{"data":[{"id":"m"}]}'),
      "/v1/usage": (call) => call.ok(body),
    });
    const { key } = newKey();
    const clock = { now: () => Date.UTC(2026, 10, 17, 0, 30), elapsed: () => 0 };
    const failed = failure(t, await probe(`${gateway.origin}/v1`, key, { clock }), key);
    t.equal(failed.cause, "balance-or-quota");
    t.equal(failed.problem, `balance or quota: ${why}, according to the gateway`);
    t.notMatch(failed.next, /create a new/, "a new key does not help");
  });

t.test("a list of models for a key without balance is not a success", async (t) => {
  const gateway = await answering(t, {
    "/v1/models": (call) =>
      call.answer("200 OK", { ...JSON_TYPE, "X-Client-Request-ID": "x" }, '{"data":[{"id":"m"}]}'),
    "/v1/usage": (call) => call.ok('{"mode":"unrestricted","isValid":true,"remaining":0}'),
  });
  const { key } = newKey();
  t.match(failure(t, await probe(`${gateway.origin}/v1`, key), key), { cause: "balance-or-quota" });
});

t.test("`remaining` is a subscription's, a balance's or a quota's, by the rest of the answer", async (t) => {
  let usage: object = {};
  const gateway = await answering(t, {
    "/v1/models": (call) =>
      call.answer("200 OK", { ...JSON_TYPE, "X-Client-Request-ID": "x" }, '{"data":[{"id":"m"}]}'),
    "/v1/usage": (call) => call.ok(JSON.stringify({ mode: "unrestricted", isValid: true, ...usage })),
  });
  const { key } = newKey();
  const withUsage = (answer: object) => {
    usage = answer;
    return probe(`${gateway.origin}/v1`, key);
  };
  const subscription = { daily_limit_usd: null };
  t.match(await withUsage({ planName: "Max", remaining: -1, subscription }), { ok: true, models: ["m"] });
  t.match(await withUsage({ planName: "Max", remaining: -1 }), { ok: true });
  t.match(await withUsage({ planName: "Max", remaining: 3, subscription }), { ok: true });
  const spent = (problem: RegExp) => ({ ok: false, cause: "balance-or-quota", problem });
  t.match(await withUsage({ planName: "Max", remaining: 0, subscription }), spent(/a window of the quota/));
  t.match(await withUsage({ remaining: -0.02, balance: -0.02 }), spent(/the account's balance/));
  t.match(await withUsage({ planName: "钱包余额", remaining: -1 }), spent(/the account's balance/));
  t.match(await withUsage({ mode: "quota_limited", remaining: 0 }), spent(/the key's own quota/));
});

t.test("a redirect, no list or too long an answer is a failure, and an echoed key is redacted", async (t) => {
  const elsewhere = await startRawGateway(t, (call) => call.ok());
  const { key } = newKey();
  const failed = async (answer: (call: GatewayCall) => void) => {
    const gateway = await answering(t, { "/v1/models": answer });
    return failure(t, await probe(`${gateway.origin}/v1`, key), key);
  };
  t.match(
    await failed((call) => call.answer("302 Found", { Location: `${elsewhere.origin}/v1/models` }, "")),
    {
      cause: "wrong-base-url",
      status: 302,
    },
  );
  t.equal(elsewhere.calls.length, 0, "the key went nowhere else");
  t.match(await failed((call) => call.ok('{"hello":1}')), {
    cause: "wrong-base-url",
    problem: /not with a list of models/,
  });
  t.match(await failed((call) => call.ok("x".repeat(4 * 1024 * 1024 + 1))), { problem: /more than 4 MB/ });
  const echo = await failed((call) =>
    call.answer("418 Teapot", JSON_TYPE, JSON.stringify({ message: `who is ${key.reveal()}?` })),
  );
  t.match(echo, { cause: "unknown", problem: /^the key could not be checked: .*who is \[redacted\]\?/ });
  const escaped = [...key.reveal()]
    .map((char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`)
    .join("");
  const hidden = await failed((call) =>
    call.answer("418 Teapot", JSON_TYPE, `{"message":"who is ${escaped}?"}`),
  );
  t.match(hidden.problem, /who is \[redacted\]\?/, "also where the gateway escapes it");
  const listing = await startRawGateway(t, (call) => call.ok(`{"data":[{"id":"${escaped}"},{"id":"m"}]}`));
  t.match(await probe(`${listing.origin}/v1`, key), { ok: true, models: ["[redacted]", "m"] });
});

t.test("the key is sent in the header that the gateway needs", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok('["a","b","a"]'));
  const { key } = newKey();
  const made = { ...gatewayFromUrl("main", `${gateway.origin}/v1`), keyHeader: "x-api-key" as const };
  t.match(await probe(made, key), { ok: true, models: ["a", "b"] });
  t.same(gateway.calls[0]?.header("x-api-key"), [key.reveal()]);
  t.same(gateway.calls[0]?.header("authorization"), []);
});
