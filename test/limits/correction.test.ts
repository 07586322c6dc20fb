import t from "tap";
import type { Counters } from "../../src/limits/counters.ts";
import { at, counters, HOUR, MINUTE } from "./limits-under-test.ts";

const NOW = at("2026-11-15T12:00:00Z");
const LIMITS = "tokens: 1000/hour, spend: [$1/hour, $10/month]";

const used = (limits: Counters, now = NOW) => limits.levels(now).map((level) => level.used);

/** A call that has ended. */
function spent(limits: Counters, tokens: number, spend: number, now = NOW): void {
  const reserved = limits.reserve({ tokens, spend }, now);
  if (!reserved.ok) throw new Error(`refused by ${JSON.stringify(reserved.shortage)}`);
  limits.settle(reserved.reservation, { tokens, spend });
}

t.test("a correction below zero and back leaves what was used", async (t) => {
  const limits = counters(LIMITS, NOW, "$20");
  spent(limits, 100, 5000);
  limits.correct({ at: NOW, tokens: -300, spend: -9000 }, NOW);
  t.strictSame(used(limits), [0, 0, 0, 0], "less than nothing is shown as nothing");
  limits.correct({ at: NOW, tokens: 300, spend: 9000 }, NOW);
  t.strictSame(used(limits), [100, 5000, 5000, 5000]);
});

t.test("less than nothing used is no more room than the limit", async (t) => {
  const limits = counters(LIMITS, NOW);
  limits.correct({ at: NOW, tokens: -500, spend: -500_000 }, NOW);
  t.ok(limits.reserve({ tokens: 1000, spend: 1_000_000 }, NOW).ok, "all of it");
  t.match(limits.check({ tokens: 1, spend: 0 }, NOW), { limit: { kind: "tokens" }, used: 0, held: 1000 });
  t.match(limits.check({ tokens: 0, spend: 1 }, NOW), { limit: { kind: "spend" }, used: 0, held: 1_000_000 });
});

t.test("a correction counts where its call does, and a start finds the same", async (t) => {
  const limits = counters(LIMITS, NOW - HOUR, "$20");
  spent(limits, 100, 5000, NOW - HOUR);
  spent(limits, 10, 500);
  limits.correct({ at: NOW - HOUR, tokens: -40, spend: 2000 }, NOW + MINUTE);
  t.strictSame(used(limits, NOW + MINUTE), [10, 500, 7500, 7500], "its hour is over, its month is not");

  const again = counters(LIMITS, NOW + MINUTE, "$20");
  again.restore(
    {
      hour: { requests: 1, tokens: 10, spend: 500 },
      month: { requests: 2, tokens: 70, spend: 7500 },
    },
    7500,
    NOW + MINUTE,
  );
  t.strictSame(used(again, NOW + MINUTE), used(limits, NOW + MINUTE));
});
