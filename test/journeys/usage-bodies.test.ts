import fc from "fast-check";
import t, { type Test } from "tap";
import type { UsageRecord } from "../../src/usage/record.ts";
import { type OneTool, startWithOneTool, stillHealthy } from "../doubles/daemon-under-test.ts";
import { longTest, runs } from "../doubles/effort.ts";
import { head, openRaw, parsed } from "../doubles/raw-client.ts";
import { type GatewayCall, type RawGateway, startRawGateway } from "../doubles/raw-gateway.ts";
import { dechunked } from "../doubles/stimulus.ts";
import { until } from "../doubles/until.ts";
import { finished, finishedWhere, recordsIn } from "../doubles/usage-file.ts";

/** Which model a body names is in its record, and the body passes as it came: however it is framed and cut. */

interface Scene {
  readonly one: OneTool;
  readonly gateway: RawGateway;
  /** Sends these pieces, one by one, and waits for the end of the request. */
  send(pieces: readonly (string | Buffer)[]): Promise<{ record: UsageRecord; call: GatewayCall }>;
  /** The head of a request, with what lets it in. */
  head(line: string, headers?: Readonly<Record<string, string>>): string;
}

async function start(t: Test): Promise<Scene> {
  const gateway = await startRawGateway(t, async (call) => {
    await call.whole;
    call.ok();
  });
  const one = await startWithOneTool(t, gateway.origin);
  return {
    one,
    gateway,
    async send(pieces) {
      const client = await openRaw(t, one.port);
      for (const piece of pieces) {
        client.send(piece);
        await new Promise((resolve) => setImmediate(resolve));
      }
      await client.until("\r\n\r\n{}");
      client.socket.destroy();
      const record = await finished(one.paths.usage, parsed(client.text()).headers["x-keybearer-request-id"]);
      return { record, call: gateway.calls.at(-1) as GatewayCall };
    },
    head: (line, headers = {}) =>
      head(line, { Host: one.host, Authorization: `Bearer ${one.token}`, ...headers }),
  };
}

/** The body as it came to the gateway, without its framing. */
function bodyOf(call: GatewayCall): Buffer {
  return call.header("transfer-encoding").length > 0 ? dechunked(call.body()) : call.body();
}

function chunked(pieces: readonly Buffer[]): Buffer[] {
  const chunks = pieces
    .filter((piece) => piece.length > 0)
    .map((piece) =>
      Buffer.concat([Buffer.from(`${piece.length.toString(16)}\r\n`), piece, Buffer.from("\r\n")]),
    );
  return [...chunks, Buffer.from("0\r\n\r\n")];
}

/** @param cuts where to cut it, each as a part of its length. */
function cutAt(bytes: Buffer, cuts: readonly number[]): Buffer[] {
  const at = [0, ...cuts.map((part) => Math.floor(part * bytes.length)), bytes.length].sort((a, b) => a - b);
  return at.slice(1).map((end, n) => bytes.subarray(at[n], end));
}

const CHAT = "POST /v1/chat/completions";
const JSON_TYPE = { "Content-Type": "application/json" };

t.test("a request without a body reaches the gateway without one, in every way to say so", async (t) => {
  const { send, head, one } = await start(t);
  const requests: Record<string, string> = {
    "a GET": head("GET /v1/models"),
    "a POST without headers about a body": head(CHAT),
    "a length of 0": head(CHAT, { ...JSON_TYPE, "Content-Length": "0" }),
    "no chunk but the last": `${head(CHAT, { ...JSON_TYPE, "Transfer-Encoding": "chunked" })}0\r\n\r\n`,
    "a DELETE": head("DELETE /v1/responses/resp_1"),
  };
  for (const [what, bytes] of Object.entries(requests)) {
    const { record, call } = await send([bytes]);
    t.match(record, { end: "complete", status: 200, model: null, bytes_in: 0 }, what);
    t.equal(call.method, bytes.split(" ", 1)[0], what);
    t.equal(bodyOf(call).length, 0, what);
  }
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("the model is found where it is named, and nowhere else", async (t) => {
  const { send, head, one } = await start(t);
  const form = { "Content-Type": "multipart/form-data" };
  const rows: [string, string, Record<string, string>, string, string | null][] = [
    ["in a body with encoding identity", CHAT, { "Content-Encoding": "identity" }, '{"model":"m"}', "m"],
    ["without a content type", CHAT, {}, '{"model":"m"}', "m"],
    ["in an escaped key", CHAT, JSON_TYPE, '{"mod\\u0065l":"m"}', "m"],
    [
      "in the path of the oldest endpoints",
      "POST /v1/engines/ada/embeddings",
      JSON_TYPE,
      '{"model":"no"}',
      "ada",
    ],
    [
      "not in a form without a boundary",
      "POST /v1/audio/transcriptions",
      form,
      '--b\r\n\r\n{"model":"no"}',
      null,
    ],
    ["not in what is no JSON", CHAT, JSON_TYPE, "model=no&x=1", null],
    ["not further in", CHAT, JSON_TYPE, '{"a":{"model":"no"}}', null],
  ];
  for (const [what, line, headers, body, model] of rows) {
    const { record, call } = await send([
      head(line, { ...headers, "Content-Length": String(body.length) }) + body,
    ]);
    t.equal(record.model, model, what);
    t.equal(bodyOf(call).toString(), body, `${what}: it passes as it came`);
  }
  const get = await send([head("GET /v1/models/gpt-5.1")]);
  t.equal(get.record.model, null, "not in the path of what costs nothing");
  await stillHealthy(t, one, [one.key, one.token]);
});

function modelIn(text: string): string | null {
  try {
    const { model } = JSON.parse(text);
    return typeof model === "string" && model !== "" ? model : null;
  } catch {
    return null;
  }
}

t.test("any body, cut anywhere, passes unchanged, and its record has its model", async (t) => {
  const { send, head, one } = await start(t);
  const model = fc.string({ unit: fc.constantFrom(..."abc-0123."), maxLength: 20 });
  const bodies = fc.oneof(
    fc.record({ stream: fc.boolean(), model, input: fc.string() }).map((body) => JSON.stringify(body)),
    fc
      .record({ input: fc.string({ unit: "binary", maxLength: 6000 }), model })
      .map((body) => JSON.stringify(body)),
    fc.string({ maxLength: 4000 }),
  );
  const cuts = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 10 });
  await fc.assert(
    fc.asyncProperty(bodies, cuts, fc.boolean(), async (text, at, isChunked) => {
      const body = Buffer.from(text);
      const framing: Record<string, string> = isChunked
        ? { "Transfer-Encoding": "chunked" }
        : { "Content-Length": String(body.length) };
      const pieces = isChunked ? chunked(cutAt(body, at)) : cutAt(body, at);
      const { record, call } = await send([head(CHAT, { ...JSON_TYPE, ...framing }), ...pieces]);
      t.equal(record.model, modelIn(text), JSON.stringify(text.slice(-200)));
      t.equal(record.bytes_in, body.length);
      t.ok(bodyOf(call).equals(body), "as it came");
    }),
    { numRuns: runs(20) },
  );
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("a form, cut anywhere, names its model", async (t) => {
  const { send, head } = await start(t);
  const body = Buffer.from(
    '--b\r\ncontent-disposition: form-data; name="a"\r\n\r\nx\r\n--b\r\nContent-Type: text/plain\r\n' +
      "content-disposition: form-data; name=model\r\n\r\nm-1\r\n--b--\r\n",
  );
  const headers = { "Content-Type": 'multipart/form-data; boundary="b"', "Transfer-Encoding": "chunked" };
  const cuts = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 8 });
  await fc.assert(
    fc.asyncProperty(cuts, async (at) => {
      const line = "POST /v1/audio/transcriptions";
      const { record, call } = await send([head(line, headers), ...chunked(cutAt(body, at))]);
      t.equal(record.model, "m-1");
      t.ok(bodyOf(call).equals(body), "as it came");
    }),
    { numRuns: runs(12) },
  );
});

t.test("requests in one packet keep their own bodies and models", async (t) => {
  const { head, one, gateway } = await start(t);
  const bodies = ["a", "b", "c"].map((model) => JSON.stringify({ x: model.repeat(3000), model }));
  const client = await openRaw(t, one.port);
  client.send(
    bodies.map((body) => head(CHAT, { ...JSON_TYPE, "Content-Length": String(body.length) }) + body).join(""),
  );
  await until("all are answered", () => client.text().split("HTTP/1.1 200").length === 4);
  t.strictSame(gateway.calls.map((call) => bodyOf(call).toString()).toSorted(), bodies);
  await until("all have their records", () => recordsIn(one.paths.usage).every(({ end }) => end !== null));
  t.strictSame(
    recordsIn(one.paths.usage)
      .map(({ model, bytes_in }) => [model, bytes_in])
      .toSorted(),
    bodies.map((body) => [modelIn(body), body.length]),
  );
});

longTest(
  t,
  "a client that leaves during its body has left, and the gateway gets no complete request",
  async (t) => {
    const { head, one, gateway } = await start(t);
    const body = '{"input":"…","model":"m"}';
    const framings = {
      length: [{ "Content-Length": "1000" }, body],
      chunks: [{ "Transfer-Encoding": "chunked" }, `${Buffer.byteLength(body).toString(16)}\r\n${body}\r\n`],
      "a part of a chunk": [{ "Transfer-Encoding": "chunked" }, `1000\r\n${body}`],
    } as const;
    for (const [framing, [headers, bytes]] of Object.entries(framings)) {
      for (const how of ["destroy", "resetAndDestroy", "end"] as const) {
        const path = `/v1/chat/completions/${how}-${framing.replaceAll(" ", "-")}`;
        const client = await openRaw(t, one.port);
        client.send(head(`POST ${path}`, { ...JSON_TYPE, ...headers }) + bytes);
        // Loopback delivers at once, and each turn of the event loop reads what was delivered.
        for (let turns = 0; turns < 10; turns += 1) await new Promise((resolve) => setImmediate(resolve));
        client.socket[how]();
        const record = await finishedWhere(one.paths.usage, path, ({ endpoint }) => endpoint === path);
        t.match(record, { end: "client-left", status: null, refusal: null }, path);
      }
    }
    let whole = 0;
    for (const call of gateway.calls) void call.whole.then(() => (whole += 1));
    await Promise.all(gateway.calls.map(({ closed }) => closed));
    t.equal(whole, 0, "no request looks whole");
    await stillHealthy(t, one, [one.key, one.token]);
  },
);
