import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { PassThrough, Writable } from "node:stream";
import { gzipSync } from "node:zlib";
import fc from "fast-check";
import t, { type Test } from "tap";
import { type BodyHead, type HeadOptions, putBackHeld, readHead } from "../../src/proxy/body-head.ts";
import { runs } from "../doubles/random.ts";
import { head, openRaw } from "../doubles/raw-client.ts";
import { until } from "../doubles/until.ts";

interface Seen {
  readonly head: BodyHead;
  /** What was read out of the request. */
  readonly held: Buffer;
  /** Everything that could be read after the head was known, piped as the proxy engine does it. */
  readonly body: Buffer;
  /** The same, as a listener beside the pipe saw it. */
  readonly heard: Buffer;
  /** Names of the events that the reading ahead listened to and still does. */
  readonly listening: readonly string[];
}

interface Listener {
  readonly port: number;
  /** One for each request, in the order in which they were through. */
  readonly seen: Seen[];
  /** One for each request, in the order in which the model was known. */
  readonly heads: BodyHead[];
}

type Before = (req: IncomingMessage, res: ServerResponse) => unknown;

/** A server that reads the head and then the whole body. Like the proxy it is asked who calls before it reads. */
async function listen(
  t: Test,
  options: Partial<HeadOptions> = {},
  before: Before = () => {},
): Promise<Listener> {
  const seen: Seen[] = [];
  const heads: BodyHead[] = [];
  const server = createServer(async (req, res) => {
    const events = new Set(req.eventNames());
    await before(req, res);
    const told = await readHead(req, (req.url ?? "").split("?")[0] ?? "", { patience: 5000, ...options });
    heads.push(told);
    const held = Buffer.concat(told.held ?? []);
    // What is held may be put back whenever that suits.
    if (heads.length % 2 === 0) await new Promise(setImmediate);
    putBackHeld(req, told);
    const listening = req.eventNames().filter((name) => !events.has(name) && req.listenerCount(name) > 0);
    const [body, heard]: [Buffer[], Buffer[]] = [[], []];
    req.on("data", (chunk: Buffer) => {
      told.see(chunk);
      heard.push(chunk);
    });
    const out = new PassThrough();
    req.pipe(out);
    for await (const chunk of out) body.push(chunk);
    seen.push({
      head: told,
      held,
      body: Buffer.concat(body),
      heard: Buffer.concat(heard),
      listening: listening.map(String),
    });
    res.end(`${seen.length}\n`);
  });
  server.on("checkContinue", (req, res) => server.emit("request", req, res));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, seen, heads };
}

const HOST = { host: "localhost" };
const CHAT = "POST /v1/chat/completions";

function post(body: string | Buffer, headers: Record<string, string> = {}, line = CHAT): Buffer {
  const bytes = Buffer.from(body);
  const all = {
    ...HOST,
    "content-type": "application/json",
    "content-length": String(bytes.length),
    ...headers,
  };
  return Buffer.concat([Buffer.from(head(line, all)), bytes]);
}

function chunked(pieces: readonly Buffer[]): Buffer[] {
  const framed = pieces
    .filter((piece) => piece.length > 0)
    .map((piece) =>
      Buffer.concat([Buffer.from(`${piece.length.toString(16)}\r\n`), piece, Buffer.from("\r\n")]),
    );
  return [...framed, Buffer.from("0\r\n\r\n")];
}

/** Sends it in one piece and gives what the server saw. */
async function ask(t: Test, bytes: Buffer, options: Partial<HeadOptions> = {}): Promise<Seen> {
  const { port, seen } = await listen(t, options);
  const client = await openRaw(t, port);
  client.send(bytes);
  await until("the request is through", () => seen.length === 1);
  return seen[0] as Seen;
}

function cut(bytes: Buffer, cuts: readonly number[]): Buffer[] {
  const at = [0, ...cuts.map((part) => Math.floor(part * bytes.length)), bytes.length].sort((a, b) => a - b);
  return at.slice(1).map((end, i) => bytes.subarray(at[i], end));
}

t.test("the model is known before the body is read, and the body passes whole", async (t) => {
  const body = JSON.stringify({ model: "gpt-5.1", messages: [{ role: "user", content: "grüß dich" }] });
  const { head, body: passed, heard, listening } = await ask(t, post(body));
  t.equal(head.end, "told");
  t.equal(head.model, "gpt-5.1");
  t.equal(passed.toString(), body);
  t.equal(heard.toString(), body, "a listener that is added later hears every byte once");
  t.same(listening, [], "nobody is left listening");
});

t.test("what was read is held until it is put back, and it is known whether that is all", async (t) => {
  const body = JSON.stringify({ model: "m", x: "x".repeat(200_000) });
  for (const toEnd of [true, false]) {
    const small = await ask(t, post('{"model":"m","n":1}'), { toEnd });
    t.equal(small.held.toString(), '{"model":"m","n":1}');
    t.equal(small.head.over, true);
    t.equal(small.head.held, null, "once it is put back it is not held twice");
    const large = await ask(t, post(body), { toEnd });
    t.ok(large.held.equals(Buffer.from(body).subarray(0, large.held.length)));
    t.equal(large.head.over, large.held.length === body.length);
    t.equal(large.held.length === body.length, toEnd);
  }
  const none = await ask(t, Buffer.from(head("GET /v1/models", HOST)));
  t.equal(none.held.length, 0);
  t.equal(none.head.over, true, "there is nothing");
  const named = await ask(t, post("{}", {}, "POST /v1beta/models/gemini-2.5-pro:generateContent"));
  t.equal(named.held.length, 0);
  t.equal(named.head.over, false, "nobody looked");
});

t.test("bodies that say nothing of a model pass as they are", async (t) => {
  const cases: Record<string, [Buffer, string]> = {
    "a GET": [Buffer.from(head("GET /v1/models", HOST)), ""],
    "no length and no body": [Buffer.from(head(CHAT, HOST)), ""],
    "a length of 0": [post(""), ""],
    "an empty chunked body": [
      Buffer.concat([Buffer.from(head(CHAT, { ...HOST, "transfer-encoding": "chunked" })), ...chunked([])]),
      "",
    ],
    "no model": [post('{"input":"x"}'), '{"input":"x"}'],
    "a model that is no text": [post('{"model":7}'), '{"model":7}'],
    "an empty model": [post('{"model":""}'), '{"model":""}'],
    "a model further in": [post('{"a":{"model":"x"}}'), '{"a":{"model":"x"}}'],
    "no json": [post("model=gpt-5.1&x=1"), "model=gpt-5.1&x=1"],
    "json that breaks off": [post('{"x":"'), '{"x":"'],
  };
  for (const [name, [bytes, body]] of Object.entries(cases)) {
    await t.test(name, async (t) => {
      const seen = await ask(t, bytes);
      t.equal(seen.head.end, "none");
      t.equal(seen.head.model, null);
      t.equal(seen.body.toString(), body);
      t.equal(seen.heard.toString(), body);
    });
  }
});

t.test("a body that is compressed is not looked into", async (t) => {
  const bytes = gzipSync('{"model":"gpt-5.1"}');
  const seen = await ask(t, post(bytes, { "content-encoding": "gzip" }));
  t.equal(seen.head.end, "unreadable");
  t.equal(seen.head.whole, false, "a model may be in there");
  t.ok(seen.body.equals(bytes));
  const plain = await ask(t, post('{"model":"m"}', { "content-encoding": "identity" }));
  t.equal(plain.head.model, "m");
});

t.test("the model of gemini's and the oldest endpoints stands in the path", async (t) => {
  for (const [line, model] of [
    ["POST /v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse", "gemini-2.5-pro"],
    ["POST /v1beta/models/gemini-2.5-pro:countTokens", "gemini-2.5-pro"],
    ["POST /v1/models/google%2Fgemma-3:generateContent", "google/gemma-3"],
    ["POST /v1/engines/ada/embeddings", "ada"],
  ] as const) {
    const seen = await ask(t, post('{"model":"not-this"}', {}, line));
    t.equal(seen.head.model, model, line);
    t.equal(seen.head.end, "told");
    t.equal(seen.body.toString(), '{"model":"not-this"}');
  }
  t.equal((await ask(t, Buffer.from(head("GET /v1/models/gpt-5.1", HOST)))).head.model, null);
});

t.test("a body that comes byte by byte, with the model at its end, is waited for", async (t) => {
  const { port, seen, heads } = await listen(t);
  const body = '{"messages":[{"role":"user","content":"model: \\"no\\""}],"model":"glm-4.6"}';
  const bytes = post(body);
  const client = await openRaw(t, port);
  for (const byte of bytes.subarray(0, -2)) {
    client.send(Buffer.from([byte]));
    await new Promise(setImmediate);
  }
  t.equal(heads.length, 0, "not before it is there");
  client.send(bytes.subarray(-2));
  await until("the request is through", () => seen.length === 1);
  t.equal(seen[0]?.head.model, "glm-4.6");
  t.equal(seen[0]?.body.toString(), body);
});

t.test("a form names its model before or behind the file", async (t) => {
  const boundary = "----x7";
  const part = (disposition: string, value: string) =>
    `--${boundary}\r\nContent-Disposition: form-data; ${disposition}\r\n\r\n${value}\r\n`;
  const file = part('name="file"; filename="model"', `RIFF\r\n--${boundary.slice(0, -1)}\r\n\0\xff`);
  const model = part('name="model"', "whisper-1");
  const type = { "content-type": `multipart/form-data; boundary=${boundary}` };
  for (const [name, body] of Object.entries({
    before: `${model}${file}--${boundary}--\r\n`,
    behind: `${file}${model}--${boundary}--\r\n`,
    "after a preamble": `preamble\r\n${file}${model}--${boundary}--\r\n`,
  })) {
    const bytes = Buffer.from(body, "latin1");
    const seen = await ask(t, post(bytes, type, "POST /v1/audio/transcriptions"));
    t.equal(seen.head.model, "whisper-1", name);
    t.ok(seen.body.equals(bytes), `${name}: it passes whole`);
  }
  const without = Buffer.from(`${file}--${boundary}--\r\n`, "latin1");
  t.equal((await ask(t, post(without, type))).head.end, "none", "a file called model is none");
  const none = await ask(t, post(without, { "content-type": "multipart/form-data" }));
  t.equal(none.head.end, "unreadable", "without a boundary nobody can read it");
});

t.test("a form is read the same wherever it is cut", async (t) => {
  const { port, seen } = await listen(t);
  const body = Buffer.from(
    '--b\r\ncontent-disposition: form-data; name="a"\r\n\r\nx\r\n--b\r\nContent-Type: text/plain\r\n' +
      "content-disposition: form-data; name=model\r\n\r\nm-1\r\n--b--\r\n",
  );
  const type = { "content-type": 'multipart/form-data; boundary="b"', "transfer-encoding": "chunked" };
  await fc.assert(
    fc.asyncProperty(fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 8 }), async (cuts) => {
      const before = seen.length;
      const client = await openRaw(t, port);
      client.send(head(CHAT, { ...HOST, ...type }));
      for (const piece of chunked(cut(body, cuts))) {
        client.send(piece);
        await new Promise(setImmediate);
      }
      await until("the request is through", () => seen.length > before);
      client.socket.destroy();
      return seen.at(-1)?.head.model === "m-1" && seen.at(-1)?.body.equals(body) === true;
    }),
    { numRuns: runs(20) },
  );
});

t.test("any body, cut anywhere, sent with its length or in chunks, passes unchanged", async (t) => {
  const { port, seen } = await listen(t, { most: 2000 });
  const bodies = fc.oneof(
    fc
      .record({ stream: fc.boolean(), model: fc.string({ maxLength: 20 }), input: fc.string() })
      .map((v) => JSON.stringify(v)),
    fc
      .record({ input: fc.string({ maxLength: 6000, minLength: 1000 }), model: fc.constant("late") })
      .map((v) => JSON.stringify(v)),
    fc.string({ maxLength: 4000 }),
  );
  const cuts = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 10 });
  await fc.assert(
    fc.asyncProperty(bodies, cuts, fc.boolean(), fc.boolean(), async (text, at, inChunks, pausing) => {
      const body = Buffer.from(text);
      const before = seen.length;
      const client = await openRaw(t, port);
      if (inChunks) client.send(head(CHAT, { ...HOST, "transfer-encoding": "chunked" }));
      const pieces = inChunks ? chunked(cut(body, at)) : cut(post(body), at);
      for (const piece of pieces) {
        client.send(piece);
        if (pausing) await new Promise(setImmediate);
      }
      await until("the request is through", () => seen.length > before);
      client.socket.destroy();
      const last = seen.at(-1);
      const model = last?.head.model ?? null;
      return (
        last?.body.equals(body) === true &&
        last.heard.equals(body) &&
        model === expected(text) &&
        last.listening.length === 0
      );
    }),
    { numRuns: runs(40) },
  );
});

function expected(text: string): string | null {
  try {
    const { model } = JSON.parse(text);
    return typeof model === "string" && model !== "" ? model : null;
  } catch {
    return null;
  }
}

t.test("requests that are sent one behind the other are told apart", async (t) => {
  const { port, seen } = await listen(t);
  const client = await openRaw(t, port);
  const bodies = ["a", "b", "c"].map((model) => JSON.stringify({ x: model.repeat(3000), model }));
  client.send(Buffer.concat(bodies.map((body) => post(body))));
  await until("all are through", () => seen.length === 3);
  t.same(seen.map((one) => one.head.model).sort(), ["a", "b", "c"]);
  t.same(seen.map((one) => one.body.toString()).sort(), bodies);
});

t.test("a client that waits for leave to send is read once it was given", async (t) => {
  const { port, seen } = await listen(t, {}, (_req, res) => res.writeContinue());
  const client = await openRaw(t, port);
  const bytes = post('{"model":"m"}', { expect: "100-continue" });
  client.send(bytes.subarray(0, -13));
  await client.until("100 Continue");
  client.send(bytes.subarray(-13));
  await until("the request is through", () => seen.length === 1);
  t.equal(seen[0]?.head.model, "m");
  t.equal(seen[0]?.body.toString(), '{"model":"m"}');
});

t.test("a client that leaves while it is waited for has left", async (t) => {
  for (const leave of ["destroy", "resetAndDestroy", "end"] as const) {
    const { port, heads } = await listen(t);
    const client = await openRaw(t, port);
    client.send(post('{"input":"…","model":"m"}').subarray(0, -8));
    await client.socket.writableLength;
    await new Promise(setImmediate);
    client.socket[leave]();
    await until("its leaving is noticed", () => heads.length === 1);
    t.equal(heads[0]?.end, "left", leave);
    t.equal(heads[0]?.model, null);
  }
});

t.test("a client that was gone before it was looked at has left", async (t) => {
  const { port, heads } = await listen(t, {}, (req) => new Promise((resolve) => req.on("close", resolve)));
  const client = await openRaw(t, port);
  client.send(post('{"input":"…","model":"m"}').subarray(0, -8));
  await until("it is sent", () => client.socket.bytesWritten > 0);
  client.socket.end();
  await until("its leaving is noticed", () => heads.length === 1);
  t.equal(heads[0]?.end, "left");
});

t.test("a client that stops sending has stalled, and what it sent is still there", async (t) => {
  const { port, seen, heads } = await listen(t, { patience: 100 });
  const body = '{"input":"…","model":"m"}';
  const bytes = post(body);
  const client = await openRaw(t, port);
  client.send(bytes.subarray(0, -8));
  await until("it is noticed", () => heads.length === 1);
  t.equal(heads[0]?.end, "stalled");
  client.send(bytes.subarray(-8));
  await until("the request is through", () => seen.length === 1);
  t.equal(seen[0]?.body.toString(), body);
  t.equal(seen[0]?.head.model, "m", "who goes on listening hears it after all");
});

t.test("a model beyond what may be read ahead is heard as it passes", async (t) => {
  const body = JSON.stringify({ input: "x".repeat(3 * 1024 * 1024), model: "far" });
  const { head, body: passed } = await ask(t, post(body));
  t.equal(head.end, "later");
  t.equal(head.model, "far");
  t.equal(passed.length, body.length);
});

t.test("no more than a megabyte is held of a large body, and its client has to wait", async (t) => {
  const size = 50 * 1024 * 1024;
  const held: IncomingMessage[] = [];
  const server = createServer(async (req) => {
    const told = await readHead(req, "/v1/files", { patience: 5000 });
    t.equal(told.end, "later");
    putBackHeld(req, told);
    held.push(req);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const client = await openRaw(t, (server.address() as AddressInfo).port);
  client.send(head(CHAT, { ...HOST, "content-length": String(size) }));
  client.send(Buffer.concat([Buffer.from('{"input":"'), Buffer.alloc(size - 10, "x")]));
  await until("the bound is reached", () => held.length === 1);
  const [req] = held as [IncomingMessage];
  const before = req.readableLength;
  t.ok(before >= 1024 * 1024 && before < 1.5 * 1024 * 1024, `${before} bytes are held`);
  t.ok(client.socket.writableLength > 0, "the client has to wait");
  const passed = { bytes: 0, most: 0 };
  const slow = new Writable({
    write(chunk: Buffer, _encoding, done) {
      passed.bytes += chunk.length;
      passed.most = Math.max(passed.most, req.readableLength);
      setImmediate(done);
    },
  });
  req.pipe(slow);
  await once(slow, "finish");
  t.equal(passed.bytes, size);
  t.ok(passed.most < 1.5 * 1024 * 1024, `never more than ${passed.most} bytes were waiting`);
});

t.test("where it matters, a second model is seen", async (t) => {
  const toEnd = { toEnd: true };
  for (const body of [
    '{"model":"a","x":[{"model":"z"}],"model":"b"}',
    '{"model":"a","mod\\u0065l":"b"}',
    '{"model":"a","Model":"b"}',
    '{"MODEL":"a","model":"b"}',
  ]) {
    const { head, body: passed } = await ask(t, post(body), toEnd);
    t.equal(head.disputed, true, body);
    t.equal(head.whole, true);
    t.equal(passed.toString(), body);
  }
  t.equal((await ask(t, post('{"model":"a","x":1,"model":"b"}'), toEnd)).head.model, "b", "the last counts");
  t.equal((await ask(t, post('{"model":"a","x":1}'), toEnd)).head.disputed, false);
  t.equal((await ask(t, post('{"Model":"a","x":1}'), toEnd)).head.model, "a", "as Go reads it");
  const type = { "content-type": "multipart/form-data; boundary=b" };
  const part = (value: string) => `--b\r\nContent-Disposition: form-data; name="model"\r\n\r\n${value}\r\n`;
  t.equal((await ask(t, post(`${part("a")}${part("b")}--b--\r\n`, type), toEnd)).head.disputed, true);
});

t.test("a second model far behind the first is seen before the last byte has passed", async (t) => {
  const body = `{"model":"a","x":"${"x".repeat(2 * 1024 * 1024)}","model":"b"}`;
  const { head } = await ask(t, post(body), { toEnd: true });
  t.equal(head.end, "told");
  t.equal(head.model, "b");
  t.equal(head.disputed, true);
});
