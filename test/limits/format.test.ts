import fc from "fast-check";
import t from "tap";
import { isUsedUp, type LimitUse, limitFigures } from "../../src/limits/format.ts";

const MICRO = 1_000_000;

t.test("what was counted and its limit can be compared", async (t) => {
  const cases: [use: LimitUse, used: string, max: string][] = [
    [{ used: 17_000, held: 0, max: 10_000 }, "$0.017", "$0.01"],
    [{ used: 10_000, held: 0, max: 10_000 }, "$0.01", "$0.01"],
    [{ used: 9_999, held: 0, max: 10_000 }, "$0.009999", "$0.01"],
    [{ used: 0, held: 0, max: 5 * MICRO }, "$0", "$5.00"],
    [{ used: 4_100_000, held: 0, max: 5 * MICRO }, "$4.10", "$5.00"],
    [{ used: 4_998_000, held: 0, max: 5 * MICRO }, "$4.998", "$5.00"],
    [{ used: 5_004_000, held: 0, max: 5 * MICRO }, "$5.00", "$5.00"],
    [{ used: 12_000, held: 0, max: 12_500 }, "$0.012", "$0.0125"],
    [{ used: 12_499, held: 0, max: 12_500 }, "$0.012", "$0.0125"],
    [{ used: null, held: null, max: 1_234 * MICRO }, "unknown", "$1,234.00"],
  ];
  for (const [use, used, max] of cases) {
    const figures = limitFigures("spend", use);
    t.strictSame([figures.used ?? "unknown", figures.max], [used, max]);
    t.strictSame(limitFigures("quota", use), figures, "a quota is money, too");
  }
  const tokens = limitFigures("tokens", { used: 399_999, held: 12_000, max: 400_000 });
  t.match(tokens, { used: "399,999", held: "12,000", max: "400,000" }, "tokens are not rounded");
});

t.test("estimated, reserved and extra amounts are named if there are any", async (t) => {
  const use = { used: 1_440_000, estimated: 100_000, held: 480_000, max: 7 * MICRO, extra: 2 * MICRO };
  t.match(limitFigures("spend", use), {
    estimated: "$0.10",
    held: "$0.48",
    max: "$5.00+$2.00",
  });
  t.match(limitFigures("spend", { used: 1, held: 0, max: 2 }), {
    estimated: null,
    held: null,
    max: "$0.000002",
    need: null,
  });
});

function micros(text: string | null): number {
  return text === null ? 0 : Math.round(Number(text.replace(/[$,]/g, "")) * MICRO);
}

t.test("no rounding moves an amount across its limit", async (t) => {
  const near = fc
    .tuple(fc.integer({ min: 0, max: 300 * MICRO }), fc.integer({ min: -20_000, max: 20_000 }))
    .map(([max, by]) => ({ max, used: Math.max(0, max + by) }));
  const amount = fc.integer({ min: 0, max: 30_000 });
  t.doesNotThrow(() =>
    fc.assert(
      fc.property(near, amount, amount, ({ used, max }, held, need) => {
        const texts = limitFigures("spend", { used, held, max, need });
        const shown = { used: micros(texts.used), held: micros(texts.held), need: micros(texts.need) };
        const taken = shown.used + shown.held;
        return (
          micros(texts.max) === max &&
          shown.used >= max === isUsedUp({ used, most: max }) &&
          taken >= max === used + held >= max &&
          (need === 0 || taken + shown.need > max === used + held + need > max)
        );
      }),
    ),
  );
});
