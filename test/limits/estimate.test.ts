import t from "tap";
import { expectedTokens, namedMaximum, RecentCalls } from "../../src/limits/estimate.ts";

t.test(
  "a request's own maximum is found in every protocol, the greatest of several, for all its answers",
  async (t) => {
    const rows: [fields: Record<string, unknown>, most: number | null][] = [
      [{ max_tokens: 1000 }, 1000],
      [{ max_completion_tokens: 2000 }, 2000],
      [{ max_output_tokens: 3000 }, 3000],
      [{ "generationConfig.maxOutputTokens": 4000 }, 4000],
      [{ max_tokens: 10, max_completion_tokens: 500 }, 500],
      [{ max_tokens: 100, n: 4 }, 400],
      [{ max_tokens: 100, n: 2, best_of: 5 }, 500],
      [{ "generationConfig.maxOutputTokens": 100, "generationConfig.candidateCount": 3 }, 300],
      [{}, null],
      [{ n: 4 }, null],
      [{ max_tokens: null }, null],
      [{ max_tokens: "1000" }, null],
      [{ max_tokens: -1 }, null],
      [{ max_tokens: 0 }, null],
      [{ max_tokens: Number.NaN, n: -3 }, null],
      [{ max_tokens: 7, n: -3 }, 7],
      [{ generationConfig: null }, null],
      [{ generationConfig: "x" }, null],
    ];
    for (const [fields, most] of rows) t.equal(namedMaximum(fields), most, JSON.stringify(fields));
  },
);

t.test("what is held is the named maximum and the size of the body", async (t) => {
  const request = { named: 8000, bodyBytes: 4001, hasOutput: true };
  t.strictSame(expectedTokens(request, { input: 5, output: 5 }), { input: 1001, output: 8000 });
  t.strictSame(
    expectedTokens({ ...request, hasOutput: false }, null),
    { input: 1001, output: 0 },
    "no output",
  );
  t.strictSame(expectedTokens({ ...request, bodyBytes: 0 }, null), { input: 0, output: 8000 });
});

t.test("an image or an absurd maximum is held up to a bound", async (t) => {
  const { input, output } = expectedTokens({ named: 1e300, bodyBytes: 20_000_000, hasOutput: true }, null);
  t.strictSame([input, output], [200_000, 1_000_000]);
});

t.test(
  "without a maximum the recent median counts, within bounds; before there is one, a guess",
  async (t) => {
    const unnamed = { named: null, bodyBytes: null, hasOutput: true };
    t.strictSame(expectedTokens(unnamed, null), { input: 4000, output: 4000 });
    t.strictSame(expectedTokens(unnamed, { input: 9000, output: 1500 }), { input: 9000, output: 1500 });
    t.strictSame(
      expectedTokens(unnamed, { input: 3, output: 1 }),
      { input: 1000, output: 1000 },
      "tiny ones",
    );
    t.strictSame(
      expectedTokens(unnamed, { input: 1e6, output: 1e6 }),
      { input: 32_000, output: 32_000 },
      "huge ones",
    );
    t.strictSame(expectedTokens({ ...unnamed, bodyBytes: 400 }, { input: 9000, output: 1500 }), {
      input: 100,
      output: 1500,
    });
  },
);

t.test(
  "the median is that of the last calls, each kind for itself, and one long answer does not move it",
  async (t) => {
    const recent = new RecentCalls();
    t.equal(recent.median(), null);
    recent.add({ input: 10, output: 3 });
    t.strictSame(recent.median(), { input: 10, output: 3 });
    recent.add({ input: 30, output: 1 });
    recent.add({ input: 20, output: 900_000 });
    t.strictSame(recent.median(), { input: 20, output: 3 });
    for (let n = 0; n < 31; n += 1) recent.add({ input: 7, output: 9 });
    for (let n = 0; n < 16; n += 1) recent.add({ input: 8, output: 2 });
    t.strictSame(recent.median(), { input: 8, output: 2 }, "what is long ago is forgotten");
  },
);
