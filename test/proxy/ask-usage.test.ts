import fc from "fast-check";
import t from "tap";
import { askForUsage, UsageFilter } from "../../src/proxy/ask-usage.ts";
import { runs } from "../doubles/effort.ts";

function asked(text: string): string | null {
  return askForUsage(Buffer.from(text))?.toString("utf8") ?? null;
}

t.test("a stream that does not say whether it wants its usage is asked for it", (t) => {
  for (const [before, after] of [
    ['{"model":"m","stream":true}', '{"model":"m","stream":true,"stream_options":{"include_usage":true}}'],
    [
      '\n{ "stream" : true , "messages":[{"content":"\\"}{\\\\"}] \n}\n',
      '\n{ "stream" : true , "messages":[{"content":"\\"}{\\\\"}] \n,"stream_options":{"include_usage":true}}\n',
    ],
    ['{"stream_options":{},"stream":true}', '{"stream_options":{"include_usage":true},"stream":true}'],
    [
      '{"stream_options": {"include_obfuscation":false} ,"stream":true}',
      '{"stream_options": {"include_obfuscation":false,"include_usage":true} ,"stream":true}',
    ],
    ['{"stream_options":\tnull,"stream":true}', '{"stream_options":\t{"include_usage":true},"stream":true}'],
    [
      '{"str\\u0065am":true,"x":{"stream_options":{"include_usage":false}}}',
      '{"str\\u0065am":true,"x":{"stream_options":{"include_usage":false}},"stream_options":{"include_usage":true}}',
    ],
  ] as const) {
    t.equal(asked(before), after);
  }
  t.end();
});

t.test("a request that is not a plain stream, or asks already, stays unchanged", (t) => {
  for (const text of [
    "",
    "not json",
    "[]",
    "null",
    '"stream"',
    '{"stream":true',
    "{}",
    '{"stream":false}',
    '{"stream":"true"}',
    '{"stream":1}',
    '{"x":{"stream":true}}',
    '[{"stream":true}]',
    '{"stream":true,"stream_options":{"include_usage":true}}',
    '{"stream":true,"stream_options":{"include_usage":false}}',
    '{"stream":true,"stream_options":{"include_usage":null}}',
    '{"stream":true,"stream_options":{"INCLUDE_USAGE":false}}',
    '{"stream":true,"stream_options":[]}',
    '{"stream":true,"stream_options":"include_usage"}',
    '{"stream":true,"stream":true}',
    '{"stream":false,"stream":true}',
    '{"stream":true,"Stream":false}',
    '{"stream":true,"Stream_options":{}}',
    '{"stream":true,"stream_options":{},"stream_options":{}}',
  ]) {
    t.equal(asked(text), null, JSON.stringify(text));
  }
  t.end();
});

t.test("only the one setting of a request changes", (t) => {
  const options = fc.option(fc.dictionary(fc.string(), fc.jsonValue()), { nil: undefined });
  const requests = fc.record({
    before: fc.dictionary(fc.string(), fc.jsonValue()),
    options,
    after: fc.dictionary(fc.string(), fc.jsonValue()),
    indent: fc.constantFrom(0, 2, "\t"),
  });
  fc.assert(
    fc.property(requests, ({ before, options, after, indent }) => {
      const request = { ...before, stream: true, ...(options && { stream_options: options }), ...after };
      const text = JSON.stringify(request, null, indent);
      const result = asked(text);
      if (result === null)
        return /stream|include_usage/i.test(Object.keys({ ...before, ...after, ...options }).join());
      const expected = { ...request, stream_options: { ...options, include_usage: true } };
      t.strictSame(JSON.parse(result), JSON.parse(JSON.stringify(expected)));
      return without(result, '"stream_options":{"include_usage":true}', '"include_usage":true').includes(
        text,
      );
    }),
    { numRuns: runs(30) },
  );
  t.end();
});

/** The text with one of these taken out, with or without the comma in front of it. */
function without(text: string, ...added: readonly string[]): string[] {
  return added.flatMap((one) => {
    const at = text.lastIndexOf(one);
    const cut = (from: number) => text.slice(0, from) + text.slice(at + one.length);
    return [cut(at), cut(at - 1)];
  });
}

t.test("a body that is not valid UTF-8 keeps its bytes", (t) => {
  const body = Buffer.concat([
    Buffer.from('{"stream":true,"x":"'),
    Buffer.from([0xff, 0xfe]),
    Buffer.from('"}'),
  ]);
  const result = askForUsage(body);
  t.ok(result?.subarray(0, body.length - 1).equals(body.subarray(0, -1)));
  t.end();
});

const DELTA =
  'data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"hé"}}],"usage":null}\n\n';
const LAST = 'data: {"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n';
const USAGE = 'data: {"id":"c1","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3}}\n\n';
const DONE = "data: [DONE]\n\n";

/** What passes, one entry for each chunk that went in, and one for the end. */
function filtered(chunks: readonly (string | Buffer)[]): string[] {
  const filter = new UsageFilter();
  const out = chunks.map((chunk) => filter.pass(Buffer.from(chunk)));
  return [...out, filter.end()].map((bytes) => bytes?.toString("latin1") ?? "");
}

function latin1(text: string): string {
  return Buffer.from(text).toString("latin1");
}

function whole(text: string): string {
  return filtered([text]).join("");
}

t.test("only the chunk that reports the usage is removed", async (t) => {
  t.equal(whole(DELTA + LAST + USAGE + DONE), latin1(DELTA + LAST + DONE));
  const windows = (DELTA + LAST + USAGE + DONE).replaceAll("\n", "\r\n");
  t.equal(whole(windows), latin1((DELTA + LAST + DONE).replaceAll("\n", "\r\n")), "with CRLF too");
  t.equal(whole(DELTA + USAGE.trimEnd()), latin1(DELTA), "also where the stream ends right behind it");
  const spaced = 'event: message\nid: 7\ndata:{"choices" : [ ],\ndata: "usage":{"total_tokens":1}}\n\n';
  t.equal(whole(spaced + DONE), DONE, "on several lines too");
});

t.test("similar chunks pass", async (t) => {
  for (const event of [
    'data: {"choices":[],"prompt_filter_results":[{}]}\n\n',
    'data: {"choices":[],"usage":null}\n\n',
    'data: {"choices":[{"delta":{}}],"usage":{"prompt_tokens":1}}\n\n',
    'data: {"choices":[{"delta":{"content":"\\"choices\\":[],\\"usage\\":{}"}}],"usage":{}}\n\n',
    'data: {"usage":{"prompt_tokens":1}}\n\n',
    'data: {"x":{"choices":[],"usage":{}}}\n\n',
    'data: {"choices":[],"usage":{"prompt_tokens":1}\n\n',
    'datas: {"choices":[],"usage":{"prompt_tokens":1}}\n\n',
    ": comment\n\n",
    "event: ping\n\n",
    "\n\n\r\n",
    '{"object":"chat.completion","choices":[],"usage":{"prompt_tokens":1}}',
    '{"error":{"message":"no"}}\n',
    "\u001f\u008b\u0008\n\n",
  ]) {
    t.equal(whole(event), latin1(event), event);
  }
});

const EVENTS = fc.oneof(
  fc.constantFrom(DELTA, LAST, USAGE, DONE, ": ping\n\n", ": ping\n", "event: x\ndata: {}\n\n", "\n"),
  fc.string({ maxLength: 30 }).map((text) => `data: ${JSON.stringify({ choices: [{ delta: text }] })}\n\n`),
);
const CUTS = fc.array(fc.nat(2000), { maxLength: 30 });

t.test("the stream may be cut anywhere", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(EVENTS, { maxLength: 8 }), fc.boolean(), CUTS, async (events, crlf, cuts) => {
      const ends = (text: string) => (crlf ? text.replaceAll("\n", "\r\n") : text);
      const bytes = Buffer.from(ends(events.join("")));
      const at = [0, ...cuts.filter((cut) => cut < bytes.length), bytes.length].sort((a, b) => a - b);
      const out = filtered(at.slice(1).map((end, i) => bytes.subarray(at[i], end)));
      return out.join("") === latin1(ends(events.filter((event) => event !== USAGE).join("")));
    }),
    { numRuns: runs(40) },
  );
});

t.test("any bytes that are not usage pass", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.uint8Array({ maxLength: 40 })), async (chunks) => {
      const bytes = chunks.map((chunk) => Buffer.from(chunk));
      return filtered(bytes).join("") === Buffer.concat(bytes).toString("latin1");
    }),
    { numRuns: runs(30) },
  );
});

t.test("an event passes once it is whole, or once it cannot be usage", async (t) => {
  t.strictSame(filtered([DELTA, LAST, USAGE, DONE]), [...[DELTA, LAST].map(latin1), "", DONE, ""]);
  const [begin, end] = [LAST.slice(0, 40), LAST.slice(40)];
  t.match(begin, /"choices":\[\{/, "here it can");
  t.strictSame(filtered([begin, end]), [begin, end, ""]);
  t.strictSame(filtered(["data: [", "DONE]\n\n"]), ["data: [", "DONE]\n\n", ""]);
  t.strictSame(filtered([": still thinking\n", DONE]), [": still thinking\n", DONE, ""], "a sign of life");
  t.strictSame(filtered(['{"object"', ":1}"]), ['{"object"', ":1}", ""], "no event stream");
});

t.test("an event that is too long to be a usage is not held", async (t) => {
  const long = `data: {"x":"${"x".repeat(40_000)}`;
  const out = filtered([long, `${"x".repeat(2_000_000)}"}\n\n`, USAGE, DONE]);
  t.equal(out[0], long);
  t.equal(out.slice(2).join(""), DONE, "and the ones behind it are looked at again");
});

t.test("a chunk without usage passes unchanged", async (t) => {
  const chunk = Buffer.from(DELTA + LAST);
  t.equal(new UsageFilter().pass(chunk), chunk, "without a copy");
});
