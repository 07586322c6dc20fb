import t, { type Test } from "tap";
import type { ToolStatus } from "../../src/control/tool-status.ts";
import type { Now } from "../../src/dashboard/api.ts";
import { command, newHome } from "../doubles/command.ts";
import {
  type DaemonUnderTest,
  freshToken,
  startUnderTest,
  startWithOneTool,
} from "../doubles/daemon-under-test.ts";
import { visit } from "../doubles/dashboard-visit.ts";
import { examineHome } from "../doubles/doctor.ts";
import { heldClock } from "../doubles/held-clock.ts";
import { startRawGateway } from "../doubles/raw-gateway.ts";
import { get, hello, post, startSandbox } from "../doubles/sandbox.ts";
import { until } from "../doubles/until.ts";

/** A tool is key-refused only where its gateway refuses the key, and wherever it is shown it is the same. */

async function start(t: Test) {
  const sandbox = await startSandbox(t);
  const { id, key } = sandbox.createKey({ name: "codex", group: "default" });
  const { token, hash } = freshToken();
  const under = await startUnderTest(
    t,
    `dashboard: { listen: localhost:0 }
gateways: { main: { base_url: "${sandbox.baseUrl}" } }
tools: { codex: { key: ${key.reveal()}, token: "${hash}" } }
`,
  );
  const seen = await visit(under.paths.socket);
  const dashboardState = async () => {
    const now = (await seen.get("/api/now")).json<Now>();
    return now.status.tools[0]?.state;
  };
  return {
    home: under.home,
    sandbox,
    keyId: id,
    chat: (model = "sandbox-small") => post(`${under.url}/v1/chat/completions`, token, hello(model)),
    path: (path: string) => get(`${under.url}${path}`, token),
    status: async () => (await under.daemon.status()).tools[0],
    recorded: () => under.ended(),
    async shownState() {
      const status = JSON.parse((await command(t, under.home, ["status", "--json"])).stdout);
      const tools = JSON.parse((await command(t, under.home, ["tools", "--json"])).stdout);
      return { status: status.tools[0].state, tools: tools[0].state };
    },
    dashboardState,
    findings: () => examineHome(under.paths),
  };
}

t.test("an unknown model and a wrong path leave a tool active everywhere", async (t) => {
  const { sandbox, keyId, chat, path, recorded, ...shown } = await start(t);
  t.equal((await chat("no-such-model")).status, 404);
  t.equal((await path("/v1/no-such-path")).status, 404);
  const refusedModel = {
    error: { message: "This token has no access to model gpt-5", type: "new_api_error" },
  };
  sandbox.order(keyId, { kind: "refuse", status: 403, body: refusedModel }, 1);
  t.equal((await chat()).status, 403);
  await until("all three are settled", () => recorded().length === 3);
  t.strictSame(
    recorded().map(({ cause }) => cause),
    ["group-unavailable", "wrong-base-url", "group-unavailable"],
    "the log still names each cause",
  );
  t.match(await shown.status(), { state: "active", why: null, next: null, refused: null });
  t.strictSame(await shown.shownState(), { status: "active", tools: "active" });
  t.equal(await shown.dashboardState(), "active");
  const findings = (await shown.findings()).filter(({ about }) => about === "tool codex");
  t.match(findings, [
    { id: "key", level: "ok" },
    { id: "model", level: "warning" },
  ]);
});

t.test("a refused key makes a tool key-refused, until a request succeeds", async (t) => {
  const { sandbox, keyId, chat, ...shown } = await start(t);
  const is = (state: ToolStatus["state"]) =>
    until(`the tool is ${state}`, async () => (await shown.status())?.state === state);
  sandbox.disableKey(keyId);
  t.equal((await chat()).status, 401);
  await is("key-refused");
  t.match(await shown.status(), { refused: { status: 401, times: 1 }, next: /was disabled/ });
  t.strictSame(await shown.shownState(), { status: "key-refused", tools: "key-refused" });
  t.equal(await shown.dashboardState(), "key-refused");
  t.match(
    (await shown.findings()).filter(({ about }) => about === "tool codex"),
    [{ id: "key", level: "problem", what: /^disabled key/ }],
  );

  sandbox.enableKey(keyId);
  t.equal((await chat("no-such-model")).status, 404);
  t.equal((await shown.status())?.state, "key-refused", "an unknown model clears nothing either");
  t.equal((await chat()).status, 200);
  await is("active");
  await until("the page shows it", async () => (await shown.dashboardState()) === "active");
});

t.test("a disabled group or an empty account makes a tool key-refused", async (t) => {
  const { sandbox, chat, status } = await start(t);
  const is = (state: ToolStatus["state"]) =>
    until(`the tool is ${state}`, async () => (await status())?.state === state);
  sandbox.setGroupEnabled("default", false);
  t.equal((await chat()).status, 403);
  await is("key-refused");
  t.match(await status(), { refused: { cause: "group-unavailable" }, next: /choose another group/ });
  sandbox.setGroupEnabled("default", true);
  t.equal((await chat()).status, 200);
  await is("active");
  sandbox.account.balance = 0;
  t.equal((await chat()).status, 403);
  await is("key-refused");
  t.match(await status(), { refused: { cause: "balance-or-quota" }, next: /top it up/ });
});

t.test(
  "an unknown key that worked before was deleted; one that never worked may be incomplete",
  async (t) => {
    const { sandbox, keyId, chat, status } = await start(t);
    const causeOf = async () => {
      const response = await chat();
      return ["cause", "cause-detail"].map((name) => response.headers.get(`x-keybearer-${name}`));
    };
    t.equal((await chat()).status, 200);
    await until("it is settled", async () => (await status())?.running === 0);
    sandbox.deleteKey(keyId);
    t.strictSame(await causeOf(), ["unknown", "key-deleted"]);
    await until("it is settled", async () => (await status())?.state === "key-refused");
    t.match(await status(), { refused: { detail: "key-deleted" }, next: /create a new one/ });

    const never = await start(t);
    never.sandbox.deleteKey(never.keyId);
    t.equal((await never.chat()).headers.get("x-keybearer-cause"), "incomplete-key");
    await until("it is settled", async () => (await never.status())?.state === "key-refused");
    t.match(await never.status(), { refused: { detail: null }, next: /copy it whole/ });
  },
);

t.test("a tool that is renamed is still key-refused", async (t) => {
  const { sandbox, keyId, chat, status, home } = await start(t);
  sandbox.deleteKey(keyId);
  t.equal((await chat()).status, 401);
  await until("it is settled", async () => (await status())?.state === "key-refused");
  const before = await status();
  t.equal((await command(t, home, ["tools", "rename", "codex", "work"])).code, 0);
  t.same(await status(), { ...before, name: "work", next: before?.next?.replace("codex", "work") });
});

t.test("the last use of a tool is its last request, also one that was refused here", async (t) => {
  const clock = heldClock();
  const gateway = await startRawGateway(t, (call) => call.ok());
  const home = await newHome(t);
  const one = await startWithOneTool(t, gateway.origin, {
    home,
    clock,
    tool: ["limits: { requests: 1/day }"],
  });
  const ask = async () => (await get(`${one.url}/v1/models`, one.token)).status;
  const lastUse = async ({ daemon }: DaemonUnderTest) => (await daemon.status()).tools[0]?.last_use;
  t.equal(await ask(), 200);
  t.equal(await lastUse(one), clock.now());
  clock.pass(60_000);
  t.equal(await ask(), 400);
  t.equal(await lastUse(one), clock.now());
  await one.daemon.stop();
  const again = await startUnderTest(t, null, { home, clock });
  t.equal(await lastUse(again), clock.now(), "and so it is after a restart");
});

t.test("a group without accounts and an empty account are not reported as a wrong model", async (t) => {
  const { sandbox, keyId, chat, recorded, findings } = await start(t);
  // sub2api 0.1.135
  const noAccounts = {
    type: "error",
    error: { type: "api_error", message: "No available accounts: no available accounts" },
  };
  sandbox.order(keyId, { kind: "refuse", status: 503, body: noAccounts }, 1);
  t.equal((await chat("claude-sonnet-4-5")).status, 503);
  const noBalance = { code: "INSUFFICIENT_BALANCE", message: "Insufficient account balance" };
  sandbox.order(keyId, { kind: "refuse", status: 403, body: noBalance }, 1);
  t.equal((await chat("claude-opus-4-5")).status, 403);
  await until("both are settled", () => recorded().length === 2);
  const found = (await findings()).filter(({ about }) => about === "tool codex");
  t.strictSame(
    found.map(({ id }) => id),
    ["key", "group"],
  );
  t.match(found[1], {
    level: "warning",
    what: /the gateway had no account for model claude-sonnet-4-5 in the key's group$/,
    next: /^try again later; if it stays so, choose another group/,
  });
});

t.test(
  "a group without a channel makes a tool key-refused, until models are listed for its key",
  async (t) => {
    const headers = { "Content-Type": "application/json", "X-New-Api-Version": "v0.13.2" };
    let models = "[]";
    const gateway = await startRawGateway(t, (call) => {
      if (call.target === "/v1/models")
        return call.answer("200 OK", headers, `{"success":true,"object":"list","data":${models}}`);
      // new-api v0.13.2 and 2d8e50bf answer the same for one missing model and for a group without any.
      const message = "No available channel for model m under group vip (distributor)";
      const error = { message, type: "new_api_error", code: "model_not_found" };
      return call.answer("503 Service Unavailable", headers, JSON.stringify({ error }));
    });
    const under = await startWithOneTool(t, gateway.origin);
    const status = async () => (await under.daemon.status()).tools[0];
    const chat = () => post(`${under.url}/v1/chat/completions`, under.token, hello("m"));
    t.equal((await chat()).headers.get("x-keybearer-cause-detail"), null);
    await until("the gateway was asked", async () => (await status())?.state === "key-refused");
    t.match(await status(), {
      refused: { cause: "group-unavailable", detail: "no-models" },
      why: /^group unavailable: the gateway accepts the key, but lists no models for it/,
      next: /^choose another group/,
    });
    t.equal((await chat()).headers.get("x-keybearer-cause-detail"), "no-models");
    const asked = () => gateway.calls.filter(({ target }) => target === "/v1/models").length;
    t.equal(asked(), 1, "it is not asked after each request");

    const findings = async () =>
      (await examineHome(under.paths)).filter(({ about }) => about === "tool codex");
    t.match(await findings(), [{ id: "group", level: "problem", what: /lists no models for it/ }]);
    models = '[{"id":"other"}]';
    await findings();
    t.match(await status(), { state: "active", why: null, refused: null });
  },
);
