import fc from "fast-check";
import t from "tap";
import { isUsedUp, type LimitUse, limitFigures } from "../../src/limits/format.ts";

const MICRO = 1_000_000;

t.test("what was counted and its limit can be compared", async (t) => {
  const cases: [use: LimitUse, used: string, most: string][] = [
    [{ used: 17_000, held: 0, most: 10_000 }, "$0.017", "$0.01"],
    [{ used: 10_000, held: 0, most: 10_000 }, "$0.01", "$0.01"],
    [{ used: 9_999, held: 0, most: 10_000 }, "$0.009999", "$0.01"],
    [{ used: 0, held: 0, most: 5 * MICRO }, "$0", "$5.00"],
    [{ used: 4_100_000, held: 0, most: 5 * MICRO }, "$4.10", "$5.00"],
    [{ used: 4_998_000, held: 0, most: 5 * MICRO }, "$4.998", "$5.00"],
    [{ used: 5_004_000, held: 0, most: 5 * MICRO }, "$5.00", "$5.00"],
    [{ used: 12_000, held: 0, most: 12_500 }, "$0.012", "$0.0125"],
    [{ used: 12_499, held: 0, most: 12_500 }, "$0.012", "$0.0125"],
    [{ used: null, held: null, most: 1_234 * MICRO }, "unknown", "$1,234.00"],
  ];
  for (const [use, used, most] of cases) {
    const figures = limitFigures("spend", use);
    t.strictSame([figures.used ?? "unknown", figures.most], [used, most]);
    t.strictSame(limitFigures("quota", use), figures, "a quota is money, too");
  }
  const tokens = limitFigures("tokens", { used: 399_999, held: 12_000, most: 400_000 });
  t.match(tokens, { used: "399,999", reserved: "12,000", most: "400,000" }, "tokens are not rounded");
});

t.test("estimated, reserved and extra amounts are named if there are any", async (t) => {
  const use = { used: 1_440_000, estimated: 100_000, held: 480_000, most: 7 * MICRO, extra: 2 * MICRO };
  t.match(limitFigures("spend", use), {
    estimated: "$0.10",
    reserved: "$0.48",
    most: "$5.00+$2.00",
  });
  t.match(limitFigures("spend", { used: 1, held: 0, most: 2 }), {
    estimated: null,
    reserved: null,
    most: "$0.000002",
    need: null,
  });
});

function micros(text: string | null): number {
  return text === null ? 0 : Math.round(Number(text.replace(/[$,]/g, "")) * MICRO);
}

t.test("no rounding moves an amount across its limit", async (t) => {
  const near = fc
    .tuple(fc.integer({ min: 0, max: 300 * MICRO }), fc.integer({ min: -20_000, max: 20_000 }))
    .map(([most, by]) => ({ most, used: Math.max(0, most + by) }));
  const amount = fc.integer({ min: 0, max: 30_000 });
  t.doesNotThrow(() =>
    fc.assert(
      fc.property(near, amount, amount, ({ used, most }, held, need) => {
        const texts = limitFigures("spend", { used, held, most, need });
        const shown = { used: micros(texts.used), held: micros(texts.reserved), need: micros(texts.need) };
        const taken = shown.used + shown.held;
        return (
          micros(texts.most) === most &&
          shown.used >= most === isUsedUp({ used, most }) &&
          taken >= most === used + held >= most &&
          (need === 0 || taken + shown.need > most === used + held + need > most)
        );
      }),
    ),
  );
});
