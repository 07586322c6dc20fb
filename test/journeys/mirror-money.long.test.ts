import t from "tap";
import {
  HOUR,
  haveLearned,
  leave,
  MINUTE,
  type MirrorJourney,
  startJourney,
} from "../doubles/mirror-journey.ts";
import { recordsIn } from "../doubles/usage-file.ts";
import { recordWhere } from "../doubles/usage-journey.ts";

/** A dollar for a thousand tokens, of whatever kind. */
const PRICES = ["prices:", "  m: { input: 1000, output: 1000, cache_read: 1000, cache_write: 1000 }"];
const LIMITED = "limits: { spend: [$5/hour, $60/month], tokens: 100k/hour }, quota: $10";

async function levels(journey: MirrorJourney): Promise<Record<string, number | null>> {
  const tool = (await journey.status()).tools.find(({ name }) => name === "codex");
  return Object.fromEntries(
    (tool?.limits ?? []).map(({ limit, per, used }) => [per === null ? limit : `${limit}/${per}`, used]),
  );
}

const CONSOLES = ["sub2api", "new-api v1.0.0-rc.25", "one-api"] as const;

for (const name of CONSOLES) {
  t.test(`${name}: limits and quota count what the console charges`, async (t) => {
    const journey = await startJourney(t, name, { tools: { codex: LIMITED }, more: PRICES });
    await journey.idle();
    haveLearned(journey);
    // Ours: 500 tokens, half a dollar each time.
    const tokens = { "x-test-input": "400", "x-test-output": "100" };
    await journey.ask({ ...tokens, "x-test-dollars": "2", "x-test-list-dollars": "2" });
    journey.clock.pass(5000);
    await journey.ask({ ...tokens, "x-test-dollars": "0.1", "x-test-list-dollars": "0.1" });
    t.match(await levels(journey), { "spend/hour": 1_000_000, quota: 1_000_000, "tokens/hour": 1000 });
    journey.clock.pass(MINUTE);
    await journey.sync();
    const charged = {
      "spend/hour": 2_100_000,
      "spend/month": 2_100_000,
      quota: 2_100_000,
      "tokens/hour": 1000,
    };
    t.strictSame(await levels(journey), charged);
    await journey.sync();
    t.strictSame(await levels(journey), charged, "not twice");

    journey.clock.pass(MINUTE);
    await leave(journey, "before-headers", {
      ...tokens,
      "x-test-dollars": "0.3",
      "x-test-list-dollars": "0.3",
    });
    await recordWhere(journey, "it left", ({ end }) => end === "client-left");
    const held = (await levels(journey)).quota ?? 0;
    journey.clock.pass(MINUTE);
    await journey.sync();
    t.strictSame(
      await levels(journey),
      { "spend/hour": 2_400_000, "spend/month": 2_400_000, quota: 2_400_000, "tokens/hour": 1500 },
      `the cost replaces what was held (${held})`,
    );
    journey.clock.pass(HOUR);
    t.match(await levels(journey), { "spend/hour": 0, quota: 2_400_000 });
    const [tool] = (await journey.status()).tools;
    t.match(tool?.console, { state: "active" }, "the console's own facts stand beside it");

    await journey.ask({ ...tokens, "x-test-dollars": "9", "x-test-list-dollars": "9" });
    journey.clock.pass(MINUTE);
    await journey.sync();
    const refused = await journey.ask(tokens);
    t.equal(refused.headers.get("x-keybearer-refusal"), "quota-exhausted", refused.text);
    const records = recordsIn(journey.paths.usage);
    t.equal(
      records.reduce((sum, { billed_microdollars }) => sum + (billed_microdollars ?? 0), 0),
      11_400_000,
    );

    await journey.daemon.stop(0);
    const again = await journey.startAgain();
    t.match(await levels(again), { quota: 11_400_000, "spend/month": 11_400_000 }, "and after a restart");
    await again.sync();
    t.match(await levels(again), { quota: 11_400_000, "spend/month": 11_400_000 });
  });
}

t.test("a refund of more than its request cost makes only that request free", async (t) => {
  const journey = await startJourney(t, "new-api v0.13.2", { tools: { codex: LIMITED }, more: PRICES });
  await journey.idle();
  const half = { "x-test-input": "400", "x-test-output": "100", "x-test-dollars": "0.5" };
  await journey.ask(half);
  journey.clock.pass(5000);
  const { headers } = await journey.ask(half);
  journey.clock.pass(MINUTE);
  await journey.sync();
  t.match(await levels(journey), { "spend/hour": 1_000_000, quota: 1_000_000 });
  journey.elsewhere({ dollars: 3, refund: true, requestId: headers.get("x-oneapi-request-id") ?? "" });
  journey.clock.pass(MINUTE);
  await journey.sync();
  const free = { "spend/hour": 500_000, "spend/month": 500_000, quota: 500_000, "tokens/hour": 1000 };
  t.strictSame(await levels(journey), free);
  t.strictSame(
    recordsIn(journey.paths.usage).map((record) => record.billed_microdollars),
    [500_000, 0],
  );

  await journey.daemon.stop(0);
  const again = await journey.startAgain();
  t.strictSame(await levels(again), free, "and after a restart");
});

t.test("a negative cost is ignored, and our own cost counts", async (t) => {
  const journey = await startJourney(t, "sub2api", { tools: { codex: LIMITED }, more: PRICES });
  await journey.idle();
  await journey.ask({ "x-test-input": "400", "x-test-output": "100", "x-test-dollars": "-1000" });
  journey.clock.pass(MINUTE);
  await journey.sync();
  t.equal((await journey.mirror()).rows.total, 1);
  t.match(await levels(journey), { "spend/hour": 500_000, quota: 500_000 });
  t.strictSame(
    recordsIn(journey.paths.usage).map((record) => record.billed_microdollars),
    [null],
  );
});

t.test("the report explains a bill by the price of one kind of token", async (t) => {
  const journey = await startJourney(t, "new-api v1.0.0-rc.25", { tools: { codex: "" }, more: PRICES });
  await journey.idle();
  for (const output of [100, 900, 40, 300, 2, 700])
    await journey.ask({
      "x-test-input": "400",
      "x-test-output": String(output),
      "x-test-dollars": String((400 + output / 2) / 1000),
    });
  journey.clock.pass(MINUTE);
  await journey.sync();
  const report = await journey.mirror();
  t.match(report, { rows: { by_id: 6, differs: 0 } });
  t.match(report.models, [
    {
      model: "m",
      difference_microdollars: -1_021_000,
      explanation: {
        rows: 6,
        explained: 6,
        factors: { input: 1, output: 0.5 },
        unexplained_microdollars: 0,
        example: {
          tokens: { input: 400, output: 900 },
          ours_microdollars: 1_300_000,
          theirs_microdollars: 850_000,
        },
      },
    },
  ]);
});

t.test("the report shows a multiplier that differs from config.yaml's", async (t) => {
  const journey = await startJourney(t, "sub2api", {
    tools: { codex: "group: coding" },
    gateway: ["groups: { coding: { multiplier: 1.5 } }"],
    more: PRICES,
  });
  await journey.idle();
  for (let n = 0; n < 5; n += 1)
    await journey.ask({
      "x-test-input": "400",
      "x-test-output": "100",
      "x-test-list-dollars": "0.5",
      "x-test-dollars": "0.5",
    });
  journey.clock.pass(MINUTE);
  await journey.sync();
  const report = await journey.mirror();
  t.match(report.models, [{ model: "m", factor: 1, multiplier: 1, multiplier_here: 1.5 }]);
  t.match(report.tools, [{ tool: "codex", ours_microdollars: 3_750_000, theirs_microdollars: 2_500_000 }]);
  const [tool] = (await journey.status()).tools;
  t.match(tool?.console, { multiplier: 1, multiplier_here: 1.5 });
  t.strictSame(report.alarms, []);
});
