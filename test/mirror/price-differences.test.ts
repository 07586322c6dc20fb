import t from "tap";
import {
  explainPrices,
  type PricedRow,
  type TokenPrices,
  tokenPrices,
} from "../../src/mirror/report/price-differences.ts";
import { TOKEN_KINDS } from "../../src/mirror/report/shape.ts";
import { createRandom } from "../doubles/random.ts";

/** gpt-4.1-mini, in micro-dollars a token. */
const PRICES: TokenPrices = { input: 0.4, cache_read: 0.1, cache_write: 0.4, output: 1.6 };

interface Given {
  readonly rows?: number;
  /** Of the operator's price. */
  readonly factors?: Partial<TokenPrices>;
  readonly seed?: number;
  /** What is added to the bill of a row. */
  readonly surcharge?: (number: number) => number;
  /** How many tokens a row has at most. */
  readonly most?: Partial<TokenPrices>;
}

/** Rows of new-api, which bills in units of two micro-dollars. */
function rowsOf({ rows = 60, factors = {}, seed = 1, surcharge = () => 0, most = {} }: Given): PricedRow[] {
  const random = createRandom(seed);
  const sizes = { input: 2000, cache_read: 0, cache_write: 0, output: 400, ...most };
  return Array.from({ length: rows }, (_, number) => {
    const by = (read: (kind: keyof TokenPrices) => number) =>
      Object.fromEntries(TOKEN_KINDS.map((kind) => [kind, read(kind)])) as Record<keyof TokenPrices, number>;
    const tokens = by((kind) => Math.floor(random() * sizes[kind]));
    const parts = by((kind) => PRICES[kind] * tokens[kind]);
    const sum = (amounts: TokenPrices) => TOKEN_KINDS.reduce((total, kind) => total + amounts[kind], 0);
    const due = sum(by((kind) => parts[kind] * (factors[kind] ?? 1))) + surcharge(number);
    return {
      record: `record-${number}`,
      tokens,
      parts,
      ours: Math.round(sum(parts)),
      theirs: 2 * Math.round(due / 2),
      rounding: 2 + 0.001 * due,
      multiplier: 1,
    };
  });
}

t.test("the same prices need no explanation, however they are rounded", async (t) => {
  for (const most of [{}, { input: 40, output: 4 }]) t.equal(explainPrices(rowsOf({ most })), null);
});

t.test("a factor is found for each kind of token that has another price", async (t) => {
  for (const [name, factors, most] of [
    ["half the price of output", { input: 1, output: 0.5 }, {}],
    ["small requests", { input: 1, output: 0.5 }, { input: 200, output: 40 }],
    ["one factor for all", { input: 1.2, output: 1.2 }, {}],
    ["one factor for all, small requests", { input: 1.2, output: 1.2 }, { input: 200, output: 40 }],
    ["no discount for the cache", { input: 1, cache_read: 4, output: 1 }, { cache_read: 90_000 }],
    ["two kinds", { input: 2, cache_read: 1, output: 0.75 }, { cache_read: 9000 }],
    [
      "every kind",
      { input: 1.5, cache_read: 0.5, cache_write: 1.25, output: 2 },
      { cache_read: 20_000, cache_write: 3000 },
    ],
  ] as const) {
    for (let seed = 1; seed <= 20; seed += 1) {
      const found = explainPrices(rowsOf({ factors, most, seed }));
      t.same(found?.factors && round(found.factors), factors, `${name}, seed ${seed}`);
      t.match(found, { rows: 60, explained: 60, unexplained_microdollars: 0 });
    }
  }
});

/** The rounding of small bills leaves a little of it in the factors. */
function round(factors: Readonly<Partial<TokenPrices>>): Partial<TokenPrices> {
  return Object.fromEntries(Object.entries(factors).map(([kind, one]) => [kind, Math.round(one * 20) / 20]));
}

t.test("the example is a row that the factors explain, with the largest difference", async (t) => {
  const rows = rowsOf({ factors: { output: 0.5 }, surcharge: (number) => (number === 0 ? 90_000 : 0) });
  const { example, explained, unexplained_microdollars: left } = explainPrices(rows) ?? {};
  const row = rows.find(({ record }) => record === example?.record);
  t.match(example, { tokens: row?.tokens, ours_microdollars: row?.ours, theirs_microdollars: row?.theirs });
  t.not(example?.record, "record-0");
  t.ok((example?.tokens.output ?? 0) > 300);
  t.equal(explained, 59);
  t.ok(Math.abs((left ?? 0) - 90_000) < 10, "and what is left is said");
});

t.test("a few rows with a surcharge do not hide the factors, and many are not explained", async (t) => {
  const surcharged = (share: number) =>
    explainPrices(
      rowsOf({
        rows: 100,
        factors: { output: 0.5 },
        surcharge: (number) => (number % share === 0 ? 10_000 : 0),
      }),
    );
  const few = surcharged(34);
  t.match(few, { factors: { output: 0.5 }, explained: 97 });
  t.ok(Math.abs((few?.unexplained_microdollars ?? 0) - 30_000) < 10);
  t.match(surcharged(4), { factors: null });
});

t.test("what no factors explain is not explained", async (t) => {
  const random = createRandom(7);
  const rows = rowsOf({ surcharge: () => random() * 500 });
  const found = explainPrices(rows);
  t.match(found, { rows: 60, factors: null });
  const all = rows.reduce((sum, { theirs, ours }) => sum + theirs - ours, 0);
  t.ok(Math.abs((found?.unexplained_microdollars ?? 0) - all) < 120, "the whole difference is");
  t.match(explainPrices(rowsOf({ rows: 4, factors: { output: 0.5 } })), { factors: null }, "four rows");
  const seldom = rowsOf({ surcharge: (number) => (number === 3 ? 5000 : 0) });
  t.match(explainPrices(seldom), {
    explained: 59,
    factors: { input: 1, output: 1 },
    example: { record: "record-3" },
  });
});

t.test("of rows that are alike, only the factor of the whole price is known", async (t) => {
  const [row] = rowsOf({ factors: { output: 0.5 } });
  const alike = Array.from({ length: 60 }, () => row).filter((one) => one !== undefined);
  const { factors } = explainPrices(alike) ?? {};
  t.equal(factors?.input, factors?.output);
  t.ok((factors?.input ?? 1) < 1);
});

t.test("a request with another price than today's has only the factor of the whole price", async (t) => {
  const unknown = (factors: Partial<TokenPrices>) =>
    explainPrices(rowsOf({ factors }).map((row) => ({ ...row, parts: null })));
  t.match(unknown({ input: 1.2, output: 1.2 }), { factors: { input: 1.2, output: 1.2 }, explained: 60 });
  t.match(unknown({ output: 0.5 }), { factors: null });
});

t.test("the prices of single tokens are those of the context's length", async (t) => {
  const findPrice = (tokens: { input: number; output: number; cacheRead: number }) =>
    (tokens.input + tokens.cacheRead > 200_000 ? 2 : 1) *
      1_000_000 *
      (3 * tokens.input + 15 * tokens.output) +
    7;
  t.same(tokenPrices(findPrice, false), { input: 3, cache_read: 0, cache_write: 0, output: 15 });
  t.same(tokenPrices(findPrice, true), { input: 6, cache_read: 0, cache_write: 0, output: 30 });
  t.equal(
    tokenPrices(() => null, false),
    null,
  );
});
