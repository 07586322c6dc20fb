import fc from "fast-check";
import t, { type Test } from "tap";
import type { Reservation } from "../../src/limits/counters.ts";
import { type Joined, type Waiter, WaitingQueue } from "../../src/limits/queue.ts";
import { runs } from "../doubles/effort.ts";
import {
  at,
  counters,
  countersWith,
  DAY,
  FREE,
  HOUR,
  MINUTE,
  NEVER,
  SECOND,
  terms,
} from "./limits-under-test.ts";

const NOW = at("2026-11-15T12:00:00Z");
/** All clocks, this many milliseconds later. The one that only goes forward began elsewhere. */
const after = (ms: number) => ({ now: NOW + ms, ownNow: NOW + ms, elapsed: 5_000_000 + ms });

function waits(t: Test, joined: Joined): Waiter {
  if (joined.state !== "waits") t.fail(`it ${joined.state}: ${JSON.stringify(joined)}`);
  return joined.state === "waits" ? joined.waiter : { ask: FREE, deadline: 0 };
}

function admitted(t: Test, joined: Joined): Reservation {
  if (joined.state !== "admitted") t.fail(`it ${joined.state}: ${JSON.stringify(joined)}`);
  return joined.state === "admitted" ? joined.reservation : NEVER;
}

const END = { tokens: 0, spend: 0 };

t.test("a request that finds capacity is admitted at once, whatever its wait", async (t) => {
  const queue = new WaitingQueue(counters("concurrent: 2"));
  admitted(t, queue.join(FREE, 0, after(0)));
  admitted(t, queue.join(FREE, 9 * SECOND, after(0)));
  t.equal(queue.length, 0);
  t.strictSame(queue.check(after(0)), { admitted: [], refused: [], againIn: null });
});

t.test("without a wait a request is refused at once", async (t) => {
  const queue = new WaitingQueue(counters("concurrent: 1"));
  admitted(t, queue.join(FREE, 0, after(0)));
  t.match(queue.join(FREE, 0, after(0)), { state: "refused", shortage: { limit: { kind: "concurrent" } } });
  t.equal(queue.length, 0);
});

t.test("requests are admitted in the order they came, one for each that ends", async (t) => {
  const limits = counters("concurrent: 2");
  const queue = new WaitingQueue(limits);
  const calls = [admitted(t, queue.join(FREE, 0, after(0))), admitted(t, queue.join(FREE, 0, after(0)))];
  const waiters = [1, 2, 3].map((ms) => waits(t, queue.join(FREE, 5 * SECOND, after(ms))));
  t.strictSame(
    queue.check(after(10)),
    { admitted: [], refused: [], againIn: 4991 },
    "until the first one's time is up",
  );
  for (const waiter of waiters) {
    const call = calls.shift();
    if (call === undefined) return void t.fail();
    limits.settle(call, END);
    const { admitted } = queue.check(after(100));
    t.equal(admitted.length, 1);
    t.equal(admitted[0]?.waiter, waiter);
    if (admitted[0]) calls.push(admitted[0].reservation);
    t.equal(limits.inFlight, 2);
  }
  t.equal(queue.length, 0);
});

t.test("no request overtakes: one that would fit waits behind one that does not fit yet", async (t) => {
  const limits = counters("tokens: 100/minute, concurrent: 9");
  const queue = new WaitingQueue(limits);
  const call = admitted(t, queue.join({ tokens: 60, spend: 0 }, 0, after(0)));
  const large = waits(t, queue.join({ tokens: 90, spend: 0 }, 70 * SECOND, after(1)));
  const small = waits(t, queue.join({ tokens: 5, spend: 0 }, 70 * SECOND, after(2)));
  t.same(queue.check(after(3)).admitted, []);
  limits.settle(call, { tokens: 0, spend: 0 });
  t.strictSame(
    queue.check(after(4)).admitted.map(({ waiter }) => waiter),
    [large, small],
  );
});

t.test(
  "the queue is checked again when the next window begins, and its capacity is shared in order",
  async (t) => {
    const queue = new WaitingQueue(counters("requests: 2/minute"));
    admitted(t, queue.join(FREE, 0, after(0)));
    admitted(t, queue.join(FREE, 0, after(0)));
    const waiters = [1, 2].map(() => waits(t, queue.join(FREE, MINUTE, after(50 * SECOND))));
    t.equal(queue.check(after(50 * SECOND)).againIn, 10 * SECOND);
    t.equal(queue.check(after(59_999.5)).againIn, 1, "a timer that fires early comes back");
    t.strictSame(
      queue.check(after(MINUTE)).admitted.map(({ waiter }) => waiter),
      waiters,
    );
  },
);

t.test("a wait that cannot end in time is refused at once", async (t) => {
  const rows: [what: string, limits: string, quota: string | null, wait: number, state: string][] = [
    ["capacity returns too late", "requests: 1/hour", null, 20 * SECOND, "refused"],
    ["capacity returns just in time", "requests: 1/hour", null, HOUR, "waits"],
    ["a moment too late", "requests: 1/hour", null, HOUR - 1, "refused"],
    ["a quota never returns", "", "$1", 30 * DAY, "refused"],
    ["a request in flight may end", "concurrent: 1", null, 1, "waits"],
  ];
  for (const [what, words, quota, wait, state] of rows) {
    const limits = counters(words, quota);
    const queue = new WaitingQueue(limits);
    const first = admitted(t, queue.join({ tokens: 1, spend: 1_000_000 }, 0, after(0)));
    if (!words.startsWith("concurrent")) limits.settle(first, { tokens: null, spend: null });
    t.equal(queue.join({ tokens: 1, spend: 1 }, wait, after(0)).state, state, what);
  }
  const unpriced = new WaitingQueue(counters("spend: $1/day"));
  t.match(
    unpriced.join({ tokens: 1, spend: null }, 40 * DAY, after(0)),
    { state: "refused" },
    "an unknown price",
  );
});

t.test("a wait that cannot succeed is refused at once, also behind others that wait", async (t) => {
  const limits = counters("concurrent: 1, spend: $1/day");
  const queue = new WaitingQueue(limits);
  admitted(t, queue.join(FREE, 0, after(0)));
  waits(t, queue.join(FREE, MINUTE, after(0)));
  const unpriced = queue.join({ tokens: 5, spend: null }, MINUTE, after(0));
  t.match(unpriced, { state: "refused", shortage: { limit: { kind: "price" } } });
  t.equal(queue.length, 1);
});

t.test("a request too far back in the queue for its wait is refused at once", async (t) => {
  const queue = new WaitingQueue(counters("requests: 2/minute"));
  for (let n = 0; n < 2; n += 1) admitted(t, queue.join(FREE, 0, after(0)));
  for (let n = 0; n < 2; n += 1) waits(t, queue.join(FREE, 70 * SECOND, after(0)));
  t.match(queue.join(FREE, 70 * SECOND, after(0)), { state: "refused" }, "the next minute is given away");
  waits(t, queue.join(FREE, 2 * MINUTE, after(0)));
});

t.test(
  "a request whose wait is over is refused, wherever it is in the queue, and those behind it move up",
  async (t) => {
    const limits = counters("concurrent: 1");
    const queue = new WaitingQueue(limits);
    const call = admitted(t, queue.join(FREE, 0, after(0)));
    const [a, b, c] = [5, 1, 9].map((s) => waits(t, queue.join(FREE, s * SECOND, after(0))));
    const early = queue.check(after(SECOND));
    t.strictSame(
      early.refused.map(({ waiter }) => waiter),
      [b],
    );
    t.match(early.refused[0]?.shortage, { limit: { kind: "concurrent" }, used: 1, max: 1 });
    t.equal(early.againIn, 4 * SECOND);
    t.strictSame(
      queue.check(after(5 * SECOND)).refused.map(({ waiter }) => waiter),
      [a],
    );
    limits.settle(call, END);
    t.strictSame(
      queue.check(after(6 * SECOND)).admitted.map(({ waiter }) => waiter),
      [c],
    );
  },
);

t.test("capacity that returns at the very end of a wait is taken", async (t) => {
  const queue = new WaitingQueue(counters("requests: 1/minute"));
  admitted(t, queue.join(FREE, 0, after(0)));
  const waiter = waits(t, queue.join(FREE, MINUTE, after(0)));
  t.match(queue.check(after(MINUTE)), { admitted: [{ waiter }], refused: [], againIn: null });
});

t.test("a request that leaves the queue takes nothing and delays no other", async (t) => {
  const limits = counters("tokens: 100/minute");
  const queue = new WaitingQueue(limits);
  admitted(t, queue.join({ tokens: 90, spend: 0 }, 0, after(0)));
  const large = waits(t, queue.join({ tokens: 90, spend: 0 }, MINUTE, after(0)));
  const small = waits(t, queue.join({ tokens: 5, spend: 0 }, MINUTE, after(0)));
  t.equal(queue.leave(large), true);
  t.equal(queue.leave(large), false);
  t.strictSame(
    queue.check(after(1)).admitted.map(({ waiter }) => waiter),
    [small],
  );
  t.equal(queue.leave(small), false, "it is not waiting any more");
  t.match(limits.levels(NOW), [{ held: 95 }]);
});

t.test("the queue is bounded", async (t) => {
  const queue = new WaitingQueue(counters("concurrent: 1"), 3);
  admitted(t, queue.join(FREE, 0, after(0)));
  for (let n = 0; n < 3; n += 1) waits(t, queue.join(FREE, MINUTE, after(0)));
  t.equal(queue.join(FREE, MINUTE, after(0)).state, "refused");
  t.equal(queue.length, 3);
});

t.test(
  "no request gets in before those that wait, even if there is capacity that they do not know of yet",
  async (t) => {
    const limits = counters("concurrent: 1");
    const queue = new WaitingQueue(limits, 2);
    limits.settle(admitted(t, queue.join(FREE, 0, after(0))), END);
    const call = admitted(t, queue.join(FREE, 0, after(0)));
    const first = waits(t, queue.join(FREE, MINUTE, after(0)));
    limits.settle(call, END);
    t.equal(queue.join(FREE, 0, after(1)).state, "refused", "without a wait");
    const second = waits(t, queue.join(FREE, MINUTE, after(1)));
    t.equal(queue.join(FREE, MINUTE, after(1)).state, "refused", "the queue is full all the same");
    t.match(queue.check(after(2)).admitted, [{ waiter: first }]);
    t.equal(queue.leave(second), true);
  },
);

t.test("a reload applies to requests that wait", async (t) => {
  const limits = counters("requests: 1/hour");
  const queue = new WaitingQueue(limits);
  admitted(t, queue.join(FREE, 0, after(0)));
  const waiter = waits(t, queue.join(FREE, 2 * HOUR, after(0)));
  limits.change(terms("requests: 2/hour"));
  t.match(queue.check(after(1)).admitted, [{ waiter }]);
  const other = waits(t, queue.join(FREE, 2 * HOUR, after(2)));
  limits.change(terms("requests: 1/month"));
  t.match(
    queue.check(after(3)).refused,
    [{ waiter: other, shortage: { limit: { per: "month" } } }],
    "now it cannot succeed",
  );
});

t.test("all can be removed at once", async (t) => {
  const queue = new WaitingQueue(counters("concurrent: 1"));
  admitted(t, queue.join(FREE, 0, after(0)));
  const waiters = [1, 2].map(() => waits(t, queue.join(FREE, MINUTE, after(0))));
  t.strictSame(queue.clear(), waiters);
  t.equal(queue.length, 0);
  t.strictSame(queue.clear(), []);
});

t.test("setting the wall clock makes no request wait longer than it may", async (t) => {
  const limits = counters("requests: 1/minute");
  const queue = new WaitingQueue(limits);
  limits.recorded(admitted(t, queue.join(FREE, 0, after(0))), "an id");
  const waiter = waits(t, queue.join(FREE, MINUTE, after(0)));
  const setBack = { ...after(MINUTE), now: NOW - 30 * SECOND, ownNow: NOW - 30 * SECOND };
  t.match(queue.check(setBack), { admitted: [], refused: [{ waiter }], againIn: null });
});

t.test(
  "in any schedule: never above the limits, in order, none beyond its wait, none forgotten",
  async () => {
    const step = fc.oneof(
      fc.record({
        do: fc.constant("join" as const),
        wait: fc.constantFrom(0, 500, 3000, 90_000),
        tokens: fc.nat(60),
      }),
      fc.record({ do: fc.constant("end" as const), which: fc.nat(9) }),
      fc.record({ do: fc.constant("leave" as const), which: fc.nat(9) }),
      fc.record({ do: fc.constant("pass" as const), ms: fc.constantFrom(0, 1, 300, 2500, 61_000) }),
    );
    const config = terms("requests: 5/minute, tokens: 120/minute, concurrent: 2");
    fc.assert(
      fc.property(fc.array(step, { maxLength: 80, size: "max" }), (steps) => {
        const limits = countersWith(config);
        const queue = new WaitingQueue(limits, 6);
        const running: Reservation[] = [];
        let waiting: Waiter[] = [];
        let ms = 0;
        const holds = (fact: boolean, words: string) => {
          if (!fact) throw new Error(words);
        };
        const check = () => {
          const { admitted, refused, againIn } = queue.check(after(ms));
          const gone = admitted.map(({ waiter }) => waiter);
          const answered = new Set([...gone, ...refused.map(({ waiter }) => waiter)]);
          holds(
            gone.every(
              (waiter, n) => n === 0 || waiting.indexOf(waiter) > waiting.indexOf(gone[n - 1] ?? waiter),
            ),
            "in order",
          );
          waiting = waiting.filter((waiter) => !answered.has(waiter));
          running.push(...admitted.map(({ reservation }) => reservation));
          holds(
            waiting.every(({ deadline }) => deadline > after(ms).elapsed),
            "none waits beyond its time",
          );
          holds(waiting.length === queue.length && queue.length <= 6, "all that wait are in the queue");
          holds(
            (againIn === null) === (waiting.length === 0),
            "there is a next check as long as a request waits",
          );
        };
        for (const each of steps) {
          if (each.do === "pass") ms += each.ms;
          else if (each.do === "join") {
            const joined = queue.join({ tokens: each.tokens, spend: 0 }, each.wait, after(ms));
            if (joined.state === "admitted") running.push(joined.reservation);
            else if (joined.state === "waits") waiting.push(joined.waiter);
            else continue;
          } else if (each.do === "end") {
            const [call] = running.splice(each.which % Math.max(1, running.length), 1);
            if (call) limits.settle(call, { tokens: null, spend: null });
          } else {
            const [waiter] = waiting.splice(each.which % Math.max(1, waiting.length), 1);
            if (waiter) holds(queue.leave(waiter), "it was waiting");
          }
          check();
          holds(limits.inFlight === running.length && running.length <= 2, "no more at once than may");
          for (const { used, held, max } of limits.levels(after(ms).now))
            holds(used + held <= max, "never above");
        }
      }),
      { numRuns: runs(50), seed: 20261115 },
    );
  },
);
