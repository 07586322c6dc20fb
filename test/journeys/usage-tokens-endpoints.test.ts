import t, { type Test } from "tap";
import type { UsageRecord } from "../../src/usage/record.ts";
import { type OneTool, startWithOneTool, stillHealthy } from "../doubles/daemon-under-test.ts";
import { type GatewayCall, type RawGateway, startRawGateway } from "../doubles/raw-gateway.ts";
import { type RecordTokens, recordFor, tokensIn } from "../doubles/usage-journey.ts";

interface Told {
  readonly type: string;
  readonly body: string | Buffer;
}

interface Stage {
  readonly one: OneTool;
  readonly gateway: RawGateway;
  /** Sends, and has the gateway answer so. */
  send(
    path: string,
    init: RequestInit,
    told?: Told,
  ): Promise<{ record: UsageRecord; call: GatewayCall; got: Buffer }>;
}

async function start(t: Test, tool: readonly string[] = []): Promise<Stage> {
  let answer: Told = { type: "application/json", body: "{}" };
  const gateway = await startRawGateway(t, async (call) => {
    await call.whole;
    call.answer("200 OK", { "Content-Type": answer.type }, answer.body);
  });
  const one = await startWithOneTool(t, gateway.origin, { tool });
  return {
    one,
    gateway,
    async send(path, init, told = { type: "application/json", body: "{}" }) {
      answer = told;
      const response = await fetch(`${one.url}${path}`, {
        method: "POST",
        ...init,
        headers: { authorization: `Bearer ${one.token}`, ...init.headers },
      });
      const got = Buffer.from(await response.arrayBuffer());
      t.ok(got.equals(Buffer.from(told.body)), `${path}: the very bytes`);
      return { record: await recordFor(one, response), call: gateway.calls.at(-1) as GatewayCall, got };
    },
  };
}

function tokens(input: number, output: number, more: Partial<RecordTokens> = {}): RecordTokens {
  return { input, cacheRead: 0, cacheWrite: 0, output, reasoning: 0, ...more };
}

function event(data: object): string {
  return `data: ${JSON.stringify(data)}\n\n`;
}

const IMAGE_USAGE = {
  total_tokens: 4210,
  input_tokens: 50,
  output_tokens: 4160,
  input_tokens_details: { text_tokens: 10, image_tokens: 40 },
};
const SPEECH_USAGE = {
  type: "tokens",
  input_tokens: 14,
  input_token_details: { text_tokens: 0, audio_tokens: 14 },
  output_tokens: 45,
  total_tokens: 59,
};
const PICTURE = "iVBORw0KGgo".repeat(200_000);

t.test("images and audio have tokens where their responses report them", async (t) => {
  const { send } = await start(t);
  const json = { headers: { "content-type": "application/json" }, body: '{"model":"m"}' };
  const cases: [string, Told, RecordTokens | null][] = [
    [
      "/v1/images/generations",
      {
        type: "application/json",
        body: JSON.stringify({ created: 1, data: [{ b64_json: PICTURE }], usage: IMAGE_USAGE }),
      },
      tokens(50, 4160),
    ],
    [
      "/v1/images/generations",
      {
        type: "text/event-stream",
        body:
          event({ type: "image_generation.partial_image", b64_json: PICTURE }) +
          event({ type: "image_generation.completed", b64_json: PICTURE, usage: IMAGE_USAGE }),
      },
      tokens(50, 4160),
    ],
    [
      "/v1/images/generations",
      { type: "application/json", body: '{"created":1,"data":[{"url":"u"}]}' },
      null,
    ],
    [
      "/v1/audio/transcriptions",
      { type: "application/json", body: JSON.stringify({ text: "hello", usage: SPEECH_USAGE }) },
      tokens(14, 45),
    ],
    [
      "/v1/audio/transcriptions",
      { type: "application/json", body: '{"text":"hello","usage":{"type":"duration","seconds":9}}' },
      null,
    ],
    [
      "/v1/audio/transcriptions",
      {
        type: "text/event-stream",
        body:
          event({ type: "transcript.text.delta", delta: "hel" }) +
          event({ type: "transcript.text.done", text: "hello", usage: SPEECH_USAGE }),
      },
      tokens(14, 45),
    ],
    ["/v1/audio/transcriptions", { type: "text/plain", body: "usage: a text that is no JSON" }, null],
    ["/v1/audio/speech", { type: "audio/mpeg", body: Buffer.from('{"usage":{"input_tokens":5}}') }, null],
    [
      "/v1/audio/speech",
      {
        type: "text/event-stream",
        body:
          event({ type: "speech.audio.delta", audio: PICTURE }) +
          event({
            type: "speech.audio.done",
            usage: { input_tokens: 14, output_tokens: 101, total_tokens: 115 },
          }),
      },
      tokens(14, 101),
    ],
  ];
  for (const [path, told, expected] of cases) {
    const { record } = await send(path, json, told);
    const what = `${path} ${told.type} ${String(told.body).slice(0, 60)}`;
    t.same(tokensIn(record), expected, what);
    t.equal(record.tokens_from, expected === null ? "none" : "reported", what);
    t.same([record.end, record.stream], ["complete", told.type === "text/event-stream"], what);
  }
});

t.test("the model of a form is found, before its file or after it, and no byte is changed", async (t) => {
  const { send, one } = await start(t);
  // The file looks like a part that names another model.
  const decoy = '\r\n--x\r\nContent-Disposition: form-data; name="model"\r\n\r\ndecoy\r\n"model":"decoy"';
  for (const size of [10, 300_000, 3_000_000]) {
    for (const first of [true, false]) {
      const form = new FormData();
      const file = new Blob([decoy, Buffer.alloc(size, 7)], { type: "audio/wav" });
      if (first) form.set("model", "whisper-large");
      form.set("file", file, "model.wav");
      form.set("prompt", "model");
      if (!first) form.set("model", "whisper-large");
      const bodyOf = new Response(form);
      const type = bodyOf.headers.get("content-type") ?? "";
      const body = Buffer.from(await bodyOf.arrayBuffer());
      const { record, call } = await send("/v1/audio/transcriptions", {
        headers: { "content-type": type },
        body,
      });
      t.equal(record.model, "whisper-large", `a file of ${size} ${first ? "behind" : "before"} it`);
      t.equal(record.bytes_in, body.length);
      t.ok(call.body().equals(body), "every byte as it was sent");
    }
  }
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("the model of JSON is found anywhere, also after the part that is read before sending", async (t) => {
  for (const settings of [[], ["estimate: true"]]) {
    const { send } = await start(t, settings);
    for (const size of [0, 70_000, 1_500_000, 4_000_000]) {
      const content = `\\"model\\":\\"decoy\\" é你 ${"y".repeat(size)}`;
      const text = `{"messages":[{"role":"user","model":"decoy","content":"${content}"}],"metadata":{"model":"decoy"},"model":"gpt-late"}`;
      const body = Buffer.from(text);
      const json = { "content-type": "application/json" };
      const { record, call } = await send("/v1/chat/completions", { headers: json, body });
      t.equal(record.model, "gpt-late", `behind ${size}`);
      t.ok(call.body().equals(body), "every byte as it was sent");
      t.equal(record.bytes_in, body.length);
    }
  }
});

t.test("the model of a body that comes byte by byte is found, and the body is not changed", async (t) => {
  const { send } = await start(t);
  const text = '{"messages":[{"role":"user","content":"é你😀"}],"model":"gpt-\\u0064rops"}';
  const bytes = Buffer.from(text);
  let at = 0;
  const body = new ReadableStream({
    async pull(controller) {
      await new Promise((resolve) => setImmediate(resolve));
      if (at === bytes.length) controller.close();
      else controller.enqueue(bytes.subarray(at, ++at));
    },
  });
  const init = { body, duplex: "half", headers: { "content-type": "application/json" } };
  const { record, call } = await send("/v1/chat/completions", init as RequestInit);
  t.equal(record.model, "gpt-drops");
  t.equal(record.bytes_in, bytes.length);
  const chunks = call
    .body()
    .toString("latin1")
    .replace(/[0-9a-f]+\r\n([\s\S]*?)\r\n(?=[0-9a-f]+\r\n)/g, "$1");
  t.equal(chunks.replace(/0\r\n\r\n$/, ""), bytes.toString("latin1"));
});

t.test("a request that names no model has none in its record", async (t) => {
  const { send } = await start(t);
  const json = { "content-type": "application/json" };
  for (const body of [
    "",
    "{}",
    '{"model":null}',
    '{"model":7}',
    '{"model":""}',
    '{"input":"model","metadata":{"model":"inner"}}',
    "no json",
    '{"model":"cut off',
    `{"model":"${"m".repeat(5000)}"}`,
  ]) {
    const { record } = await send("/v1/responses", { headers: json, body });
    t.equal(record.model, null, body.slice(0, 40));
    t.same([record.end, record.status], ["complete", 200]);
  }
  const packed = await send("/v1/responses", {
    headers: { ...json, "content-encoding": "gzip" },
    body: '{"model":"m"}',
  });
  t.equal(packed.record.model, null, "a compressed request is the gateway's to read");
  const list = await send("/v1/models", { method: "GET" });
  t.match(list.record, { model: null, tokens_from: "none", method: "GET", endpoint: "/v1/models" });
});

t.test("a key that is pasted as the model is not recorded", async (t) => {
  const { send, one } = await start(t);
  const canary = `sk-proj-${"Ab3".repeat(14)}`;
  const { record } = await send("/v1/responses", { body: JSON.stringify({ model: canary }) });
  t.notOk(JSON.stringify(record).includes(canary), JSON.stringify(record.model));
  await stillHealthy(t, one, [canary, one.key, one.token]);
});

t.test("the model of Gemini is read from the path, also percent-encoded", async (t) => {
  const { send } = await start(t);
  const usage = { promptTokenCount: 9, candidatesTokenCount: 4, totalTokenCount: 13 };
  const told = {
    type: "application/json",
    body: JSON.stringify({
      candidates: [{ finishReason: "STOP" }],
      usageMetadata: usage,
      modelVersion: "gemini-x-002",
    }),
  };
  const cases: [string, string][] = [
    ["/v1beta/models/gemini-x:generateContent", "gemini-x"],
    ["/v1/models/gemini-x:generateContent", "gemini-x"],
    ["/v1beta/models/gemini%2Dx:generateContent?alt=json&x=1", "gemini-x"],
    ["/v1beta/models/tunedModels%2Fmine:generateContent", "tunedModels/mine"],
  ];
  for (const [path, model] of cases) {
    const { record } = await send(path, { body: '{"model":"decoy","contents":[]}' }, told);
    t.same([record.model, record.model_answered], [model, "gemini-x-002"], path);
    t.same(tokensIn(record), tokens(9, 4), path);
  }
  // Without alt=sse its streams are one JSON list.
  const list = JSON.stringify([
    {
      candidates: [{ content: { parts: [{ text: "a" }] } }],
      usageMetadata: { promptTokenCount: 9, totalTokenCount: 9 },
    },
    {
      candidates: [{ finishReason: "STOP" }],
      usageMetadata: { ...usage, thoughtsTokenCount: 2, totalTokenCount: 15 },
    },
  ]);
  const streamed = { type: "application/json", body: list };
  const { record } = await send("/v1beta/models/gemini-x:streamGenerateContent", { body: "{}" }, streamed);
  t.same(tokensIn(record), tokens(9, 6, { reasoning: 2 }));
});

t.test("an answer that is fetched again, or is free, is not billed twice", async (t) => {
  const { send } = await start(t);
  const response = {
    type: "application/json",
    body: JSON.stringify({
      id: "resp_1",
      object: "response",
      model: "m",
      usage: { input_tokens: 5, output_tokens: 6, total_tokens: 11 },
    }),
  };
  for (const [method, path] of [
    ["GET", "/v1/responses/resp_1"],
    ["POST", "/v1/responses/resp_1/cancel"],
    ["DELETE", "/v1/responses/resp_1"],
    ["POST", "/v1/responses/input_tokens"],
    ["POST", "/v1/messages/count_tokens"],
    ["GET", "/v1/chat/completions"],
  ] as const) {
    const { record } = await send(path, { method, ...(method === "POST" ? { body: "{}" } : {}) }, response);
    t.same(
      [tokensIn(record), record.tokens_from, record.cost_microdollars],
      [null, "none", null],
      `${method} ${path}`,
    );
  }
  const { record } = await send("/v1/responses", { body: "{}" }, response);
  t.same(tokensIn(record), tokens(5, 6));
});
