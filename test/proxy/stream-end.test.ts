import fc from "fast-check";
import t from "tap";
import { watchStreamEnd } from "../../src/proxy/stream-end.ts";

const CHAT =
  'data: {"object":"chat.completion.chunk","choices":[{"delta":{"content":"a"},"finish_reason":null}]}\n\n';
const CHAT_STOP =
  'data: {"object":"chat.completion.chunk","choices":[{"delta":{},"finish_reason":"stop"}]}\n\n';
const MESSAGE = 'event: message_start\ndata: {"type":"message_start","message":{}}\n\n';
const GEMINI = 'data: {"candidates":[{"content":{"parts":[{"text":"a"}]}}]}\r\n\r\n';

function reachedBy(text: string, cuts: readonly number[] = []): boolean | null {
  const end = watchStreamEnd("text/event-stream; charset=utf-8", undefined);
  const bytes = Buffer.from(text);
  const places = [...cuts.map((cut) => cut % (bytes.length + 1)), 0, bytes.length].sort((a, b) => a - b);
  for (let i = 0; i + 1 < places.length; i += 1) end.see(bytes.subarray(places[i], places[i + 1]));
  return end.reached;
}

const ENDED = [
  `${CHAT}data: [DONE]\n\n`,
  `${CHAT}data:[DONE]\r\n\r\n`,
  `${CHAT}${CHAT_STOP}`,
  `${MESSAGE}event: message_stop\ndata: {"type":"message_stop"}\n\n`,
  `${MESSAGE}event: error\ndata: {"type":"error","error":{"type":"overloaded_error"}}\n\n`,
  'data: {"type":"response.created"}\n\ndata: {"type":"response.completed","response":{}}\n\n',
  'event: response.created\ndata: {"type":"response.created"}\n\nevent: response.failed\ndata: {}\n\n',
  `${GEMINI}data: {"candidates":[{"finishReason": "STOP"}]}\r\n\r\n`,
];

t.test("the last word of every protocol's stream is recognised, however it is cut", (t) => {
  for (const text of ENDED) {
    t.equal(reachedBy(text), true, text.slice(-60));
    fc.assert(
      fc.property(fc.array(fc.nat(400), { maxLength: 12 }), (cuts) => reachedBy(text, cuts) === true),
    );
  }
  t.end();
});

t.test("a stream that has begun and not said its last word has not ended", (t) => {
  for (const text of [CHAT, MESSAGE, GEMINI, 'data: {"type":"response.created"}\n\n'])
    t.equal(reachedBy(text), false, text);
  t.end();
});

t.test("what a model writes cannot pass for the last word", (t) => {
  const said = JSON.stringify(
    'data: [DONE]\nevent: message_stop {"type":"message_stop"},"finish_reason":"stop"',
  );
  t.equal(reachedBy(`${CHAT}data: {"choices":[{"delta":{"content":${said}}}]}\n\n`), false);
  t.end();
});

t.test("of another stream, a compressed one or no stream at all, nothing is said", (t) => {
  t.equal(reachedBy("data: 1\n\ndata: 2\n\n"), null);
  for (const [type, encoding] of [
    ["application/json", undefined],
    ["text/event-stream", "gzip"],
    ["", undefined],
  ] as const) {
    const end = watchStreamEnd(type, encoding);
    end.see(Buffer.from(`${CHAT}data: [DONE]\n\n`));
    t.equal(end.reached, null);
  }
  t.end();
});
