import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import fc from "fast-check";
import t from "tap";
import { Meter } from "../../src/metering/meter.ts";
import { runs } from "../doubles/effort.ts";
import { until } from "../doubles/until.ts";
import { captured, encodings, read } from "./captured.ts";
import { cutAt, someCuts } from "./cuts.ts";

const answers = captured();
const anAnswer = fc.constantFrom(...answers);

t.test("each protocol's answers are read as what they say", async (t) => {
  for (const { name, note, head, body, expected, text } of answers) {
    const { text: seen, problem, ...reading } = await read(head, [body]);
    t.strictSame(reading, expected, `${name}: ${note}`);
    t.equal(problem, null, name);
    if (text !== undefined) t.strictSame(seen, text, `${name}: its text`);
  }
});

t.test("wherever an answer is cut into pieces, it reads as the whole", async (t) => {
  for (const { name, head, body } of answers) {
    const whole = await read(head, [body]);
    const bytes = Array.from(body, (_, i) => body.subarray(i, i + 1));
    t.strictSame(await read(head, bytes), whole, `${name}, byte by byte`);
  }
  await fc.assert(
    fc.asyncProperty(anAnswer, someCuts, async ({ head, body }, cuts) => {
      const [pieces, whole] = [await read(head, cutAt(body, cuts)), await read(head, [body])];
      return JSON.stringify(pieces) === JSON.stringify(whole);
    }),
    { numRuns: runs(50) },
  );
});

t.test("an answer reads the same in any encoding", async (t) => {
  for (const [contentEncoding, encode] of encodings) {
    for (const { name, head, body } of answers) {
      const whole = await read(head, [body]);
      t.strictSame(
        await read({ ...head, contentEncoding }, [encode(body)]),
        whole,
        `${name} in ${contentEncoding}`,
      );
    }
  }
  await fc.assert(
    fc.asyncProperty(
      anAnswer,
      fc.constantFrom(...encodings),
      someCuts,
      async ({ head, body }, [name, encode], cuts) => {
        const pieces = cutAt(encode(body), cuts);
        const [encoded, whole] = [
          await read({ ...head, contentEncoding: name }, pieces),
          await read(head, [body]),
        ];
        return JSON.stringify(encoded) === JSON.stringify(whole);
      },
    ),
    { numRuns: runs(15) },
  );
});

t.test("whatever the bytes, a meter neither throws nor keeps silent", async () => {
  const head = fc.record({
    metering: fc.constantFrom(null, ...new Set(answers.map((answer) => answer.head.metering))),
    status: fc.constantFrom(200, 500),
    contentType: fc.constantFrom("text/event-stream", "application/json", "", "audio/mpeg", "\u0000"),
    contentEncoding: fc.constantFrom(undefined, "gzip", "br", "deflate", "zstd", "gzip, br", "nonsense", ","),
    countText: fc.boolean(),
  });
  await fc.assert(
    fc.asyncProperty(head, fc.uint8Array({ maxLength: 400 }), someCuts, async (head, bytes, cuts) => {
      const reading = await read(head, cutAt(Buffer.from(bytes), cuts));
      return reading.problem !== "the meter failed";
    }),
    { numRuns: runs(15) },
  );
  const changes = fc.array(fc.tuple(fc.nat(5000), fc.nat(255)), { minLength: 1, maxLength: 12 });
  const encoding = fc.constantFrom(["", (bytes: Buffer) => Buffer.from(bytes)] as const, ...encodings);
  await fc.assert(
    fc.asyncProperty(
      anAnswer,
      encoding,
      changes,
      someCuts,
      async ({ head, body }, [name, encode], changes, cuts) => {
        const bytes = encode(body);
        for (const [at, byte] of changes) bytes[at % bytes.length] = byte;
        const reading = await read({ ...head, contentEncoding: name }, cutAt(bytes, cuts));
        const { input = 0, output = 0 } = reading.tokens ?? {};
        return reading.problem !== "the meter failed" && input >= 0 && output >= 0;
      },
    ),
    { numRuns: runs(50) },
  );
});

t.test("an answer that is cut anywhere reports no more than the whole", async () => {
  await fc.assert(
    fc.asyncProperty(anAnswer, fc.nat(5000), async ({ head, body, expected }, at) => {
      const { tokens, reached } = await read(head, [body.subarray(0, at % (body.length + 1))]);
      if (expected.tokens === null) return tokens === null;
      if (expected.reached !== true && reached === true) return false;
      return (tokens?.output ?? 0) <= expected.tokens.output;
    }),
    { numRuns: runs(15) },
  );
});

const CHAT =
  'data: {"object":"chat.completion.chunk","choices":[{"delta":{"content":"a"},"finish_reason":null}]}\n\n';
const CHAT_STOP =
  'data: {"object":"chat.completion.chunk","choices":[{"delta":{},"finish_reason":"stop"}]}\n\n';
const MESSAGE = 'event: message_start\ndata: {"type":"message_start","message":{}}\n\n';
const GEMINI = 'data: {"candidates":[{"content":{"parts":[{"text":"a"}]}}]}\r\n\r\n';
const STREAM = {
  metering: null,
  status: 200,
  contentType: "text/event-stream; charset=utf-8",
  contentEncoding: undefined,
  countText: false,
};

async function reachedBy(text: string, cuts: readonly number[] = []): Promise<boolean | null> {
  return (await read(STREAM, cutAt(Buffer.from(text), cuts))).reached;
}

const ENDED = [
  `${CHAT}data: [DONE]\n\n`,
  `${CHAT}data:[DONE]\r\n\r\n`,
  `${CHAT}data: [DONE]`,
  `${CHAT}${CHAT_STOP}`,
  `${MESSAGE}event: message_stop\ndata: {"type":"message_stop"}\n\n`,
  `${MESSAGE}event: message_stop\n`,
  `${MESSAGE}event: error\ndata: {"type":"error","error":{"type":"overloaded_error"}}\n\n`,
  'data: {"type":"response.created"}\n\ndata: {"type":"response.completed","response":{}}\n\n',
  'event: response.created\ndata: {"type":"response.created"}\n\nevent: response.failed\ndata: {}\n\n',
  `${GEMINI}data: {"candidates":[{"finishReason": "STOP"}]}\r\n\r\n`,
];

t.test("the last event of every protocol's stream is recognized, however it is cut", async (t) => {
  for (const text of ENDED) {
    t.equal(await reachedBy(text), true, text.slice(-60));
    const cuts = fc.array(fc.nat(400), { maxLength: 12 });
    await fc.assert(
      fc.asyncProperty(cuts, async (cuts) => (await reachedBy(text, cuts)) === true),
      { numRuns: runs(15) },
    );
  }
});

t.test("a stream without its last event has not ended", async (t) => {
  for (const text of [CHAT, MESSAGE, GEMINI, 'data: {"type":"response.created"}\n\n'])
    t.equal(await reachedBy(text), false, text);
});

t.test("text of a model is never taken for the last event", async (t) => {
  const said = JSON.stringify(
    'data: [DONE]\nevent: message_stop {"type":"message_stop"},"finish_reason":"stop"',
  );
  t.equal(await reachedBy(`${CHAT}data: {"choices":[{"delta":{"content":${said}}}]}\n\n`), false);
  const inside = { choices: [{ delta: { function: { finish_reason: "stop", type: "message_stop" } } }] };
  t.equal(await reachedBy(`${CHAT}data: ${JSON.stringify(inside)}\n\n`), false);
});

t.test("the end of an unknown stream and of an error is unknown", async (t) => {
  t.equal(await reachedBy("data: 1\n\ndata: 2\n\n"), null);
  const error = 'event: error\ndata: {"error":{"message":"no"}}\n\n';
  t.match(await read({ ...STREAM, status: 500 }, [Buffer.from(CHAT + error)]), {
    reached: null,
    failed: false,
  });
  t.match(await read(STREAM, [Buffer.from(CHAT + error)]), { reached: true, failed: true });
});

t.test("an error counts in the streams that are known, and only where it says something", async (t) => {
  const error = 'data: {"error":{"message":"overloaded"}}\n\n';
  const empty = 'data: {"choices":[],"error":{"message":"","type":"","code":null}}\n\n';
  const failed = async (text: string, metering: "chat" | null) =>
    (await read({ ...STREAM, metering }, [Buffer.from(text)])).failed;
  t.equal(await failed(CHAT + error, null), true);
  t.equal(await failed(error, "chat"), true);
  t.equal(await failed(error, null), false, "its meaning there is unknown");
  t.equal(await failed(CHAT + empty + CHAT_STOP, "chat"), false);
  t.equal(await failed(`${CHAT}data: [DONE]\n\n${error}`, "chat"), false, "nothing follows the last event");
  t.equal(await failed(CHAT + CHAT_STOP + error, "chat"), true, "but a finish reason is not that");
});

t.test("an error answer that reports tokens is believed, and its text is not counted", async (t) => {
  const body =
    '{"error":{"message":"text"},"content":"abc","usage":{"prompt_tokens":7,"completion_tokens":1}}';
  const head = {
    ...STREAM,
    metering: "chat",
    status: 500,
    contentType: "application/json",
    countText: true,
  } as const;
  t.match(await read(head, [Buffer.from(body)]), {
    tokens: { input: 7, output: 1 },
    text: { ascii: 0, other: 0 },
  });
});

t.test("text is not counted unless asked for", async (t) => {
  for (const { head, body } of answers)
    t.strictSame((await read({ ...head, countText: false }, [body])).text, { ascii: 0, other: 0 });
});

t.test("what an estimate does not need costs nothing: the reading is the same without it", async (t) => {
  for (const { name, head, body } of answers) {
    const { text: _, ...counted } = await read(head, [body]);
    const { text: __, ...plain } = await read({ ...head, countText: false }, [body]);
    t.strictSame(plain, counted, name);
  }
});

t.test("an image in one event of several megabytes costs no memory and loses no usage", async (t) => {
  const image = "iVBORw0KGgo".repeat(400_000);
  const event = `data: {"type":"image_generation.completed","b64_json":"${image}","usage":{"input_tokens":50,"output_tokens":4160}}\n\n`;
  const after = 'data: {"usage":{"input_tokens":51,"output_tokens":4160}}\n\n';
  const pieces = cutAt(
    Buffer.from(event + after),
    Array.from({ length: 300 }, (_, i) => i * 15_000),
  );
  const head = { ...STREAM, metering: "images" } as const;
  const reading = await read(head, pieces);
  t.match(reading, { tokens: { input: 51, output: 4160 }, reached: true, problem: null });
  t.match(await read(head, cutAt(Buffer.from(event), [9])), {
    tokens: { input: 50, output: 4160 },
    reached: true,
  });
});

/** More than is kept of a document. */
function manyNumbers(): number[] {
  return Array.from({ length: 150_000 }, (_, i) => Math.sin(i));
}

t.test("after an event that is too long to parse the end is unknown", async (t) => {
  const parts = [{ numbers: manyNumbers() }, { deeper: { numbers: manyNumbers() } }];
  const long = JSON.stringify({
    candidates: [{ content: { parts }, finishReason: "STOP" }],
    usageMetadata: { promptTokenCount: 3, candidatesTokenCount: 5 },
  });
  const head = { ...STREAM, metering: "gemini" } as const;
  t.match(await read(head, [Buffer.from(`${GEMINI}data: ${long}\n\n`)]), {
    tokens: { input: 3, output: 5 },
    reached: null,
    problem: null,
  });
});

t.test("after an event of endless lines the end is unknown", async (t) => {
  const endless = `data: ${"x".repeat(1000)}\n`.repeat(3000);
  t.match(await read(STREAM, [Buffer.from(`${CHAT}${endless}\n${CHAT}`)]), { reached: null, problem: null });
});

const JSON_HEAD = { ...STREAM, metering: "chat", contentType: "application/json" } as const;

t.test("usage at the end of a large answer is found", async (t) => {
  const usage = { prompt_tokens: 9, completion_tokens: 4 };
  const image = { id: "i", note: "世界".repeat(9000), data: [{ b64_json: "A".repeat(3_000_000) }], usage };
  const embeddings = {
    object: "list",
    data: [{ embedding: manyNumbers() }, { deeper: { embedding: manyNumbers() } }],
    model: "m",
    usage,
  };
  const call = {
    id: "c",
    content: [{ input: { usage: { prompt_tokens: 1 }, numbers: manyNumbers() } }],
    usage,
  };
  const list = [{ responseId: "r", numbers: manyNumbers() }, { usageMetadata: { promptTokenCount: 9 } }];
  for (const [document, expected] of [
    [image, { id: "i", tokens: { input: 9, output: 4 } }],
    [embeddings, { model: "m", tokens: { input: 9, output: 4 } }],
    [call, { id: "c", tokens: { input: 9, output: 4 } }],
    [list, { id: "r", tokens: { input: 9, output: 0 } }],
  ] as const) {
    const body = Buffer.from(JSON.stringify(document));
    t.ok(body.length > 1_000_000);
    const cuts = Array.from({ length: 100 }, (_, i) => i * 50_021);
    const whole = await read(JSON_HEAD, [body]);
    t.match(whole, { ...expected, problem: null });
    t.strictSame(await read(JSON_HEAD, cutAt(body, cuts)), whole, "wherever it is cut");
    const { text: _, ...counted } = await read({ ...JSON_HEAD, countText: true }, [body]);
    t.match(whole, counted, "whether its text is counted or not");
  }
});

t.test("usage that is not the answer's own is not taken", async (t) => {
  const inner = { input: { usage: { prompt_tokens: 1 }, id: "x", model: "y" } };
  const large = JSON.stringify({ content: [{ numbers: manyNumbers() }, inner], stop: true });
  for (const body of [JSON.stringify({ content: [inner] }), large])
    t.match(await read(JSON_HEAD, [Buffer.from(body)]), { tokens: null, id: null, model: null });
});

t.test("of JSON that was cut, the outer fields that came whole are read", async (t) => {
  const body = JSON.stringify({
    id: "c1",
    model: "m1",
    choices: [{ message: { content: 'a, "b": {[ \\' } }],
    usage: { prompt_tokens: 123, completion_tokens: 456 },
    more: [],
  });
  for (let length = 0; length <= body.length; length += 1) {
    const { id, model, tokens } = await read(JSON_HEAD, [Buffer.from(body.slice(0, length))]);
    t.ok(id === null || id === "c1", `${length}: ${id}`);
    t.ok(model === null || model === "m1", `${length}: ${model}`);
    t.ok(tokens === null || (tokens.input === 123 && tokens.output === 456), `${length}: ${tokens?.output}`);
    if (length >= body.indexOf(',"choices"') + 1) t.strictSame([id, model], ["c1", "m1"], `${length}`);
    if (length >= body.indexOf(',"more"')) t.equal(tokens?.output, 456, `${length}`);
  }
});

t.test("what follows the end of JSON is ignored", async (t) => {
  const body = '{"id":"c1","usage":{"prompt_tokens":7}}\n{"id":"c2"}\n: keep-alive\n';
  t.match(await read(JSON_HEAD, [Buffer.from(body)]), { id: "c1", tokens: { input: 7 } });
});

t.test("deeply nested JSON is read", async (t) => {
  for (const [opening, closing] of [
    ['{"a":', "}"],
    ["[", "]"],
  ] as const)
    for (const deep of [1000, 300_000]) {
      const nested = `${opening.repeat(deep)}1${closing.repeat(deep)}`;
      const body = `{"id":"c1","content":${nested},"usage":{"prompt_tokens":7}}`;
      const reading = await read({ ...JSON_HEAD, countText: true }, [Buffer.from(body)]);
      t.match(reading, { id: "c1", tokens: { input: 7 }, problem: null }, `${deep} times ${opening}`);
    }
});

t.test("the memory of a meter is bounded, whatever the answer", async () => {
  setFlagsFromString("--expose-gc");
  const collectGarbage: () => void = runInNewContext("gc");
  for (const [what, beginning] of [
    ["JSON", '{"content":"'],
    ["events", "data: "],
    ["white space", " "],
  ] as const) {
    collectGarbage();
    const before = process.memoryUsage().heapUsed;
    const meter = new Meter(JSON_HEAD);
    meter.see(Buffer.from(beginning));
    const chunk = Buffer.alloc(64 * 1024, what === "white space" ? " " : "x");
    for (let i = 0; i < 512; i += 1) meter.see(chunk);
    await until(`${what}: next to nothing is left of 32 MB`, () => {
      collectGarbage();
      return process.memoryUsage().heapUsed - before < 8 * 1024 * 1024;
    });
    await meter.finish();
  }
});

t.test("an unsupported encoding is a problem, and says nothing about the stream's end", async (t) => {
  const reading = await read({ ...STREAM, contentEncoding: "compress" }, [Buffer.from(CHAT)]);
  t.match(reading, { tokens: null, reached: null, problem: "its content encoding is not supported" });
});
