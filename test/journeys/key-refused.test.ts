import { writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import t, { type Test } from "tap";
import { command } from "../doubles/command.ts";
import { type NewApiOptions, startNewApi } from "../doubles/consoles/new-api.ts";
import { freshToken, startUnderTest, startWithOneTool } from "../doubles/daemon-under-test.ts";
import { examineHome } from "../doubles/doctor.ts";
import { longTest, oneOf } from "../doubles/effort.ts";
import { heldClock } from "../doubles/held-clock.ts";
import { listen } from "../doubles/listen.ts";
import { movableClock } from "../doubles/movable-clock.ts";
import { startRawGateway } from "../doubles/raw-gateway.ts";
import { hello, newKey, post, startSandbox } from "../doubles/sandbox.ts";
import { until } from "../doubles/until.ts";
import { gatewayAnswers } from "../proxy/gateway-answers.ts";

// These tests mostly wait, so they run side by side.
t.jobs = 8;

/** A key that its gateway refuses: why, and what keybearer does about a tool that goes on trying. */

const KEY = "sk-refusedkey0123456789abcdef";
const OTHER_KEY = "sk-anotherkey0123456789fedcba";

async function start(t: Test, options: NewApiOptions = {}) {
  const clock = heldClock();
  const double = await startNewApi(t, { now: clock.now, limits: true, ...options });
  const key = double.addKey({ name: "codex", key: KEY, quota: 10 });
  const { token, hash } = freshToken();
  const config = (text: string, more = "") => `gateways: { main: { base_url: "${double.url}/v1" } }
tools: { codex: { key: ${text}, token: "${hash}"${more} } }
`;
  const under = await startUnderTest(t, config(KEY), { clock });
  const chat = async (headers: Record<string, string> = {}, signal: AbortSignal | null = null) => {
    const response = await fetch(`${under.url}/v1/chat/completions`, {
      method: "POST",
      signal,
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json", ...headers },
      body: JSON.stringify({ model: "gpt-5.1", messages: [{ role: "user", content: "hi" }] }),
    });
    return {
      status: response.status,
      cause: response.headers.get("x-keybearer-cause"),
      detail: response.headers.get("x-keybearer-cause-detail"),
      refusal: response.headers.get("x-keybearer-refusal"),
      text: await response.text(),
    };
  };
  const status = async () => {
    const [tool] = (await under.daemon.status()).tools;
    if (tool === undefined) throw new Error("there is no tool");
    return tool;
  };
  const findings = async () => {
    const all = await examineHome(under.paths, {}, clock.now());
    return all.filter(({ about }) => about === "tool codex");
  };
  return { ...under, clock, double, key, config, chat, status, findings };
}

type Scene = Awaited<ReturnType<typeof start>>;

/** What makes the gateway refuse, and the cause and detail that are known once it was asked. */
const STATES: [string, (scene: Scene) => void, string, string][] = [
  ["disabled", ({ key }) => (key.disabled = true), "unknown", "key-disabled"],
  ["expired", ({ key, clock }) => (key.expiresAt = clock.now() - 5000), "unknown", "key-expired"],
  ["used up", ({ key }) => (key.usedDollars = 10), "balance-or-quota", "key-quota"],
  ["deleted", ({ double }) => double.keys.splice(0), "unknown", "key-deleted"],
];
for (const version of oneOf(["v0.13.2", "v1.0.0-rc.25"], "v1.0.0-rc.25"))
  for (const [what, spoil, cause, detail] of STATES)
    t.test(
      `${version}: a ${what} key is distinguished from the others after its first refusal`,
      async (t) => {
        const scene = await start(t, { version });
        const { double, chat, status, log } = scene;
        t.equal((await chat()).status, 200);
        spoil(scene);
        const first = await chat();
        t.match(first, { status: 401, detail: null });
        await until("the gateway was asked", async () => (await status()).refused?.detail !== null);
        t.match(await status(), { state: "key-refused", refused: { cause, detail, times: 1 } });
        t.match(await chat(), { status: 401, cause, detail, text: /Invalid token/ });
        await until("both are settled", () => log().filter((line) => line.status === 401).length === 2);
        t.match(
          log().filter((line) => line.status === 401),
          [{ cause_detail: null }, { cause, cause_detail: detail }],
        );
        t.equal(double.asked.filter(({ path }) => path === "/api/usage/token/").length, 1);
      },
    );

for (const version of oneOf(["v0.13.2", "v1.0.0-rc.25"], "v1.0.0-rc.25"))
  t.test(`${version}: a key that was disabled, enabled and deleted within minutes is deleted`, async (t) => {
    const { double, key, chat, status, findings } = await start(t, { version });
    key.disabled = true;
    await chat();
    await until("the gateway was asked", async () => (await status()).refused?.detail === "key-disabled");
    key.disabled = false;
    t.equal((await chat()).status, 200);
    await until("it is accepted", async () => (await status()).state === "active");
    double.keys.splice(0);
    t.match(await chat(), { status: 401, detail: null });
    await until("the gateway was asked", async () => (await status()).refused?.detail === "key-deleted");
    t.match(await chat(), { status: 401, cause: "unknown", detail: "key-deleted" });
    t.match(await findings(), [
      { level: "problem", what: /^deleted key/, next: /tools rotate codex --manual$/ },
    ]);
  });

longTest(
  t,
  "status shows what doctor found: a key that works again, and one that was never used",
  async (t) => {
    const { clock, double, key, chat, status, findings } = await start(t);
    key.disabled = true;
    t.match(await findings(), [{ id: "key", level: "problem", what: /^disabled key \(401/ }]);
    t.match(await status(), { state: "key-refused", why: /^disabled key \(401\)/, last_use: null });
    for (let n = 0; n < 5; n += 1) await chat();
    await until("it is paused", async () => (await status()).paused !== null);
    t.match(await findings(), [{ level: "problem", what: /^requests are refused here for .*disabled key/ }]);

    key.disabled = false;
    t.match(await findings(), [{ id: "key", level: "ok" }]);
    t.match(await status(), { state: "active", why: null, refused: null, paused: null });
    t.equal((await chat()).status, 200, "nothing has to be waited for");

    // Without a request in between, only asking again shows that it is another fault now.
    key.expiresAt = clock.now() - 5000;
    t.match(await findings(), [{ level: "problem", what: /^expired key/ }]);
    double.keys.splice(0);
    t.match(await findings(), [{ level: "problem", what: /^deleted key/ }]);
    t.match(await status(), { refused: { detail: "key-deleted" } });
    t.match(await chat(), { status: 401, detail: "key-deleted" });
  },
);

t.test("a list of models does not hide that the account is empty", async (t) => {
  const { double, chat, status, findings } = await start(t);
  double.balance = 0;
  t.match(await chat(), { status: 403, detail: "account-balance" });
  await until("it is settled", async () => (await status()).state === "key-refused");
  t.match(await findings(), [{ level: "problem", what: /the account's balance is used up/ }]);
  t.match(await status(), { state: "key-refused" });
});

t.test(
  "if new-api gives no cause, the advice names all four, and the key is not called deleted",
  async (t) => {
    const { double, key, chat, status } = await start(t);
    key.disabled = true;
    double.fault = "429";
    await chat();
    await until("the gateway was asked", () => double.asked.length === 1);
    t.match(await chat(), { status: 401, cause: "incomplete-key", detail: null });
    await until("both are settled", async () => (await status()).refused?.times === 2);
    t.match(await status(), { next: /^the key is not valid: deleted, disabled, expired or used up/ });
  },
);

t.test("a banned account does not lead to the advice to use another key", async (t) => {
  const { double, chat, status } = await start(t);
  double.banned = true;
  t.match(await chat(), { status: 403, cause: "unknown", detail: "account-disabled" });
  await until("it is settled", async () => (await status()).state === "key-refused");
  t.match(await status(), { next: /disabled, banned or deleted.*a new key does not help/ });
});

t.test("after five 401s a tool pauses for a minute, then one request tries the key", async (t) => {
  const { clock, double, key, chat, status, logText } = await start(t);
  key.disabled = true;
  for (let n = 0; n < 5; n += 1) t.equal((await chat()).status, 401);
  await until("they are settled", async () => (await status()).paused !== null);
  const refused = await chat();
  t.match(refused, {
    status: 400,
    refusal: "key-unavailable",
    text: /5 times in a row: 401 .*Invalid token/,
  });
  t.match(refused.text, /keybearer tools rotate codex/);
  t.equal(double.reached(), 5);
  t.match(await status(), {
    state: "key-refused",
    paused: { refused: 1 },
    why: /requests are refused here for 60 s, 1 so far/,
  });

  clock.pass(60_000);
  // One of them is sent and hangs at the gateway, so that the others come while it is in flight.
  key.disabled = false;
  const leave = new AbortController();
  const probe = chat({ "x-test-hang-before-headers": "1" }, leave.signal);
  await until("it has reached the gateway", () => double.reached() === 6);
  for (const other of await Promise.all([chat(), chat(), chat()]))
    t.match(other, { status: 400, refusal: "key-unavailable", text: /another request is trying the key/ });
  t.equal(double.reached(), 6);
  leave.abort();
  await t.rejects(probe);
  // It left without an answer, so the next one tries.
  await until("its place is free", async () => (await status()).paused?.probing === false);
  t.equal((await chat()).status, 200);
  t.notMatch(logText(), KEY);
});

t.test("an accepted key ends the pause, and so does a new one at once", async (t) => {
  const { clock, double, key, chat, status, save, config } = await start(t);
  const pause = async () => {
    key.disabled = true;
    for (let n = 0; n < 5; n += 1) await chat();
    await until("it is paused", async () => (await status()).paused !== null);
  };
  await pause();
  key.disabled = false;
  t.equal((await chat()).status, 400, "keybearer does not know it yet");
  clock.pass(60_000);
  t.equal((await chat()).status, 200);
  await until("it has ended", async () => (await status()).paused === null);
  t.match(await status(), { state: "active" });

  await pause();
  double.addKey({ name: "next", key: OTHER_KEY });
  await save(config(OTHER_KEY));
  await until("the new key is in force", async () => (await status()).key === "…dcba");
  t.equal((await chat()).status, 200);
});

t.test("the pause ends when the try is answered, however long its stream goes on", async (t) => {
  const { clock, double, key, chat, status } = await start(t);
  key.disabled = true;
  for (let n = 0; n < 5; n += 1) await chat();
  await until("it is paused", async () => (await status()).paused !== null);
  key.disabled = false;
  clock.pass(60_000);
  const leave = new AbortController();
  const stream = chat({ "x-test-hang-in-body": "1" }, leave.signal);
  await until("it is answered", async () => (await status()).paused === null);
  t.equal((await chat()).status, 200, "while the first still runs");
  t.equal(double.reached(), 7);
  leave.abort();
  await t.rejects(stream);
});

t.test("a key file that gets another key ends the pause, and the same key read again does not", async (t) => {
  const { home, double, key, chat, status, save, config, daemon } = await start(t);
  const file = join(home, "key");
  await writeFile(file, KEY, { mode: 0o600 });
  await save(config(`"file:${file}"`));
  const isFile = () => daemon.snapshot().config.tools.codex?.key.kind === "file";
  // On a busy machine the file is read a moment after the save is in force.
  await until("its key is in force", async () => isFile() && (await status()).state === "active");
  key.disabled = true;
  for (let n = 0; n < 5; n += 1) t.equal((await chat()).status, 401);
  await until("it is paused", async () => (await status()).paused !== null);
  t.equal((await chat()).status, 400, "the key was read again after each 401, and is the same");
  double.addKey({ name: "next", key: OTHER_KEY });
  await writeFile(file, OTHER_KEY);
  await until("the new key is in force", async () => (await status()).key === "…dcba");
  t.equal((await status()).paused, null);
  t.equal((await chat()).status, 200);
});

t.test(
  "the errors of real gateways pass byte for byte, with cause and detail in headers and record",
  async (t) => {
    const answers = gatewayAnswers();
    let answer = answers[0];
    const server = createServer((req, res) => {
      const isRelay = req.url?.startsWith("/v1/") === true;
      if (answer?.isNewApi) res.setHeader("x-new-api-version", "v0.13.2");
      if (answer?.requestId !== undefined) res.setHeader("x-oneapi-request-id", answer.requestId);
      res.writeHead(isRelay ? (answer?.status ?? 500) : 429, {
        "content-type": "application/json; charset=utf-8",
      });
      res.end(isRelay ? answer?.body : "");
    });
    const { url, token, log, home } = await startWithOneTool(t, (await listen(t, server)).origin);
    for (answer of answers) {
      const response = await fetch(`${url}/v1/models`, { headers: { authorization: `Bearer ${token}` } });
      t.equal(await response.text(), answer.body);
      t.strictSame(
        [
          response.status,
          ...["cause", "cause-detail"].map((name) => response.headers.get(`x-keybearer-${name}`)),
        ],
        [answer.status, answer.cause, answer.detail],
        `${answer.seen}: ${answer.when}`,
      );
    }
    const settled = () => log().filter(({ endpoint }) => endpoint === "/v1/models");
    await until("all are settled", () => settled().length === answers.length);
    const { stdout } = await command(t, home, ["usage", "export", "--json"]);
    const records = JSON.parse(stdout) as { cause: string; cause_detail: string | null }[];
    t.strictSame(
      records.map(({ cause, cause_detail }) => [cause, cause_detail]),
      answers.map(({ cause, detail }) => [cause, detail]),
    );
  },
);

/** What sub2api 0.1.135 answers while its cache for requests knows that a plan is used up, and its other cache does not. */
const LISTED = { "Content-Type": "application/json", "X-Client-Request-ID": "x" };
const plan = (remaining: number) =>
  `{"isValid":true,"mode":"unrestricted","planName":"Pro","remaining":${remaining},"subscription":{"daily_limit_usd":0.001,"daily_usage_usd":0},"unit":"USD"}`;

t.test("a plan that is used up stays refused, whatever a list of models or an old report says", async (t) => {
  const clock = movableClock();
  let remaining = 0.001;
  const gateway = await startRawGateway(t, (call) => {
    if (call.target === "/v1/models") return call.answer("200 OK", LISTED, '{"data":[{"id":"m"}]}');
    if (call.target === "/v1/usage") return call.ok(plan(remaining));
    const body = '{"error":{"message":"daily usage limit exceeded","type":"billing_error"}}';
    return call.answer("403 Forbidden", LISTED, body);
  });
  const under = await startWithOneTool(t, gateway.origin, { clock });
  const codex = async () => (await under.daemon.status()).tools[0];
  const findings = async () =>
    (await examineHome(under.paths, {}, clock.now())).filter(
      ({ id, about }) => id === "key" && about === "tool codex",
    );
  const response = await fetch(`${under.url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${under.token}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "m", messages: [] }),
  });
  t.equal(response.headers.get("x-keybearer-cause-detail"), "window-used-up");
  await until("it is settled", async () => (await codex())?.state === "key-refused");
  const used = [{ level: "problem", what: /^balance or quota: a window of the quota is used up/ }];
  t.match(await findings(), used);
  t.equal((await codex())?.state, "key-refused");
  clock.pass(5 * 60_000);
  remaining = 0;
  t.match(await findings(), used, "now the gateway reports it, too");
  t.equal((await codex())?.state, "key-refused");
  clock.pass(5 * 60_000);
  remaining = 0.001;
  t.match(await findings(), [{ level: "ok" }]);
  t.equal((await codex())?.state, "active");
});

t.test("a key that worked before a restart is deleted, not incomplete", async (t) => {
  const sandbox = await startSandbox(t);
  const { id, text } = newKey(sandbox);
  const { token, hash } = freshToken();
  const config = `gateways: { main: { base_url: "${sandbox.baseUrl}" } }\ntools: { codex: { key: ${text}, token: "${hash}" } }\n`;
  const first = await startUnderTest(t, config);
  t.equal((await post(`${first.url}/v1/chat/completions`, token, hello())).status, 200);
  await first.daemon.stop(0);
  sandbox.deleteKey(id);
  const { url, daemon } = await startUnderTest(t, config, { home: first.home });
  await post(`${url}/v1/chat/completions`, token, hello());
  await until(
    "the usage log was read",
    async () => (await daemon.status()).tools[0]?.refused?.detail === "key-deleted",
  );
  const { headers } = await fetch(`${url}/v1/models`, { headers: { authorization: `Bearer ${token}` } });
  t.strictSame(
    [headers.get("x-keybearer-cause"), headers.get("x-keybearer-cause-detail")],
    ["unknown", "key-deleted"],
  );
});
