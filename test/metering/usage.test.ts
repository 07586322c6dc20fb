import fc from "fast-check";
import t from "tap";
import type { Metering } from "../../src/metering/protocols.ts";
import { ResponseFacts, type Tokens } from "../../src/metering/usage.ts";
import { runs } from "../doubles/effort.ts";

function tokens(metering: Metering, ...usages: readonly unknown[]): Tokens | null {
  const facts = new ResponseFacts(metering);
  for (const usage of usages) facts.add({ usage });
  return facts.tokens;
}

function of(input: number, cacheRead: number, cacheWrite: number, output: number, reasoning = 0): Tokens {
  return { input, cacheRead, cacheWrite, cacheWriteHour: 0, output, reasoning };
}

t.test("input never includes what the cache gave or took, whatever the protocol calls it", (t) => {
  const rows: readonly (readonly [Metering, object, Tokens])[] = [
    [
      "chat",
      { prompt_tokens: 100, completion_tokens: 5, prompt_tokens_details: { cached_tokens: 80 } },
      of(20, 80, 0, 5),
    ],
    [
      "chat",
      { prompt_tokens: 100, completion_tokens: 5, prompt_cache_hit_tokens: 80, prompt_cache_miss_tokens: 20 },
      of(20, 80, 0, 5),
    ],
    [
      "chat",
      { prompt_cache_hit_tokens: 80, prompt_cache_miss_tokens: 20, completion_tokens: 5 },
      of(20, 80, 0, 5),
    ],
    ["chat", { prompt_tokens: 100, completion_tokens: 5, cached_tokens: 80 }, of(20, 80, 0, 5)],
    [
      "responses",
      {
        input_tokens: 100,
        output_tokens: 5,
        input_tokens_details: { cached_tokens: 80, cache_write_tokens: 15 },
      },
      of(5, 80, 15, 5),
    ],
    ["responses", { input_tokens: 10, output_tokens: 5, cache_read_input_tokens: 80 }, of(10, 80, 0, 5)],
    [
      "messages",
      { input_tokens: 20, output_tokens: 5, cache_read_input_tokens: 80, cache_creation_input_tokens: 7 },
      of(20, 80, 7, 5),
    ],
    ["messages", { input_tokens: 0, output_tokens: 5, cache_read_input_tokens: 80 }, of(0, 80, 0, 5)],
    [
      "messages",
      { input_tokens: 100, output_tokens: 5, input_tokens_details: { cached_tokens: 80 } },
      of(20, 80, 0, 5),
    ],
    [
      "gemini",
      { promptTokenCount: 100, candidatesTokenCount: 5, cachedContentTokenCount: 80 },
      of(20, 80, 0, 5),
    ],
  ];
  for (const [metering, usage, expected] of rows)
    t.strictSame(tokens(metering, usage), expected, JSON.stringify(usage));
  t.end();
});

t.test(
  "cached more than the prompt: beside it where something shows that, else the input is nothing",
  (t) => {
    const usage = { prompt_tokens: 20, completion_tokens: 5, prompt_tokens_details: { cached_tokens: 80 } };
    t.strictSame(tokens("chat", { ...usage, total_tokens: 25 }), of(0, 80, 0, 5));
    t.strictSame(tokens("chat", { ...usage, total_tokens: 105 }), of(20, 80, 0, 5), "the sum shows it");
    t.strictSame(
      tokens("chat", { ...usage, cache_read_input_tokens: 80 }),
      of(20, 80, 0, 5),
      "the names show it",
    );
    t.strictSame(tokens("chat", { ...usage, usage_semantic: "anthropic" }), of(20, 80, 0, 5), "it is said");
    t.end();
  },
);

t.test("output includes reasoning", (t) => {
  const details = { completion_tokens_details: { reasoning_tokens: 90 } };
  t.strictSame(
    tokens("chat", { prompt_tokens: 10, completion_tokens: 100, ...details }),
    of(10, 0, 0, 100, 90),
  );
  t.strictSame(
    tokens("chat", { prompt_tokens: 10, completion_tokens: 4, total_tokens: 104, ...details }),
    of(10, 0, 0, 94, 90),
  );
  t.strictSame(
    tokens("chat", { prompt_tokens: 10, completion_tokens: 4, total_tokens: 14, ...details }),
    of(10, 0, 0, 90, 90),
  );
  t.strictSame(
    tokens("gemini", { promptTokenCount: 10, candidatesTokenCount: 4, thoughtsTokenCount: 90 }),
    of(10, 0, 0, 94, 90),
  );
  t.end();
});

t.test("an invalid count counts as absent", (t) => {
  for (const nonsense of [
    null,
    "",
    "12 ",
    "-3",
    -1,
    Number.NaN,
    Number.POSITIVE_INFINITY,
    1e10,
    [],
    {},
    true,
    "99999999999",
  ])
    t.strictSame(
      tokens("chat", { prompt_tokens: nonsense, completion_tokens: 5 }),
      of(0, 0, 0, 5),
      JSON.stringify(nonsense),
    );
  t.strictSame(tokens("chat", { prompt_tokens: "12", completion_tokens: 5.9 }), of(12, 0, 0, 5));
  for (const usage of [{}, null, [], "usage", 7, { type: "duration", seconds: 9 }, { prompt_tokens: 0 }])
    t.equal(tokens("audio", usage), null, JSON.stringify(usage));
  t.equal(tokens("chat", JSON.parse('{"__proto__":{"prompt_tokens":5}}')), null, "nothing is inherited");
  t.end();
});

t.test("whatever a usage object holds, the counts are whole, not negative and have a bound", async () => {
  const names = ["prompt_tokens", "input_tokens", "completion_tokens", "output_tokens", "total_tokens"];
  const more = [
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "promptTokenCount",
    "usage_semantic",
  ];
  const value = fc.oneof(fc.anything(), fc.double(), fc.nat(1000), fc.constantFrom("anthropic", "7"));
  const details = fc.dictionary(
    fc.constantFrom("cached_tokens", "reasoning_tokens", "cache_write_tokens"),
    value,
  );
  const usage = fc.dictionary(
    fc.constantFrom(...names, ...more, "prompt_tokens_details", "output_tokens_details"),
    fc.oneof(value, details),
  );
  const metering = fc.constantFrom<Metering>("chat", "messages", "responses", "gemini", "embeddings");
  fc.assert(
    fc.property(metering, fc.array(usage, { minLength: 1, maxLength: 3 }), (metering, usages) => {
      const { input, cacheRead, cacheWrite, output, reasoning } =
        tokens(metering, ...usages) ?? of(0, 0, 0, 0);
      const counts = [input, cacheRead, cacheWrite, output, reasoning];
      return counts.every((n) => Number.isSafeInteger(n) && n >= 0 && n <= 4e9) && reasoning <= output;
    }),
    { numRuns: runs(100) },
  );
});

t.test("over a stream the later count stands, and a zero that knows nothing takes nothing back", (t) => {
  const rows: readonly (readonly [Metering, readonly object[], Tokens])[] = [
    [
      "chat",
      [
        { prompt_tokens: 9, completion_tokens: 1 },
        { prompt_tokens: 9, completion_tokens: 7 },
      ],
      of(9, 0, 0, 7),
    ],
    ["chat", [{ prompt_tokens: 9 }, { completion_tokens: 7 }], of(9, 0, 0, 7)],
    [
      "chat",
      [
        { prompt_tokens: 9, completion_tokens: 0 },
        { prompt_tokens: 0, completion_tokens: 7 },
      ],
      of(9, 0, 0, 7),
    ],
    // Read on its own, the first would leave 100 of input beside the 80 of cache.
    [
      "chat",
      [{ prompt_tokens: 100 }, { prompt_tokens: 100, prompt_tokens_details: { cached_tokens: 80 } }],
      of(20, 80, 0, 0),
    ],
    [
      "messages",
      [
        { input_tokens: 100, output_tokens: 1 },
        { input_tokens: 0, cache_read_input_tokens: 100, output_tokens: 3 },
      ],
      of(0, 100, 0, 3),
    ],
    ["messages", [{ input_tokens: 20, cache_read_input_tokens: 80 }, { output_tokens: 3 }], of(20, 80, 0, 3)],
    [
      "messages",
      [
        { input_tokens: 20, cache_read_input_tokens: 80 },
        { input_tokens: 0, cache_read_input_tokens: null, output_tokens: 3 },
      ],
      of(20, 80, 0, 3),
    ],
  ];
  for (const [metering, usages, expected] of rows)
    t.strictSame(tokens(metering, ...usages), expected, JSON.stringify(usages));
  t.end();
});
