import { createHook } from "node:async_hooks";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import type { MatchLogic } from "@pydantic/genai-prices";
import fc from "fast-check";
import t from "tap";
import type { Named, Price } from "../../src/config/schema.ts";
import { buildTable } from "../../src/metering/price-table.ts";
import { Prices, readPriceTable, toMicrodollars } from "../../src/metering/prices.ts";
import { NO_TOKENS, type Tokens } from "../../src/metering/usage.ts";
import { runs } from "../doubles/effort.ts";
import { ROOT } from "../doubles/paths.ts";

const library: typeof import("@pydantic/genai-prices") = createRequire(import.meta.url)(
  "@pydantic/genai-prices",
);
const prices = new Prices(readPriceTable());
const NONE: Named<Price> = Object.freeze(Object.create(null));
const AT = Date.parse("2026-11-15T12:00:00Z");

function tokens(some: Partial<Tokens> = {}): Tokens {
  return { ...NO_TOKENS, ...some };
}

/** In whole micro-dollars, so that a thousand tokens of each are a thousand times dollars per million. */
function cost(model: string, some: Partial<Tokens> = { input: 1000, output: 1000 }, at = AT): number | null {
  const price = prices.findPrice({ asked: model, answered: null }, tokens(some), at, NONE);
  return price === null ? null : toMicrodollars(price);
}

t.test("the same model under any of its names costs what its maker asks", (t) => {
  const table: Record<string, readonly string[]> = {
    "gpt-5.1": [
      "GPT-5.1",
      "gpt-5.1-2026-08",
      "gpt-5.1-2026-08-07",
      "gpt-5.1-20260807",
      "openai/gpt-5.1",
      "azure/gpt-5.1",
      "openrouter/openai/gpt-5.1",
      "gpt-5-1",
      "gpt-5.1-high",
      "gpt-5.1-2026-08-low",
      "gpt-5.1-latest",
      " gpt-5.1 ",
    ],
    "claude-sonnet-4-5": [
      "CLAUDE-SONNET-4-5",
      "anthropic/claude-sonnet-4-5",
      "anthropic/claude-sonnet-4.5",
      "claude-sonnet-4-5-20250929",
      "claude-sonnet-4-5@20250929",
      "claude-sonnet-4-5-thinking",
      "claude-sonnet-4-5-20250929-thinking",
      "claude-sonnet-4-5:thinking",
      "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
      "anthropic.claude-sonnet-4-5-20250929-v1:0",
      "bedrock/global.anthropic.claude-sonnet-4-5-20250929-v1:0",
      "[vip]claude-sonnet-4-5",
      "【特价】claude-sonnet-4-5",
      "claude-sonnet-4-5[1m]",
      "claude-4.5-sonnet",
      "claude-sonnet-4-5-latest",
      "vertex_ai/claude-sonnet-4-5@20250929",
    ],
    "claude-sonnet-4": [
      "claude-sonnet-4-20250514",
      "claude-sonnet-4@20250514",
      "claude-4-sonnet",
      "claude-sonnet-4-0",
    ],
    "claude-3-5-sonnet": [
      "claude-3-5-sonnet-20241022",
      "claude-3.5-sonnet",
      "anthropic.claude-3-5-sonnet-20241022-v2:0",
    ],
    "gemini-2.5-pro": [
      "models/gemini-2.5-pro",
      "google/gemini-2.5-pro",
      "gemini/gemini-2.5-pro",
      "publishers/google/models/gemini-2.5-pro",
      "gemini-2.5-pro-preview-06-05",
      "gemini-2.5-pro-thinking",
      "gemini-2.5-pro-latest",
    ],
    "gemini-2.0-flash": ["gemini-2.0-flash-001"],
    "grok-4": ["x-ai/grok-4", "xai/grok-4", "grok-4-0709", "grok-4-latest"],
    "glm-5.3": ["GLM-5.3", "z-ai/glm-5.3", "zai-org/GLM-5.3"],
    "kimi-k2.5": ["moonshotai/kimi-k2.5", "kimi-k2-5"],
    "o3-mini": ["o3-mini-2025-01-31", "o3-mini-high", "o3-mini-low"],
  };
  for (const [model, names] of Object.entries(table)) {
    const expected = cost(model);
    t.type(expected, "number", model);
    for (const name of names) t.equal(cost(name), expected, name);
  }
  t.equal(cost("gpt-5.1"), 11_250);
  t.equal(cost("claude-sonnet-4-5"), 18_000);
  t.equal(cost("text-embedding-3-small", { input: 1000 }), 20);
  t.end();
});

t.test("the price of a dated name that is another one is not the price of the bare name", (t) => {
  t.equal(cost("gpt-4o-2024-05-13"), 20_000);
  t.equal(cost("gpt-4o"), 12_500);
  t.not(cost("gpt-5.1-mini"), cost("gpt-5.1"));
  t.not(cost("claude-opus-4-5"), cost("claude-opus-4-1"));
  t.end();
});

t.test("a name that could be another model or another price has none", (t) => {
  for (const name of [
    "",
    "qwen3-coder",
    "gpt-5.1-ultra",
    "gpt-5.1:free",
    "gpt-5.1-free",
    "[free]gpt-5.1",
    "[免费]gpt-5.1",
    "gpt-5.1:nitro",
    "claude-sonnet-4-5-mini",
    "claude-sonnet-4-5-fast",
    "claude-sonnet-9",
    "claude-sonnet-4-5-clone",
    "my-claude-sonnet-4-5",
    "groq/gpt-5.1",
    "somebody/claude-sonnet-4-5",
    "gemini-2.5-pro-tts-deluxe",
    "gemini-2.5-pro-exp-03-25",
    "kimi-k3-thinking",
    "deepseek-v9",
    "ft:gpt-4o-2024-08-06:me::abc",
    "sandbox-small",
    "constructor",
    "__proto__",
    "/",
    "models/",
    "anthropic.",
    "-latest",
  ]) {
    t.equal(cost(name), null, name);
  }
  t.end();
});

t.test("what is not paid for by tokens, or by more than they tell, is unknown and not free", (t) => {
  for (const name of [
    "whisper-1",
    "gpt-transcribe",
    "gpt-4o-transcribe",
    "gpt-4o-audio-preview",
    "gpt-realtime",
    "gemini-2.5-flash-image",
    "gemma-3-27b-it",
    "omni-moderation-latest",
    "mistral-nemo:free",
  ]) {
    t.equal(cost(name), null, name);
    t.equal(cost(name, {}), null, `${name}, also where no tokens were used`);
  }
  t.equal(
    cost("text-embedding-3-small", { input: 10, output: 1 }),
    null,
    "an embedding has no words to sell",
  );
  t.equal(cost("gpt-5.1", {}), 0, "no tokens of a model with a price cost nothing");
  t.end();
});

t.test("what is read from a cache, written to it, or thought has its own price or that of the whole", (t) => {
  const cached = { input: 1000, cacheRead: 1000, cacheWrite: 1000, output: 1000, reasoning: 900 };
  t.equal(cost("claude-opus-4-5", cached), 5000 + 500 + 6250 + 25_000);
  t.equal(
    cost("gpt-4.1", cached),
    2000 + 500 + 2000 + 8000,
    "OpenAI does not charge for writing to the cache",
  );
  t.equal(
    cost("o1-pro", cached),
    3 * 150_000 + 600_000,
    "where nothing is cheaper, it costs what input does",
  );
  t.equal(cost("sonar", { input: 1000, output: 1000 }), 2000 + 12_000, "a fee for each request is added");
  t.end();
});

t.test("a long context costs more from the first token on", (t) => {
  t.equal(cost("claude-sonnet-4-5", { input: 200_000, output: 10 }), 600_150);
  t.equal(cost("claude-sonnet-4-5", { input: 200_001, output: 10 }), 1_200_231);
  t.equal(
    cost("claude-sonnet-4-5", { input: 1, cacheRead: 200_000 }),
    120_006,
    "what comes from the cache counts",
  );
  t.end();
});

t.test("a price that changes with time is that of the request's time", (t) => {
  const on = (when: string) => cost("o3", { input: 1000 }, Date.parse(when));
  t.equal(on("2025-06-09T23:59:59Z"), 10_000);
  t.equal(on("2025-06-10T00:00:00Z"), 2000);
  const of = (when: string) => cost("deepseek-chat", { input: 1000 }, Date.parse(when));
  t.equal(of("2026-11-15T12:00:00Z"), 270);
  t.equal(of("2026-11-15T20:00:00Z"), 135);
  t.end();
});

function tierCost(
  model: string,
  tier: string | null,
  some: Partial<Tokens> = { input: 1000 },
): number | null {
  const price = prices.findPrice({ asked: model, answered: null }, tokens(some), AT, NONE, tier);
  return price === null ? null : toMicrodollars(price);
}

t.test("a service tier costs what its maker published", (t) => {
  for (const [model, tier, input, output] of [
    ["gpt-5.1", "flex", 625, 5000],
    ["gpt-5.1", "priority", 2500, 20_000],
    ["openai/gpt-5.1-2026-08-07", "fast", 2500, 20_000],
    ["gpt-5.5", "priority", 12_500, 75_000],
    ["gpt-5-mini", "priority", 450, 3600],
    ["gpt-4.1", "priority", 3500, 14_000],
    ["gpt-4o", "priority", 4250, 17_000],
    ["gpt-4o-2024-05-13", "priority", 8750, 26_250],
    ["gpt-4o-mini", "priority", 250, 1000],
    ["o4-mini", "priority", 2000, 8000],
    ["o3", "priority", 3500, 14_000],
    ["gpt-6-sol", "fast", 4000, 20_000],
    ["gpt-6-sol", "flex", 1000, 5000],
    ["gemini-2.5-pro", "flex", 625, 5000],
    ["claude-opus-4-6", "fast", 30_000, 150_000],
    ["claude-opus-4-8", "fast", 10_000, 50_000],
    ["claude-opus-5-5", "fast", 8000, 40_000],
  ] as const) {
    t.equal(tierCost(model, tier), input, `${model}, ${tier}`);
    t.equal(tierCost(model, tier, { output: 1000 }), output, `${model}, ${tier}, output`);
  }
  t.equal(tierCost("gpt-5.1", "priority", { cacheRead: 1000 }), 250);
  t.equal(tierCost("gpt-5.4", "flex", { input: 300_000 }), 750_000, "a long context costs more in it too");
  t.end();
});

t.test("the standard tier, or none, costs the list price", (t) => {
  for (const tier of [null, "standard"])
    for (const model of ["gpt-5.1", "claude-sonnet-4-5", "glm-5.3"])
      t.equal(tierCost(model, tier), cost(model, { input: 1000 }), `${model}, ${tier}`);
  t.end();
});

t.test("a tier without a published price has none, rather than a wrong one", (t) => {
  for (const [model, tier] of [
    ["gpt-5.1", "scale"],
    ["gpt-5.1", "ultrafast"],
    ["gpt-5.4-nano", "priority"],
    ["gpt-5.3-codex", "priority"],
    ["claude-sonnet-4-5", "priority"],
    ["claude-sonnet-4-5", "fast"],
    ["claude-opus-4-8", "flex"],
    ["gemini-2.5-pro", "priority"],
    ["gemini-2.5-pro", "provisioned_throughput"],
    ["glm-5.3", "flex"],
    ["gpt-5.1", "constructor"],
    ["gpt-5.1", ""],
  ] as const)
    t.equal(tierCost(model, tier), null, `${model}, ${tier}`);
  const names = { asked: "gpt-5.4-nano", answered: "gpt-5.4" };
  const other = prices.findPrice(names, tokens({ input: 1000 }), AT, NONE, "priority");
  t.equal(other, null, "nor has the model that answered instead");
  t.end();
});

t.test("a price of config.yaml holds for every tier", (t) => {
  const own: Named<Price> = { "gpt-5.1": { input: 1_000_000, output: 0, cacheRead: 0, cacheWrite: 0 } };
  for (const tier of [null, "flex", "priority", "scale"]) {
    const found = prices.findPrice(
      { asked: "gpt-5.1", answered: null },
      tokens({ input: 1000 }),
      AT,
      own,
      tier,
    );
    t.equal(found === null ? null : toMicrodollars(found), 1000, `${tier}`);
  }
  t.end();
});

/** Every name under which the library knows a model of its maker's. */
function known(...makers: readonly string[]): { providerId: string; name: string }[] {
  return makers.flatMap((providerId) => {
    const models = library.findProvider({ providerId })?.models ?? [];
    const names = models.flatMap(({ id, match }) => [id, ...equals(match)]);
    return names
      .filter((name) => library.calcPrice({}, name, { providerId }) !== null)
      .map((name) => ({ providerId, name }));
  });
}

function equals(match: MatchLogic): string[] {
  if ("or" in match) return match.or.flatMap(equals);
  return "equals" in match ? [match.equals] : [];
}

const MAKERS = [
  "anthropic",
  "openai",
  "x-ai",
  "deepseek",
  "moonshotai",
  "mistral",
  "cohere",
  "perplexity",
  "minimax",
  "voyageai",
];

t.test("every model of every maker costs what the library itself says", (t) => {
  const count = fc.oneof(fc.constant(0), fc.nat(5000), fc.nat(600_000));
  const usage = fc.record({
    input: count,
    cacheRead: count,
    cacheWrite: count,
    hourPercent: fc.nat(100),
    output: count,
    reasoningPercent: fc.nat(100),
  });
  const time = fc.integer({ min: Date.parse("2025-01-01"), max: Date.parse("2028-01-01") });
  let priced = 0;
  fc.assert(
    fc.property(fc.constantFrom(...known(...MAKERS)), usage, time, ({ providerId, name }, some, at) => {
      const { input, cacheRead, cacheWrite, output } = some;
      const cacheWriteHour = Math.floor((cacheWrite * some.hourPercent) / 100);
      const reasoning = Math.floor((output * some.reasoningPercent) / 100);
      const used = { input, cacheRead, cacheWrite, cacheWriteHour, output, reasoning };
      const ours = prices.findPrice({ asked: name, answered: null }, used, at, NONE);
      if (ours === null) return true;
      priced += 1;
      const reported = {
        input_tokens: input + cacheRead + cacheWrite,
        cache_read_tokens: cacheRead,
        cache_write_tokens: cacheWrite,
        cache_write_1h_tokens: cacheWriteHour,
        output_tokens: output,
        output_reasoning_tokens: reasoning,
      };
      const theirs = library.calcPrice(reported, name, { providerId, timestamp: new Date(at) });
      return Math.abs(ours / 1e12 - (theirs?.total_price ?? -1)) < 1e-9;
    }),
    { numRuns: runs(150) },
  );
  t.ok(priced > runs(150) / 2, `${priced} had a price`);
  t.end();
});

t.test("no two models that differ in price answer to one name", (t) => {
  let priced = 0;
  const names = known(...MAKERS);
  for (const { providerId, name } of names) {
    const ours = cost(name, { input: 2000, cacheRead: 1000, output: 1000 });
    if (ours === null) continue;
    const usage = { input_tokens: 3000, cache_read_tokens: 1000, output_tokens: 1000 };
    const theirs = library.calcPrice(usage, name, { providerId, timestamp: new Date(AT) });
    const near = Math.abs(ours - (theirs?.total_price ?? 0) * 1e6) <= 0.5 + 1e-6;
    if (!near) t.fail(`${providerId} ${name}: ${ours}, ${theirs?.total_price}`);
    priced += 1;
  }
  t.ok(priced > names.length * 0.7, `${priced} of ${names.length} names have a price`);
  t.end();
});

t.test("a price of config.yaml goes before the list, by the exact name", (t) => {
  const own = { input: 1_000_000, output: 4_000_000, cacheRead: 100_000, cacheWrite: 1_250_000 };
  const over: Named<Price> = { "my-model": own, "gpt-5.1": { ...own, input: 0, output: 0 } };
  const used = tokens({ input: 10, cacheRead: 10, cacheWrite: 10, output: 10, reasoning: 5 });
  const price = (asked: string) => prices.findPrice({ asked, answered: null }, used, AT, over);
  t.equal(price("my-model"), 63_500_000);
  t.equal(price("gpt-5.1"), 13_500_000, "also where it says zero");
  t.equal(price("openai/gpt-5.1"), 126_250_000, "another name is another model");
  t.equal(price("My-Model"), null);
  t.equal(price("toString"), null, "what every object has is no price");
  t.end();
});

t.test("the requested model sets the price; the answering one only if the first is unknown", (t) => {
  const used = tokens({ input: 1000 });
  const over: Named<Price> = { "claude-x": { input: 7_000_000, output: 0, cacheRead: 0, cacheWrite: 0 } };
  const price = (asked: string | null, answered: string | null) => {
    const found = prices.findPrice({ asked, answered }, used, AT, over);
    return found === null ? null : toMicrodollars(found);
  };
  t.equal(price("gpt-5.1", "gpt-5.1-mini"), 1250);
  t.equal(price("our-best", "gpt-5.1-mini"), 250);
  t.equal(price("our-best", "claude-x"), 7000);
  t.equal(price(null, "gpt-5.1"), 1250);
  t.equal(price("our-best", "our-best-2"), null);
  t.equal(price(null, null), null);
  t.end();
});

t.test("money is rounded once, and exactly", (t) => {
  const round = (picodollars: number, multiplier?: number) => toMicrodollars(picodollars, multiplier);
  t.equal(round(499_999), 0);
  t.equal(round(500_000), 1, "a half goes up");
  t.equal(round(1_500_000), 2);
  t.equal(round(5_420_000_000, 1.5), 8130);
  t.equal(round(450_000, 1.1), 0);
  t.equal(round(5_000_000, 1.1), 6, "5.5, although 1.1 is not quite 1.1");
  t.equal(round(15_000_000, 0.1), 2);
  t.equal(round(1_005_000_000, 100), 100_500);
  t.equal(round(333_333, 3), 1, "not three times nothing");
  t.equal(round(9_000_000_000_000_000, 10), 90_000_000_000, "nine thousand dollars times ten");
  t.equal(round(1_000_000, 0), 0);
  // 0.1 + 0.2 in dollars a million tokens.
  t.equal(cost("gpt-4.1-nano", { input: 5, cacheRead: 4, output: 1 }), 1);
  t.end();
});

t.test("invalid numbers have no price", (t) => {
  for (const odd of [Number.NaN, Number.POSITIVE_INFINITY]) t.equal(cost("gpt-5.1", { input: odd }), null);
  t.end();
});

t.test("thousands of names are looked up without any network access", async (t) => {
  const asked: string[] = [];
  const hook = createHook({
    init(_id, type) {
      if (/^(?:TCP|TLS|PIPE|UDP|GETADDRINFO|QUERY|HTTP)/.test(type)) asked.push(type);
    },
  }).enable();
  t.teardown(() => hook.disable());
  const fresh = new Prices(readPriceTable());
  for (let i = 0; i < 3000; i += 1) {
    fresh.findPrice({ asked: `model-${i}`, answered: "gpt-5.1" }, tokens({ input: i }), AT, NONE);
  }
  await new Promise((resolve) => setImmediate(resolve));
  const one = fresh.findPrice({ asked: "gpt-5.1", answered: null }, tokens({ input: 1000 }), AT, NONE);
  t.equal(one, 1_250_000_000);
  t.same(asked, []);
});

t.test("the build writes the list of the installed package, with its version and licence", (t) => {
  const folder = join(ROOT, "node_modules", "@pydantic", "genai-prices");
  const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const license = readFileSync(join(folder, "LICENSE"), "utf8");
  const source = `@pydantic/genai-prices ${version}`;
  t.same(readPriceTable(), { source, license, ...buildTable(library) });
  t.end();
});

t.test("a price of any size is rounded as whole numbers are", async () => {
  const half = 500_000_000_000n;
  const any = fc.oneof(
    fc.nat(3_000_000),
    fc.integer({ min: 0, max: 2 ** 53 - 1 }),
    fc.double({ min: 0, max: 1e20, noNaN: true }),
  );
  // A price of which exactly half a micro-dollar is left.
  const edge = fc.nat(1_000_000_000).map((whole) => whole * 1_000_000 + 500_000);
  fc.assert(
    fc.property(fc.oneof(any, edge), fc.double({ min: 0, max: 20, noNaN: true }), (price, multiplier) => {
      const exact = BigInt(Math.round(price)) * BigInt(Math.round(multiplier * 1_000_000));
      return (
        toMicrodollars(price, multiplier) === Number((exact + half) / (2n * half)) &&
        toMicrodollars(price) === Number((BigInt(Math.round(price)) * 1_000_000n + half) / (2n * half))
      );
    }),
    { numRuns: runs(3000) },
  );
});

t.test("a list with a time that cannot be read is not built", (t) => {
  const prices = { input_mtok: 1 };
  const models = [
    { id: "m", match: { equals: "m" }, prices: [{ constraint: { start_date: "soon" }, prices }] },
  ];
  const odd = { findProvider: () => ({ id: "odd", models }) };
  t.throws(() => buildTable(odd as unknown as typeof library), /a time that cannot be read: soon/);
  t.end();
});
