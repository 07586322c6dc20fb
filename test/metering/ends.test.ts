import fc from "fast-check";
import t from "tap";
import type { Reading } from "../../src/metering/meter.ts";
import type { Metering } from "../../src/metering/protocols.ts";
import { runs } from "../doubles/effort.ts";
import { read } from "./captured.ts";
import { cutAt } from "./cuts.ts";

/** How answers end that are no whole answer: refusals inside of a stream, and streams that were cut. */

function readAs(
  metering: Metering | null,
  text: string,
  { cuts = [] as readonly number[], countText = false, contentType = "text/event-stream" } = {},
): Promise<Reading> {
  const head = { metering, status: 200, contentType, contentEncoding: undefined, countText };
  return read(head, cutAt(Buffer.from(text), cuts));
}

const PINGS = {
  none: "",
  "a comment": ": OPENROUTER PROCESSING\n\n",
  "an empty comment": ":\n\n: \n\n",
  "new-api's": ": PING\n\n",
  "a named event": 'event: ping\ndata: {"type": "ping"}\n\n',
  "an unnamed event": 'data: {"type": "ping"}\n\n',
  "the keepalive of responses":
    'event: keepalive\ndata: {"type":"keepalive","sequence_number":3}\n\ndata: {"type":"keepalive"}\n\n',
  "empty data": "data:\n\n",
};

const CREATED =
  '{"type":"response.created","response":{"id":"resp_1","status":"in_progress","error":null,"output":[],"usage":null}}';
const FAILED =
  '{"type":"response.failed","response":{"id":"resp_1","status":"failed","error":{"code":"rate_limit_exceeded","message":"no"},"output":[],"usage":null}}';

const REFUSALS: Readonly<Record<string, readonly [Metering, string]>> = {
  "Anthropic's error event": [
    "messages",
    'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n',
  ],
  "sub2api's, without a name": [
    "messages",
    'data: {"type": "error", "error": {"type": "rate_limit_error", "message": "Concurrency limit exceeded"}}\n\n',
  ],
  "sub2api's for OpenAI": [
    "responses",
    'event: error\ndata: {"error": {"type": "rate_limit_error", "message": "Concurrency limit exceeded"}}\n\n',
  ],
  "OpenAI's error object": [
    "chat",
    'data: {"error":{"message":"The server is overloaded","type":"server_error","code":null}}\n\ndata: [DONE]\n\n',
  ],
  "an error text": ["chat", 'data: {"error":"upstream unavailable"}\n\n'],
  "a response that failed": ["responses", `event: response.failed\ndata: ${FAILED}\n\n`],
  "a response that failed after it was created": [
    "responses",
    `event: response.created\ndata: ${CREATED}\n\nevent: response.in_progress\ndata: ${CREATED.replace("created", "in_progress")}\n\nevent: response.failed\ndata: ${FAILED}\n\n`,
  ],
  "the same without names": ["responses", `data: ${CREATED}\n\ndata: ${FAILED}\n\n`],
  "the error event of responses": [
    "responses",
    'event: error\ndata: {"type":"error","code":"ERR","message":"no","param":null,"sequence_number":1}\n\n',
  ],
  "Gemini's error object": [
    "gemini",
    'data: {"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}\r\n\r\n',
  ],
};

t.test("an error after nothing but pings is a refusal, however the stream is cut into pieces", async (t) => {
  for (const [ping, before] of Object.entries(PINGS)) {
    for (const [name, [metering, text]] of Object.entries(REFUSALS)) {
      const stream = before + before + text;
      const refused = { refused: true, failed: true, reached: true, tokens: null };
      t.match(await readAs(metering, stream), refused, `${name}, before it ${ping}`);
      t.match(await readAs(metering, stream, { countText: true }), refused, `${name}, with its text counted`);
    }
  }
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(...Object.values(PINGS)),
      fc.constantFrom(...Object.values(REFUSALS)),
      fc.array(fc.nat(600), { maxLength: 20 }),
      async (before, [metering, text], cuts) => (await readAs(metering, before + text, { cuts })).refused,
    ),
    { numRuns: runs(100) },
  );
});

const CHUNK =
  'data: {"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"delta":{"role":"assistant","content":""}}]}\n\n';
const START =
  'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_1","model":"m","usage":{"input_tokens":0,"output_tokens":0}}}\n\n';
const ERROR = 'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"no"}}\n\n';

t.test("an error after a part of an answer, or with usage, is not a refusal", async (t) => {
  const delta =
    'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"Hi"}\n\n';
  const named = CREATED.replace('"id"', '"model":"m","id"');
  for (const [metering, text] of [
    ["chat", CHUNK + ERROR],
    ["chat", `${CHUNK}data: {"error":{"message":"no"}}\n\n`],
    ["chat", 'data: {"error":{"message":"no"},"usage":{"prompt_tokens":5,"completion_tokens":0}}\n\n'],
    ["chat", 'data: {"choices":[{"delta":{"content":"a"}}],"error":{"message":"no"}}\n\n'],
    ["chat", `data: {"choices":[{"delta":{}}],"error":{"message":"","code":null}}\n\n${ERROR}`],
    ["messages", START + ERROR],
    ["messages", START.replace("event: message_start\n", "") + ERROR],
    ["responses", `event: response.created\ndata: ${named}\n\n${delta}${ERROR}`],
    ["responses", `data: ${FAILED.replace('"output":[]', '"output":[{"type":"message"}]')}\n\n`],
    [
      "responses",
      `data: ${FAILED.replace('"usage":null', '"usage":{"input_tokens":9,"output_tokens":0}')}\n\n`,
    ],
    ["gemini", `data: {"candidates":[{"content":{"parts":[{"text":"a"}]}}]}\n\n${ERROR}`],
    ["other", `event: progress\ndata: {"percent":5}\n\n${ERROR}`],
  ] as const)
    for (const countText of [false, true])
      t.match(await readAs(metering, text, { countText }), { refused: false, failed: true }, text);
});

t.test("an answer without an error is not a refusal, and neither is a status that says it all", async (t) => {
  for (const text of ["", "data: [DONE]\n\n", ": PING\n\n", `${CHUNK}data: [DONE]\n\n`, START])
    t.equal((await readAs("chat", text)).refused, false, text);
  const head = { metering: "chat", contentType: "text/event-stream", contentEncoding: undefined } as const;
  const reading = await read({ ...head, status: 503, countText: false }, [Buffer.from(ERROR)]);
  t.match(reading, { refused: false, failed: false, reached: null });
});

t.test("an error as JSON with a good status is a refusal too", async (t) => {
  const contentType = "application/json";
  for (const [metering, text] of [
    ["chat", '{"error":{"message":"no capacity"}}'],
    ["gemini", '[{"error":{"code":503,"message":"overloaded","status":"UNAVAILABLE"}}]'],
    ["messages", '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'],
  ] as const)
    t.match(await readAs(metering, text, { contentType }), { refused: true, reached: null }, text);
  for (const [metering, text] of [
    ["chat", '{"error":{"message":"no"},"choices":[{"message":{"content":"a"}}]}'],
    ["responses", '{"error":{"message":"no"},"output":[],"usage":{"input_tokens":5,"output_tokens":0}}'],
    ["responses", '{"error":null,"output":[]}'],
    ["chat", "{}"],
  ] as const)
    t.match(await readAs(metering, text, { contentType }), { refused: false, reached: null }, text);
});

t.test("a stream that was cut is distinguished from one that ended", async (t) => {
  for (const text of Object.values(PINGS))
    if (text !== "")
      for (const metering of ["chat", "messages", "responses"] as const)
        t.match(await readAs(metering, text), { reached: false, refused: false, tokens: null }, text);
  t.match(await readAs("messages", PINGS["a named event"] + START), { reached: false });
  t.match(await readAs("chat", PINGS["new-api's"] + CHUNK), { reached: false });
  t.match(await readAs("chat", ""), { reached: null }, "of nothing, nothing is said");
  t.match(await readAs(null, PINGS["new-api's"]), { reached: null }, "nor of a stream of something else");
  const blocked =
    'data: {"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":4,"totalTokenCount":4}}\n\n';
  t.match(await readAs("gemini", blocked), { reached: null, tokens: { input: 4 } }, "nor of odd answers");
});

t.test("the service tier is the last one that the answer names", async (t) => {
  const chat = (tier: string) => CHUNK.replace('"model"', `"service_tier":"${tier}","model"`);
  const created = CREATED.replace('"id"', '"model":"m","service_tier":"auto","id"');
  const completed = (tier: string) =>
    `data: {"type":"response.completed","response":{"id":"r","service_tier":"${tier}","usage":{"input_tokens":5}}}\n\n`;
  const start = (more: string) => START.replace('"output_tokens":0', `"output_tokens":0,${more}`);
  const messageDelta =
    'event: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":5,"service_tier":"standard"}}\n\n';
  for (const [metering, text, tier] of [
    ["chat", CHUNK, null],
    ["chat", chat("default"), "standard"],
    ["chat", chat("priority"), "priority"],
    ["chat", chat("auto"), null],
    ["responses", `data: ${created}\n\n${completed("priority")}`, "priority"],
    ["responses", `data: ${created.replace("auto", "priority")}\n\n${completed("default")}`, "standard"],
    ["responses", `data: ${created}\n\n`, null],
    ["messages", start('"service_tier":"standard"'), "standard"],
    ["messages", start('"service_tier":"priority"') + messageDelta, "standard"],
    ["messages", start('"service_tier":"standard","speed":"fast"') + messageDelta, "fast"],
    ["messages", start('"service_tier":"standard","speed":"standard"'), "standard"],
    ["gemini", 'data: {"usageMetadata":{"promptTokenCount":4,"trafficType":"ON_DEMAND"}}\n\n', "standard"],
    ["gemini", 'data: {"usageMetadata":{"promptTokenCount":4,"trafficType":"ON_DEMAND_FLEX"}}\n\n', "flex"],
    ["gemini", 'data: {"usageMetadata":{"trafficType":"TRAFFIC_TYPE_UNSPECIFIED"}}\n\n', null],
  ] as const)
    t.equal((await readAs(metering, text)).serviceTier, tier, text);
  const json = '{"id":"c","service_tier":"flex","choices":[],"usage":{"prompt_tokens":5}}';
  t.equal((await readAs("chat", json, { contentType: "application/json" })).serviceTier, "flex");
});
