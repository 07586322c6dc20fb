import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import fc from "fast-check";
import t from "tap";
import { askForUsage, readWhole } from "../../src/proxy/ask-usage.ts";
import { runs } from "../doubles/random.ts";
import { head, openRaw } from "../doubles/raw-client.ts";
import { until } from "../doubles/until.ts";

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

t.test("what is no stream, asks already or is not plain enough stays as it is", (t) => {
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
    '\ufeff{"stream":true}',
  ]) {
    t.equal(asked(text), null, JSON.stringify(text));
  }
  t.end();
});

t.test("of any request only the one setting changes, and every other byte stays", (t) => {
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

t.test("the whole body is read, and is still there for whoever sends it on", async (t) => {
  const read: (Buffer | null)[] = [];
  const passed: string[] = [];
  const server = createServer(async (req: IncomingMessage, res) => {
    read.push(await readWhole(req, { most: 100_000, patience: 200 }, null));
    const chunks: Buffer[] = [];
    for await (const chunk of req) chunks.push(chunk);
    passed.push(Buffer.concat(chunks).toString());
    res.end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const client = await openRaw(t, (server.address() as AddressInfo).port);
  const send = async (body: string, pause = 0) => {
    const before = passed.length;
    client.send(head("POST /", { host: "localhost", "content-length": String(body.length) }));
    client.send(body.slice(0, -5));
    if (pause > 0) await until("it is given up", () => read.length > before);
    client.send(body.slice(-5));
    await until("it is through", () => passed.length > before);
    t.equal(passed.at(-1), body);
    return read.at(-1);
  };
  t.equal((await send("0123456789"))?.toString(), "0123456789");
  t.equal((await send("x".repeat(99_999)))?.length, 99_999);
  t.equal(await send("x".repeat(300_000)), null, "one that is too large is not");
  t.equal(await send("0123456789", 1), null, "nor one that stops coming");
});
