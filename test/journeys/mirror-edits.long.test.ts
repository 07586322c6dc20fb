import t from "tap";
import { startNewApi } from "../doubles/consoles/new-api.ts";
import { startConsole } from "../doubles/consoles/start-console.ts";
import { heldClock } from "../doubles/held-clock.ts";
import {
  consoleKey,
  DAY,
  fingerprint,
  HOUR,
  hang,
  haveLearned,
  MINUTE,
  startBeside,
  startJourney,
} from "../doubles/mirror-journey.ts";
import { until } from "../doubles/until.ts";
import { recordWhere } from "../doubles/usage-journey.ts";

t.test("a request that ends after the rotation of its key is no leak of the old key", async (t) => {
  const next = consoleKey();
  const journey = await startJourney(t, "sub2api", {
    before: (console) => void console.addKey({ name: "codex-new", key: next }),
  });
  await journey.idle();
  haveLearned(journey);
  journey.clock.pass(MINUTE);
  await journey.ask();
  const asking = await hang(journey, "before-headers");
  await journey.edit(journey.config({ tools: { codex: `key: ${next}` } }));
  t.match((await journey.status()).tools, [{ key: fingerprint(next) }]);
  journey.clock.pass(5 * MINUTE);
  asking.destroy();
  await recordWhere(journey, "it left", ({ end }) => end === "client-left");
  journey.clock.pass(MINUTE);
  await journey.sync();
  journey.clock.pass(HOUR);
  await journey.sync();
  t.match(await journey.mirror(), { alarms: [], rows: { by_id: 1, presumed: 1 } });
});

t.test("a tool that is renamed keeps its requests", async (t) => {
  const journey = await startJourney(t, "sub2api", { tools: { codex: "", scripts: "" } });
  await journey.idle();
  journey.clock.pass(MINUTE);
  const { key, hash } = journey.caller("scripts");
  await journey.ask({}, { tool: "scripts" });
  await journey.edit(journey.config().replace("  scripts: {", "  renamed: {"));
  t.ok(journey.config().includes(hash));
  journey.clock.pass(HOUR);
  await journey.ask({}, { tool: "scripts" });
  journey.elsewhere({ key });
  journey.clock.pass(MINUTE);
  await journey.sync();
  t.match(await journey.mirror(), {
    alarms: [{ tools: ["renamed"], count: 1 }],
    rows: { by_id: 2, before: 0 },
  });
});

t.test("a console that is added later is compared with earlier requests", async (t) => {
  const journey = await startJourney(t, "new-api v1.0.0-rc.25");
  await journey.idle();
  await journey.edit(journey.config({ console: [] }));
  t.strictSame((await journey.status()).consoles, []);
  journey.clock.pass(MINUTE);
  for (let n = 0; n < 3; n += 1) await journey.ask({ "x-test-input": `${n + 10}` });
  journey.elsewhere();
  journey.clock.pass(5 * DAY);
  await journey.edit(journey.config());
  await journey.sync();
  t.match(await journey.mirror(), { records: { matched: 3, missing: 0 }, alarms: [{ count: 1 }] });
});

for (const detected of [false, true]) {
  const how = detected ? "whose kind is detected" : "of a given kind";
  t.test(`a new secret is used at once while a slow console ${how} is read`, async (t) => {
    const clock = heldClock();
    const double = await startConsole(t, "new-api v1.0.0-rc.25", { now: clock.now });
    double.fault = "slow";
    const right = double.config.filter((line) => !detected || !line.startsWith("kind"));
    const wrong = right.map((line) => line.replace(double.login.accessToken, "pat0000000000000000"));
    const journey = await startBeside(t, double, clock, { console: wrong });
    await until("it is asked", () => double.asked.length > 0);
    await journey.edit(journey.config({ console: right }));
    double.fault = null;
    await until("it is read without a request", async () => (await journey.idle()).state === "ok");
    t.equal((await journey.idle()).state, "ok");
  });
}

t.test("a new address is used at once while the old one is slow", async (t) => {
  const clock = heldClock();
  const [old, other] = await Promise.all(
    [1, 2].map(() => startConsole(t, "new-api v1.0.0-rc.25", { now: clock.now })),
  );
  if (old === undefined || other === undefined) throw new Error("there are two");
  old.fault = "slow";
  const lines = (url: string) => [`url: ${url}`, 'login: { user: "7" }'];
  const journey = await startBeside(t, old, clock, { console: lines(old.url) });
  await until("it is asked", () => old.asked.length > 0);
  await journey.edit(journey.config({ console: lines(other.url) }));
  old.fault = null;
  await until("the other is asked", () => other.asked.length > 0);
  await journey.idle();
  const before = old.asked.length;
  clock.pass(MINUTE);
  await journey.sync();
  t.equal(old.asked.length, before);
});

t.test("new-api without a login is read within its rate limits", async (t) => {
  const clock = heldClock();
  const double = await startNewApi(t, { now: clock.now, keyOnly: true, limits: true });
  const journey = await startBeside(t, double, clock, { tools: { codex: "", scripts: "" } });
  t.equal((await journey.idle()).state, "ok");
  clock.pass(MINUTE);
  await journey.ask();
  await journey.ask({}, { tool: "scripts" });
  journey.elsewhere();
  clock.pass(MINUTE);
  t.equal((await journey.sync()).state, "ok");
  t.match(await journey.mirror(), { rows: { by_id: 2, foreign_certain: 1 }, alarms: [{ tools: ["codex"] }] });
  for (let n = 0; n < 12; n += 1) {
    clock.pass(5 * MINUTE);
    const status = await journey.sync();
    t.equal(status.state, "ok", status.why ?? "");
  }
});
