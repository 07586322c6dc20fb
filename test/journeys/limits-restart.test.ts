import { rmSync, statSync } from "node:fs";
import t from "tap";
import { journalFiles } from "../../src/usage/journal/files.ts";
import { newHome, saveConfig, startServing } from "../doubles/command.ts";
import {
  caller,
  credentials,
  heldWall,
  type Journey,
  PENNY,
  PRICES,
  REPORTED,
  startAfterCrash,
  startLimited,
  startPlayGateway,
  tally,
} from "../doubles/limited-journey.ts";
import { until } from "../doubles/until.ts";
import { recordsIn } from "../doubles/usage-file.ts";
import { zoneAtNoon } from "../doubles/zone-at-noon.ts";

// These tests mostly wait, so they run side by side.
t.jobs = 8;

// No day and no month may end during a test.
process.env.TZ = zoneAtNoon();

const HELD = 10 + Math.ceil(PENNY.length / 4);

const SETTINGS =
  "limits: { requests: 5/month, tokens: 100k/month, spend: $9/month, concurrent: 4 }, quota: $10";

/** Each limit of the tool, with what is used and held of it. */
async function used({ codex }: Journey) {
  return Object.fromEntries((await codex()).limits.map((one) => [one.limit, [one.used, one.held]]));
}

t.test("after kill -9 requests in flight count what was reserved for them", async (t) => {
  const gateway = await startPlayGateway(t);
  const home = await newHome(t);
  const { key, token, hash } = credentials();
  const tools = `tools:\n  codex: { key: ${key}, token: "${hash}", ${SETTINGS} }\n`;
  await saveConfig(home, `listen: localhost:0\ngateway: ${gateway.baseUrl}\n${PRICES}${tools}`);
  const running = await startServing(t, home, { env: { TZ: process.env.TZ } });
  const call = caller(running.url, token);
  t.equal((await call()).status, 200);
  t.equal((await call({ play: "no-usage" })).status, 200);
  t.equal((await call({ play: "400" })).status, 400);
  const cut = [call({ play: "hang" }), call({ play: "stall" })].map((ending) =>
    ending.then(
      () => "finished",
      () => "cut",
    ),
  );
  await until("both are there", () => gateway.running() === 2);
  t.equal((await call()).refusal, "rate-limited");
  running.child.kill("SIGKILL");
  await running.ended;
  t.strictSame(await Promise.all(cut), ["cut", "cut"]);

  const second = await startLimited(t, SETTINGS, { home, gateway, credentials: { key, token, hash } });
  const money = REPORTED + 3 * HELD;
  const expected = {
    requests: [5, 0],
    tokens: [money, 0],
    spend: [money, 0],
    concurrent: [0, 0],
    quota: [money, 0],
  };
  t.strictSame(await used(second), expected);
  // A refusal's own record is not waited for; what was sent has its record before it goes.
  const sent = recordsIn(second.paths.usage).filter(({ end }) => end !== "refused");
  t.strictSame(tally(sent.map(({ end }) => String(end))), { complete: 3, interrupted: 2 });
  const refused = await second.call();
  t.strictSame([refused.status, refused.refusal], [400, "rate-limited"]);
  t.equal(gateway.arrivals.length, 5);
  // A second crash, after nothing but a refusal.
  const third = await startAfterCrash(t, SETTINGS, second);
  t.strictSame(await used(third), expected);
  t.equal((await third.call()).refusal, "rate-limited");
  t.equal(gateway.arrivals.length, 5);
});

t.test("a stop keeps what was used, and does not count what waits", async (t) => {
  const settings = "limits: { requests: 3/month, concurrent: 1, wait: 30s }, quota: $10";
  const first = await startLimited(t, settings);
  const { gateway } = first;
  t.equal((await first.call()).status, 200);
  const inFlight = first.call({ play: "hang" });
  await until("it is there", () => gateway.running() === 1);
  const waits = first.call();
  await until("one waits", async () => (await first.codex()).waiting === 1);
  const stopped = first.daemon.stop();
  const refused = await waits.catch(() => null);
  t.ok(refused === null || refused.refusal === "shutting-down", refused?.text ?? "its connection ended");
  gateway.release();
  t.equal((await inFlight).status, 200);
  await stopped;
  const { home } = first;
  const second = await startLimited(t, settings, { home, gateway, credentials: first });
  t.strictSame((await used(second)).requests, [2, 0]);
  t.strictSame((await used(second)).quota, [2 * REPORTED, 0]);
  t.equal((await second.call()).status, 200);
  t.equal((await second.call()).refusal, "rate-limited");
  t.equal(gateway.arrivals.length, 3);
});

t.test("a log that is deleted gives no allowance back, now or after a crash", async (t) => {
  const first = await startLimited(t, SETTINGS);
  const { usage } = first.paths;
  for (let n = 0; n < 5; n += 1) t.equal((await first.call()).status, 200);
  await first.quiet();
  const spent = await used(first);
  for (const { path } of journalFiles(usage)) rmSync(path);
  await until("there is a new one", () => journalFiles(usage).some(({ path }) => statSync(path).size > 0));
  t.strictSame(await used(first), spent);
  t.equal((await first.call()).refusal, "rate-limited");
  const second = await startAfterCrash(t, SETTINGS, first);
  t.strictSame(await used(second), spent);
  t.equal((await second.call()).refusal, "rate-limited");
  t.equal(first.gateway.arrivals.length, 5);
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
  t.equal((await again.call()).refusal, "rate-limited", "nothing is allowed while it is wrong");
  clock.pass(20 * HOUR);
  t.equal((await again.call()).refusal, "rate-limited");
  t.strictSame(await again.level("requests", "day"), [5, 0, 5]);
  clock.pass(24 * HOUR);
  t.equal((await again.call()).status, 200, "the next day");
});

t.test("a clock that goes a day forward and back gives no day twice", async (t) => {
  const clock = heldWall(Date.UTC(2026, 10, 15, 12));
  const { call, level } = await startLimited(t, "limits: { requests: 5/day }", { clock });
  for (let n = 0; n < 5; n += 1) t.equal((await call()).status, 200);
  clock.pass(24 * HOUR);
  t.strictSame(await level("requests", "day"), [0, 0, 5]);
  clock.pass(-24 * HOUR);
  t.equal((await call()).refusal, "rate-limited");
  t.strictSame(await level("requests", "day"), [5, 0, 5]);
});

t.test("a clock that was a day ahead does not change the minute it returns to", async (t) => {
  const clock = heldWall(Date.UTC(2026, 10, 15, 12));
  const { call, level } = await startLimited(t, "limits: { requests: 5/minute }", { clock });
  t.equal((await call()).status, 200);
  clock.pass(24 * HOUR);
  for (let n = 0; n < 5; n += 1) t.equal((await call()).status, 200);
  t.equal((await call()).refusal, "rate-limited");
  clock.pass(-24 * HOUR);
  t.strictSame(await level("requests", "minute"), [1, 0, 5], "as the log has it");
  for (let n = 0; n < 4; n += 1) t.equal((await call()).status, 200);
  t.equal((await call()).refusal, "rate-limited");
});
