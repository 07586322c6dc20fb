import { readFile } from "node:fs/promises";
import t from "tap";
import { MODELS } from "../../src/sandbox/models.ts";
import { command } from "../doubles/command.ts";
import { startWithOneTool } from "../doubles/daemon-under-test.ts";
import { longTest } from "../doubles/effort.ts";
import { startRawGateway } from "../doubles/raw-gateway.ts";
import { until } from "../doubles/until.ts";
import {
  MULTIPLIER,
  type RecordTokens,
  recordFor,
  recordWhere,
  sandboxPrices,
  startOnSandbox,
  tokensIn,
} from "../doubles/usage-journey.ts";

const LONG = Array.from({ length: 1500 }, (_, at) => `word${at % 61}`).join(" ");

const ASKS: Readonly<Record<string, (model: string, stream: boolean) => object>> = {
  "/v1/chat/completions": (model, stream) => ({
    model,
    messages: [{ role: "user", content: LONG }],
    ...(stream ? { stream, stream_options: { include_usage: true } } : {}),
  }),
  "/v1/completions": (model, stream) => ({
    model,
    prompt: LONG,
    ...(stream ? { stream, stream_options: { include_usage: true } } : {}),
  }),
  "/v1/responses": (model, stream) => ({ model, input: LONG, stream }),
  "/v1/messages": (model, stream) => ({
    model,
    max_tokens: 700,
    messages: [{ role: "user", content: LONG }],
    stream,
  }),
};

/** In whole numbers, so that nothing is lost on the way: prices have at most four decimals. */
function listMicrodollars(model: string, tokens: RecordTokens, multiplier = 1): number {
  const price = MODELS.find(({ id }) => id === model)?.price;
  if (price === undefined) throw new Error(`no price for ${model}`);
  const parts: [number, number][] = [
    [tokens.input, price.input],
    [tokens.cacheRead, price.cacheRead],
    [tokens.cacheWrite, price.cacheWrite],
    [tokens.output, price.output],
  ];
  const tenThousandths = parts.reduce((sum, [count, each]) => sum + count * Math.round(each * 10_000), 0);
  return Math.round((tenThousandths * Math.round(multiplier * 100)) / 1_000_000);
}

t.test("money is prices × tokens × multiplier to the micro-dollar, and what the console took", async (t) => {
  const bench = await startOnSandbox(t, { plain: "", dear: "group: dear" });
  const before = bench.sandbox.account.balance;
  let sum = 0;
  let count = 0;
  for (const tool of ["plain", "dear"]) {
    const multiplier = tool === "dear" ? MULTIPLIER : 1;
    for (const model of ["sandbox-small", "sandbox-thinker", "sandbox-code"]) {
      for (const [path, ask] of Object.entries(ASKS)) {
        for (const stream of [false, true]) {
          const what = `${tool} ${path} ${model}${stream ? " streamed" : ""}`;
          const answer = await bench.fetchAs(tool, path, { body: JSON.stringify(ask(model, stream)) });
          await answer.text();
          const record = await recordFor(bench, answer);
          const tokens = tokensIn(record);
          if (tokens === null) return t.fail(`no tokens: ${what}`);
          const id = answer.headers.get("x-client-request-id");
          const row = bench.sandbox.usage().find(({ requestId }) => requestId === `client:${id}`);
          if (row === undefined) return t.fail(`no row: ${what}`);
          t.equal(record.multiplier, multiplier, what);
          t.equal(record.group, tool === "dear" ? "dear" : null);
          t.equal(record.list_microdollars, listMicrodollars(model, tokens), what);
          t.equal(record.cost_microdollars, listMicrodollars(model, tokens, multiplier), what);
          t.equal(record.list_microdollars, Math.round(row.cost.total * 1e6), `${what}: total_cost`);
          t.equal(record.cost_microdollars, Math.round(row.cost.actual * 1e6), `${what}: actual_cost`);
          t.equal(record.billed_microdollars, null, "only the mirror knows");
          sum += record.cost_microdollars ?? 0;
          count += 1;
        }
      }
    }
  }
  const spent = (before - bench.sandbox.account.balance) * 1e6;
  t.ok(Math.abs(spent - sum) <= count / 2, `${sum} of ${spent}: each is off by half a micro-dollar at most`);
});

t.test(
  "of a stream that the person ends early the input is known where it was reported, the output and the price are not",
  async (t) => {
    const bench = await startOnSandbox(t, { sdk: "group: dear" }, { sandbox: { wordDelay: 25 } });
    for (const path of Object.keys(ASKS)) {
      const leave = new AbortController();
      const body = JSON.stringify(ASKS[path]?.("sandbox-small", true));
      const answer = await bench.fetchAs("sdk", path, { body, signal: leave.signal });
      const reader = answer.body?.getReader();
      let text = "";
      while (!text.includes("sandbox!")) text += Buffer.from((await reader?.read())?.value ?? []).toString();
      leave.abort();
      const record = await recordFor(bench, answer);
      const id = `client:${answer.headers.get("x-client-request-id")}`;
      await until("it is billed", () => bench.sandbox.usage().some(({ requestId }) => requestId === id));
      const row = bench.sandbox.usage().find(({ requestId }) => requestId === id);
      t.same([record.end, record.status, record.stream], ["client-left", 200, true], path);
      const tokens = tokensIn(record);
      if (path !== "/v1/messages") {
        t.equal(tokens, null, `${path} tells its usage at the end only`);
        t.same(
          [record.tokens_from, record.list_microdollars, record.cost_microdollars],
          ["none", null, null],
        );
        continue;
      }
      t.match(tokens, { input: row?.tokens.input, cacheRead: row?.tokens.cacheRead });
      t.equal(tokens?.cacheWrite, row?.tokens.cacheWrite);
      t.equal(record.output_tokens, null, "what it said of its output before the end is a placeholder");
      t.same([record.list_microdollars, record.cost_microdollars], [null, null], "so its price is not known");
    }
  },
);

longTest(
  t,
  "estimate: of a stream that the person ends early the output is estimated, the input as reported",
  async (t) => {
    const bench = await startOnSandbox(t, { guesses: "estimate: true" }, { sandbox: { wordDelay: 25 } });
    for (const path of Object.keys(ASKS)) {
      const leave = new AbortController();
      const body = JSON.stringify(ASKS[path]?.("sandbox-small", true));
      const answer = await bench.fetchAs("guesses", path, { body, signal: leave.signal });
      const reader = answer.body?.getReader();
      let text = "";
      while (!text.includes("machine.")) text += Buffer.from((await reader?.read())?.value ?? []).toString();
      leave.abort();
      const record = await recordFor(bench, answer);
      const id = `client:${answer.headers.get("x-client-request-id")}`;
      await until("it is billed", () => bench.sandbox.usage().some(({ requestId }) => requestId === id));
      const row = bench.sandbox.usage().find(({ requestId }) => requestId === id)?.tokens;
      if (row === undefined) return t.fail("no row");
      t.same([record.end, record.tokens_from], ["client-left", "estimated"], path);
      const { output_tokens: output } = record;
      t.ok(
        output !== null && output > row.output / 2 && output < row.output * 2,
        `${output} for ${row.output}`,
      );
      if (path !== "/v1/messages") continue;
      const { input, cacheRead, cacheWrite } = row;
      t.match(tokensIn(record), { input, cacheRead, cacheWrite }, "what was reported is kept");
    }
  },
);

t.test(
  "an edit of the prices counts for the next request; one in flight keeps those it began with",
  async (t) => {
    const bench = await startOnSandbox(t, { sdk: "" }, { sandbox: { wordDelay: 15 } });
    const ask = (stream: boolean) => JSON.stringify(ASKS["/v1/chat/completions"]?.("sandbox-small", stream));
    const running = await bench.fetchAs("sdk", "/v1/chat/completions", { body: ask(true) });
    const { config } = bench.daemon.snapshot();
    const text = await readFile(bench.paths.config, "utf8");
    const dearer = text.replace(/sandbox-small: \{[^}]*\}/, "sandbox-small: { input: 7, output: 11 }");
    t.not(dearer, text);
    await bench.save(dearer);
    await until("the edit is live", () => bench.daemon.snapshot().config !== config);

    const answer = await bench.fetchAs("sdk", "/v1/chat/completions", { body: ask(false) });
    await answer.text();
    const after = await recordFor(bench, answer);
    const tokens = tokensIn(after);
    if (tokens === null) return t.fail("no tokens");
    t.ok(tokens.cacheRead > 0, "read from the cache, whose price is that of input where none is given");
    t.equal(after.list_microdollars, (tokens.input + tokens.cacheRead) * 7 + tokens.output * 11);

    t.match(await running.text(), "[DONE]");
    const before = await recordFor(bench, running);
    const first = tokensIn(before);
    if (first === null) return t.fail("no tokens");
    t.equal(before.list_microdollars, listMicrodollars("sandbox-small", first), "as when it began");
  },
);

t.test("a model without a known price costs null, which is not zero, and its tokens are kept", async (t) => {
  const bench = await startOnSandbox(t, { sdk: "" }, { prices: "" });
  const answer = await bench.fetchAs("sdk", "/v1/responses", {
    body: JSON.stringify({ model: "sandbox-small", input: "hello" }),
  });
  await answer.text();
  const record = await recordFor(bench, answer);
  t.ok((record.output_tokens ?? 0) > 0);
  t.same([record.tokens_from, record.list_microdollars, record.cost_microdollars], ["reported", null, null]);

  const ended = await command(t, bench.home, ["usage", "--json"]);
  const { total, models_without_price: listed } = JSON.parse(ended.stdout);
  t.match(total, { requests: 1, unpriced: 1, unmetered: 0, cost_microdollars: 0 });
  t.match(listed, [{ model: "sandbox-small", requests: 1 }], "and is listed");
  const words = await command(t, bench.home, ["usage"]);
  t.match(words.stdout, /1 request cost an unknown amount: 1 without a known price/);
  t.match(words.stdout, /prices:[\s\S]*sandbox-small|sandbox-small[\s\S]*prices:/, "with what to write");
});

t.test("a free model of config.yaml costs zero, which is known", async (t) => {
  const prices = sandboxPrices().replace(
    /sandbox-small: \{[^}]*\}/,
    "sandbox-small: { input: 0, output: 0 }",
  );
  const bench = await startOnSandbox(t, { sdk: "" }, { prices });
  const answer = await bench.fetchAs("sdk", "/v1/responses", {
    body: JSON.stringify({ model: "sandbox-small", input: "hello" }),
  });
  await answer.text();
  const record = await recordFor(bench, answer);
  t.same([record.list_microdollars, record.cost_microdollars], [0, 0]);
});

t.test(
  "the built-in list knows makers' models; a gateway's own name is priced by the model that answers",
  async (t) => {
    let answered: string | null = null;
    const gateway = await startRawGateway(t, async (call) => {
      await call.whole;
      const usage = {
        input_tokens: 1000,
        cache_read_input_tokens: 2000,
        cache_creation_input_tokens: 300,
        output_tokens: 40,
      };
      call.ok(JSON.stringify({ id: "msg_1", type: "message", model: answered, usage }));
    });
    const one = await startWithOneTool(t, gateway.origin);
    // claude-sonnet-4-5: $3, $0.30, $3.75 and $15 for a million.
    const sonnet = 1000 * 3 + 2000 * 0.3 + 300 * 3.75 + 40 * 15;
    const cases: [string, string | null, number | null][] = [
      ["claude-sonnet-4-5", "claude-sonnet-4-5-20250929", sonnet],
      ["claude-sonnet-4-5-20250929", "something-else", sonnet],
      ["fast", "claude-sonnet-4-5-20250929", sonnet],
      ["fast", "faster", null],
      ["fast", null, null],
    ];
    for (const [model, told, expected] of cases) {
      answered = told;
      const answer = await fetch(`${one.url}/v1/messages`, {
        method: "POST",
        headers: { "x-api-key": one.token, "content-type": "application/json" },
        body: JSON.stringify({ model, max_tokens: 10, messages: [] }),
      });
      await answer.text();
      const record = await recordFor(one, answer);
      t.same([record.model, record.model_answered], [model, told]);
      t.equal(record.list_microdollars, expected, `${model}, answered by ${told}`);
    }
  },
);

t.test("refusals and gateways' errors cost nothing that is known, and have their record", async (t) => {
  const bench = await startOnSandbox(t, { sdk: "", idle: "enabled: false" });
  const body = JSON.stringify({ model: "sandbox-none", messages: [] });
  const unknown = await bench.fetchAs("sdk", "/v1/chat/completions", { body });
  t.ok(unknown.status >= 400, "the gateway's own refusal");
  await unknown.text();
  const record = await recordFor(bench, unknown);
  t.same([record.end, record.tokens_from, record.cost_microdollars], ["complete", "none", null]);
  t.same([record.model, record.status, record.refusal], ["sandbox-none", unknown.status, null]);

  const refused = await bench.fetchAs("idle", "/v1/chat/completions", { body });
  await refused.text();
  const own = await recordWhere(bench, "refused", ({ end }) => end === "refused");
  t.same([own.id, own.refusal], [refused.headers.get("x-keybearer-request-id"), "tool-disabled"]);
  t.same([own.tool, own.status, own.tokens_from, own.cost_microdollars], ["idle", 400, "none", null]);
  const sent = bench.sandbox.requests().filter(({ path }) => path === "/v1/chat/completions");
  t.equal(sent.length, 1, "the gateway heard of one");
});
