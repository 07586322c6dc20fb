import t from "tap";
import { modelRefusal } from "../../src/limits/admit.ts";
import type { Counters } from "../../src/limits/counters.ts";
import { amountInWords, durationInWords, endInWords, momentInWords } from "../../src/limits/format.ts";
import { addRateHeaders, goDuration, limitRefusal } from "../../src/limits/refusals.ts";
import { at, counters, DAY, HOUR, MINUTE, SECOND, utc } from "./limits-under-test.ts";

const NOW = at("2026-11-15T12:00:46.500Z");
const DOLLAR = 1_000_000;

function refused(limits: Counters, ask: { tokens: number; spend: number | null }, waited = 0) {
  const shortage = limits.check(ask, NOW);
  if (shortage === null) throw new Error("there is capacity");
  return limitRefusal(shortage, {
    tool: "codex",
    model: "gpt-5.1",
    lacksModel: false,
    waited,
    now: NOW,
    calendar: utc,
    neededAllowance: (kind) => limits.neededAllowance(kind, NOW),
  });
}

/** Limits with this much used, and this much held by a request in flight. */
function filled(
  limits: string,
  used: { tokens: number; spend: number },
  held = { tokens: 0, spend: 0 },
  quota: string | null = null,
) {
  const all = counters(limits, quota);
  const call = all.reserve(used, NOW);
  if (call.ok) all.settle(call.reservation, used);
  if (held.tokens + held.spend > 0) all.reserve(held, NOW);
  return all;
}

t.test("capacity within a minute is a refusal with Retry-After, in whole seconds rounded up", async (t) => {
  const limits = counters("requests: 1/minute");
  limits.reserve({ tokens: 0, spend: 0 }, NOW);
  t.strictSame(refused(limits, { tokens: 0, spend: 0 }), {
    code: "rate-limited",
    message:
      "tool codex is at its limit of 1 request per minute: 1 of 1 used. capacity returns in 14 s, at 12:01",
    retryAfter: 14,
  });
});

t.test(
  "for capacity that returns later, the refusal names the time and what to type, without Retry-After",
  async (t) => {
    t.strictSame(
      refused(filled("tokens: 400k/hour", { tokens: 399_000, spend: 0 }), { tokens: 9500, spend: 0 }),
      {
        code: "tokens-limited",
        message:
          "tool codex is at its limit of 400,000 tokens per hour: 399,000 of 400,000 used, this request may use 9,500. " +
          "capacity returns in 60 min, at 13:00. the owner can raise tools.codex.limits.tokens in config.yaml, " +
          "or give one more allowance: keybearer tools lift codex --tokens 400000",
      },
    );
    t.strictSame(
      refused(filled("spend: $5/day", { tokens: 0, spend: 4.5 * DOLLAR }), { tokens: 0, spend: DOLLAR }),
      {
        code: "spend-limited",
        message:
          "tool codex is at its limit of $5.00 per day: $4.50 of $5.00 used, this request may use $1.00. " +
          "capacity returns in 12 h, tomorrow at 00:00. the owner can raise tools.codex.limits.spend in config.yaml, " +
          "or give one more allowance: keybearer tools lift codex --spend 5",
      },
    );
    t.match(refused(filled("spend: $60/month", { tokens: 0, spend: 60 * DOLLAR }), { tokens: 0, spend: 1 }), {
      message: "used, this request may use $0.000001. capacity returns in 16 days, on 2026-12-01. ",
    });
  },
);

t.test("the border between the two is at sixty seconds", async (t) => {
  const limits = counters("requests: 1/hour");
  limits.reserve({ tokens: 0, spend: 0 }, NOW);
  const shortage = limits.check({ tokens: 0, spend: 0 }, NOW);
  if (shortage === null) return void t.fail();
  const inMs = (ms: number) =>
    limitRefusal(
      { ...shortage, capacityAt: NOW + ms },
      {
        tool: "codex",
        model: null,
        lacksModel: false,
        waited: 0,
        now: NOW,
        calendar: utc,
        neededAllowance: () => 1,
      },
    ).retryAfter;
  t.strictSame([inMs(-5), inMs(0), inMs(1), inMs(1000), inMs(1001)], [1, 1, 1, 1, 2]);
  t.strictSame([inMs(59_001), inMs(60_000), inMs(60_001), inMs(DAY)], [60, 60, undefined, undefined]);
});

t.test(
  "a limit that requests in flight may free is worth a retry, later if its window is long",
  async (t) => {
    const held = (per: string) =>
      refused(filled(`tokens: 1000/${per}`, { tokens: 100, spend: 0 }, { tokens: 800, spend: 0 }), {
        tokens: 200,
        spend: 0,
      });
    t.strictSame(
      ["minute", "hour", "day", "month"].map((per) => held(per).retryAfter),
      [5, 5, 30, 30],
    );
    const refusal = held("day");
    t.match(
      refusal.message,
      "100 of 1,000 used, 800 reserved for requests in flight, this request may use 200. " +
        "capacity may return when one of them ends, at the latest in 12 h, tomorrow at 00:00",
    );
  },
);

t.test("a refusal of too many at once says how many there are, and when to try again", async (t) => {
  const limits = counters("concurrent: 1");
  limits.reserve({ tokens: 0, spend: 0 }, NOW);
  t.strictSame(refused(limits, { tokens: 0, spend: 0 }), {
    code: "too-many-at-once",
    message:
      "tool codex is at its limit of 1 at once: 1 of 1 requests in flight. try again when one of them has ended, " +
      "or let it wait longer: tools.codex.limits.wait in config.yaml",
    retryAfter: 5,
  });
  t.match(
    refused(limits, { tokens: 0, spend: 0 }, 20 * SECOND).message,
    "it waited 20 s for capacity. try again",
  );
});

t.test("a quota, a limit of nothing and an unknown price are the owner's to change", async (t) => {
  t.strictSame(
    refused(filled("", { tokens: 0, spend: 200 * DOLLAR }, undefined, "$200"), { tokens: 0, spend: 50_000 }),
    {
      code: "quota-exhausted",
      message:
        "the quota of tool codex is used up: $200.00 of $200.00 used, this request may use $0.05. " +
        "the owner can raise tools.codex.quota in config.yaml",
    },
  );
  const never = refused(counters("spend: $0/day"), { tokens: 0, spend: 5 });
  t.equal(never.retryAfter, undefined);
  t.match(
    never.message,
    "capacity never returns by itself. the owner can raise tools.codex.limits.spend in config.yaml",
  );
  t.notMatch(never.message, "lift");
  t.strictSame(refused(counters("spend: $1/day"), { tokens: 5, spend: null }), {
    code: "price-unknown",
    message:
      "tool codex has a limit on money, and the price of model gpt-5.1 is not known. " +
      "the owner can add it under prices: in config.yaml",
  });
});

t.test("a price that is unknown because the body hides its model is the sender's to change", async (t) => {
  const shortage = counters("spend: $1/day").check({ tokens: 5, spend: null }, NOW);
  if (shortage === null) return void t.fail();
  const context = { tool: "codex", waited: 0, now: NOW, calendar: utc, neededAllowance: () => 1 };
  t.strictSame(limitRefusal(shortage, { ...context, model: null, lacksModel: true }), {
    code: "price-unknown",
    message:
      "tool codex has a limit on money, and the price of this request is not known. the request names no model: name one",
  });
  const known = limitRefusal(shortage, { ...context, model: "gpt-5.1", lacksModel: false });
  t.match(known.message, "the owner can add it under prices:", "seen in the end, it has no price");
});

t.test("the allowance that a refusal names admits the request", async (t) => {
  const cases: [string, number, number, string][] = [
    ["spend: $0.001/day", 0.0017, 0.02, "0.03"],
    ["spend: $0.01/day", 0.017, 0.5, "0.51"],
    ["spend: [$5/day, $60/month]", 5, 0.2, "5"],
    ["spend: [$60/month, $5/day]", 59.5, 30, "84.5"],
  ];
  for (const [text, used, ask, amount] of cases) {
    const limits = filled(text, { tokens: 0, spend: used * DOLLAR });
    const request = { tokens: 0, spend: ask * DOLLAR };
    const [, typed] = /tools lift codex --spend (\S+)$/.exec(refused(limits, request).message) ?? [];
    t.equal(typed, amount, text);
    const given = Math.round(Number(typed) * DOLLAR);
    limits.allow({ limit: "spend", amount: given, given_at: NOW, until: null });
    t.equal(limits.check(request, NOW), null, `${text}: admitted`);
  }
});

t.test("a model that is not in the group is named with what the group has, fit for a terminal", async (t) => {
  t.strictSame(modelRefusal("codex", "coding", "gpt-4o", ["claude-*", "gpt-5*"]), {
    code: "model-not-in-group",
    message:
      "model gpt-4o is not in group coding of tool codex, which has claude-*, gpt-5*. " +
      "choose one of these, or the owner can change the group's models in config.yaml",
  });
  const hostile = modelRefusal("codex", "coding", `\u001b[2J\n\u202e${"x".repeat(5000)}`, []).message;
  t.match(hostile, /^model \?\[2J\?\?x{94}… is not in group coding/);
  t.match(hostile, "which has no model at all");
});

/** By name, what the answer to a request at NOW would say. */
function rates(limits: Counters): Record<string, string | undefined> {
  const headers: string[] = [];
  for (const kind of ["requests", "tokens"] as const) {
    const nearest = limits.nearest(kind, NOW);
    if (nearest !== null) addRateHeaders(headers, kind, nearest, NOW);
  }
  const names = headers.filter((_, at) => at % 2 === 0);
  return Object.fromEntries(names.map((name, at) => [name, headers[at * 2 + 1]]));
}

t.test("the conventional headers say what is left of the limit nearest to its end", async (t) => {
  const limits = counters(
    "requests: [10/minute, 5/day], tokens: 1k/minute, spend: $1/day, concurrent: 9",
    "$5",
  );
  t.strictSame(rates(limits), {
    "x-ratelimit-limit-requests": "5",
    "x-ratelimit-remaining-requests": "5",
    "x-ratelimit-reset-requests": "11h59m14s",
    "x-ratelimit-limit-tokens": "1000",
    "x-ratelimit-remaining-tokens": "1000",
    "x-ratelimit-reset-tokens": "14s",
  });
  const call = limits.reserve({ tokens: 300, spend: 1 }, NOW);
  t.match(rates(limits), {
    "x-ratelimit-remaining-requests": "4",
    "x-ratelimit-remaining-tokens": "700",
  });
  if (call.ok) limits.settle(call.reservation, { tokens: 5000, spend: 1 });
  t.match(rates(limits), { "x-ratelimit-remaining-tokens": "0" });
  t.strictSame(rates(counters("spend: $1/day, concurrent: 2")), {});
});

t.test("amounts, durations and moments in words", async (t) => {
  const money: [number, string][] = [
    [0, "$0"],
    [1, "$0.000001"],
    [2500, "$0.0025"],
    [9990, "$0.00999"],
    [10_000, "$0.01"],
    [4_990_000, "$4.99"],
    [1_234_567_890_000, "$1,234,567.89"],
  ];
  for (const [amount, words] of money) t.equal(amountInWords("spend", amount), words);
  t.equal(amountInWords("tokens", 1_234_567), "1,234,567 tokens");
  t.equal(amountInWords("requests", 999), "999 requests");
  const durations: [number, string, string][] = [
    [0, "1 s", "0ms"],
    [120, "1 s", "120ms"],
    [999.5, "1 s", "1000ms"],
    [1000, "1 s", "1s"],
    [59_001, "60 s", "1m0s"],
    [6 * MINUTE, "6 min", "6m0s"],
    [2 * HOUR, "2 h", "2h0m0s"],
    [5 * HOUR + 11 * MINUTE + 1, "5 h 12 min", "5h11m1s"],
    [DAY, "24 h", "24h0m0s"],
    [3 * DAY, "3 days", "72h0m0s"],
  ];
  for (const [ms, words, go] of durations) t.strictSame([durationInWords(ms), goDuration(ms)], [words, go]);
  const moments: [string, string][] = [
    ["2026-11-15T12:05:00Z", "at 12:05"],
    ["2026-11-15T12:00:47Z", "at 12:00:47"],
    ["2026-11-16T00:00:00Z", "tomorrow at 00:00"],
    ["2026-11-17T00:00:00Z", "on 2026-11-17"],
    ["2027-01-01T09:30:00Z", "on 2027-01-01 at 09:30"],
  ];
  for (const [time, words] of moments) t.equal(momentInWords(at(time), NOW, utc), words);
  const ends: [string, string][] = [
    ["2026-01-02T00:00:00Z", "the end of 2026-01-01"],
    ["2027-01-01T00:00:00Z", "the end of 2026-12-31"],
    ["2026-01-02T00:00:01Z", "2026-01-02 00:00:01"],
    ["2026-01-02T18:05:00Z", "2026-01-02 18:05"],
  ];
  for (const [time, words] of ends) t.equal(endInWords(at(time), utc), words);
  t.equal(momentInWords(at("2027-01-01T00:00Z"), at("2026-12-31T23:00Z"), utc), "tomorrow at 00:00");
});
