import t, { type Test } from "tap";
import type { Correction, Counters, Reservation, Shortage } from "../../src/limits/counters.ts";
import {
  at,
  counters,
  DAY,
  FREE,
  HOUR,
  MINUTE,
  NEVER,
  reserveRecorded,
  SECOND,
  terms,
} from "./limits-under-test.ts";

const NOW = at("2026-11-15T12:00:00Z");
const DOLLAR = 1_000_000;

function taken(t: Test, limits: Counters, ask = FREE, now = NOW): Reservation {
  const reserved = reserveRecorded(limits, ask, now);
  if (!reserved.ok) t.fail(`refused by ${JSON.stringify(reserved.shortage)}`);
  return reserved.ok ? reserved.reservation : NEVER;
}

function refusal(
  t: Test,
  limits: Counters,
  ask: { tokens: number; spend: number | null },
  now = NOW,
): Partial<Shortage> {
  const reserved = limits.reserve(ask, now);
  if (reserved.ok) t.fail("it was let in");
  return reserved.ok ? {} : reserved.shortage;
}

/** Used and held of each limit, in the order of the file. */
const fill = (limits: Counters, now = NOW) => limits.levels(now).map(({ used, held }) => [used, held]);

t.test("requests are let in up to the limit, and again when the next window begins", async (t) => {
  const limits = counters("requests: 3/minute");
  for (let n = 0; n < 3; n += 1) taken(t, limits, FREE, NOW + n);
  t.match(refusal(t, limits, FREE, NOW + MINUTE - 1), {
    limit: { kind: "requests", per: "minute" },
    used: 3,
    held: 0,
    max: 3,
    need: 1,
    capacityAt: NOW + MINUTE,
    mayEndSooner: false,
  });
  taken(t, limits, FREE, NOW + MINUTE);
});

t.test("a refused request takes nothing from any limit", async (t) => {
  const limits = counters(
    "requests: [5/minute, 9/day], tokens: 100/minute, spend: $1/day, concurrent: 4",
    "$9",
  );
  taken(t, limits, { tokens: 60, spend: 300 });
  const before = fill(limits);
  for (const ask of [
    { tokens: 60, spend: 1 },
    { tokens: 1, spend: DOLLAR },
  ]) {
    refusal(t, limits, ask);
    t.strictSame(fill(limits), before);
    t.equal(limits.inFlight, 1);
  }
});

t.test("checking the limits takes nothing", async (t) => {
  const limits = counters("requests: 1/minute");
  t.equal(limits.check(FREE, NOW), null);
  t.equal(limits.check(FREE, NOW), null);
  taken(t, limits);
  t.match(limits.check(FREE, NOW), { used: 1 });
});

t.test("a call is settled to what it really used", async (t) => {
  const limits = counters("tokens: 1000/minute, spend: $1/day", "$10");
  const call = taken(t, limits, { tokens: 400, spend: 9000 });
  t.strictSame(fill(limits), [
    [0, 400],
    [0, 9000],
    [0, 9000],
  ]);
  limits.settle(call, { tokens: 150, spend: 2500 });
  t.strictSame(fill(limits), [
    [150, 0],
    [2500, 0],
    [2500, 0],
  ]);
});

t.test("a call that used more than was held counts in full", async (t) => {
  const limits = counters("tokens: 1000/minute");
  limits.settle(taken(t, limits, { tokens: 100, spend: 0 }), { tokens: 5000, spend: null });
  t.match(refusal(t, limits, { tokens: 1, spend: 0 }), { used: 5000, max: 1000 });
});

t.test("a request whose use was not reported counts as held, never as nothing", async (t) => {
  for (const nothing of [null, Number.NaN, Number.POSITIVE_INFINITY, -5]) {
    const limits = counters("tokens: 1000/minute, spend: $1/day");
    limits.settle(taken(t, limits, { tokens: 400, spend: 9000 }), { tokens: nothing, spend: nothing });
    t.strictSame(
      fill(limits),
      [
        [400, 0],
        [9000, 0],
      ],
      String(nothing),
    );
  }
});

t.test("a call that never reached the gateway counts as nothing at all", async (t) => {
  const limits = counters("requests: 1/minute, tokens: 1000/minute, concurrent: 1", "$1");
  const call = taken(t, limits, { tokens: 400, spend: 9000 });
  t.equal(limits.cancel(call), true);
  t.strictSame(fill(limits), [
    [0, 0],
    [0, 0],
    [0, 0],
    [0, 0],
  ]);
  taken(t, limits);
});

t.test("what is settled after its window ended changes nothing in the next one", async (t) => {
  const limits = counters("requests: 2/minute, tokens: [1000/minute, 9000/hour], spend: $1/minute", "$10");
  const straddling = taken(t, limits, { tokens: 900, spend: 70 });
  const cancelled = taken(t, limits, { tokens: 10, spend: 0 });
  const later = NOW + MINUTE;
  taken(t, limits, { tokens: 300, spend: 1 }, later);
  t.strictSame(fill(limits, later), [
    [1, 0],
    [0, 300],
    [0, 1210],
    [0, 1],
    [0, 71],
  ]);
  limits.settle(straddling, { tokens: 5000, spend: 50 });
  limits.cancel(cancelled);
  t.strictSame(
    fill(limits, later),
    [
      [1, 0],
      [0, 300],
      [5000, 300],
      [0, 1],
      [50, 1],
    ],
    "hour and quota still count it",
  );
});

t.test("no call is settled twice, whichever way it ends", async (t) => {
  const limits = counters("requests: 9/minute, tokens: 1000/minute, concurrent: 2");
  const other = counters("tokens: 1000/minute");
  const [first, second] = [
    taken(t, limits, { tokens: 100, spend: 0 }),
    taken(t, limits, { tokens: 100, spend: 0 }),
  ];
  t.equal(other.settle(first, { tokens: 1, spend: 0 }), false, "another tool's call is nothing to it");
  t.equal(limits.settle(first, { tokens: 50, spend: 0 }), true);
  for (let n = 0; n < 3; n += 1) {
    t.equal(limits.settle(first, { tokens: 50, spend: 0 }), false);
    t.equal(limits.cancel(first), false);
  }
  t.strictSame(fill(limits), [
    [2, 0],
    [50, 100],
    [1, 0],
  ]);
  t.equal(limits.inFlight, 1);
  t.equal(limits.cancel(second), true);
  t.equal(limits.settle(second, { tokens: 50, spend: 0 }), false);
  t.strictSame(
    [limits.inFlight, fill(limits)],
    [
      0,
      [
        [1, 0],
        [50, 0],
        [0, 0],
      ],
    ],
  );
});

t.test("no more requests are in flight than allowed, and one that ends frees capacity", async (t) => {
  const limits = counters("concurrent: 2");
  const first = taken(t, limits);
  taken(t, limits);
  t.match(refusal(t, limits, FREE), {
    limit: { kind: "concurrent" },
    used: 2,
    max: 2,
    capacityAt: null,
    mayEndSooner: true,
  });
  refusal(t, limits, FREE, NOW + 40 * DAY);
  limits.settle(first, { tokens: 0, spend: 0 });
  taken(t, limits);
});

t.test("a quota does not return with time", async (t) => {
  const limits = counters("", "$1");
  limits.settle(taken(t, limits, { tokens: 0, spend: 600_000 }), { tokens: 0, spend: 600_000 });
  t.match(refusal(t, limits, { tokens: 0, spend: 500_000 }, NOW + 400 * DAY), {
    limit: { kind: "quota" },
    used: 600_000,
    max: DOLLAR,
    capacityAt: null,
    mayEndSooner: false,
  });
  const half = taken(t, limits, { tokens: 0, spend: 400_000 });
  t.match(refusal(t, limits, { tokens: 0, spend: 1 }), { held: 400_000, mayEndSooner: true });
  limits.settle(half, { tokens: 0, spend: 10 });
  taken(t, limits, { tokens: 0, spend: 1 });
});

t.test("where money is limited, a request with an unknown price is refused", async (t) => {
  const unpriced = { tokens: 5, spend: null };
  t.match(refusal(t, counters("spend: $1/day"), unpriced), { limit: { kind: "price" }, capacityAt: null });
  t.match(refusal(t, counters("", "$1"), unpriced), { limit: { kind: "price" } });
  const free = counters("tokens: 10/minute");
  t.equal(free.settle(taken(t, free, { tokens: 5, spend: 0 }), { tokens: 5, spend: null }), true);
  t.ok(free.reserve(unpriced, NOW).ok, "where it is not, it passes");
});

t.test("of several limits that are reached the one that lasts longest is named", async (t) => {
  const limits = counters("requests: [1/second, 1/day, 1/hour], concurrent: 1");
  taken(t, limits);
  t.match(refusal(t, limits, FREE), {
    limit: { kind: "requests", per: "day" },
    capacityAt: at("2026-11-16T00:00Z"),
  });
});

t.test(
  "a limit that is full only because of requests in flight says that one of them may free capacity",
  async (t) => {
    const limits = counters("tokens: 1000/day");
    const call = taken(t, limits, { tokens: 900, spend: 0 });
    t.match(refusal(t, limits, { tokens: 200, spend: 0 }), { used: 0, held: 900, mayEndSooner: true });
    limits.settle(call, { tokens: 900, spend: 0 });
    t.match(refusal(t, limits, { tokens: 200, spend: 0 }), { used: 900, held: 0, mayEndSooner: false });
  },
);

t.test("a request greater than the limit gets an empty window to itself", async (t) => {
  const limits = counters("tokens: [1000/minute, 5000/day]");
  const call = taken(t, limits, { tokens: 128_000, spend: 0 });
  t.equal(call.tokens, 1000);
  t.match(refusal(t, limits, { tokens: 1, spend: 0 }), { mayEndSooner: true });
  limits.settle(call, { tokens: 10, spend: 0 });
  t.match(refusal(t, limits, { tokens: 128_000, spend: 0 }), {
    need: 1000,
    capacityAt: NOW + MINUTE,
    mayEndSooner: false,
  });
  taken(t, limits, { tokens: 128_000, spend: 0 }, NOW + MINUTE);
});

t.test("an absurd amount does not spoil the sums", async (t) => {
  for (const tokens of [Number.POSITIVE_INFINITY, Number.MAX_VALUE]) {
    for (const words of ["tokens: 999999999999M/month", ""]) {
      const limits = counters(words);
      limits.cancel(taken(t, limits, { tokens, spend: 0 }));
      limits.change(terms("tokens: 5/month"));
      t.strictSame(fill(limits), [[0, 0]], String(tokens));
    }
  }
});

t.test("a spend limit or quota of $0 lets in only what is free, and never has capacity", async (t) => {
  for (const limits of [counters("spend: $0/day"), counters("", "$0")]) {
    t.match(refusal(t, limits, { tokens: 5, spend: 5 }), { capacityAt: null, mayEndSooner: false });
    taken(t, limits, FREE);
  }
});

t.test("what uses no tokens passes a limit on tokens that is used up", async (t) => {
  const limits = counters("tokens: 10/minute, requests: 2/minute");
  limits.settle(taken(t, limits, { tokens: 10, spend: 0 }), { tokens: 99, spend: 0 });
  taken(t, limits, FREE);
  t.match(refusal(t, limits, FREE), { limit: { kind: "requests" } });
});

t.test("a reload that changes a limit keeps what was used", async (t) => {
  const limits = counters("requests: 3/day, tokens: 500/hour");
  for (let n = 0; n < 3; n += 1) taken(t, limits, { tokens: 100, spend: 7 });
  limits.change(terms("requests: 4/day, tokens: 1k/hour"));
  taken(t, limits, { tokens: 100, spend: 7 });
  t.match(refusal(t, limits, { tokens: 100, spend: 7 }), { used: 4, max: 4 });
  limits.change(terms("requests: 2/day"));
  t.match(refusal(t, limits, FREE), { used: 4, max: 2 }, "a lower one applies to the next");
  limits.change(terms("requests: 5/month, spend: $1/minute", "$2"));
  t.strictSame(
    fill(limits),
    [
      [4, 0],
      [0, 28],
      [0, 28],
    ],
    "one that is new finds what was used before it",
  );
  limits.change(terms(""));
  taken(t, limits, { tokens: 100, spend: 7 });
});

t.test("a request in flight at a reload is settled where it was counted", async (t) => {
  const limits = counters("tokens: 1000/hour, concurrent: 1");
  const call = taken(t, limits, { tokens: 700, spend: 0 });
  limits.change(terms("tokens: 1000/day, concurrent: 2"));
  t.strictSame(fill(limits), [
    [0, 700],
    [1, 0],
  ]);
  limits.settle(call, { tokens: 100, spend: 0 });
  t.strictSame(fill(limits), [
    [100, 0],
    [0, 0],
  ]);
});

t.test("an extra allowance holds in the running windows, and ends with each", async (t) => {
  const limits = counters("spend: [$1/hour, $3/day]");
  const spend = (dollars: number, now: number) => {
    limits.settle(taken(t, limits, { tokens: 0, spend: dollars * DOLLAR }, now), { tokens: 0, spend: null });
  };
  spend(1, NOW);
  limits.allow({ limit: "spend", amount: 2 * DOLLAR, given_at: NOW, until: null });
  t.match(limits.levels(NOW), [
    { max: 3 * DOLLAR, extra: 2 * DOLLAR },
    { max: 5 * DOLLAR, extra: 2 * DOLLAR },
  ]);
  spend(2, NOW);
  refusal(t, limits, { tokens: 0, spend: 1 });
  t.match(limits.levels(NOW + HOUR), [
    { max: DOLLAR, extra: 0 },
    { max: 5 * DOLLAR, used: 3 * DOLLAR },
  ]);
  t.match(limits.levels(NOW + DAY), [
    { max: DOLLAR, extra: 0 },
    { max: 3 * DOLLAR, extra: 0 },
  ]);
});

t.test(
  "an extra allowance with an end holds in every window until then, and not a moment longer",
  async (t) => {
    const limits = counters("requests: 1/minute, tokens: 5/minute");
    const until = NOW + 2 * MINUTE + 30 * SECOND;
    limits.allow({ limit: "requests", amount: 1, given_at: NOW, until });
    const maxima = (now: number) => limits.levels(now).map((level) => level.max);
    t.strictSame(maxima(NOW), [2, 5], "of its kind only");
    t.strictSame(maxima(NOW + 2 * MINUTE), [2, 5]);
    t.strictSame(maxima(until - 1), [2, 5]);
    t.strictSame(maxima(until), [1, 5]);
  },
);

t.test(
  "allowances of the past can be given again at a start: those that are over give nothing",
  async (t) => {
    const limits = counters("requests: [1/hour, 1/day]");
    const now = NOW + 5 * MINUTE;
    limits.allow({ limit: "requests", amount: 10, given_at: NOW, until: null });
    limits.allow({ limit: "requests", amount: 100, given_at: NOW - HOUR, until: null });
    limits.allow({ limit: "requests", amount: 1000, given_at: NOW - DAY, until: null });
    limits.allow({ limit: "requests", amount: 10_000, given_at: NOW - DAY, until: now });
    limits.allow({ limit: "requests", amount: 100_000, given_at: NOW - DAY, until: now + 1 });
    limits.allow({ limit: "requests", amount: Number.NaN, given_at: NOW, until: null });
    t.strictSame(
      limits.levels(now).map(({ extra }) => extra),
      [100_010, 100_110],
    );
  },
);

/** Of amounts that the gateway reported. */
function correction(at: number, tokens: number, spend: number): Correction {
  return { at, tokens, spend, estimated_tokens: 0, estimated_spend: 0 };
}

t.test("what the gateway did not report is estimated, until it is corrected", async (t) => {
  const limits = counters("requests: 9/hour, tokens: 1000/hour, spend: $1/hour", "$20");
  const estimated = () => limits.levels(NOW).map(({ used, estimated }) => [used, estimated]);
  limits.settle(taken(t, limits, { tokens: 100, spend: 500 }), { tokens: 40, spend: 300 });
  t.strictSame(estimated(), [
    [1, 0],
    [40, 0],
    [300, 0],
    [300, 0],
  ]);
  limits.settle(taken(t, limits, { tokens: 100, spend: 500 }), { tokens: null, spend: null });
  limits.settle(taken(t, limits, { tokens: 100, spend: 500 }), {
    tokens: 60,
    spend: 200,
    areTokensEstimated: true,
    isSpendEstimated: true,
  });
  t.strictSame(estimated(), [
    [3, 0],
    [200, 160],
    [1000, 700],
    [1000, 700],
  ]);
  t.match(limits.check({ tokens: 900, spend: 0 }, NOW), { used: 200, estimated: 160 });
  limits.correct({ at: NOW, tokens: -90, spend: 100, estimated_tokens: -100, estimated_spend: -500 });
  t.strictSame(estimated(), [
    [3, 0],
    [110, 60],
    [1100, 200],
    [1100, 200],
  ]);
  const again = counters("tokens: 1000/hour", "$20");
  again.restore(limits.carry(NOW));
  t.match(again.levels(NOW), [{ estimated: 60 }, { estimated: 200 }]);
});

const CORRECTED = "tokens: 1000/hour, spend: [$1/hour, $10/month]";

t.test("a correction counts where its request does", async (t) => {
  const limits = counters(CORRECTED, "$20");
  const earlier = NOW - HOUR;
  limits.settle(taken(t, limits, { tokens: 100, spend: 5000 }, earlier), { tokens: null, spend: null });
  limits.settle(taken(t, limits, { tokens: 10, spend: 500 }), { tokens: null, spend: null });
  limits.correct(correction(earlier, -40, 2000));
  t.strictSame(
    fill(limits).map(([used]) => used),
    [10, 500, 7500, 7500],
    "its hour is over, its month is not",
  );
  limits.correct(correction(earlier, 40, -2000));
  limits.correct(correction(NOW, -4, 100));
  t.strictSame(
    fill(limits).map(([used]) => used),
    [6, 600, 5600, 5600],
  );
});

t.test("no correction frees more capacity than the limit", async (t) => {
  const limits = counters(CORRECTED);
  limits.settle(taken(t, limits, { tokens: 10, spend: 500 }), { tokens: null, spend: null });
  limits.correct(correction(NOW, -500, -500_000));
  taken(t, limits, { tokens: 1000, spend: 1_000_000 });
  t.match(limits.check({ tokens: 1, spend: 0 }, NOW), { limit: { kind: "tokens" }, used: 0, held: 1000 });
  t.match(limits.check({ tokens: 0, spend: 1 }, NOW), { limit: { kind: "spend" }, used: 0, held: 1_000_000 });
});

t.test("an allowance that is given twice counts once", async (t) => {
  const limits = counters("requests: 1/day");
  const allowance = { limit: "requests", amount: 5, given_at: NOW, until: null } as const;
  limits.allow(allowance);
  limits.allow({ ...allowance });
  t.match(limits.levels(NOW), [{ max: 6 }]);
  limits.allow({ ...allowance, given_at: NOW + 1 });
  t.match(limits.levels(NOW), [{ max: 11 }]);
});

t.test("a clock that is set back gives nothing that was spent already", async (t) => {
  const limits = counters("requests: 2/day");
  const midnight = at("2026-11-16T00:00Z");
  taken(t, limits);
  taken(t, limits);
  taken(t, limits, FREE, midnight);
  taken(t, limits, FREE, midnight + 1);
  for (const back of [0, 1, HOUR, 13 * HOUR]) refusal(t, limits, FREE, midnight - back);
  refusal(t, limits, FREE, midnight + DAY - 1);
  taken(t, limits, FREE, midnight + DAY);
});

t.test("a clock that jumps ahead and back finds every window as it left it", async (t) => {
  const limits = counters("requests: [5/minute, 9/day, 20/month]");
  const used = (now: number) => limits.levels(now).map((level) => level.used);
  for (let n = 0; n < 3; n += 1) taken(t, limits);
  const ahead = NOW + 31 * DAY;
  for (let n = 0; n < 2; n += 1) taken(t, limits, FREE, ahead);
  t.strictSame(used(ahead), [2, 2, 2]);
  t.strictSame(used(NOW), [3, 3, 3], "nothing is given, nothing is lost");
  taken(t, limits);
  t.strictSame(used(NOW), [4, 4, 4]);
  t.strictSame(used(ahead), [2, 2, 2]);
});

t.test("requests that get their record late drop no newer window", async (t) => {
  const limits = counters("requests: 9/second");
  const late = [0, 1, 2, 3, 4].map((s) => limits.reserve(FREE, NOW + s * SECOND));
  for (let s = 5; s < 8; s += 1) taken(t, limits, FREE, NOW + s * SECOND);
  for (const reserved of late) if (reserved.ok) limits.recorded(reserved.reservation, "late");
  t.strictSame(fill(limits, NOW + 7 * SECOND), [[1, 0]]);
  t.equal(
    limits.carry(NOW).windows.filter(({ per }) => per === "second").length,
    3,
    "no more than three are kept",
  );
});

t.test("a check with the clock ahead or behind changes nothing", async (t) => {
  const limits = counters("requests: [5/minute, 9/day]");
  taken(t, limits);
  const before = limits.carry(NOW);
  for (const days of [-400, -1, 1, 400]) limits.levels(NOW + days * DAY);
  t.strictSame(limits.carry(NOW), before);
  t.match(limits.levels(NOW), [{ used: 1 }, { used: 1 }]);
});

t.test("a clock that was far ahead and is set right does not shut a limit for long", async (t) => {
  const limits = counters("requests: [1/minute, 3/day]");
  taken(t, limits, FREE, NOW + 4000 * DAY);
  t.match(refusal(t, limits, FREE, NOW), { capacityAt: NOW + MINUTE }, "what was taken then counts now");
  taken(t, limits, FREE, NOW + MINUTE);
  taken(t, limits, FREE, NOW + 2 * MINUTE);
  t.strictSame(fill(limits, NOW + 2 * MINUTE), [
    [1, 0],
    [3, 0],
  ]);
});

t.test("in a window that the clock was set back to, the use it came with goes on counting", async (t) => {
  const limits = counters("requests: 6/day");
  for (let n = 0; n < 5; n += 1) taken(t, limits);
  const yesterday = NOW - DAY;
  t.match(limits.levels(yesterday), [{ used: 5 }]);
  taken(t, limits, FREE, yesterday);
  refusal(t, limits, FREE, yesterday);
  const again = counters("requests: 6/day");
  again.restore(limits.carry(NOW));
  refusal(t, again, FREE, yesterday);
  taken(t, limits, FREE, NOW);
  refusal(t, limits, FREE, NOW);
});

t.test(
  "a request that is in flight while the clock is set far back is still settled where it counts",
  async (t) => {
    const limits = counters("tokens: 1000/minute");
    const call = taken(t, limits, { tokens: 600, spend: 0 });
    const back = NOW - 5 * HOUR;
    t.strictSame(fill(limits, back), [[0, 600]]);
    limits.settle(call, { tokens: 200, spend: 0 });
    t.strictSame(fill(limits, back), [[200, 0]]);
  },
);

t.test(
  "a clock that is set forward, or a long sleep, brings one window and not the ones slept through",
  async (t) => {
    const limits = counters("requests: 2/hour");
    taken(t, limits);
    taken(t, limits);
    const later = NOW + 10 * DAY + 5;
    taken(t, limits, FREE, later);
    taken(t, limits, FREE, later);
    refusal(t, limits, FREE, later);
  },
);

t.test(
  "how many requests can be let in by a given time is counted over the windows until then",
  async (t) => {
    const limits = counters("requests: [2/minute, 5/hour]");
    taken(t, limits);
    const rows: [ahead: number, until: number, reaches: boolean][] = [
      [0, NOW, true],
      [1, NOW, false],
      [1, NOW + MINUTE - 1, false],
      [2, NOW + MINUTE, true],
      [3, NOW + MINUTE, false],
      [3, NOW + 2 * MINUTE, true],
      [4, NOW + 50 * MINUTE, false],
      [4, NOW + HOUR, true],
    ];
    for (const [ahead, until, reaches] of rows)
      t.equal(limits.canAdmit(ahead, until, NOW), reaches, `${ahead} by ${until - NOW}`);
    t.equal(counters("tokens: 5/minute").canAdmit(1e9, NOW, NOW), true);
  },
);
