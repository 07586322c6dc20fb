import { rmSync, statSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { askDaemon } from "../../src/control/client.ts";
import type { Status } from "../../src/control/status.ts";
import { journalFiles } from "../../src/usage/journal/files.ts";
import { newHome, saveConfig, startServing } from "../doubles/command.ts";
import {
  caller,
  credentials,
  heldWall,
  PENNY,
  PRICES,
  REPORTED,
  startLimited,
  startPlayGateway,
  tally,
} from "../doubles/limited-journey.ts";
import { until } from "../doubles/until.ts";
import { recordsIn } from "../doubles/usage-file.ts";

const HELD = 10 + Math.ceil(PENNY.length / 4);

/** The built program on a home of its own, started as often as the test likes. */
async function startHome(t: Test, settings: string) {
  const [gateway, home] = [await startPlayGateway(t), await newHome(t)];
  const { key, token, hash } = credentials();
  const save = (own: string) =>
    saveConfig(
      home,
      `listen: localhost:0\ngateway: ${gateway.baseUrl}\n${PRICES}tools:\n  codex: { key: ${key}, token: "${hash}", ${own} }\n`,
    );
  await save(settings);
  const serve = async () => {
    const running = await startServing(t, home);
    const used = async () => {
      const asked = await askDaemon<Status>(join(home, "run", "control.sock"), "GET", "/status");
      if (!asked.ok) throw new Error(asked.reason);
      const codex = asked.value.tools.find(({ name }) => name === "codex");
      return Object.fromEntries((codex?.limits ?? []).map((one) => [one.limit, [one.used, one.held]]));
    };
    return { ...running, call: caller(running.url, token), used };
  };
  return { gateway, home, save, serve, usage: join(home, "state", "usage") };
}

const SETTINGS =
  "limits: { requests: 5/month, tokens: 100k/month, spend: $9/month, concurrent: 4 }, quota: $10";

t.test("after kill -9 nothing is fresh: requests in flight count what was reserved for them", async (t) => {
  const { gateway, serve, usage } = await startHome(t, SETTINGS);
  const first = await serve();
  t.equal((await first.call()).status, 200);
  t.equal((await first.call({ play: "no-usage" })).status, 200);
  t.equal((await first.call({ play: "400" })).status, 400);
  const cut = [first.call({ play: "hang" }), first.call({ play: "stall" })].map((ending) =>
    ending.then(
      () => "finished",
      () => "cut",
    ),
  );
  await until("both are there", () => gateway.running() === 2);
  t.equal((await first.call()).refusal, "rate-limited");
  first.child.kill("SIGKILL");
  await first.ended;
  t.strictSame(await Promise.all(cut), ["cut", "cut"]);

  const second = await serve();
  const money = REPORTED + 3 * HELD;
  const expected = {
    requests: [5, 0],
    tokens: [money, 0],
    spend: [money, 0],
    concurrent: [0, 0],
    quota: [money, 0],
  };
  t.strictSame(await second.used(), expected);
  // A refusal's own record is not waited for; what was sent has its record before it goes.
  const sent = recordsIn(usage).filter(({ end }) => end !== "refused");
  t.strictSame(tally(sent.map(({ end }) => String(end))), { complete: 3, interrupted: 2 });
  const refused = await second.call();
  t.strictSame([refused.status, refused.refusal], [400, "rate-limited"]);
  t.equal(gateway.arrivals.length, 5);
  // And again, without anything in between but a refusal.
  second.child.kill("SIGKILL");
  await second.ended;
  const third = await serve();
  t.strictSame(await third.used(), expected);
  t.equal((await third.call()).refusal, "rate-limited");
  t.equal(gateway.arrivals.length, 5);
});

t.test("a stop by SIGTERM keeps what was used, and what waits is not counted", async (t) => {
  const { gateway, serve } = await startHome(
    t,
    "limits: { requests: 3/month, concurrent: 1, wait: 30s }, quota: $10",
  );
  const first = await serve();
  t.equal((await first.call()).status, 200);
  const inFlight = first.call({ play: "hang" });
  await until("it is there", () => gateway.running() === 1);
  const waits = first.call();
  await until("one waits", async () => {
    const asked = await first.used();
    return asked.concurrent?.[0] === 1;
  });
  first.child.kill("SIGTERM");
  const told = await waits.catch(() => null);
  t.ok(told === null || told.refusal === "shutting-down", told?.text ?? "its connection ended");
  gateway.release();
  t.equal((await inFlight).status, 200);
  t.equal((await first.ended).code, 0);
  const second = await serve();
  t.strictSame((await second.used()).requests, [2, 0]);
  t.strictSame((await second.used()).quota, [2 * REPORTED, 0]);
  t.equal((await second.call()).status, 200);
  t.equal((await second.call()).refusal, "rate-limited");
  t.equal(gateway.arrivals.length, 3);
});

t.test("a log that is deleted under it gives no allowance back, now or after kill -9", async (t) => {
  const { gateway, serve, usage } = await startHome(t, SETTINGS);
  const first = await serve();
  for (let n = 0; n < 5; n += 1) t.equal((await first.call()).status, 200);
  const spent = await first.used();
  for (const { path } of journalFiles(usage)) rmSync(path);
  await until("there is a new one", () => journalFiles(usage).some(({ path }) => statSync(path).size > 0));
  t.strictSame(await first.used(), spent);
  t.equal((await first.call()).refusal, "rate-limited");
  first.child.kill("SIGKILL");
  await first.ended;
  const second = await serve();
  t.strictSame(await second.used(), spent);
  t.equal((await second.call()).refusal, "rate-limited");
  t.equal(gateway.arrivals.length, 5);
});

const HOUR = 3_600_000;

t.test("a start with the clock set back, and then right again, gives no day twice", async (t) => {
  const settings = "limits: { requests: 5/day }";
  const noon = Date.UTC(2026, 10, 15, 12);
  const first = await startLimited(t, settings, { clock: heldWall(noon) });
  for (let n = 0; n < 5; n += 1) t.equal((await first.call()).status, 200);
  t.equal((await first.call()).refusal, "rate-limited");
  await first.daemon.stop();
  const clock = heldWall(noon - 20 * HOUR);
  const again = await startLimited(t, settings, {
    clock,
    home: first.home,
    gateway: first.gateway,
    credentials: first,
  });
  t.equal((await again.call()).refusal, "rate-limited", "nothing is given while it is wrong");
  clock.pass(20 * HOUR);
  t.equal((await again.call()).refusal, "rate-limited");
  t.strictSame(await again.level("requests", "day"), [5, 0, 5]);
  clock.pass(24 * HOUR);
  t.equal((await again.call()).status, 200, "the next day");
});

t.test("nor does a clock that goes a day forward and back", async (t) => {
  const clock = heldWall(Date.UTC(2026, 10, 15, 12));
  const { call, level } = await startLimited(t, "limits: { requests: 5/day }", { clock });
  for (let n = 0; n < 5; n += 1) t.equal((await call()).status, 200);
  clock.pass(24 * HOUR);
  t.strictSame(await level("requests", "day"), [0, 0, 5]);
  clock.pass(-24 * HOUR);
  t.equal((await call()).refusal, "rate-limited");
  t.strictSame(await level("requests", "day"), [5, 0, 5]);
});

t.test("a clock that was a day ahead leaves the minute it comes back to as it is", async (t) => {
  const clock = heldWall(Date.UTC(2026, 10, 15, 12));
  const { call, level } = await startLimited(t, "limits: { requests: 5/minute }", { clock });
  t.equal((await call()).status, 200);
  clock.pass(24 * HOUR);
  for (let n = 0; n < 5; n += 1) t.equal((await call()).status, 200);
  t.equal((await call()).refusal, "rate-limited");
  clock.pass(-24 * HOUR);
  t.strictSame(await level("requests", "minute"), [1, 0, 5], "as the log tells it");
  for (let n = 0; n < 4; n += 1) t.equal((await call()).status, 200);
  t.equal((await call()).refusal, "rate-limited");
});
