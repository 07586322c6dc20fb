import t from "tap";
import type { Clock } from "../../src/clock.ts";
import type { Lift } from "../../src/limits/frames.ts";
import { createLimiter, type Spent } from "../../src/limits/limiter.ts";
import { toolOf } from "../doubles/parsed-config.ts";
import { at, utc } from "./limits-under-test.ts";

const NOW = at("2026-11-15T12:00:05Z");
const clock: Clock = { now: () => NOW, elapsed: () => 0 };
const LIFT: Lift = { kind: "requests", amount: 5, givenAt: NOW, until: null };

function spent(requests: number, lifts: readonly Lift[] = []): Spent {
  const sums = { requests, tokens: 0, spend: 0 };
  return {
    sums: { second: sums, minute: sums, hour: sums, day: sums, month: sums },
    ever: requests,
    lifts,
  };
}

/** A tool under 10/day and $1 in all, and a log whose answer can be changed. */
function start(first: Spent | null) {
  const tool = toolOf("limits: { requests: 10/day }, quota: $1");
  let answer = first;
  const limiter = createLimiter({ clock, calendar: utc, spent: () => answer });
  return {
    tool,
    limiter,
    says(next: Spent | null) {
      answer = next;
      limiter.restoreAgain();
    },
    levels: () => limiter.levels(tool).levels.map(({ used, extra }) => [used, extra]),
  };
}

t.test("a log that knows more than before is counted anew", async (t) => {
  const { says, levels } = start(spent(1));
  t.same(levels(), [
    [1, 0],
    [1, 0],
  ]);
  says(spent(7));
  t.same(levels(), [
    [7, 0],
    [7, 0],
  ]);
});

t.test("a log that knows less than before gives nothing back", async (t) => {
  const { says, levels } = start(spent(7));
  levels();
  says(spent(2));
  t.same(levels(), [
    [7, 0],
    [7, 0],
  ]);
});

t.test("an allowance is given once, however often the log tells of it", async (t) => {
  const { tool, limiter, says, levels } = start(spent(1, [LIFT]));
  t.same(levels()[0], [1, 5]);
  says(spent(1, [LIFT]));
  t.same(levels()[0], [1, 5]);
  const another = { ...LIFT, amount: 3 };
  limiter.lift(tool, another);
  says(spent(1, [LIFT, another]));
  t.same(levels()[0], [1, 8]);
  says(spent(1, [LIFT, another, { ...LIFT, amount: 2 }]));
  t.same(levels()[0], [1, 10], "one that was saved later is given too");
});

t.test("while the log cannot be read anew nobody is let in, and then it is", async (t) => {
  const { tool, limiter, says } = start(spent(1));
  const take = () =>
    limiter.take(tool, { ask: { tokens: 0, spend: 0 }, model: null, mayWait: true }, () => {});
  t.match(await take(), { ok: true });
  says(null);
  t.match(await take(), { ok: false, refusal: { code: "log-unavailable" } });
  // The one that was let in above is not in the log yet.
  says(spent(8));
  t.match(await take(), { ok: true });
  t.match(await take(), { ok: false, refusal: { code: "rate-limited" } });
});
