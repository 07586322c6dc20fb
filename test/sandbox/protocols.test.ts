import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import t, { type Test } from "tap";
import type { UsageRow } from "../../src/sandbox/account.ts";
import { ask, get, newKey, post, startSandbox, type TestGateway } from "../doubles/sandbox.ts";

async function withOpenAi(t: Test) {
  const sandbox = await startSandbox(t);
  const { text } = newKey(sandbox);
  return { sandbox, client: new OpenAI({ apiKey: text, baseURL: sandbox.baseUrl, maxRetries: 0 }) };
}

async function withAnthropic(t: Test) {
  const sandbox = await startSandbox(t);
  const { text } = newKey(sandbox);
  return { sandbox, client: new Anthropic({ apiKey: text, baseURL: sandbox.origin, maxRetries: 0 }) };
}

/** The one row there is. */
function onlyRow(sandbox: TestGateway): UsageRow {
  const [row, ...others] = sandbox.usage();
  if (row === undefined || others.length > 0)
    throw new Error(`${sandbox.usage().length} rows instead of one`);
  return row;
}

const LONG = "The quick brown fox jumps over the lazy dog. ".repeat(200);

t.test("the openai SDK lists the models", async (t) => {
  const { client } = await withOpenAi(t);
  const models = [];
  for await (const model of client.models.list()) models.push(model);
  t.match(
    models.map((model) => model.id),
    ["sandbox-large", "sandbox-small", "sandbox-code"],
  );
  t.ok(
    models.every((model) => model.id.startsWith("sandbox-") && model.object === "model" && model.created > 0),
  );
  const one = await client.models.retrieve("sandbox-code");
  t.equal(one.id, "sandbox-code");
});

t.test("the anthropic SDK lists the models", async (t) => {
  const { client } = await withAnthropic(t);
  const models = [];
  for await (const model of client.models.list()) models.push(model);
  t.match(models[0], { id: "sandbox-large", type: "model", display_name: "Sandbox Large" });
  t.ok(models.every((model) => !Number.isNaN(Date.parse(model.created_at))));
});

t.test("a chat completion says what it is, and its usage is the console row's", async (t) => {
  const { sandbox, client } = await withOpenAi(t);
  const { data, response } = await client.chat.completions
    .create({ model: "sandbox-large", messages: [{ role: "user", content: "tell me about foxes" }] })
    .withResponse();
  const text = data.choices[0]?.message.content ?? "";
  t.match(text, /keybearer sandbox/);
  t.match(text, /sandbox-large/);
  t.match(text, /tell me about foxes/);
  t.equal(data.choices[0]?.finish_reason, "stop");
  t.equal(data.usage?.completion_tokens, Math.ceil(text.length / 4));
  t.equal(data.usage?.prompt_tokens, Math.ceil("tell me about foxes".length / 4));

  const row = onlyRow(sandbox);
  t.equal(row.requestId, `client:${response.headers.get("x-client-request-id")}`);
  t.equal(row.tokens.input, data.usage?.prompt_tokens);
  t.equal(row.tokens.output, data.usage?.completion_tokens);
  t.match(row, {
    endpoint: "/v1/chat/completions",
    stream: false,
    model: "sandbox-large",
  });
});

t.test("a chat stream comes word by word, with usage only when asked for", async (t) => {
  const { sandbox, client } = await withOpenAi(t);
  const question = { model: "sandbox-small", messages: [{ role: "user" as const, content: "hi" }] };

  const quiet = [];
  for await (const chunk of await client.chat.completions.create({ ...question, stream: true }))
    quiet.push(chunk);
  t.ok(quiet.length > 10, "many chunks");
  t.ok(quiet.every((chunk) => chunk.usage === undefined && chunk.choices.length === 1));
  t.equal(quiet.at(-1)?.choices[0]?.finish_reason, "stop");

  const telling = [];
  const stream = await client.chat.completions.create({
    ...question,
    stream: true,
    stream_options: { include_usage: true },
  });
  for await (const chunk of stream) telling.push(chunk);
  const last = telling.at(-1);
  t.same(last?.choices, []);
  t.ok(telling.slice(0, -1).every((chunk) => chunk.usage === null));
  const text = telling.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");
  const row = sandbox.usage()[1];
  t.equal(last?.usage?.completion_tokens, Math.ceil(text.length / 4));
  t.equal(row?.tokens.output, last?.usage?.completion_tokens);
  t.equal(row?.tokens.input, last?.usage?.prompt_tokens);
  t.equal(row?.stream, true);
});

t.test("a chat stream ends with [DONE]", async (t) => {
  const { sandbox } = await withOpenAi(t);
  const { text } = newKey(sandbox);
  const body = { model: "sandbox-small", stream: true, messages: [{ role: "user", content: "hi" }] };
  const answer = await post(`${sandbox.baseUrl}/chat/completions`, text, body);
  t.equal(answer.headers.get("content-type"), "text/event-stream");
  t.ok(answer.text.endsWith("data: [DONE]\n\n"));
});

t.test("a response, whole and streamed, has the events and the usage of the real one", async (t) => {
  const { sandbox, client } = await withOpenAi(t);
  const whole = await client.responses.create({
    model: "sandbox-code",
    instructions: "be kind",
    input: "hello there",
  });
  t.equal(whole.status, "completed");
  t.match(whole.output_text, /hello there/);
  t.equal(whole.usage?.input_tokens, sandbox.usage()[0]?.tokens.input);
  t.equal(whole.usage?.output_tokens, sandbox.usage()[0]?.tokens.output);

  const types: string[] = [];
  const numbers: number[] = [];
  let text = "";
  const stream = client.responses.stream({
    model: "sandbox-code",
    input: [{ role: "user", content: [{ type: "input_text", text: "hello there" }] }],
  });
  for await (const event of stream) {
    if (event.type !== "response.output_text.delta") types.push(event.type);
    else text += event.delta;
    numbers.push(event.sequence_number);
  }
  t.same(types, [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
  ]);
  t.same(
    numbers,
    numbers.map((_, index) => index),
  );
  const final = await stream.finalResponse();
  t.equal(final.output_text, text);
  t.equal(final.usage?.output_tokens, sandbox.usage()[1]?.tokens.output);
  t.match(sandbox.usage()[1], { endpoint: "/v1/responses", stream: true });
});

t.test("a message, whole and streamed, has the events and the usage of the real one", async (t) => {
  const { sandbox, client } = await withAnthropic(t);
  const question = {
    model: "sandbox-large",
    max_tokens: 500,
    system: "be kind",
    messages: [{ role: "user" as const, content: "good morning" }],
  };
  const whole = await client.messages.create(question);
  t.equal(whole.stop_reason, "end_turn");
  t.match(whole.content[0], { type: "text", text: /good morning/ });
  t.match(sandbox.usage()[0]?.tokens, { input: whole.usage.input_tokens, output: whole.usage.output_tokens });

  const types: string[] = [];
  const stream = client.messages.stream(question);
  for await (const event of stream) if (types.at(-1) !== event.type) types.push(event.type);
  // The SDK keeps pings to itself; the raw stream has one.
  t.same(types, [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
  ]);
  const final = await stream.finalMessage();
  t.same(final.content[0], whole.content[0]);
  t.match(sandbox.usage()[1]?.tokens, { input: final.usage.input_tokens, output: final.usage.output_tokens });
  t.match(sandbox.usage()[1], { endpoint: "/v1/messages", stream: true });
});

t.test("a message stream has a ping after its first block begins", async (t) => {
  const sandbox = await startSandbox(t);
  const { text } = newKey(sandbox);
  const body = {
    model: "sandbox-large",
    stream: true,
    max_tokens: 9,
    messages: [{ role: "user", content: "hi" }],
  };
  const answer = await post(`${sandbox.origin}/v1/messages?beta=true`, text, body);
  const names = [...answer.text.matchAll(/^event: (\w+)$/gm)].map((found) => found[1]);
  t.same(names.slice(0, 3), ["message_start", "content_block_start", "ping"]);
});

t.test("counting tokens costs nothing and leaves no row", async (t) => {
  const { sandbox, client } = await withAnthropic(t);
  const counted = await client.messages.countTokens({
    model: "sandbox-large",
    messages: [{ role: "user", content: "x".repeat(400) }],
  });
  t.equal(counted.input_tokens, 100);
  t.same(sandbox.usage(), []);
  t.equal(sandbox.account.balance, 100);
});

t.test("embeddings come as base64 by default and as floats when asked, with the same numbers", async (t) => {
  const { sandbox, client } = await withOpenAi(t);
  const question = { model: "sandbox-embed", input: ["one text", "another text"], dimensions: 64 };
  const packed = await client.embeddings.create(question);
  const plain = await client.embeddings.create({ ...question, encoding_format: "float" });
  t.equal(packed.data.length, 2);
  t.equal(packed.data[0]?.embedding.length, 64);
  t.same(packed.data, plain.data);
  t.notSame(packed.data[0]?.embedding, packed.data[1]?.embedding);
  const row = sandbox.usage()[0];
  t.equal(row?.tokens.input, packed.usage.prompt_tokens);
  t.match(row, { tokens: { output: 0 }, endpoint: "/v1/embeddings", stream: false });
});

t.test("the old completions endpoint answers, whole and streamed", async (t) => {
  const { sandbox, client } = await withOpenAi(t);
  const whole = await client.completions.create({ model: "sandbox-code", prompt: "def add(" });
  t.match(whole.choices[0]?.text, /def add\(/);
  let text = "";
  const stream = await client.completions.create({
    model: "sandbox-code",
    prompt: "def add(",
    stream: true,
    stream_options: { include_usage: true },
  });
  let usage = 0;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.text ?? "";
    usage = chunk.usage?.completion_tokens ?? usage;
  }
  t.equal(text, whole.choices[0]?.text);
  t.equal(usage, sandbox.usage()[1]?.tokens.output);
});

t.test("gemini answers, whole and streamed, with the model in the path", async (t) => {
  const sandbox = await startSandbox(t);
  const { text } = newKey(sandbox);
  const contents = [{ role: "user", parts: [{ text: "hello gemini" }] }];
  const headers = { "x-goog-api-key": text, "content-type": "application/json" };
  const url = `${sandbox.origin}/v1beta/models/sandbox-thinker`;
  const init = { method: "POST", headers, body: JSON.stringify({ contents }) };

  const whole = JSON.parse((await ask(`${url}:generateContent`, init)).text);
  t.match(whole.candidates[0], {
    content: { role: "model", parts: [{ text: /hello gemini/ }] },
    finishReason: "STOP",
  });
  const { usageMetadata } = whole;
  const row = onlyRow(sandbox);
  t.equal(usageMetadata.candidatesTokenCount + usageMetadata.thoughtsTokenCount, row.tokens.output);
  t.equal(usageMetadata.promptTokenCount, row.tokens.input);

  const streamed = (await ask(`${url}:streamGenerateContent?alt=sse`, init)).text;
  const chunks = streamed
    .trim()
    .split("\n\n")
    .map((line) => JSON.parse(line.replace(/^data: /, "")));
  const words = chunks.map((chunk) => chunk.candidates[0].content.parts[0].text).join("");
  t.equal(words, whole.candidates[0].content.parts[0].text);
  t.same(chunks.at(-1).usageMetadata, usageMetadata);
  t.match(sandbox.usage()[1], { stream: true, endpoint: "/v1beta/models", model: "sandbox-thinker" });

  const list = JSON.parse((await ask(`${sandbox.origin}/v1beta/models`, { headers })).text);
  t.equal(list.models[0].name, "models/sandbox-large");
});

t.test("an answer stops at the caller's own limit and says so, in every protocol", async (t) => {
  const { client, sandbox } = await withOpenAi(t);
  const messages = [{ role: "user" as const, content: "hi" }];
  const chat = await client.chat.completions.create({ model: "sandbox-large", messages, max_tokens: 5 });
  t.equal(chat.choices[0]?.finish_reason, "length");
  t.equal(chat.usage?.completion_tokens, 5);
  const response = await client.responses.create({
    model: "sandbox-large",
    input: "hi",
    max_output_tokens: 5,
  });
  t.match(response, { status: "incomplete", incomplete_details: { reason: "max_output_tokens" } });
  const { text } = newKey(sandbox);
  const anthropic = new Anthropic({ apiKey: text, baseURL: sandbox.origin });
  const message = await anthropic.messages.create({ model: "sandbox-large", messages, max_tokens: 5 });
  t.match(message, { stop_reason: "max_tokens", usage: { output_tokens: 5 } });
});

t.test("a thinking model's thoughts are counted apart and billed as output", async (t) => {
  const { client, sandbox } = await withOpenAi(t);
  const messages = [{ role: "user" as const, content: "hi" }];
  const chat = await client.chat.completions.create({ model: "sandbox-thinker", messages });
  const reasoning = chat.usage?.completion_tokens_details?.reasoning_tokens ?? 0;
  const text = chat.choices[0]?.message.content ?? "";
  t.ok(reasoning > 0);
  t.equal(chat.usage?.completion_tokens, reasoning + Math.ceil(text.length / 4));
  t.match(onlyRow(sandbox).tokens, { reasoning, output: chat.usage?.completion_tokens });
});

t.test("a long beginning seen before is read from the cache, by the same key only", async (t) => {
  const { client, sandbox } = await withOpenAi(t);
  const chat = (content: string, by = client) =>
    by.chat.completions.create({
      model: "sandbox-large",
      messages: [
        { role: "system", content: LONG },
        { role: "user", content },
      ],
    });
  t.equal((await chat("one")).usage?.prompt_tokens_details?.cached_tokens, 0);
  const second = await chat("two");
  const cached = second.usage?.prompt_tokens_details?.cached_tokens ?? 0;
  t.ok(cached >= 1024 && cached <= LONG.length / 4, `${cached} tokens`);
  const row = sandbox.usage()[1];
  t.equal(row?.tokens.cacheRead, cached);
  t.equal(
    (row?.tokens.input ?? 0) + cached,
    second.usage?.prompt_tokens,
    "the row's input leaves the cache out",
  );

  const other = new OpenAI({ apiKey: newKey(sandbox).text, baseURL: sandbox.baseUrl });
  t.equal((await chat("two", other)).usage?.prompt_tokens_details?.cached_tokens, 0);
});

t.test("messages say what was written to the cache, and then what was read", async (t) => {
  const { client, sandbox } = await withAnthropic(t);
  const send = () =>
    client.messages.create({
      model: "sandbox-large",
      max_tokens: 50,
      system: LONG,
      messages: [{ role: "user", content: "hi" }],
    });
  const first = await send();
  const second = await send();
  t.ok((first.usage.cache_creation_input_tokens ?? 0) >= 1024);
  t.equal(first.usage.cache_read_input_tokens, 0);
  t.equal(second.usage.cache_read_input_tokens, first.usage.cache_creation_input_tokens);
  t.equal(second.usage.cache_creation_input_tokens, 0);
  t.equal(second.usage.input_tokens, first.usage.input_tokens);
  t.same(
    sandbox.usage().map(({ tokens }) => [tokens.input, tokens.cacheWrite, tokens.cacheRead]),
    [first, second].map(({ usage }) => [
      usage.input_tokens,
      usage.cache_creation_input_tokens,
      usage.cache_read_input_tokens,
    ]),
  );
});

t.test("a picture is not billed as text", async (t) => {
  const { client } = await withAnthropic(t);
  const data = Buffer.alloc(30_000).toString("base64");
  const message = await client.messages.create({
    model: "sandbox-large",
    max_tokens: 50,
    messages: [
      {
        role: "user",
        content: [
          { type: "image", source: { type: "base64", media_type: "image/png", data } },
          { type: "text", text: "what is this?" },
        ],
      },
    ],
  });
  t.ok(message.usage.input_tokens < 20, `${message.usage.input_tokens} tokens`);
  t.match(message.content[0], { text: /what is this\?/ });
});

t.test("a text nested deeper than the stack is counted like any other", async (t) => {
  const sandbox = await startSandbox(t);
  const { text } = newKey(sandbox);
  const deep = `${"[".repeat(100_000)}"four"${"]".repeat(100_000)}`;
  const answer = await post(
    `${sandbox.baseUrl}/chat/completions`,
    text,
    `{"model":"sandbox-small","messages":${deep}}`,
  );
  t.equal(answer.status, 200);
  t.equal(onlyRow(sandbox).tokens.input, 1);
  t.equal((await get(`${sandbox.baseUrl}/models`, text)).status, 200);
});
