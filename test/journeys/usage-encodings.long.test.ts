import { createHash } from "node:crypto";
import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import type { Transform } from "node:stream";
import zlib from "node:zlib";
import t from "tap";
import { type OneTool, startWithOneTool, stillHealthy } from "../doubles/daemon-under-test.ts";
import { type GatewayCall, startRawGateway } from "../doubles/raw-gateway.ts";
import { until } from "../doubles/until.ts";
import { recordFor, tokensIn } from "../doubles/usage-journey.ts";

interface Coding {
  readonly name: string;
  pack(text: string | Buffer): Buffer;
  /** For a stream, flushed after each event. */
  readonly packer: (() => Transform) | null;
}

const CODINGS: Coding[] = [
  { name: "gzip", pack: (text) => zlib.gzipSync(text), packer: () => zlib.createGzip() },
  { name: "x-gzip", pack: (text) => zlib.gzipSync(text), packer: null },
  { name: "GZip", pack: (text) => zlib.gzipSync(text), packer: null },
  { name: "deflate", pack: (text) => zlib.deflateSync(text), packer: () => zlib.createDeflate() },
  {
    name: "deflate",
    pack: (text) => zlib.deflateRawSync(text),
    packer: () => zlib.createDeflateRaw(),
  },
  {
    name: "br",
    pack: (text) => zlib.brotliCompressSync(text),
    packer: () => zlib.createBrotliCompress(),
  },
  { name: "gzip, br", pack: (text) => zlib.brotliCompressSync(zlib.gzipSync(text)), packer: null },
  { name: "identity", pack: (text) => Buffer.from(text), packer: null },
];

/** Only Node 22.15 and later have it, so that it is looked for and not imported. */
const zstdPack: unknown = Reflect.get(zlib, "zstdCompressSync");
const zstdPacker: unknown = Reflect.get(zlib, "createZstdCompress");
const HAS_ZSTD = typeof zstdPack === "function" && typeof zstdPacker === "function";
if (typeof zstdPack === "function" && typeof zstdPacker === "function")
  CODINGS.push({
    name: "zstd",
    pack: (text) => zstdPack(Buffer.from(text)),
    packer: () => zstdPacker() as Transform,
  });

interface Got {
  readonly answer: IncomingMessage;
  readonly id: string;
  bytes(): Buffer;
  readonly over: Promise<void>;
}

/** Asks without undoing any compression. */
async function ask(
  one: OneTool,
  path: string,
  body: object,
  accept = "gzip, deflate, br, zstd",
): Promise<Got> {
  const text = JSON.stringify(body);
  const sent = request(`${one.url}${path}`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${one.token}`,
      "accept-encoding": accept,
      "content-length": Buffer.byteLength(text),
    },
  });
  sent.end(text);
  const [answer] = (await once(sent, "response")) as [IncomingMessage];
  const parts: Buffer[] = [];
  answer.on("data", (part: Buffer) => void parts.push(part));
  answer.on("error", () => {});
  const over = new Promise<void>((resolve) => void answer.once("close", () => resolve()));
  const id = String(answer.headers["x-keybearer-request-id"]);
  return { answer, id, bytes: () => Buffer.concat(parts), over };
}

function sum(bytes: Buffer): string {
  return createHash("sha256").update(bytes).digest("hex");
}

const USAGE = { prompt_tokens: 1234, completion_tokens: 56, prompt_tokens_details: { cached_tokens: 1000 } };
const TOKENS = { input: 234, cacheRead: 1000, cacheWrite: 0, output: 56, reasoning: 0 };

function chatJson(pad = ""): string {
  const choices = [
    { index: 0, message: { role: "assistant", content: `é你😀 ${pad}` }, finish_reason: "stop" },
  ];
  return JSON.stringify({ id: "chatcmpl-1", object: "chat.completion", model: "m-1", choices, usage: USAGE });
}

t.test("compressed JSON reaches the client byte for byte, and the record has its tokens", async (t) => {
  let coding = CODINGS[0] as Coding;
  const gateway = await startRawGateway(t, async (call) => {
    await call.whole;
    const headers = { "Content-Type": "application/json", "Content-Encoding": coding.name };
    call.answer("200 OK", headers, coding.pack(chatJson("x".repeat(20_000))));
  });
  const one = await startWithOneTool(t, gateway.origin);
  for (coding of CODINGS) {
    const got = await ask(one, "/v1/chat/completions", { model: "m" });
    await got.over;
    t.equal(sum(got.bytes()), sum(coding.pack(chatJson("x".repeat(20_000)))), coding.name);
    t.equal(got.answer.headers["content-encoding"], coding.name);
    const record = await recordFor(one, got.id);
    t.same(tokensIn(record), TOKENS, coding.name);
    t.match(record, { end: "complete", model_answered: "m-1", tokens_from: "reported" });
    t.equal(record.bytes_out, got.bytes().length, "bytes as they went over the wire");
  }
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("only encodings that can be read are requested: a key in the answer must be found", async (t) => {
  const gateway = await startRawGateway(t, async (call) => {
    await call.whole;
    call.ok();
  });
  const one = await startWithOneTool(t, gateway.origin);
  const asked = async (path: string, accept: string) => {
    const got = await ask(one, path, { model: "m" }, accept);
    await got.over;
    return gateway.calls.at(-1)?.header("accept-encoding");
  };
  t.same(await asked("/v1/chat/completions", "gzip, deflate, br, zstd"), [
    HAS_ZSTD ? "gzip, deflate, br, zstd" : "gzip, deflate, br",
  ]);
  t.same(await asked("/v1/messages", "zstd"), [HAS_ZSTD ? "zstd" : "identity"]);
  t.same(await asked("/v1/messages", "br;q=1.0, gzip;q=0.8, *;q=0.1"), ["br;q=1.0, gzip;q=0.8"]);
  t.same(await asked("/v1/messages", "dcb, exi"), ["identity"]);
  t.same(await asked("/v1/files", "dcb, zstd"), [HAS_ZSTD ? "zstd" : "identity"], "also of an upload");
});

const EVENTS: readonly string[] = [
  `data: ${JSON.stringify({ id: "chatcmpl-1", object: "chat.completion.chunk", model: "m-1", choices: [{ index: 0, delta: { content: "a" } }] })}\n\n`,
  ": keep-alive\n\n",
  ...Array.from(
    { length: 6 },
    (_, at) => `data: {"choices":[{"index":0,"delta":{"content":"word ${at} é你"}}]}\n\n`,
  ),
  'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n',
  `data: ${JSON.stringify({ choices: [], usage: USAGE })}\n\n`,
  "data: [DONE]\n\n",
];

/** What a packer gives for one event, flushed. */
async function flushed(packer: Transform, event: string, last: boolean): Promise<Buffer> {
  const parts: Buffer[] = [];
  const onData = (part: Buffer) => void parts.push(part);
  packer.on("data", onData);
  packer.write(event);
  if (last) {
    packer.end();
    await once(packer, "end");
  } else await new Promise<void>((resolve) => (packer as zlib.Gzip).flush(() => resolve()));
  // What was flushed is told of by events of its own.
  await new Promise((resolve) => setImmediate(resolve));
  packer.off("data", onData);
  return Buffer.concat(parts);
}

t.test("of a compressed stream each event is with the client before the next is sent", async (t) => {
  const gateway = await startRawGateway(t, () => {});
  const one = await startWithOneTool(t, gateway.origin);
  for (const { name, packer: make } of CODINGS) {
    if (make === null) continue;
    const packer = make();
    const asking = ask(one, "/v1/chat/completions", { model: "m", stream: true });
    const before = gateway.calls.length;
    await until("the gateway has it", () => gateway.calls.length > before);
    const call = gateway.calls.at(-1) as GatewayCall;
    await call.whole;
    call.send(
      `HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: ${name}\r\nTransfer-Encoding: chunked\r\n\r\n`,
    );
    const got = await asking;
    let sent = Buffer.alloc(0);
    for (const [at, event] of EVENTS.entries()) {
      const bytes = await flushed(packer, event, at === EVENTS.length - 1);
      if (bytes.length === 0) continue;
      sent = Buffer.concat([sent, bytes]);
      call.send(Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from("\r\n")]));
      await until(`event ${at} in ${name}`, () => got.bytes().length === sent.length);
    }
    call.send("0\r\n\r\n");
    await got.over;
    t.ok(got.bytes().equals(sent), `${name}: the very bytes`);
    const record = await recordFor(one, got.id);
    t.same(tokensIn(record), TOKENS, name);
    t.match(record, { stream: true, end: "complete", gateway_ids: { body: "chatcmpl-1" } });
  }
  await stillHealthy(t, one, [one.key, one.token]);
});

interface Hostile {
  readonly what: string;
  readonly encoding: string | null;
  readonly type: string;
  readonly bytes: Buffer;
  /** Those it may have; a meter that gave up has none. */
  readonly tokens: readonly (typeof TOKENS | null)[];
}

function hostile(): Hostile[] {
  const json = chatJson("text ".repeat(4000));
  const gzip = zlib.gzipSync(json);
  const broken = Buffer.from(gzip);
  broken.fill(0x55, Math.floor(gzip.length / 2), Math.floor(gzip.length / 2) + 40);
  const br = zlib.brotliCompressSync(
    Buffer.from(`${json.slice(0, -1)},"tail":"${"0123456789".repeat(3000)}"}`),
  );
  const zeros = Buffer.alloc(32 * 1024 * 1024, 0x30);
  const bomb = zlib.gzipSync(Buffer.concat([Buffer.from('{"pad":"'), zeros, Buffer.from('"}')]), {
    level: 1,
  });
  const big = "z".repeat(5 * 1024 * 1024);
  const event = `data: {"choices":[{"index":0,"delta":{"content":"${big}"}}]}\n\n`;
  const none = [null];
  const either = [TOKENS, null];
  const [jsonType, events] = ["application/json", "text/event-stream"];
  return [
    { what: "a decompression bomb", encoding: "gzip", type: jsonType, bytes: bomb, tokens: none },
    {
      what: "a bomb in a bomb",
      encoding: "gzip, gzip",
      type: jsonType,
      bytes: zlib.gzipSync(bomb),
      tokens: none,
    },
    { what: "a gzip broken in the middle", encoding: "gzip", type: jsonType, bytes: broken, tokens: none },
    {
      what: "a gzip cut off",
      encoding: "gzip",
      type: jsonType,
      bytes: gzip.subarray(0, gzip.length >> 1),
      tokens: none,
    },
    {
      what: "a br cut off",
      encoding: "br",
      type: jsonType,
      bytes: br.subarray(0, br.length >> 2),
      tokens: either,
    },
    {
      what: "plain text said to be gzip",
      encoding: "gzip",
      type: jsonType,
      bytes: Buffer.from(json),
      tokens: none,
    },
    { what: "gzip said to be br", encoding: "br", type: jsonType, bytes: gzip, tokens: none },
    { what: "gzip not said to be anything", encoding: null, type: jsonType, bytes: gzip, tokens: none },
    { what: "an unknown encoding", encoding: "exi", type: jsonType, bytes: gzip, tokens: none },
    {
      what: "15 MB of JSON",
      encoding: null,
      type: jsonType,
      bytes: Buffer.from(chatJson(big.repeat(3))),
      tokens: either,
    },
    {
      what: "an event of 5 MB",
      encoding: null,
      type: events,
      bytes: Buffer.from(`${EVENTS[0]}${event}${EVENTS.slice(-3).join("")}`),
      tokens: either,
    },
    {
      what: "one line of 12 MB",
      encoding: null,
      type: events,
      bytes: Buffer.from(`data:${big}${big}`),
      tokens: none,
    },
    {
      what: "a million empty lines",
      encoding: null,
      type: events,
      bytes: Buffer.alloc(1024 * 1024, "\r\n"),
      tokens: none,
    },
    {
      what: "deep JSON",
      encoding: null,
      type: jsonType,
      bytes: Buffer.from(`{"a":${"[".repeat(200_000)}`),
      tokens: none,
    },
    { what: "nothing, said to be br", encoding: "br", type: jsonType, bytes: Buffer.alloc(0), tokens: none },
  ];
}

t.test("any response reaches the client byte for byte, and only the meter gives up", async (t) => {
  const answers = hostile();
  let now = answers[0] as Hostile;
  const gateway = await startRawGateway(t, async (call) => {
    await call.whole;
    const encoding = now.encoding === null ? {} : { "Content-Encoding": now.encoding };
    call.answer("200 OK", { "Content-Type": now.type, ...encoding }, now.bytes);
  });
  for (const settings of [[], ["estimate: true"]]) {
    const one = await startWithOneTool(t, gateway.origin, { tool: settings });
    for (now of answers) {
      const got = await ask(one, "/v1/chat/completions", { model: "m", stream: true });
      await got.over;
      t.equal(sum(got.bytes()), sum(now.bytes), now.what);
      const record = await recordFor(one, got.id);
      t.equal(record.status, 200, now.what);
      t.equal(record.bytes_out, now.bytes.length, now.what);
      t.equal(record.end, "complete", `${now.what}: ${record.end}`);
      const tokens = record.tokens_from === "reported" ? tokensIn(record) : null;
      const found = now.tokens.some((expected) => JSON.stringify(expected) === JSON.stringify(tokens));
      t.ok(found, `${now.what}: ${JSON.stringify(tokens)}`);
      if (settings.length === 0) t.not(record.tokens_from, "estimated");
    }
    await stillHealthy(t, one, [one.key, one.token]);
  }
});

t.test("a compressed stream that the gateway cuts keeps the input that it reported", async (t) => {
  const start = `event: message_start\ndata: ${JSON.stringify({
    type: "message_start",
    message: {
      id: "msg_1",
      model: "m-1",
      usage: { input_tokens: 90, cache_read_input_tokens: 7, output_tokens: 1 },
    },
  })}\n\n`;
  const gateway = await startRawGateway(t, async (call) => {
    await call.whole;
    const packer = zlib.createGzip();
    const bytes = await flushed(packer, start, false);
    packer.destroy();
    call.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\n");
    call.send("Transfer-Encoding: chunked\r\n\r\n");
    call.send(Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from("\r\n")]));
    setImmediate(() => call.socket.end());
  });
  const one = await startWithOneTool(t, gateway.origin);
  const got = await ask(one, "/v1/messages", { model: "m", stream: true });
  await got.over;
  t.equal(zlib.gunzipSync(got.bytes(), { finishFlush: zlib.constants.Z_SYNC_FLUSH }).toString(), start);
  const record = await recordFor(one, got.id);
  t.match(record, {
    end: "gateway-failed",
    input_tokens: 90,
    cache_read_tokens: 7,
    output_tokens: null,
    tokens_from: "reported",
    cost_microdollars: null,
    model_answered: "m-1",
  });
});

t.test(
  "a client that disconnects after the last event of a compressed stream has a complete record",
  async (t) => {
    const gateway = await startRawGateway(t, async (call) => {
      await call.whole;
      const bytes = await flushed(zlib.createGzip(), EVENTS.join(""), false);
      call.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\n");
      call.send("Transfer-Encoding: chunked\r\n\r\n");
      call.send(Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from("\r\n")]));
    });
    const one = await startWithOneTool(t, gateway.origin);
    const got = await ask(one, "/v1/chat/completions", { model: "m", stream: true });
    const cut = { finishFlush: zlib.constants.Z_SYNC_FLUSH };
    await until("all of it came", () => zlib.gunzipSync(got.bytes(), cut).toString().endsWith("[DONE]\n\n"));
    got.answer.destroy();
    const record = await recordFor(one, got.id);
    t.equal(record.end, "complete");
    t.same(tokensIn(record), TOKENS);
  },
);
