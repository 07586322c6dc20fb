import t, { type Test } from "tap";
import type { Counters, Reservation } from "../../src/limits/counters.ts";
import type { Shortage } from "../../src/limits/shortage.ts";
import { at, counters, DAY, FREE, HOUR, MINUTE, NEVER, SECOND, terms } from "./limits-under-test.ts";

const NOW = at("2026-11-15T12:00:00Z");
const DOLLAR = 1_000_000;

function taken(t: Test, limits: Counters, ask = FREE, now = NOW): Reservation {
  const reserved = limits.reserve(ask, now);
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
  const limits = counters("requests: 3/minute", NOW);
  for (let n = 0; n < 3; n += 1) taken(t, limits, FREE, NOW + n);
  t.match(refusal(t, limits, FREE, NOW + MINUTE - 1), {
    limit: { kind: "requests", per: "minute" },
    used: 3,
    held: 0,
    most: 3,
    need: 1,
    roomAt: NOW + MINUTE,
    mayEndSooner: false,
  });
  taken(t, limits, FREE, NOW + MINUTE);
});

t.test("a refused request takes nothing from any limit", async (t) => {
  const limits = counters(
    "requests: [5/minute, 9/day], tokens: 100/minute, spend: $1/day, concurrent: 4",
    NOW,
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
    t.equal(limits.running, 1);
  }
});

t.test("a look at the limits takes nothing", async (t) => {
  const limits = counters("requests: 1/minute", NOW);
  t.equal(limits.check(FREE, NOW), null);
  t.equal(limits.check(FREE, NOW), null);
  taken(t, limits);
  t.match(limits.check(FREE, NOW), { used: 1 });
});

t.test("a call is settled to what it really used", async (t) => {
  const limits = counters("tokens: 1000/minute, spend: $1/day", NOW, "$10");
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
  const limits = counters("tokens: 1000/minute", NOW);
  limits.settle(taken(t, limits, { tokens: 100, spend: 0 }), { tokens: 5000, spend: null });
  t.match(refusal(t, limits, { tokens: 1, spend: 0 }), { used: 5000, most: 1000 });
});

t.test("a call of which nobody told what it used counts as held, never as nothing", async (t) => {
  for (const nothing of [null, Number.NaN, Number.POSITIVE_INFINITY, -5]) {
    const limits = counters("tokens: 1000/minute, spend: $1/day", NOW);
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
  const limits = counters("requests: 1/minute, tokens: 1000/minute, concurrent: 1", NOW, "$1");
  const call = taken(t, limits, { tokens: 400, spend: 9000 });
  t.equal(limits.cancel(call), true);
  t.strictSame(fill(limits), [
    [0, 0],
    [0, 0],
    [0, 0],
  ]);
  taken(t, limits);
});

t.test("what is settled after its window ended changes nothing in the next one", async (t) => {
  const limits = counters(
    "requests: 2/minute, tokens: [1000/minute, 9000/hour], spend: $1/minute",
    NOW,
    "$10",
  );
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
  const limits = counters("requests: 9/minute, tokens: 1000/minute, concurrent: 2", NOW);
  const other = counters("tokens: 1000/minute", NOW);
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
  ]);
  t.equal(limits.running, 1);
  t.equal(limits.cancel(second), true);
  t.equal(limits.settle(second, { tokens: 50, spend: 0 }), false);
  t.strictSame(
    [limits.running, fill(limits)],
    [
      0,
      [
        [1, 0],
        [50, 0],
      ],
    ],
  );
});

t.test("no more calls run at once than may, and an ended one makes room", async (t) => {
  const limits = counters("concurrent: 2", NOW);
  const first = taken(t, limits);
  taken(t, limits);
  t.match(refusal(t, limits, FREE), {
    limit: { kind: "concurrent" },
    used: 2,
    most: 2,
    roomAt: null,
    mayEndSooner: true,
  });
  refusal(t, limits, FREE, NOW + 40 * DAY);
  limits.settle(first, { tokens: 0, spend: 0 });
  taken(t, limits);
});

t.test("a quota does not return with time", async (t) => {
  const limits = counters("", NOW, "$1");
  limits.settle(taken(t, limits, { tokens: 0, spend: 600_000 }), { tokens: 0, spend: 600_000 });
  t.match(refusal(t, limits, { tokens: 0, spend: 500_000 }, NOW + 400 * DAY), {
    limit: { kind: "quota" },
    used: 600_000,
    most: DOLLAR,
    roomAt: null,
    mayEndSooner: false,
  });
  const half = taken(t, limits, { tokens: 0, spend: 400_000 });
  t.match(refusal(t, limits, { tokens: 0, spend: 1 }), { held: 400_000, mayEndSooner: true });
  limits.settle(half, { tokens: 0, spend: 10 });
  taken(t, limits, { tokens: 0, spend: 1 });
});

t.test("where money is limited, a request whose price nobody knows is refused", async (t) => {
  const unpriced = { tokens: 5, spend: null };
  t.match(refusal(t, counters("spend: $1/day", NOW), unpriced), { limit: { kind: "price" }, roomAt: null });
  t.match(refusal(t, counters("", NOW, "$1"), unpriced), { limit: { kind: "price" } });
  const free = counters("tokens: 10/minute", NOW);
  t.equal(free.settle(taken(t, free, { tokens: 5, spend: 0 }), { tokens: 5, spend: null }), true);
  t.ok(free.reserve(unpriced, NOW).ok, "where it is not, it passes");
});

t.test("of several limits that are reached the one that lasts longest is named", async (t) => {
  const limits = counters("requests: [1/second, 1/day, 1/hour], concurrent: 1", NOW);
  taken(t, limits);
  t.match(refusal(t, limits, FREE), {
    limit: { kind: "requests", per: "day" },
    roomAt: at("2026-11-16T00:00Z"),
  });
});

t.test("a limit that is full only for calls under way says that one of them may make room", async (t) => {
  const limits = counters("tokens: 1000/day", NOW);
  const call = taken(t, limits, { tokens: 900, spend: 0 });
  t.match(refusal(t, limits, { tokens: 200, spend: 0 }), { used: 0, held: 900, mayEndSooner: true });
  limits.settle(call, { tokens: 900, spend: 0 });
  t.match(refusal(t, limits, { tokens: 200, spend: 0 }), { used: 900, held: 0, mayEndSooner: false });
});

t.test("a request greater than the limit gets an empty window to itself", async (t) => {
  const limits = counters("tokens: [1000/minute, 5000/day]", NOW);
  const call = taken(t, limits, { tokens: 128_000, spend: 0 });
  t.equal(call.tokens, 1000);
  t.match(refusal(t, limits, { tokens: 1, spend: 0 }), { mayEndSooner: true });
  limits.settle(call, { tokens: 10, spend: 0 });
  t.match(refusal(t, limits, { tokens: 128_000, spend: 0 }), {
    need: 1000,
    roomAt: NOW + MINUTE,
    mayEndSooner: false,
  });
  taken(t, limits, { tokens: 128_000, spend: 0 }, NOW + MINUTE);
});

t.test("an absurd amount does not spoil the sums", async (t) => {
  for (const tokens of [Number.POSITIVE_INFINITY, Number.MAX_VALUE]) {
    for (const words of ["tokens: 999999999999M/month", ""]) {
      const limits = counters(words, NOW);
      limits.cancel(taken(t, limits, { tokens, spend: 0 }));
      limits.change(terms("tokens: 5/month"));
      t.strictSame(fill(limits), [[0, 0]], String(tokens));
    }
  }
});

t.test("a limit of nothing lets nothing in, and never will", async (t) => {
  for (const limits of [counters("spend: $0/day", NOW), counters("", NOW, "$0")]) {
    t.match(refusal(t, limits, { tokens: 5, spend: 5 }), { roomAt: null, mayEndSooner: false });
    taken(t, limits, FREE);
  }
});

t.test("what uses no tokens passes a limit on tokens that is used up", async (t) => {
  const limits = counters("tokens: 10/minute, requests: 2/minute", NOW);
  limits.settle(taken(t, limits, { tokens: 10, spend: 0 }), { tokens: 99, spend: 0 });
  taken(t, limits, FREE);
  t.match(refusal(t, limits, FREE), { limit: { kind: "requests" } });
});

t.test("a reload that changes a limit keeps what was used", async (t) => {
  const limits = counters("requests: 3/day, tokens: 500/hour", NOW);
  for (let n = 0; n < 3; n += 1) taken(t, limits, { tokens: 100, spend: 7 });
  limits.change(terms("requests: 4/day, tokens: 1k/hour"));
  taken(t, limits, { tokens: 100, spend: 7 });
  t.match(refusal(t, limits, { tokens: 100, spend: 7 }), { used: 4, most: 4 });
  limits.change(terms("requests: 2/day"));
  t.match(refusal(t, limits, FREE), { used: 4, most: 2 }, "a lower one applies to the next");
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

t.test("a call under way at a reload is settled where it was counted", async (t) => {
  const limits = counters("tokens: 1000/hour, concurrent: 1", NOW);
  const call = taken(t, limits, { tokens: 700, spend: 0 });
  limits.change(terms("tokens: 1000/day, concurrent: 2"));
  t.strictSame(fill(limits), [[0, 700]]);
  limits.settle(call, { tokens: 100, spend: 0 });
  t.strictSame(fill(limits), [[100, 0]]);
});

t.test("an extra allowance holds in the running windows, and ends with each", async (t) => {
  const limits = counters("spend: [$1/hour, $3/day]", NOW);
  const spend = (dollars: number, now: number) => {
    limits.settle(taken(t, limits, { tokens: 0, spend: dollars * DOLLAR }, now), { tokens: 0, spend: null });
  };
  spend(1, NOW);
  limits.lift({ kind: "spend", amount: 2 * DOLLAR, givenAt: NOW, until: null }, NOW);
  t.match(limits.levels(NOW), [
    { most: 3 * DOLLAR, extra: 2 * DOLLAR },
    { most: 5 * DOLLAR, extra: 2 * DOLLAR },
  ]);
  spend(2, NOW);
  refusal(t, limits, { tokens: 0, spend: 1 });
  t.match(limits.levels(NOW + HOUR), [
    { most: DOLLAR, extra: 0 },
    { most: 5 * DOLLAR, used: 3 * DOLLAR },
  ]);
  t.match(limits.levels(NOW + DAY), [
    { most: DOLLAR, extra: 0 },
    { most: 3 * DOLLAR, extra: 0 },
  ]);
});

t.test(
  "an extra allowance with an end holds in every window until then, and not a moment longer",
  async (t) => {
    const limits = counters("requests: 1/minute, tokens: 5/minute", NOW);
    const until = NOW + 2 * MINUTE + 30 * SECOND;
    limits.lift({ kind: "requests", amount: 1, givenAt: NOW, until }, NOW);
    const most = (now: number) => limits.levels(now).map((level) => level.most);
    t.strictSame(most(NOW), [2, 5], "of its kind only");
    t.strictSame(most(NOW + 2 * MINUTE), [2, 5]);
    t.strictSame(most(until - 1), [2, 5]);
    t.strictSame(most(until), [1, 5]);
  },
);

t.test(
  "allowances of the past can be given again at a start: those that are over give nothing",
  async (t) => {
    const limits = counters("requests: [1/hour, 1/day]", NOW + 5 * MINUTE);
    const now = NOW + 5 * MINUTE;
    limits.lift({ kind: "requests", amount: 10, givenAt: NOW, until: null }, now);
    limits.lift({ kind: "requests", amount: 100, givenAt: NOW - HOUR, until: null }, now);
    limits.lift({ kind: "requests", amount: 1000, givenAt: NOW - DAY, until: null }, now);
    limits.lift({ kind: "requests", amount: 10_000, givenAt: NOW - DAY, until: now }, now);
    limits.lift({ kind: "requests", amount: 100_000, givenAt: NOW - DAY, until: now + 1 }, now);
    limits.lift({ kind: "requests", amount: Number.NaN, givenAt: NOW, until: null }, now);
    t.strictSame(
      limits.levels(now).map(({ extra }) => extra),
      [100_010, 100_110],
    );
  },
);

t.test(
  "after a restart the counts are those of the usage log, so that nobody gets a fresh allowance",
  async (t) => {
    const limits = counters("requests: [10/minute, 100/month], tokens: 1k/day, spend: $5/day", NOW, "$200");
    const { minute, day, month } = limits.spans(NOW);
    t.strictSame(minute, { from: NOW, to: NOW + 2 * MINUTE });
    t.equal(day.from, at("2026-11-15T00:00Z"));
    t.equal(month.from, at("2026-11-01T00:00Z"));
    limits.restore(
      {
        minute: { requests: 10, tokens: 5, spend: 5 },
        day: { requests: 20, tokens: 900, spend: 4 * DOLLAR },
        month: { requests: 99, tokens: 5000, spend: 50 * DOLLAR },
      },
      199 * DOLLAR,
      NOW,
    );
    t.strictSame(fill(limits), [
      [10, 0],
      [99, 0],
      [900, 0],
      [4 * DOLLAR, 0],
      [199 * DOLLAR, 0],
    ]);
    t.match(refusal(t, limits, FREE), { limit: { per: "minute" } });
    taken(t, limits, FREE, NOW + MINUTE);
    t.match(refusal(t, limits, FREE, NOW + 2 * MINUTE), { limit: { per: "month" }, used: 100 });
  },
);

t.test("counting anew leaves what calls under way hold, and what was not summed", async (t) => {
  const limits = counters("requests: 9/day, tokens: [1k/day, 9k/hour]", NOW, "$1");
  const call = taken(t, limits, { tokens: 300, spend: 40 });
  limits.logged(call);
  limits.settle(taken(t, limits, { tokens: 70, spend: 2 }), { tokens: null, spend: null });
  limits.restore({ day: { requests: 2, tokens: 90, spend: 1 } }, null, NOW);
  t.strictSame(fill(limits), [
    [2, 0],
    [90, 300],
    [70, 300],
    [2, 40],
  ]);
  limits.settle(call, { tokens: 10, spend: 1 });
  t.strictSame(fill(limits), [
    [2, 0],
    [100, 0],
    [80, 0],
    [3, 0],
  ]);
});

t.test("counting anew, a call that is not in the log yet is counted besides those that are", async (t) => {
  const limits = counters("requests: [9/minute, 9/day]", NOW);
  const before = taken(t, limits);
  const within = taken(t, limits, FREE, NOW + MINUTE);
  const known = taken(t, limits, FREE, NOW + MINUTE);
  limits.logged(known);
  const five = { requests: 5, tokens: 0, spend: 0 };
  limits.restore({ minute: five, day: five }, null, NOW + MINUTE);
  t.strictSame(fill(limits, NOW + MINUTE), [
    [6, 0],
    [7, 0],
  ]);
  limits.cancel(within);
  limits.cancel(before);
  t.strictSame(fill(limits, NOW + MINUTE), [
    [5, 0],
    [5, 0],
  ]);
});

t.test("a clock that is set back gives nothing that was spent already", async (t) => {
  const limits = counters("requests: 2/day", NOW);
  const midnight = at("2026-11-16T00:00Z");
  taken(t, limits);
  taken(t, limits);
  taken(t, limits, FREE, midnight);
  taken(t, limits, FREE, midnight + 1);
  for (const back of [0, 1, HOUR, 13 * HOUR]) refusal(t, limits, FREE, midnight - back);
  refusal(t, limits, FREE, midnight + DAY - 1);
  taken(t, limits, FREE, midnight + DAY);
});

t.test("a clock that was far ahead and is set right shuts no limit for longer than a window", async (t) => {
  const limits = counters("requests: [1/minute, 3/day]", NOW);
  const wrong = NOW + 4000 * DAY;
  taken(t, limits, FREE, wrong);
  t.match(refusal(t, limits, FREE, NOW), { roomAt: NOW + MINUTE }, "what was taken then counts now");
  taken(t, limits, FREE, NOW + MINUTE);
  t.strictSame(fill(limits, NOW + MINUTE), [
    [1, 0],
    [2, 0],
  ]);
});

t.test(
  "a call that is under way while the clock is set far back is still settled where it counts",
  async (t) => {
    const limits = counters("tokens: 1000/minute", NOW);
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
    const limits = counters("requests: 2/hour", NOW);
    taken(t, limits);
    taken(t, limits);
    const later = NOW + 10 * DAY + 5;
    taken(t, limits, FREE, later);
    taken(t, limits, FREE, later);
    refusal(t, limits, FREE, later);
  },
);

t.test(
  "whether limits on requests reach so many by a moment is counted over the windows to come",
  async (t) => {
    const limits = counters("requests: [2/minute, 5/hour]", NOW);
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
      t.equal(limits.reaches(ahead, until, NOW), reaches, `${ahead} by ${until - NOW}`);
    t.equal(counters("tokens: 5/minute", NOW).reaches(1e9, NOW, NOW), true);
  },
);
