import { request } from "node:http";
import OpenAI from "openai";
import t from "tap";
import type { Clock } from "../../src/clock.ts";
import { type Journey, PENNY, recordsIn, startLimited, tally } from "../doubles/limited-journey.ts";
import { openRaw } from "../doubles/raw-client.ts";
import { until } from "../doubles/until.ts";

const inQueue = ({ codex }: Journey, count: number) =>
  until(`${count} wait`, async () => (await codex()).waiting === count);

t.test("with two at once and a wait, eight parallel calls of the openai package all succeed", async (t) => {
  const journey = await startLimited(t, "limits: { concurrent: 2, wait: 5s }");
  const { url, token, gateway, quiet, places } = journey;
  const openai = new OpenAI({
    apiKey: token,
    baseURL: `${url}/v1`,
    maxRetries: 0,
    defaultHeaders: { "x-play": "slow" },
  });
  const messages = [{ role: "user" as const, content: "hello" }];
  const answers = await Promise.all(
    Array.from({ length: 8 }, () => openai.chat.completions.create({ model: "penny", messages })),
  );
  t.strictSame(
    answers.map(({ usage }) => usage?.total_tokens),
    Array(8).fill(12),
  );
  t.equal(gateway.book.length, 8);
  t.equal(gateway.most(), 2, "never more than two at the gateway");
  await quiet();
  const waited = recordsIn(places.usage).map(({ waited_ms }) => Number(waited_ms));
  t.equal(waited.filter((ms) => ms > 0).length, 6, `the six that waited say so: ${waited}`);
  t.ok(Math.max(...waited) < 5000, `${waited}`);
});

t.test(
  "nothing of a request that waits goes to the gateway, and whoever leaves gives up the place",
  async (t) => {
    const journey = await startLimited(t, "limits: { requests: 100/month, concurrent: 1, wait: 30s }");
    const { url, token, gateway, call, places, level, quiet } = journey;
    const first = call({ play: "hang" });
    await until("it is there", () => gateway.book.length === 1);
    const leaving = new AbortController();
    const gone = call({ signal: leaving.signal }).catch(() => "gone");
    await inQueue(journey, 1);
    const stays = call();
    await inQueue(journey, 2);
    leaving.abort();
    t.equal(await gone, "gone");
    await inQueue(journey, 1);

    // So does one whose body was not read to its end while it waited.
    for (const size of [100_000, 800_000]) {
      const body = JSON.stringify({ model: "penny", max_tokens: 10, padding: "x".repeat(size) });
      const large = request(`${url}/v1/chat/completions`, {
        method: "POST",
        agent: false,
        headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      });
      large.on("error", () => {});
      large.end(body);
      await inQueue(journey, 2);
      large.destroy();
      await inQueue(journey, 1);
    }
    t.equal(gateway.book.length, 1, "no byte of them reached the gateway");
    gateway.release();
    t.equal((await first).status, 200);
    t.equal((await stays).status, 200);
    await quiet();
    t.equal(gateway.book.length, 2, "those that left never went");
    t.strictSame(await level("requests", "month"), [2, 0, 100], "and took nothing");
    const ends = recordsIn(places.usage).map(({ end }) => String(end));
    t.strictSame(tally(ends), { complete: 2, "client-left": 3 });
  },
);

t.test("a client that closes only its own side while it waits has left too", async (t) => {
  const journey = await startLimited(t, "limits: { concurrent: 1, wait: 30s }");
  const { daemon, token, gateway, call } = journey;
  const first = call({ play: "hang" });
  await until("it is there", () => gateway.book.length === 1);
  const raw = await openRaw(t, daemon.port);
  raw.send(
    `POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:${daemon.port}\r\nauthorization: Bearer ${token}\r\n` +
      `content-type: application/json\r\ncontent-length: ${PENNY.length}\r\n\r\n${PENNY}`,
  );
  await inQueue(journey, 1);
  raw.socket.end();
  await inQueue(journey, 0);
  gateway.release();
  await first;
  t.equal(gateway.book.length, 1);
});

t.test("a wait that cannot succeed is refused at once", async (t) => {
  const { call, change, gateway, places } = await startLimited(t, "limits: { requests: 1/month, wait: 20s }");
  t.equal((await call()).status, 200);
  const begun = performance.now();
  const refused = await call();
  t.strictSame([refused.status, refused.refusal], [400, "rate-limited"]);
  t.ok(performance.now() - begun < 5000, "it did not wait the 20 s");
  await change("quota: $0.00001, limits: { wait: 20s }");
  const quota = await call();
  t.strictSame([quota.status, quota.refusal], [400, "quota-exhausted"]);
  await change("limits: { spend: $5/month, wait: 20s }");
  t.equal((await call({ body: '{"model":"nobody-knows"}' })).refusal, "price-unknown");
  t.ok(performance.now() - begun < 10_000);
  t.equal(gateway.book.length, 1);
  t.strictSame(new Set(recordsIn(places.usage).map(({ waited_ms }) => waited_ms)), new Set([0]));
});

t.test("one that waited in vain is told so, and its record has the time", async (t) => {
  const { call, gateway, places } = await startLimited(t, "limits: { concurrent: 1, wait: 300ms }");
  const first = call({ play: "hang" });
  await until("it is there", () => gateway.book.length === 1);
  const refused = await call();
  t.strictSame([refused.status, refused.refusal], [429, "too-many-at-once"]);
  t.match(refused.text, /1 of 1 calls under way\. it waited 1 s in vain/);
  t.match(refused.headers.get("retry-after"), /^\d+$/);
  gateway.release();
  await first;
  await until("it is written", () =>
    recordsIn(places.usage).some(({ refusal }) => refusal === "too-many-at-once"),
  );
  const record = recordsIn(places.usage).find(({ refusal }) => refusal === "too-many-at-once");
  t.ok(Number(record?.waited_ms) >= 300, `${record?.waited_ms}`);
  t.strictSame([record?.held_tokens, record?.held_microdollars], [null, null], "nothing is held for it");
});

t.test("those that wait are told when the tool is disabled, is removed, or keybearer stops", async (t) => {
  const journey = await startLimited(t, "limits: { concurrent: 1, wait: 30s }");
  const { call, change, save, daemon, gateway, text } = journey;
  const first = call({ play: "hang" });
  await until("it is there", () => gateway.book.length === 1);

  const one = call();
  await inQueue(journey, 1);
  await change("enabled: false, limits: { concurrent: 1, wait: 30s }");
  const disabled = await one;
  t.strictSame([disabled.status, disabled.refusal], [400, "tool-disabled"]);

  await change("limits: { concurrent: 1, wait: 30s }");
  const two = call();
  await inQueue(journey, 1);
  await save(text("").replace("codex:", "renamed:"));
  const removed = await two;
  t.strictSame([removed.status, removed.refusal], [401, "token-unknown"]);

  await change("limits: { concurrent: 1, wait: 30s }");
  const three = call();
  await inQueue(journey, 1);
  const stopped = daemon.stop(5000);
  const told = await three;
  t.strictSame([told.status, told.refusal], [503, "shutting-down"]);
  t.match(told.headers.get("retry-after"), /^\d+$/);
  gateway.release();
  t.equal((await first).status, 200, "the one under way finished through all of that");
  await stopped;
  t.equal(gateway.book.length, 1);
});

/** So many milliseconds before a full minute; from there it goes on as the real one does. */
function before(minute: number, ms: number): Clock {
  const begun = performance.now();
  return { now: () => Math.floor(minute - ms + performance.now() - begun), elapsed: () => performance.now() };
}

t.test("those that waited for the next minute count in it, also after a restart", async (t) => {
  const settings = "limits: { requests: 4/minute, wait: 20s }";
  const clock = before(Date.UTC(2026, 10, 15, 12, 1), 1500);
  const journey = await startLimited(t, settings, { clock });
  const { call, daemon, gateway, quiet } = journey;
  const answers = await Promise.all(Array.from({ length: 8 }, () => call()));
  t.strictSame(tally(answers.map(({ status }) => status)), { 200: 8 });
  t.equal(gateway.book.length, 8);
  await quiet();
  t.strictSame(await journey.level("requests", "minute"), [4, 0, 4]);
  await daemon.stop(0);
  const again = await startLimited(t, settings, { clock, home: journey.home, gateway, credentials: journey });
  t.strictSame(await again.level("requests", "minute"), [4, 0, 4], "no fresh allowance");
  t.ok(clock.now() < Date.UTC(2026, 10, 15, 12, 2), "it is the same minute still");
});
