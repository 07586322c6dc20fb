import { renameSync, rmSync, writeFileSync } from "node:fs";
import t from "tap";
import { longTest } from "../doubles/effort.ts";
import { PENNY, REPORTED, startLimited } from "../doubles/limited-journey.ts";
import { until } from "../doubles/until.ts";
import { zoneAtNoon } from "../doubles/zone-at-noon.ts";

// These tests mostly wait, so they run side by side.
t.jobs = 8;

// No day and no month may end during a test.
process.env.TZ = zoneAtNoon();

t.test("a reload that lowers, raises, adds or removes a limit keeps what was used", async (t) => {
  const { call, change, gateway, level } = await startLimited(t, "limits: { requests: 5/month }");
  for (let nth = 0; nth < 3; nth += 1) t.equal((await call()).status, 200);
  await change("limits: { requests: 2/month }");
  t.strictSame(await level("requests", "month"), [3, 0, 2]);
  t.equal((await call()).refusal, "rate-limited", "lowered below what was used");
  await change("limits: { requests: 4/month }");
  t.equal((await call()).status, 200, "raised by one");
  t.equal((await call()).refusal, "rate-limited");
  await change("");
  t.equal((await call()).status, 200, "removed");
  await change("limits: { requests: 5/month, tokens: 60/month, spend: $1/month }, quota: $0.00006");
  t.strictSame(await level("requests", "month"), [5, 0, 5], "added again, it knows of the one in between");
  t.strictSame(await level("tokens", "month"), [5 * REPORTED, 0, 60], "and a new kind of all of them");
  t.strictSame(await level("quota"), [5 * REPORTED, 0, 60]);
  t.equal((await call()).status, 400);
  t.equal(gateway.arrivals.length, 5);
});

t.test("a limit that is added after a restart counts what was used before it", async (t) => {
  const first = await startLimited(t, "");
  for (let nth = 0; nth < 3; nth += 1) t.equal((await first.call()).status, 200);
  await first.quiet();
  await first.daemon.stop(0);
  const again = await startLimited(t, "", { home: first.home, gateway: first.gateway, credentials: first });
  t.equal((await again.call()).status, 200);
  const inFlight = again.call({ play: "hang" });
  await until("it is there", () => first.gateway.running() === 1);
  await again.change("limits: { requests: 5/month, tokens: 1k/month }");
  t.strictSame(await again.level("requests", "month"), [5, 0, 5]);
  const [used, held] = await again.level("tokens", "month");
  t.equal(used, 4 * REPORTED);
  t.ok(Number(held) > 0, "something is held for the one in flight");
  t.equal((await again.call()).refusal, "rate-limited");
  first.gateway.release();
  t.equal((await inFlight).status, 200);
  await again.quiet();
  t.strictSame(await again.level("tokens", "month"), [5 * REPORTED, 0, 1000]);
});

t.test("a renamed tool counts from zero, and the old name keeps its counts", async (t) => {
  const { call, change, save, text } = await startLimited(t, "limits: { requests: 1/month }");
  t.equal((await call()).status, 200);
  t.equal((await call()).refusal, "rate-limited");
  await save(text("limits: { requests: 1/month }").replace("codex:", "another:"));
  await until("it is in force", async () => (await call()).status === 200);
  t.equal((await call()).refusal, "rate-limited");
  await change("limits: { requests: 1/month }");
  t.equal((await call()).refusal, "rate-limited", "back under its old name it has used what it used");
});

longTest(t, "the later of two quick saves applies", async (t) => {
  const { call, codex, gateway, save, text } = await startLimited(t, "");
  for (let round = 1; round <= 5; round += 1) {
    await save(text(`limits: { requests: ${900 + round}/month }`));
    await save(text(`limits: { requests: ${round}/month }`));
    await until("the later one is in force", async () => (await codex()).limits[0]?.most === round);
    t.equal((await call()).status, 200, "one more each time");
    t.equal((await call()).refusal, "rate-limited");
  }
  t.equal(gateway.arrivals.length, 5);
});

t.test("a save during a tool's first request applies to its limits", async (t) => {
  const { call, change, gateway, url, token } = await startLimited(t, "");
  // Its head is there, its body is not: it began under the configuration before.
  let finish = () => {};
  const body = new ReadableStream({
    start(controller) {
      controller.enqueue(new TextEncoder().encode(PENNY.slice(0, 5)));
      finish = () => {
        controller.enqueue(new TextEncoder().encode(PENNY.slice(5)));
        controller.close();
      };
    },
  });
  const init = { method: "POST", duplex: "half", body, headers: { authorization: `Bearer ${token}` } };
  const slow = fetch(`${url}/v1/chat/completions`, init as RequestInit);
  await call({ path: "/healthz", body: null });
  await change("limits: { requests: 2/month }");
  finish();
  t.equal((await slow).status, 200);
  t.equal((await call()).status, 200);
  t.equal((await call()).refusal, "rate-limited");
  t.equal(gateway.arrivals.length, 2);
});

t.test("a log that cannot be read at the start is not counted as empty", async (t) => {
  const settings = "limits: { requests: 3/month }";
  const first = await startLimited(t, settings);
  const { usage } = first.paths;
  for (let nth = 0; nth < 3; nth += 1) t.equal((await first.call()).status, 200);
  await first.quiet();
  await first.daemon.stop(0);
  renameSync(usage, `${usage}.away`);
  writeFileSync(usage, "");
  const again = await startLimited(t, settings, {
    home: first.home,
    gateway: first.gateway,
    credentials: first,
  });
  const early = await Promise.all(Array.from({ length: 5 }, () => again.call()));
  const codes = early.map(({ refusal, status }) => refusal ?? status);
  t.ok(codes.includes("log-unavailable") && !codes.includes(200), codes.join(", "));
  rmSync(usage);
  renameSync(`${usage}.away`, usage);
  await until("the log is there again", async () => (await again.call()).refusal === "rate-limited");
  t.equal(first.gateway.arrivals.length, 3, "no fourth reached the gateway");
});
