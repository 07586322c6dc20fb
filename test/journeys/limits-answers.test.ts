import t, { type Test } from "tap";
import {
  type Asking,
  heldWall,
  PENNY,
  type PlayGateway,
  REPORTED,
  startLimited,
} from "../doubles/limited-journey.ts";
import { CLOSED_PORT } from "../doubles/listen.ts";
import { until } from "../doubles/until.ts";
import { zoneAtNoon } from "../doubles/zone-at-noon.ts";

// These tests mostly wait, so they run side by side.
t.jobs = 8;

// No day and no month may end during a test.
process.env.TZ = zoneAtNoon();

/** There, too. */
const NOON = new Date(2026, 10, 15, 12).getTime();
/** What is held for PENNY: its own maximum, and a quarter of its bytes. */
const HELD = 10 + Math.ceil(PENNY.length / 4);

t.test("a limit with capacity within a minute is a 429 with whole seconds, any other a 400", async (t) => {
  const cases: [string, number, number, string | null][] = [
    ["1/minute", NOON + 10_400, 429, "50"],
    ["1/minute", NOON + 59_999, 429, "1"],
    ["1/minute", NOON, 429, "60"],
    ["1/hour", NOON + 59 * 60_000, 429, "60"],
    ["1/hour", NOON + 59 * 60_000 - 1, 400, null],
    ["1/month", NOON, 400, null],
  ];
  for (const [rate, now, status, retryAfter] of cases) {
    const { call, gateway } = await startLimited(t, `limits: { requests: ${rate} }`, {
      clock: heldWall(now),
    });
    t.equal((await call()).status, 200);
    const refused = await call();
    const what = `${rate} at ${new Date(now).toISOString()}`;
    t.strictSame([refused.status, refused.refusal], [status, "rate-limited"], what);
    t.equal(refused.headers.get("retry-after"), retryAfter, what);
    t.equal(refused.headers.get("x-should-retry"), status === 400 ? "false" : null, what);
    t.equal(gateway.arrivals.length, 1);
  }
});

t.test(
  "a refusal says which tool, which limit, how much of it is used, and when capacity returns",
  async (t) => {
    const { call, change } = await startLimited(t, "limits: { requests: [1/hour, 9/day] }", {
      clock: heldWall(NOON + 10_000),
    });
    t.equal((await call()).status, 200);
    const text = (await call()).text;
    t.match(
      text,
      /keybearer: tool codex is at its limit of 1 request per hour: 1 of 1 used\. capacity returns in 60 min, (?:tomorrow )?at /,
    );
    t.match(text, /keybearer tools lift codex --requests 1"/);
    await change("limits: { tokens: 30/hour }");
    t.match(
      (await call()).text,
      new RegExp(
        `limit of 30 tokens per hour: ${REPORTED} of 30 used, this request may use ${HELD}\\. capacity returns in`,
      ),
    );
    await change("limits: { spend: $0.00003/hour }");
    t.match((await call()).text, /limit of \$0\.00003 per hour: \$0\.000012 of \$0\.00003 used/);
    await change("quota: $0.00002");
    const quota = await call();
    t.strictSame([quota.status, quota.refusal], [400, "quota-exhausted"]);
    t.match(
      quota.text,
      /the quota of tool codex is used up: \$0\.000012 of \$0\.00002 used.*raise tools\.codex\.quota/,
    );
  },
);

t.test("a refusal has the shape of its protocol", async (t) => {
  const { call } = await startLimited(t, "limits: { requests: 1/minute }", {
    clock: heldWall(NOON + 10_000),
  });
  t.equal((await call()).status, 200);
  const openai = await call();
  t.match(JSON.parse(openai.text), {
    error: { type: "keybearer_refusal", param: null, code: "rate-limited", message: /^keybearer: / },
  });
  const messages = await call({ path: "/v1/messages" });
  t.equal(messages.status, 429);
  t.match(JSON.parse(messages.text), {
    type: "error",
    error: { type: "rate_limit_error", message: /^keybearer: / },
  });
  const gemini = await call({ path: "/v1beta/models/penny:generateContent", body: '{"contents":[]}' });
  t.equal(gemini.status, 429);
  t.match(JSON.parse(gemini.text), {
    error: { code: 429, status: "RESOURCE_EXHAUSTED", message: /^keybearer: / },
  });
  for (const { headers } of [openai, messages, gemini])
    t.strictSame([headers.get("retry-after"), headers.get("x-keybearer-refusal")], ["50", "rate-limited"]);
});

t.test("a response has keybearer's rate limit headers instead of the gateway's", async (t) => {
  const { call, change } = await startLimited(
    t,
    "limits: { requests: [10/minute, 100/day], tokens: 1k/hour }",
    {
      clock: heldWall(NOON + 10_000),
    },
  );
  const names = ["limit", "remaining", "reset"].flatMap((name) =>
    ["requests", "tokens"].map((kind) => `x-ratelimit-${name}-${kind}`),
  );
  const first = await call();
  t.strictSame(
    names.map((name) => first.headers.get(name)),
    ["10", "1000", "9", String(1000 - HELD), "50s", "59m50s"],
    "what it took itself is taken off, and the nearest limit counts",
  );
  const second = await call({ play: "stream" });
  t.equal(second.headers.get("x-ratelimit-remaining-requests"), "8");
  t.equal(
    second.headers.get("x-ratelimit-remaining-tokens"),
    String(1000 - REPORTED - HELD),
    "the first is settled",
  );
  const third = await call({ play: "503" });
  t.equal(third.headers.get("x-ratelimit-remaining-requests"), "7", "on the gateway's errors as well");
  await change("");
  t.equal(
    (await call()).headers.get("x-ratelimit-limit-requests"),
    "999999",
    "without limits the gateway's own stays",
  );
});

t.test("a tool with a limit on money refuses paid requests for a model without a price", async (t) => {
  const { call, change, gateway } = await startLimited(t, "");
  const unknown: Asking = { body: '{"model":"nobody-knows","max_tokens":5}' };
  t.equal((await call(unknown)).status, 200, "without a limit on money it passes");
  for (const settings of ["limits: { spend: $5/day }", "quota: $5"]) {
    await change(settings);
    const refused = await call(unknown);
    t.strictSame([refused.status, refused.refusal], [400, "price-unknown"], settings);
    t.equal(refused.headers.get("x-should-retry"), "false");
    t.match(
      refused.text,
      /tool codex has a limit on money, and the price of model nobody-knows is not known.*prices:/,
    );
    t.equal((await call({ body: '{"max_tokens":5}' })).refusal, "price-unknown", "nor is that of no model");
    t.equal((await call({ path: "/v1/models", body: null })).status, 200, "a list of models costs nothing");
    t.equal((await call()).status, 200);
  }
  t.equal(gateway.arrivals.length, 5);
});

t.test("a limit on money refuses a body without a readable model and says how to send it", async (t) => {
  const { call, gateway } = await startLimited(t, "limits: { spend: $5/day }");
  const headers = { "content-encoding": "gzip" };
  const hidden: [Asking, string, RegExp][] = [
    [
      { headers, body: PENNY },
      "bad-request",
      /tool codex has limits that depend on it\. send uncompressed JSON/,
    ],
    [{ body: "penny" }, "bad-request", /the body cannot be read/],
    [{ body: '{"max_tokens":5}' }, "price-unknown", /the request names no model: name one/],
  ];
  for (const [asking, code, words] of hidden) {
    const refused = await call(asking);
    t.strictSame([refused.status, refused.refusal], [400, code]);
    t.match(refused.text, words);
    t.notMatch(refused.text, /prices:/, "no price in the file would help");
  }
  t.equal(gateway.arrivals.length, 0);
  const last = await call({ body: `{"messages":"${"x".repeat(1_300_000)}","model":"penny"}` });
  t.equal(last.status, 200, "a model at the end of a long body is read");
});

/** Requests that end as the gateway's plays say, one after the other, and what each takes of the limits. */
async function counts(t: Test, gatewayLines: string, cases: readonly (readonly [string, number])[]) {
  const { call, level, quiet } = await startLimited(
    t,
    "limits: { requests: 100/month, tokens: 100k/month, spend: $9/month }, quota: $10",
    { gatewayLines },
  );
  let used = 0;
  let requests = 0;
  for (const [play, takes] of cases) {
    await call({ play }).catch(() => null);
    await quiet();
    used += takes;
    requests += 1;
    const levels = [
      await level("requests", "month"),
      await level("tokens", "month"),
      await level("spend", "month"),
    ];
    t.strictSame(
      levels,
      [
        [requests, 0, 100],
        [used, 0, 100_000],
        [used, 0, 9_000_000],
      ],
      play,
    );
    t.strictSame(await level("quota"), [used, 0, 10_000_000], play);
  }
  await call({ path: "/v1/models", body: null });
  await quiet();
  t.strictSame(await level("tokens", "month"), [used, 0, 100_000], "a list of models takes no tokens");
}

t.test("what a request counts depends on how it ended", async (t) => {
  await counts(t, "timeouts: { idle: 5m }", [
    ["finish", REPORTED],
    ["stream", REPORTED],
    ["no-usage", HELD],
    ["cut", HELD],
    ["cut-stream", HELD],
    ["400", 0],
    ["401", 0],
    ["429", 0],
    ["early", 0],
    ["500", 0],
    ["503", 0],
  ]);
});

t.test("a request that times out keeps what it held", async (t) => {
  await counts(t, "timeouts: { first_byte: 300ms, idle: 300ms }", [
    ["hang", HELD],
    ["stall", HELD],
  ]);
});

t.test("a request to a gateway that cannot be reached counts nothing", async (t) => {
  const baseUrl = `http://127.0.0.1:${CLOSED_PORT}/v1`;
  const gateway: PlayGateway = {
    baseUrl,
    origin: baseUrl,
    arrivals: [],
    running: () => 0,
    most: () => 0,
    release: () => {},
  };
  const { call, level, quiet } = await startLimited(t, "limits: { requests: 2/month, tokens: 1k/month }", {
    gateway,
    gatewayLines: "timeouts: { retry_connect: 0s }",
  });
  for (let again = 0; again < 4; again += 1) t.equal((await call()).refusal, "gateway-unreachable");
  await quiet();
  t.strictSame(await level("requests", "month"), [0, 0, 2]);
  t.strictSame(await level("tokens", "month"), [0, 0, 1000]);
});

t.test("no refusal, header or log line has the key or the token in it", async (t) => {
  const { call, key, token, logText, gateway } = await startLimited(
    t,
    "limits: { requests: 1/month, concurrent: 1 }",
  );
  const first = call({ play: "hang" });
  await until("it is there", () => gateway.arrivals.length === 1);
  const atOnce = await call();
  gateway.release();
  await first;
  const spent = await call();
  const all =
    [atOnce, spent].map(({ headers, text }) => JSON.stringify([...headers]) + text).join("") + logText();
  t.match(all, /rate-limited/);
  t.notOk(all.includes(key) || all.includes(token));
});
