import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import t, { type Test } from "tap";
import type { UsageRecord } from "../../src/usage/record.ts";
import {
  type Bench,
  type RecordTokens,
  recordFor,
  startOnSandbox,
  tokensIn,
} from "../doubles/usage-journey.ts";

/** Long enough for the gateway's prefix cache, which begins at 1024 tokens. Each use of a new one is a write. */
function longText(seed: string): string {
  return Array.from({ length: 1400 }, (_, at) => `${seed}${at % 97}`).join(" ");
}

interface Asked {
  readonly what: string;
  readonly response: Response;
  /** The client library's own numbers, in our meaning. null: the gateway told the client none. */
  readonly usage: RecordTokens | null;
  readonly stream: boolean;
  readonly bodyId: string | null;
}

/** The record says what the client was told, and the console's row as well. */
async function agrees(t: Test, bench: Bench, asked: Asked): Promise<UsageRecord> {
  const { what, response, usage, stream } = asked;
  const record = await recordFor(bench, response);
  t.same(tokensIn(record), usage, `${what}: the client's own numbers`);
  t.equal(record.tokens_from, usage === null ? "none" : "reported", what);
  t.equal(record.stream, stream, what);
  t.same([record.end, record.status, record.refusal], ["complete", 200, null], what);
  const { started_at: started, first_byte_at: first, ended_at: ended } = record;
  t.ok(
    first !== null && ended !== null && started <= first && first <= ended,
    `${started} ${first} ${ended}`,
  );
  const id = response.headers.get("x-client-request-id");
  t.equal(record.gateway_ids["x-client-request-id"], id, what);
  if (asked.bodyId !== null) t.equal(record.gateway_ids.body, asked.bodyId, what);
  const row = bench.sandbox.usage().find(({ requestId }) => requestId === `client:${id}`);
  if (usage !== null) t.same(row?.tokens, usage, `${what}: the console's row`);
  return record;
}

interface OpenAiCounts {
  readonly prompt_tokens: number;
  readonly completion_tokens?: number;
  readonly prompt_tokens_details?: { readonly cached_tokens?: number };
  readonly completion_tokens_details?: { readonly reasoning_tokens?: number };
}

function chatTokens(usage: OpenAiCounts | null | undefined): RecordTokens | null {
  if (!usage) return null;
  const cacheRead = usage.prompt_tokens_details?.cached_tokens ?? 0;
  return {
    input: usage.prompt_tokens - cacheRead,
    cacheRead,
    cacheWrite: 0,
    output: usage.completion_tokens ?? 0,
    reasoning: usage.completion_tokens_details?.reasoning_tokens ?? 0,
  };
}

function responseTokens(usage: OpenAI.Responses.ResponseUsage | null | undefined): RecordTokens | null {
  if (!usage) return null;
  const cacheRead = usage.input_tokens_details.cached_tokens;
  return {
    input: usage.input_tokens - cacheRead,
    cacheRead,
    cacheWrite: 0,
    output: usage.output_tokens,
    reasoning: usage.output_tokens_details.reasoning_tokens,
  };
}

const MODELS = ["sandbox-small", "sandbox-thinker"];

t.test("chat completions: the openai package's usage is the record's, streamed and not", async (t) => {
  const bench = await startOnSandbox(t, { sdk: "" });
  const openai = new OpenAI({ apiKey: bench.token("sdk"), baseURL: `${bench.url}/v1` });
  for (const model of MODELS) {
    const messages = [
      { role: "system" as const, content: longText(model) },
      { role: "user" as const, content: "hello there" },
    ];
    const seen: (RecordTokens | null)[] = [];
    for (const what of ["first", "again"]) {
      const { data, response } = await openai.chat.completions.create({ model, messages }).withResponse();
      const usage = chatTokens(data.usage);
      seen.push(usage);
      const asked = { what: `${model}, ${what}`, response, usage, stream: false, bodyId: data.id };
      t.match(await agrees(t, bench, asked), { model, model_answered: model, protocol: "openai" });
    }
    t.equal(seen[0]?.cacheRead, 0);
    t.ok((seen[1]?.cacheRead ?? 0) >= 1024, "the second one is read from the cache");
    t.equal((seen[0]?.reasoning ?? 0) > 0, model === "sandbox-thinker");

    for (const include_usage of [true, false, null]) {
      const options = include_usage === null ? {} : { stream_options: { include_usage } };
      const { data, response } = await openai.chat.completions
        .create({ model, messages, stream: true, ...options })
        .withResponse();
      let last: OpenAI.CompletionUsage | null | undefined = null;
      let bodyId: string | null = null;
      for await (const chunk of data) {
        last = chunk.usage ?? last;
        bodyId = chunk.id;
      }
      const what = `${model}, streamed, include_usage ${include_usage}`;
      t.equal(last !== null, include_usage === true, what);
      await agrees(t, bench, { what, response, usage: chatTokens(last), stream: true, bodyId });
    }
  }
});

t.test("legacy completions: the openai package's usage is the record's, streamed and not", async (t) => {
  const bench = await startOnSandbox(t, { sdk: "" });
  const openai = new OpenAI({ apiKey: bench.token("sdk"), baseURL: `${bench.url}/v1` });
  const ask = { model: "sandbox-thinker", prompt: longText("once upon") };
  for (const what of ["first", "again"]) {
    const { data, response } = await openai.completions.create(ask).withResponse();
    await agrees(t, bench, { what, response, usage: chatTokens(data.usage), stream: false, bodyId: data.id });
  }
  const { data, response } = await openai.completions
    .create({ ...ask, stream: true, stream_options: { include_usage: true } })
    .withResponse();
  let usage: RecordTokens | null = null;
  for await (const chunk of data) usage = chatTokens(chunk.usage) ?? usage;
  t.ok((usage?.cacheRead ?? 0) >= 1024);
  await agrees(t, bench, { what: "streamed", response, usage, stream: true, bodyId: null });
});

t.test("responses: the openai package's usage is the record's, streamed and not", async (t) => {
  const bench = await startOnSandbox(t, { sdk: "" });
  const openai = new OpenAI({ apiKey: bench.token("sdk"), baseURL: `${bench.url}/v1` });
  for (const model of MODELS) {
    const ask = { model, instructions: longText(model), input: "hello there" };
    for (const what of ["first", "again"]) {
      const { data, response } = await openai.responses.create(ask).withResponse();
      const usage = responseTokens(data.usage);
      t.equal((usage?.cacheRead ?? 0) > 0, what === "again");
      await agrees(t, bench, { what: `${model}, ${what}`, response, usage, stream: false, bodyId: data.id });
    }
    // A limit ends it with response.incomplete, which tells its usage all the same.
    for (const limit of [{}, { max_output_tokens: 40 }]) {
      const { data, response } = await openai.responses
        .create({ ...ask, ...limit, stream: true })
        .withResponse();
      let usage: RecordTokens | null = null;
      let bodyId: string | null = null;
      let last = "";
      for await (const event of data) {
        last = event.type;
        if (event.type !== "response.completed" && event.type !== "response.incomplete") continue;
        usage = responseTokens(event.response.usage);
        bodyId = event.response.id;
      }
      t.not(usage, null, last);
      await agrees(t, bench, {
        what: `${model}, streamed to ${last}`,
        response,
        usage,
        stream: true,
        bodyId,
      });
    }
  }
});

t.test("embeddings: the openai package's usage is the record's", async (t) => {
  const bench = await startOnSandbox(t, { sdk: "" });
  const openai = new OpenAI({ apiKey: bench.token("sdk"), baseURL: `${bench.url}/v1` });
  for (const input of ["one short text", Array.from({ length: 40 }, (_, at) => `text number ${at}`)]) {
    const { data, response } = await openai.embeddings
      .create({ model: "sandbox-embed", input, dimensions: 1024 })
      .withResponse();
    const usage = chatTokens(data.usage);
    t.ok((usage?.input ?? 0) > 0);
    await agrees(t, bench, { what: "embeddings", response, usage, stream: false, bodyId: null });
  }
});

t.test(
  "messages: the anthropic package's usage is the record's, streamed and not, cache and all",
  async (t) => {
    const bench = await startOnSandbox(t, { sdk: "" });
    const anthropic = new Anthropic({ authToken: bench.token("sdk"), apiKey: null, baseURL: bench.url });
    const tokensOf = (usage: Anthropic.Usage, reasoning: number): RecordTokens => ({
      input: usage.input_tokens,
      cacheRead: usage.cache_read_input_tokens ?? 0,
      cacheWrite: usage.cache_creation_input_tokens ?? 0,
      output: usage.output_tokens,
      reasoning,
    });
    for (const streamed of [false, true]) {
      const ask = {
        model: "sandbox-small",
        max_tokens: 500,
        system: longText(streamed ? "ever after" : "once upon"),
        messages: [{ role: "user" as const, content: "hello there" }],
      };
      const seen: RecordTokens[] = [];
      for (const what of ["first", "again"]) {
        const asking = streamed ? anthropic.messages.stream(ask) : null;
        const { data, response } =
          asking === null
            ? await anthropic.messages.create(ask).withResponse()
            : { data: await asking.finalMessage(), response: asking.response };
        if (!response) return t.fail("no response");
        const usage = tokensOf(data.usage, 0);
        seen.push(usage);
        const asked = {
          what: `${what}, ${streamed ? "streamed" : "whole"}`,
          response,
          usage,
          stream: streamed,
        };
        const record = await agrees(t, bench, { ...asked, bodyId: data.id });
        t.match(record, { protocol: "messages", endpoint: "/v1/messages", model: "sandbox-small" });
      }
      t.ok((seen[0]?.cacheWrite ?? 0) >= 1024 && seen[0]?.cacheRead === 0, "the first writes the cache");
      t.ok((seen[1]?.cacheRead ?? 0) >= 1024 && seen[1]?.cacheWrite === 0, "the second reads it");
      t.equal(seen[0]?.input, seen[1]?.input, "input never includes cache");
    }
    const { response } = await anthropic.messages
      .countTokens({ model: "sandbox-small", messages: [{ role: "user", content: "hello" }] })
      .withResponse();
    const counted = await recordFor(bench, response);
    t.same(
      [tokensIn(counted), counted.tokens_from, counted.end],
      [null, "none", "complete"],
      "counting is free",
    );
  },
);

t.test(
  "gemini: the usage metadata is the record's, streamed and not, and the model comes from the path",
  async (t) => {
    const bench = await startOnSandbox(t, { sdk: "" });
    for (const model of MODELS) {
      for (const verb of ["generateContent", "generateContent", "streamGenerateContent"]) {
        const stream = verb === "streamGenerateContent";
        const response = await bench.fetchAs(
          "sdk",
          `/v1beta/models/${model}:${verb}${stream ? "?alt=sse" : ""}`,
          {
            body: JSON.stringify({
              systemInstruction: { parts: [{ text: longText(model) }] },
              contents: [{ role: "user", parts: [{ text: "hello there" }] }],
            }),
          },
        );
        const text = await response.text();
        const last = stream ? (text.trim().split("data: ").at(-1) ?? "") : text;
        const { usageMetadata: said, responseId } = JSON.parse(last);
        const cacheRead = said.cachedContentTokenCount ?? 0;
        const reasoning = said.thoughtsTokenCount ?? 0;
        const usage = {
          input: said.promptTokenCount - cacheRead,
          cacheRead,
          cacheWrite: 0,
          output: said.candidatesTokenCount + reasoning,
          reasoning,
        };
        const what = `${model}:${verb}`;
        const record = await agrees(t, bench, { what, response, usage, stream, bodyId: responseId });
        t.match(record, { protocol: "gemini", model, model_answered: model });
        t.equal(record.endpoint, `/v1beta/models/${model}:${verb}`, "without the query");
      }
    }
  },
);
