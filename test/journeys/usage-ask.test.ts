import { createHash } from "node:crypto";
import { gzipSync } from "node:zlib";
import OpenAI from "openai";
import t, { type Test } from "tap";
import { startWithOneTool } from "../doubles/daemon-under-test.ts";
import { longTest } from "../doubles/effort.ts";
import { head, openRaw, parsed } from "../doubles/raw-client.ts";
import { type GatewayCall, startRawGateway } from "../doubles/raw-gateway.ts";
import { until } from "../doubles/until.ts";
import { recordFor, recordWhere, startOnSandbox, tokensIn } from "../doubles/usage-journey.ts";

const messages = [{ role: "user" as const, content: "hello there" }];

t.test(
  "a tool with ask_usage has its streams' tokens, and its client does not see that they were asked",
  async (t) => {
    const bench = await startOnSandbox(t, { asks: "ask_usage: true", plain: "" });
    for (const [path, ask] of [
      ["/v1/chat/completions", { model: "sandbox-thinker", messages, stream: true }],
      ["/v1/completions", { model: "sandbox-thinker", prompt: "hello there", stream: true }],
    ] as const) {
      const answer = await bench.fetchAs("asks", path, { body: JSON.stringify(ask) });
      const text = await answer.text();
      t.match(bench.sandbox.requests().at(-1)?.body, '"stream_options":{"include_usage":true}');
      t.notMatch(text, '"choices":[]', "the extra chunk is taken out");
      t.match(text, /data: \[DONE\]\n\n$/);
      const record = await recordFor(bench, answer);
      const row = bench.sandbox.usage().at(-1);
      t.same(tokensIn(record), row?.tokens, path);
      t.same([record.tokens_from, record.end], ["reported", "complete"]);
      t.equal(record.bytes_in, JSON.stringify(ask).length, "what the tool sent, once");
    }
  },
);

t.test("the openai package gets what it asked for through ask_usage, whichever way it asks", async (t) => {
  const bench = await startOnSandbox(t, { asks: "ask_usage: true" });
  const openai = new OpenAI({ apiKey: bench.token("asks"), baseURL: `${bench.url}/v1` });
  for (const include of [undefined, true, false]) {
    const options = include === undefined ? {} : { stream_options: { include_usage: include } };
    const { data, response } = await openai.chat.completions
      .create({ model: "sandbox-small", messages, stream: true, ...options })
      .withResponse();
    let empty = 0;
    let said = "";
    for await (const chunk of data) {
      if (chunk.choices.length === 0) empty += 1;
      said += chunk.choices[0]?.delta.content ?? "";
    }
    t.match(said, /hello there/);
    t.equal(empty, include === true ? 1 : 0, `include_usage ${include}`);
    const record = await recordFor(bench, response);
    // Who says false is not overruled: that is asking for nothing in so many words.
    t.equal(record.tokens_from, include === false ? "none" : "reported");
  }
  const { data, response } = await openai.chat.completions
    .create({ model: "sandbox-small", messages })
    .withResponse();
  t.ok(data.usage, "what is not streamed is not changed");
  t.equal((await recordFor(bench, response)).tokens_from, "reported");
  t.notMatch(bench.sandbox.requests().at(-1)?.body, "stream_options");
});

/** Bodies as people's programs write them, and bodies that are none. */
const BODIES: readonly string[] = [
  '{"model":"m","stream":true}',
  '{ "model" : "m" ,\r\n\t"stream" : true , "messages":[{"role":"user","content":"é你😀 \\u0000 \\ud83d"}]}\n',
  '{"stream":true,"stream":true,"model":"m"}',
  '{"stream":true,"model":"m","stream_options":{"include_usage":false}}',
  '{"stream":true,"model":"m","stream_options":{"include_usage":true,"x":1}}',
  '{"stream":true,"model":"m",',
  "not json at all, and not utf-8: \\xff\\xfe",
  "",
];

t.test("without ask_usage the gateway gets exactly the bytes that the tool sent", async (t) => {
  const gateway = await startRawGateway(t, async (call) => {
    await call.whole;
    call.ok();
  });
  for (const settings of [[], ["estimate: true"]]) {
    const one = await startWithOneTool(t, gateway.origin, { tool: settings });
    for (const path of ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"]) {
      for (const body of BODIES) {
        const answer = await fetch(`${one.url}${path}`, {
          method: "POST",
          headers: { authorization: `Bearer ${one.token}`, "content-type": "application/json" },
          body: Buffer.from(body),
        });
        await answer.text();
        t.same(gateway.calls.at(-1)?.body(), Buffer.from(body), `${path} ${body}`);
        t.equal((await recordFor(one, answer)).bytes_in, Buffer.byteLength(body));
      }
    }
  }
});

t.test("with ask_usage, what is not plainly a stream without usage passes as it was sent", async (t) => {
  const gateway = await startRawGateway(t, async (call) => {
    await call.whole;
    call.ok();
  });
  const one = await startWithOneTool(t, gateway.origin, { tool: ["ask_usage: true"] });
  const send = async (path: string, body: Buffer, headers: Record<string, string> = {}) => {
    const answer = await fetch(`${one.url}${path}`, {
      method: "POST",
      headers: { authorization: `Bearer ${one.token}`, "content-type": "application/json", ...headers },
      body,
    });
    await answer.text();
    const record = await recordFor(one, answer);
    t.equal(record.bytes_in, body.length, "bytes_in is what the tool sent");
    return gateway.calls.at(-1)?.body().toString("latin1");
  };
  for (const body of BODIES.slice(2)) {
    t.equal(await send("/v1/chat/completions", Buffer.from(body, "latin1")), body);
  }
  const plain = Buffer.from(BODIES[0] ?? "");
  for (const path of ["/v1/responses", "/v1/messages", "/v1/embeddings"])
    t.equal(await send(path, plain), plain.toString("latin1"), path);
  t.equal(
    await send("/v1/chat/completions", plain),
    '{"model":"m","stream":true,"stream_options":{"include_usage":true}}',
  );
  const second = BODIES[1] ?? "";
  t.equal(
    await send("/v1/chat/completions", Buffer.from(second)),
    Buffer.from(second.replace(/\}\n$/, ',"stream_options":{"include_usage":true}}\n')).toString("latin1"),
    "spliced in before the last brace, every other byte as it was",
  );
  const large = Buffer.from(`{"model":"m","stream":true,"messages":"${"x".repeat(33 * 1024 * 1024)}"}`);
  const sent = await send("/v1/chat/completions", large);
  t.equal(hash(sent ?? ""), hash(large.toString("latin1")), "too long to be asked: as it was sent");
});

function hash(text: string): string {
  return createHash("sha256").update(text, "latin1").digest("hex");
}

const HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

function chunked(bytes: Buffer | string): Buffer {
  const data = Buffer.from(bytes);
  return Buffer.concat([Buffer.from(`${data.length.toString(16)}\r\n`), data, Buffer.from("\r\n")]);
}

/** The bytes of a chunked body; cut at its end. */
function unchunked(body: Buffer): Buffer {
  const parts: Buffer[] = [];
  for (let at = 0; at < body.length; ) {
    const end = body.indexOf("\r\n", at);
    const size = Number.parseInt(body.toString("latin1", at, end), 16);
    if (end === -1 || !(size > 0)) break;
    parts.push(body.subarray(end + 2, end + 2 + size));
    at = end + 2 + size + 2;
  }
  return Buffer.concat(parts);
}

async function openStream(t: Test, settings: readonly string[]) {
  const gateway = await startRawGateway(t, async (call) => {
    await call.whole;
    call.send(HEAD);
  });
  const one = await startWithOneTool(t, gateway.origin, { tool: settings });
  const client = await openRaw(t, one.port);
  const body = '{"model":"m","stream":true}';
  const headers = {
    Host: one.host,
    Authorization: `Bearer ${one.token}`,
    "Content-Length": String(body.length),
    "Accept-Encoding": "gzip, br",
  };
  client.send(`${head("POST /v1/chat/completions", headers)}${body}`);
  await client.until("\r\n\r\n");
  const call = gateway.calls[0] as GatewayCall;
  const got = () => {
    const bytes = client.bytes();
    return unchunked(bytes.subarray(bytes.indexOf("\r\n\r\n") + 4)).toString("utf8");
  };
  const id = () => parsed(client.text()).headers["x-keybearer-request-id"] ?? "";
  return { one, client, call, got, id };
}

const delta = (text: string) =>
  `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"${text}"}}],"usage":null}\n\n`;
const USAGE =
  'data: {"id":"c","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}}\n\n';

t.test("each event is with the client before the next is sent, asked for its usage or not", async (t) => {
  for (const settings of [["ask_usage: true"], ["estimate: true"], []]) {
    const { call, got, id, one } = await openStream(t, settings);
    t.equal(
      call.header("accept-encoding")[0],
      "identity",
      "a key in a compressed stream could not be masked",
    );
    let expected = "";
    const events = [
      ": ping\n\n",
      delta("a"),
      "event: x\ndata: 1\n\n",
      delta('\\"choices\\":[] é你'),
      "data: {}\r\n\r\n",
    ];
    for (const event of [...events, ...events]) {
      expected += event;
      call.send(chunked(event));
      await until(`${JSON.stringify(event)} came`, () => got() === expected);
    }
    const finish = 'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n';
    call.send(chunked(finish));
    await until("the finish came", () => got() === expected + finish);
    // Cut at every byte: what is taken out is taken out whole, whatever the network does.
    for (const byte of Buffer.from(USAGE)) call.send(chunked(Buffer.from([byte])));
    call.send(chunked("data: [DONE]\n\n"));
    call.send("0\r\n\r\n");
    const whole = `${expected}${finish}${settings[0]?.startsWith("ask") ? "" : USAGE}data: [DONE]\n\n`;
    await until("all came", () => got().endsWith("[DONE]\n\n"));
    t.equal(got(), whole, "every other byte is the same");
    const record = await recordFor(one, id());
    t.match(record, { end: "complete", tokens_from: "reported", input_tokens: 7, output_tokens: 5 });
  }
});

longTest(
  t,
  "usage is taken out of an asked stream with a length; a compressed one is unchanged",
  async (t) => {
    const before = delta("a") + delta("b");
    const text = `${before}${USAGE}data: [DONE]\n\n`;
    const packed = gzipSync(text);
    let answerWith: (call: GatewayCall) => void = () => {};
    const gateway = await startRawGateway(t, async (call) => {
      await call.whole;
      answerWith(call);
    });
    const one = await startWithOneTool(t, gateway.origin, { tool: ["ask_usage: true"] });
    const send = () =>
      fetch(`${one.url}/v1/chat/completions`, {
        method: "POST",
        headers: { authorization: `Bearer ${one.token}` },
        body: '{"model":"m","stream":true}',
      });
    answerWith = (call) => call.answer("200 OK", { "Content-Type": "text/event-stream" }, text);
    const sized = await send();
    t.equal(await sized.text(), `${before}data: [DONE]\n\n`, "a length of what is taken out would be wrong");
    t.match(await recordFor(one, sized), { end: "complete", input_tokens: 7, output_tokens: 5 });

    const headers = { "Content-Type": "text/event-stream", "Content-Encoding": "gzip" };
    answerWith = (call) => call.answer("200 OK", headers, packed);
    const squeezed = await send();
    t.equal(await squeezed.text(), text, "what cannot be taken out stays in");
    t.match(await recordFor(one, squeezed), { end: "complete", input_tokens: 7, output_tokens: 5 });
  },
);

t.test("JSON, an error or a cut stream as the answer to an asked stream passes unchanged", async (t) => {
  const json = '{"id":"c","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":0}}';
  const error = '{"error":{"message":"Unrecognized request argument supplied: stream_options","code":null}}';
  let answerWith: (call: GatewayCall) => void = () => {};
  const gateway = await startRawGateway(t, async (call) => {
    await call.whole;
    answerWith(call);
  });
  const one = await startWithOneTool(t, gateway.origin, { tool: ["ask_usage: true"] });
  const send = () =>
    fetch(`${one.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${one.token}` },
      body: '{"model":"m","stream":true}',
    });
  answerWith = (call) => call.ok(json);
  const whole = await send();
  t.equal(await whole.text(), json);
  t.match(await recordFor(one, whole), { input_tokens: 3, stream: false, end: "complete" });

  answerWith = (call) => call.answer("400 Bad Request", { "Content-Type": "application/json" }, error);
  const refused = await send();
  t.equal(refused.status, 400);
  t.equal(await refused.text(), error);
  t.match(await recordFor(one, refused), { status: 400, end: "complete", tokens_from: "none" });

  answerWith = (call) => {
    call.send(HEAD);
    call.send(chunked(delta("a")));
    call.send(chunked('data: {"id":"c","object":"chat.comp'));
    setImmediate(() => call.socket.end());
  };
  const cut = await send();
  await t.rejects(cut.text(), "the cut is a cut");
  t.match(await recordFor(one, cut), { end: "gateway-failed", tokens_from: "none" });
});

t.test("estimate: a stream that reports nothing has plausible numbers, marked as estimated", async (t) => {
  const bench = await startOnSandbox(t, { guesses: "estimate: true", plain: "" });
  const prose = "The quick brown fox jumps over the lazy dog, and then it rests in the shade. ".repeat(20);
  const asks: [string, object][] = [
    [
      "/v1/chat/completions",
      { model: "sandbox-small", stream: true, messages: [{ role: "user", content: prose }] },
    ],
    ["/v1/completions", { model: "sandbox-small", stream: true, prompt: prose }],
  ];
  for (const [path, ask] of asks) {
    const answer = await bench.fetchAs("guesses", path, { body: JSON.stringify(ask) });
    await answer.text();
    const record = await recordFor(bench, answer);
    const row = bench.sandbox.usage().at(-1)?.tokens;
    if (row === undefined) return t.fail("no row");
    t.equal(record.tokens_from, "estimated");
    const near = (guess: number | null, truth: number) =>
      guess !== null && guess > truth / 2 && guess < truth * 2;
    t.ok(near(record.input_tokens, row.input + row.cacheRead), `${record.input_tokens} for ${row.input}`);
    t.ok(near(record.output_tokens, row.output), `${record.output_tokens} for ${row.output}`);
    t.ok((record.cost_microdollars ?? 0) > 0, "and a price");

    const plain = await bench.fetchAs("plain", path, { body: JSON.stringify(ask) });
    await plain.text();
    const none = await recordFor(bench, plain);
    t.same([none.tokens_from, tokensIn(none), none.cost_microdollars], ["none", null, null]);
  }
  const reported = await bench.fetchAs("guesses", "/v1/responses", {
    body: JSON.stringify({ model: "sandbox-small", input: prose, stream: true }),
  });
  await reported.text();
  const record = await recordFor(bench, reported);
  t.equal(record.tokens_from, "reported", "what is reported is not estimated");
  t.same(tokensIn(record), bench.sandbox.usage().at(-1)?.tokens);
});

longTest(t, "estimate together with ask_usage counts the request's text once", async (t) => {
  const gateway = await startRawGateway(t, async (call) => {
    await call.whole;
    call.send(`${HEAD}`);
    call.send(chunked(delta("some words of an answer")));
    call.send(chunked("data: [DONE]\n\n"));
    call.send("0\r\n\r\n");
  });
  const body = JSON.stringify({
    model: "m",
    stream: true,
    messages: [{ role: "user", content: "word ".repeat(4000) }],
  });
  for (const settings of [["estimate: true"], ["estimate: true", "ask_usage: true"]]) {
    const one = await startWithOneTool(t, gateway.origin, { tool: settings });
    const answer = await fetch(`${one.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${one.token}` },
      body,
    });
    await answer.text();
    const record = await recordFor(one, answer);
    t.equal(record.tokens_from, "estimated", settings.join(", "));
    t.ok(Math.abs((record.input_tokens ?? 0) - 5000) < 500, `${record.input_tokens} tokens`);
    t.ok((record.output_tokens ?? 0) > 2 && (record.output_tokens ?? 0) < 12, `${record.output_tokens}`);
    t.equal(record.bytes_in, body.length);
  }
});

t.test("nothing is estimated for a request that was refused, failed or left before an answer", async (t) => {
  const bench = await startOnSandbox(t, { guesses: "estimate: true" });
  const body = JSON.stringify({ model: "sandbox-small", stream: true, messages });
  bench.sandbox.order(bench.keyId("guesses"), { kind: "refuse", status: 429 }, 1);
  const refused = await bench.fetchAs("guesses", "/v1/chat/completions", { body });
  await refused.text();
  t.match(await recordFor(bench, refused), { status: 429, tokens_from: "none", cost_microdollars: null });

  bench.sandbox.order(bench.keyId("guesses"), { kind: "cut" }, 1);
  const failed = await bench.fetchAs("guesses", "/v1/chat/completions", { body });
  await failed.text();
  t.match(await recordFor(bench, failed), { end: "gateway-failed", tokens_from: "none", status: 502 });

  bench.sandbox.order(bench.keyId("guesses"), { kind: "silence" }, 1);
  const leave = new AbortController();
  const before = bench.sandbox.requests().length;
  const left = bench.fetchAs("guesses", "/v1/chat/completions", { body, signal: leave.signal });
  left.catch(() => {});
  await until("it reached the gateway", () => bench.sandbox.requests().length > before);
  leave.abort();
  const record = await recordWhere(bench, "left", ({ end }) => end === "client-left");
  t.same([record.tokens_from, record.status], ["none", null]);
});
