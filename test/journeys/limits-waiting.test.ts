import { request } from "node:http";
import { gzipSync } from "node:zlib";
import OpenAI from "openai";
import t from "tap";
import { longTest } from "../doubles/effort.ts";
import { heldWall, type Journey, PENNY, startLimited, tally } from "../doubles/limited-journey.ts";
import { openRaw } from "../doubles/raw-client.ts";
import { until } from "../doubles/until.ts";
import { recordsIn } from "../doubles/usage-file.ts";
import { zoneAtNoon } from "../doubles/zone-at-noon.ts";

// These tests mostly wait, so they run side by side.
t.jobs = 8;

// No day and no month may end during a test.
process.env.TZ = zoneAtNoon();

const inQueue = ({ codex }: Journey, count: number) =>
  until(`${count} wait`, async () => (await codex()).waiting === count);

t.test("eight parallel calls of the openai package succeed with two at once and a wait", async (t) => {
  const journey = await startLimited(t, "limits: { concurrent: 2, wait: 1h }");
  const { url, token, gateway, quiet, paths } = journey;
  const openai = new OpenAI({
    apiKey: token,
    baseURL: `${url}/v1`,
    maxRetries: 0,
    defaultHeaders: { "x-play": "hang" },
  });
  const messages = [{ role: "user" as const, content: "hello" }];
  const answering = Array.from({ length: 8 }, () =>
    openai.chat.completions.create({ model: "penny", messages }),
  );
  await inQueue(journey, 6);
  await until("all have reached the gateway", () => {
    gateway.release();
    return gateway.arrivals.length === 8 && gateway.running() === 0;
  });
  const answers = await Promise.all(answering);
  t.strictSame(
    answers.map(({ usage }) => usage?.total_tokens),
    Array(8).fill(12),
  );
  t.equal(gateway.arrivals.length, 8);
  t.equal(gateway.most(), 2, "never more than two at the gateway");
  await quiet();
  const waited = recordsIn(paths.usage).map(({ waited_ms }) => Number(waited_ms));
  t.equal(waited.filter((ms) => ms > 0).length, 6, `the six that waited say so: ${waited}`);
});

t.test(
  "a waiting request sends nothing to the gateway, and a client that leaves frees its place",
  async (t) => {
    const journey = await startLimited(t, "limits: { requests: 100/month, concurrent: 1, wait: 1h }");
    const { url, token, gateway, call, paths, level, quiet } = journey;
    const first = call({ play: "hang" });
    await until("it is there", () => gateway.arrivals.length === 1);
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
    t.equal(gateway.arrivals.length, 1, "no byte of them reached the gateway");
    gateway.release();
    t.equal((await first).status, 200);
    t.equal((await stays).status, 200);
    await quiet();
    t.equal(gateway.arrivals.length, 2, "those that left never went");
    t.strictSame(await level("requests", "month"), [2, 0, 100], "and took nothing");
    const ends = recordsIn(paths.usage).map(({ end }) => String(end));
    t.strictSame(tally(ends), { complete: 2, "client-left": 3 });
  },
);

const MB = 1024 * 1024;
const padded = (size: number) =>
  JSON.stringify({ model: "penny", max_tokens: 10, padding: "x".repeat(size) });

t.test("a client that leaves while it waits is noticed, whatever the size of its body", async (t) => {
  const journey = await startLimited(t, "limits: { concurrent: 1, wait: 1h }");
  const { url, token, gateway, call, paths, quiet } = journey;
  const first = call({ play: "hang" });
  await until("it is there", () => gateway.arrivals.length === 1);
  const json = { "content-type": "application/json" };
  const sent: [string, Record<string, string>, string | Buffer][] = [
    ["chat/completions", json, padded(1.5 * MB)],
    ["chat/completions", json, padded(9 * MB)],
    ["chat/completions", { ...json, "content-encoding": "gzip" }, gzipSync(padded(MB), { level: 0 })],
    [
      "files",
      { "content-type": "multipart/form-data; boundary=b" },
      `--b\r\n\r\n${"x".repeat(3 * MB)}\r\n--b--\r\n`,
    ],
  ];
  for (const [path, headers, body] of sent) {
    const leaves = request(`${url}/v1/${path}`, {
      method: "POST",
      agent: false,
      headers: { authorization: `Bearer ${token}`, ...headers },
    });
    leaves.on("error", () => {});
    leaves.end(body);
    await inQueue(journey, 1);
    leaves.destroy();
    await inQueue(journey, 0);
  }
  const large = padded(3 * MB);
  const stays = call({ body: large });
  await inQueue(journey, 1);
  gateway.release();
  t.strictSame([(await first).status, (await stays).status], [200, 200]);
  await quiet();
  t.equal(gateway.arrivals.length, 2, "those that left never went");
  t.ok(gateway.arrivals[1]?.body === large, "and the one that stayed arrived byte for byte");
  const ends = recordsIn(paths.usage).map(({ end }) => String(end));
  t.strictSame(tally(ends), { complete: 2, "client-left": sent.length });
});

longTest(
  t,
  "a body that is too large to be held is refused instead of waiting, and passes where there is capacity",
  async (t) => {
    const journey = await startLimited(t, "limits: { concurrent: 1, wait: 1h }");
    const { call, daemon, token, gateway, codex, quiet } = journey;
    const body = padded(33 * MB);
    t.equal((await call({ body })).status, 200, "it need not wait");
    await quiet();
    const first = call({ play: "hang" });
    await until("it is there", () => gateway.arrivals.length === 2);
    const refused = await openRaw(t, daemon.port);
    const host = `host: 127.0.0.1:${daemon.port}\r\n`;
    refused.send(
      `POST /v1/chat/completions HTTP/1.1\r\n${host}authorization: Bearer ${token}\r\n` +
        `content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body.slice(0, 100_000)}`,
    );
    await refused.until("too-many-at-once");
    t.equal(refused.status(), 429);
    t.notMatch(refused.text(), /it waited/);
    t.equal((await codex()).waiting, 0);
    gateway.release();
    t.equal((await first).status, 200);
    t.equal(gateway.arrivals.length, 2);
  },
);

longTest(t, "a request gets a place in the queue only once its body is complete", async (t) => {
  const journey = await startLimited(t, "limits: { concurrent: 1, wait: 1h }", {
    gatewayLines: "timeouts: { first_byte: 1s }",
  });
  const { daemon, token, gateway, paths, call } = journey;
  // It streams, so that the gateway's timeout does not end it.
  const first = call({ play: "stall" }).catch(() => "cut");
  await until("it is there", () => gateway.arrivals.length === 1);
  const half =
    `POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:${daemon.port}\r\nauthorization: Bearer ${token}\r\n` +
    `content-type: application/json\r\ncontent-length: ${PENNY.length + 9}\r\n\r\n${PENNY}`;
  const stops = await openRaw(t, daemon.port);
  stops.send(half);
  await stops.until("stopped coming");
  t.equal(stops.status(), 400);
  const ends = await openRaw(t, daemon.port);
  ends.send(half);
  ends.socket.end();
  await until("its record is there", () => recordsIn(paths.usage).some(({ end }) => end === "client-left"));
  t.equal(gateway.arrivals.length, 1);
  await daemon.stop(0);
  await first;
});

t.test("a client that leaves while its websocket request waits frees its place", async (t) => {
  const journey = await startLimited(t, "limits: { concurrent: 1, wait: 1h }", {
    gatewayLines: "websockets: true",
  });
  const { daemon, token, gateway, paths, call } = journey;
  const first = call({ play: "hang" });
  await until("it is there", () => gateway.arrivals.length === 1);
  for (const leave of ["end", "destroy"] as const) {
    const raw = await openRaw(t, daemon.port);
    raw.send(
      `GET /v1/responses HTTP/1.1\r\nhost: 127.0.0.1:${daemon.port}\r\nauthorization: Bearer ${token}\r\n` +
        "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n" +
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    await inQueue(journey, 1);
    raw.socket[leave]();
    await inQueue(journey, 0);
  }
  gateway.release();
  await first;
  t.equal(gateway.arrivals.length, 1);
  await until("all are complete", () => recordsIn(paths.usage).every(({ end }) => end !== null));
  const ends = recordsIn(paths.usage).map(({ end }) => String(end));
  t.strictSame(tally(ends), { complete: 1, "client-left": 2 });
});

t.test("a client that closes only its side while it waits has left", async (t) => {
  const journey = await startLimited(t, "limits: { concurrent: 1, wait: 1h }");
  const { daemon, token, gateway, call } = journey;
  const first = call({ play: "hang" });
  await until("it is there", () => gateway.arrivals.length === 1);
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
  t.equal(gateway.arrivals.length, 1);
});

t.test("a wait that cannot succeed is refused at once", async (t) => {
  const { call, change, gateway, paths } = await startLimited(t, "limits: { requests: 1/month, wait: 1h }");
  t.equal((await call()).status, 200);
  const refused = await call();
  t.strictSame([refused.status, refused.refusal], [400, "rate-limited"]);
  await change("quota: $0.00001, limits: { wait: 1h }");
  const quota = await call();
  t.strictSame([quota.status, quota.refusal], [400, "quota-exhausted"]);
  await change("limits: { spend: $5/month, wait: 1h }");
  t.equal((await call({ body: '{"model":"nobody-knows"}' })).refusal, "price-unknown");
  t.equal(gateway.arrivals.length, 1);
  t.strictSame(new Set(recordsIn(paths.usage).map(({ waited_ms }) => waited_ms)), new Set([0]));
});

t.test("a request whose wait ends is refused with that reason, and its record has the time", async (t) => {
  const { call, gateway, paths } = await startLimited(t, "limits: { concurrent: 1, wait: 300ms }");
  const first = call({ play: "hang" });
  await until("it is there", () => gateway.arrivals.length === 1);
  const refused = await call();
  t.strictSame([refused.status, refused.refusal], [429, "too-many-at-once"]);
  t.match(refused.text, /1 of 1 requests in flight\. it waited \d+ s for capacity/);
  t.match(refused.headers.get("retry-after"), /^\d+$/);
  gateway.release();
  await first;
  await until("it is written", () =>
    recordsIn(paths.usage).some(({ refusal }) => refusal === "too-many-at-once"),
  );
  const record = recordsIn(paths.usage).find(({ refusal }) => refusal === "too-many-at-once");
  t.ok(Number(record?.waited_ms) > 0, `${record?.waited_ms}`);
  t.strictSame([record?.held_tokens, record?.held_microdollars], [null, null], "nothing is held for it");
});

t.test("waiting requests are refused when the tool is disabled or removed, or keybearer stops", async (t) => {
  const journey = await startLimited(t, "limits: { concurrent: 1, wait: 1h }");
  const { call, change, save, daemon, gateway, text } = journey;
  const first = call({ play: "hang" });
  await until("it is there", () => gateway.arrivals.length === 1);

  const one = call();
  await inQueue(journey, 1);
  await change("enabled: false, limits: { concurrent: 1, wait: 1h }");
  const disabled = await one;
  t.strictSame([disabled.status, disabled.refusal], [400, "tool-disabled"]);

  await change("limits: { concurrent: 1, wait: 1h }");
  const two = call();
  await inQueue(journey, 1);
  await save(text("").replace("codex:", "renamed:"));
  const removed = await two;
  t.strictSame([removed.status, removed.refusal], [401, "token-unknown"]);

  await change("limits: { concurrent: 1, wait: 1h }");
  const three = call();
  await inQueue(journey, 1);
  const stopped = daemon.stop(5000);
  const refused = await three;
  t.strictSame([refused.status, refused.refusal], [503, "shutting-down"]);
  t.match(refused.headers.get("retry-after"), /^\d+$/);
  gateway.release();
  t.equal((await first).status, 200, "the one in flight finished through all of that");
  await stopped;
  t.equal(gateway.arrivals.length, 1);
});

t.test("a waiting request is refused if a change forbids it, and takes nothing", async (t) => {
  const clock = heldWall();
  const limits = "limits: { requests: 100/month, concurrent: 1, wait: 1h }";
  const expiring = `expires: 2026-11-15T13:00:00Z, ${limits}`;
  const journey = await startLimited(t, `group: fast, ${limits}`, {
    clock,
    gatewayLines: "groups: { fast: {} }",
  });
  const { call, save, change, daemon, gateway, text, quiet, level } = journey;
  const begin = async () => {
    const count = gateway.arrivals.length;
    const first = call({ play: "hang" });
    await until("it is there", () => gateway.arrivals.length === count + 1);
    const waits = call();
    await inQueue(journey, 1);
    return async () => {
      gateway.release();
      t.equal((await first).status, 200);
      return await waits;
    };
  };

  const grouped = await begin();
  const { revision } = daemon.snapshot();
  await save(text(`group: fast, ${limits}`).replace("fast: {}", "fast: { enabled: false }"));
  await until("the save is in force", () => daemon.snapshot().revision > revision);
  t.equal((await grouped()).refusal, "group-disabled");

  await change(expiring);
  const expired = await begin();
  clock.pass(3_600_000);
  t.equal((await expired()).refusal, "tool-expired");

  await change(limits);
  const goes = await begin();
  t.equal((await goes()).status, 200, "and goes where nothing does");
  await quiet();
  t.equal(gateway.arrivals.length, 4);
  t.strictSame(await level("requests", "month"), [4, 0, 100]);
});

t.test("requests that waited for the next minute count in it, also after a restart", async (t) => {
  const settings = "limits: { requests: 4/minute, wait: 1h }";
  // Right before a full minute, so that those who wait look at it often.
  const clock = heldWall(Date.UTC(2026, 10, 15, 12, 1) - 50);
  const journey = await startLimited(t, settings, { clock });
  const { call, daemon, gateway, quiet } = journey;
  const answered = Promise.all(Array.from({ length: 8 }, () => call()));
  await inQueue(journey, 4);
  await until("the first four are sent", () => gateway.arrivals.length === 4);
  clock.pass(1000);
  t.strictSame(tally((await answered).map(({ status }) => status)), { 200: 8 });
  t.equal(gateway.arrivals.length, 8);
  await quiet();
  t.strictSame(await journey.level("requests", "minute"), [4, 0, 4]);
  await daemon.stop(0);
  const again = await startLimited(t, settings, { clock, home: journey.home, gateway, credentials: journey });
  t.strictSame(await again.level("requests", "minute"), [4, 0, 4], "no fresh allowance");
});
