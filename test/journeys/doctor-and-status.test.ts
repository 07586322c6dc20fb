import t, { type Test } from "tap";
import type { ToolStatus } from "../../src/control/tool-status.ts";
import type { Finding } from "../../src/doctor/findings.ts";
import { startWithOneTool } from "../doubles/daemon-under-test.ts";
import { examineHome } from "../doubles/doctor.ts";
import { oneOf } from "../doubles/effort.ts";
import { HOUR, MINUTE, type MirrorJourney, startJourney } from "../doubles/mirror-journey.ts";
import { type GatewayCall, startRawGateway } from "../doubles/raw-gateway.ts";

process.env.TZ = "UTC";

/** What doctor finds of tool codex. */
async function findings(paths: MirrorJourney["paths"], now: number): Promise<Finding[]> {
  const found = await examineHome(paths, {}, now);
  return found.filter(({ about }) => about === "tool codex");
}

/** Doctor names the same problem as status, in the same words. */
function agrees(t: Test, found: readonly Finding[], status: ToolStatus | undefined): void {
  const [first, ...more] = found;
  t.match(first, { id: "key", level: "problem", what: status?.why, next: status?.next });
  t.strictSame(more, []);
}

const LIST = '{"data":[{"id":"gpt-4o-mini","object":"model"}],"object":"list","success":true}';

/** A gateway that lists its models, and refuses everything else like this. */
async function refusing(t: Test, headers: Record<string, string>, status: string, body: string) {
  const answers: Record<string, (call: GatewayCall) => void> = {
    "/v1/models": (call) => call.answer("200 OK", headers, LIST),
    "/v1/chat/completions": (call) => call.answer(status, headers, body),
  };
  const gateway = await startRawGateway(t, (call) =>
    (answers[call.target] ?? (() => call.answer("404 Not Found", headers, "{}")))(call),
  );
  const under = await startWithOneTool(t, gateway.origin);
  const response = await fetch(`${under.url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${under.token}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "gpt-4o-mini", messages: [] }),
  });
  await response.text();
  const { tools } = await under.daemon.status();
  return { under, answers, status: tools.find(({ name }) => name === "codex") };
}

const JSON_TYPE = { "Content-Type": "application/json; charset=utf-8" };

t.test(
  "an account without balance whose key lists models is a problem, as the tool's requests showed",
  async (t) => {
    // new-api 2d8e50bf.
    const { under, status } = await refusing(
      t,
      { ...JSON_TYPE, "X-New-Api-Version": "v0.0.0" },
      "403 Forbidden",
      '{"error":{"message":"用户额度不足, 剩余额度: ＄0.000000 (request id: 202611170034494766303118268d9d6fvkmOFvv)","type":"new_api_error","param":"","code":"insufficient_user_quota"}}',
    );
    t.match(status, {
      state: "key-refused",
      why: /^balance or quota: the account's balance is used up \(403\)/,
    });
    agrees(t, await findings(under.paths, Date.now()), status);
  },
);

t.test("a window that the tool's requests showed as used up is reported with when it resets", async (t) => {
  // sub2api 0.1.135.
  const { under, answers, status } = await refusing(
    t,
    { ...JSON_TYPE, "X-Client-Request-ID": "592bb4f6-d5a5-4398-83eb-f427b68a00a8" },
    "429 Too Many Requests",
    '{"error":{"message":"api key 5小时限额已用完","type":"rate_limit_exceeded"}}',
  );
  t.match(status, {
    state: "key-refused",
    why: /^balance or quota: a window of the quota is used up \(429\)/,
  });
  agrees(t, await findings(under.paths, Date.now()), status);
  const now = Date.UTC(2026, 10, 17, 0, 30);
  answers["/v1/usage"] = (call) =>
    call.ok(
      '{"isValid":true,"mode":"quota_limited","rate_limits":[{"limit":0.001,"remaining":0,"reset_at":"2026-11-17T05:27:11.4633Z","used":0.30015,"window":"5h","window_start":"2026-11-17T00:27:11.4633Z"}],"status":"active"}',
    );
  t.match(await findings(under.paths, now), [
    { level: "problem", what: /^balance or quota: the 5h window is used up, and resets .*05:28/ },
  ]);
});

for (const name of oneOf(["sub2api", "new-api v1.0.0-rc.25"], "new-api v1.0.0-rc.25"))
  t.test(`${name}: an account that its console shows without balance is a problem`, async (t) => {
    const journey = await startJourney(t, name);
    const codexStatus = async () => (await journey.status()).tools.find((tool) => tool.name === "codex");
    await journey.idle();
    t.match(await findings(journey.paths, journey.clock.now()), [{ level: "ok", what: /accepts key/ }]);
    journey.console.balance = 0;
    journey.clock.pass(MINUTE);
    await journey.sync();
    journey.clock.pass(MINUTE);
    const status = await codexStatus();
    t.match(status, { state: "active", why: /^balance or quota: .*, as the console said 60 s ago$/ });
    agrees(t, await findings(journey.paths, journey.clock.now()), status);
    const { status: answered } = await journey.ask();
    if (name === "sub2api") {
      // A request that passes shows that something else pays, such as a subscription.
      t.equal(answered, 200);
      t.match(await codexStatus(), { state: "active", why: null });
      t.match(await findings(journey.paths, journey.clock.now()), [{ level: "ok" }]);
    } else {
      t.equal(answered, 403, "new-api refuses it");
      const refused = await codexStatus();
      t.match(refused, { state: "key-refused", why: /^balance or quota: the account's balance is used up/ });
      agrees(t, await findings(journey.paths, journey.clock.now()), refused);
    }
  });

t.test("status and doctor call a disabled key disabled, though it worked before", async (t) => {
  const journey = await startJourney(t, "new-api v1.0.0-rc.25");
  await journey.idle();
  t.equal((await journey.ask()).status, 200);
  Object.assign(journey.console.keys[0] ?? {}, { disabled: true });
  journey.clock.pass(HOUR);
  await journey.sync();
  const status = (await journey.status()).tools.find((tool) => tool.name === "codex");
  t.match(status?.why, /^disabled key, as the console said/);
  t.match(await findings(journey.paths, journey.clock.now()), [{ level: "problem", what: /^disabled key / }]);
  await journey.ask();
  const refused = (await journey.status()).tools.find((tool) => tool.name === "codex");
  t.equal(refused?.state, "key-refused");
  t.match(await findings(journey.paths, journey.clock.now()), [{ level: "problem", what: /^disabled key / }]);
});
