import { gzipSync } from "node:zlib";
import t, { type Test } from "tap";
import type { UsageRecord } from "../../src/usage/record.ts";
import {
  type OneTool,
  type OneToolOptions,
  startWithOneTool,
  stillHealthy,
} from "../doubles/daemon-under-test.ts";
import { longTest } from "../doubles/effort.ts";
import { head, openRaw, parsed } from "../doubles/raw-client.ts";
import { type GatewayCall, type RawGateway, startRawGateway } from "../doubles/raw-gateway.ts";
import { post } from "../doubles/stimulus.ts";
import { until } from "../doubles/until.ts";
import { faultsIn, finished, finishedModel, recordsIn } from "../doubles/usage-file.ts";

/** Every way in which a request can end has exactly one record, and the record says which way it was. */

const CHAT_USAGE = { prompt_tokens: 11, completion_tokens: 5, total_tokens: 16 };
const JSON_HEAD = { "Content-Type": "application/json", "X-Client-Request-ID": "console-1" };
const SSE_HEAD =
  "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Client-Request-ID: console-1\r\nTransfer-Encoding: chunked\r\n\r\n";
const chunk = (text: string) => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
const piece = (choices: object[], usage: object | null = null) =>
  chunk(`data: ${JSON.stringify({ id: "c-1", object: "chat.completion.chunk", choices, usage })}\n\n`);
const FIRST = piece([{ index: 0, delta: { content: "one" }, finish_reason: null }]);
const LAST =
  piece([{ index: 0, delta: {}, finish_reason: "stop" }]) + piece([], CHAT_USAGE) + chunk("data: [DONE]\n\n");

interface Scene extends OneTool {
  readonly gateway: RawGateway;
  readonly auth: Readonly<Record<string, string>>;
}

async function scene(
  t: Test,
  onCall: (call: GatewayCall) => void | Promise<void>,
  options: OneToolOptions = {},
): Promise<Scene> {
  const gateway = await startRawGateway(t, onCall);
  const one = await startWithOneTool(t, gateway.origin, options);
  return { ...one, gateway, auth: { Host: one.host, Authorization: `Bearer ${one.token}` } };
}

function chat(it: Scene, model = "gpt-x", more: object = {}): Promise<Response> {
  return fetch(`${it.url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${it.token}`, "content-type": "application/json" },
    body: JSON.stringify({ model, messages: [], ...more }),
  });
}

const BEGUN = Date.now();

/** What is true of every finished record and of its file. */
async function ended(t: Test, it: Scene, record: UsageRecord, expected: Partial<UsageRecord>): Promise<void> {
  t.match(record, expected);
  const { started_at, first_byte_at, ended_at } = record;
  t.ok(BEGUN <= started_at && started_at <= Date.now(), "it began in this test");
  t.ok(first_byte_at === null || first_byte_at >= started_at, "a first byte comes after the beginning");
  t.ok(ended_at !== null && ended_at >= (first_byte_at ?? started_at), "and the end after that");
  t.strictSame(faultsIn(it.paths.usage), []);
  await stillHealthy(t, it, [it.key, it.token]);
}

t.test("a whole answer is complete, with the gateway's tokens and its ids", async (t) => {
  const body = JSON.stringify({
    id: "chatcmpl-7",
    object: "chat.completion",
    model: "gpt-x-2026",
    usage: CHAT_USAGE,
  });
  const it = await scene(t, (call) => call.answer("200 OK", JSON_HEAD, body));
  const answer = await chat(it);
  t.equal(await answer.text(), body);
  const id = answer.headers.get("x-keybearer-request-id");
  const record = await finished(it.paths.usage, id);
  await ended(t, it, record, {
    tool: "codex",
    gateway: "main",
    group: null,
    multiplier: 1,
    key: `…${it.key.slice(-4)}`,
    protocol: "openai",
    method: "POST",
    endpoint: "/v1/chat/completions",
    model: "gpt-x",
    model_answered: "gpt-x-2026",
    stream: false,
    status: 200,
    end: "complete",
    cause: null,
    refusal: null,
    input_tokens: 11,
    cache_read_tokens: 0,
    cache_write_tokens: 0,
    output_tokens: 5,
    reasoning_tokens: 0,
    tokens_from: "reported",
    bytes_in: Buffer.byteLength(JSON.stringify({ model: "gpt-x", messages: [] })),
    bytes_out: body.length,
    gateway_ids: { "x-client-request-id": "console-1", body: "chatcmpl-7" },
  });
  t.not(record.first_byte_at, null);
});

t.test("a stream that came to its end is complete", async (t) => {
  const it = await scene(t, (call) => call.send(`${SSE_HEAD}${FIRST}${LAST}0\r\n\r\n`));
  const answer = await chat(it, "gpt-x", { stream: true });
  const text = await answer.text();
  await ended(t, it, await finished(it.paths.usage, answer.headers.get("x-keybearer-request-id")), {
    end: "complete",
    stream: true,
    status: 200,
    input_tokens: 11,
    output_tokens: 5,
    bytes_out: text.length,
    gateway_ids: { "x-client-request-id": "console-1", body: "c-1" },
  });
});

t.test("a client that leaves is distinguished from one that has it all", async (t) => {
  const it = await scene(t, async (call) => {
    await call.whole;
    const body = call.body().toString();
    if (body.includes("no-answer")) return;
    call.send(SSE_HEAD + FIRST);
    if (body.includes("last-word")) call.send(LAST);
  });
  const leave = async (model: string, after: string | null) => {
    const client = await openRaw(t, it.port);
    client.send(post("POST /v1/chat/completions", it.auth, JSON.stringify({ model, stream: true })));
    if (after !== null) await client.until(after);
    else await until("it is at the gateway", () => it.gateway.calls.at(-1)?.body().includes(model));
    client.socket.destroy();
    const record = await finishedModel(it.paths.usage, model);
    const id = parsed(client.text()).headers["x-keybearer-request-id"];
    if (after !== null) t.equal(record.id, id, "the id it was answered");
    return record;
  };
  const early = {
    end: "client-left",
    status: null,
    stream: true,
    first_byte_at: null,
    bytes_out: 0,
  } as const;
  await ended(t, it, await leave("no-answer", null), early);
  const left = { end: "client-left", status: 200, stream: true, tokens_from: "none" } as const;
  await ended(t, it, await leave("mid-stream", "one"), left);
  const whole = { end: "complete", status: 200, stream: true, input_tokens: 11 } as const;
  await ended(t, it, await leave("last-word", "[DONE]"), whole);
  t.equal(recordsIn(it.paths.usage).length, 3);
});

t.test("a client that leaves during its upload has a record of how much of it there was", async (t) => {
  const it = await scene(t, () => {});
  const client = await openRaw(t, it.port);
  const begun = "x".repeat(2000);
  const headers = { ...it.auth, "Content-Type": "application/octet-stream", "Content-Length": "100000" };
  client.send(head("POST /v1/chat/completions", headers) + begun);
  await until("a part is there", () => (it.gateway.calls[0]?.bodyBytes ?? 0) >= begun.length);
  client.socket.destroy();
  const expected = { end: "client-left", status: null, bytes_in: begun.length } as const;
  const record = () => recordsIn(it.paths.usage).find(({ end }) => end !== null);
  await until("it has a record", () => record() !== undefined);
  await ended(t, it, record() as UsageRecord, expected);
});

t.test("a gateway that fails has a record that says so", async (t) => {
  const it = await scene(
    t,
    (call) => {
      if (call.target.endsWith("/cut")) {
        // Reset below, once the client has this.
        call.send(SSE_HEAD + FIRST);
      } else if (call.target.endsWith("/short")) call.send(`${SSE_HEAD}${FIRST}0\r\n\r\n`);
      else if (call.target.endsWith("/error-event"))
        call.send(
          `${SSE_HEAD}${FIRST}${chunk('event: error\ndata: {"error":{"message":"no"}}\n\n')}0\r\n\r\n`,
        );
      else if (call.target.endsWith("/gone")) call.socket.destroy();
      else if (call.target.endsWith("/garbage")) call.send("this is no answer\r\n\r\n");
      else if (call.target.endsWith("/000")) call.send("HTTP/1.1 000 No\r\nContent-Length: 0\r\n\r\n");
      // /never: nothing at all.
    },
    { gateway: ["timeouts: { first_byte: 1s }"] },
  );
  const cases: readonly [string, Partial<UsageRecord>][] = [
    ["cut", { end: "gateway-failed", status: 200, refusal: null, stream: true }],
    ["short", { end: "gateway-failed", status: 200, refusal: null, stream: true }],
    ["error-event", { end: "gateway-failed", status: 200, refusal: null, stream: true }],
    ["gone", { end: "gateway-failed", status: 502, refusal: "gateway-broken", stream: null }],
    ["garbage", { end: "gateway-failed", status: 502, refusal: "gateway-broken", stream: null }],
    ["000", { end: "gateway-failed", status: 502, refusal: "gateway-broken" }],
    ["never", { end: "gateway-failed", status: 504, refusal: "gateway-timeout", stream: null }],
  ];
  for (const [name, expected] of cases) {
    const answer = await fetch(`${it.url}/v1/chat/completions/${name}`, {
      method: "POST",
      headers: { authorization: `Bearer ${it.token}` },
      body: JSON.stringify({ model: name }),
    });
    if (name === "cut") it.gateway.calls.at(-1)?.socket.resetAndDestroy();
    await answer.text().catch(() => {});
    t.equal(answer.status, expected.status);
    const record = await finished(it.paths.usage, answer.headers.get("x-keybearer-request-id"));
    t.equal(record.model, name);
    await ended(t, it, record, expected);
  }
  t.equal(recordsIn(it.paths.usage).length, cases.length);
});

t.test("a gateway that cannot be reached has a record without a first byte", async (t) => {
  const it = await scene(t, (call) => call.ok(), {
    baseUrl: "http://127.0.0.1:9/v1",
    gateway: ["timeouts: { retry_connect: 0s }"],
  });
  const answer = await chat(it);
  t.equal(answer.status, 400);
  await answer.text();
  await ended(t, it, await finished(it.paths.usage, answer.headers.get("x-keybearer-request-id")), {
    end: "gateway-failed",
    status: 400,
    refusal: "gateway-unreachable",
    first_byte_at: null,
    gateway_ids: {},
    bytes_out: 0,
  });
});

t.test("a gateway's own refusal is complete and names its cause and ids", async (t) => {
  const refusals: readonly [string, string, string][] = [
    [
      "401 Unauthorized",
      '{"error":{"code":"INVALID_API_KEY","message":"invalid api key"}}',
      "incomplete-key",
    ],
    ["403 Forbidden", '{"error":{"message":"无权访问 vip 分组 (request id: 2026abc)"}}', "group-unavailable"],
    ["429 Too Many", '{"error":{"message":"insufficient balance"}}', "balance-or-quota"],
    ["429 Too Many", '{"error":{"message":"slow down"}}', "rate-limit"],
    ["404 Not Found", "404 page not found", "wrong-base-url"],
    ["500 Oh", '{"error":{"message":"boom"}}', "unknown"],
  ];
  let next = 0;
  const it = await scene(t, (call) => {
    const [status, body] = refusals[next] ?? ["500 Oh", "", ""];
    next += 1;
    call.answer(status, JSON_HEAD, body);
  });
  for (const [status, body, cause] of refusals) {
    const answer = await chat(it);
    t.equal(await answer.text(), body);
    t.equal(answer.headers.get("x-keybearer-cause"), cause);
    const record = await finished(it.paths.usage, answer.headers.get("x-keybearer-request-id"));
    const expected = { end: "complete", status: Number(status.slice(0, 3)), cause, refusal: null } as const;
    await ended(t, it, record, {
      ...expected,
      tokens_from: "none",
      input_tokens: null,
      bytes_out: Buffer.byteLength(body),
    });
    const error = body.includes("request id") ? { error: "2026abc" } : {};
    t.strictSame(record.gateway_ids, { "x-client-request-id": "console-1", ...error });
  }
  t.equal(recordsIn(it.paths.usage).length, refusals.length);
});

t.test("a request that costs no tokens has a complete record without tokens", async (t) => {
  const it = await scene(t, (call) =>
    call.method === "HEAD" ? call.answer("200 OK", {}, "") : call.ok('{"input_tokens":7}'),
  );
  const asked: readonly [string, string, string | null][] = [
    ["POST", "/v1/messages/count_tokens", '{"model":"claude-x","messages":[]}'],
    ["GET", "/v1/models", null],
    ["HEAD", "/v1/models", null],
    ["DELETE", "/v1/responses/resp_1", null],
    ["POST", "/v1/files", "a file"],
  ];
  for (const [method, path, body] of asked) {
    const answer = await fetch(it.url + path, {
      method,
      body,
      headers: { authorization: `Bearer ${it.token}` },
    });
    await answer.text();
    const record = await finished(it.paths.usage, answer.headers.get("x-keybearer-request-id"));
    const none = {
      input_tokens: null,
      output_tokens: null,
      tokens_from: "none",
      list_microdollars: null,
    } as const;
    await ended(t, it, record, { method, endpoint: path, end: "complete", status: 200, ...none });
  }
  t.equal(recordsIn(it.paths.usage).length, asked.length);
});

t.test("health and probes have no record", async (t) => {
  const it = await scene(t, (call) => call.ok());
  for (const [method, path, status] of [
    ["GET", "/healthz", 200],
    ["HEAD", "/", 404],
    ["GET", "/", 200],
    ["HEAD", "/api/hello", 404],
  ] as const) {
    const answer = await fetch(it.url + path, { method });
    await answer.text();
    t.equal(answer.status, status);
    t.ok(answer.headers.get("x-keybearer-request-id"));
  }
  await (await chat(it)).text();
  await until("the chat is recorded", () => recordsIn(it.paths.usage).length === 1);
  t.strictSame(
    recordsIn(it.paths.usage).map(({ endpoint }) => endpoint),
    ["/v1/chat/completions"],
  );
});

t.test("a list of models that met a dead connection first has one record", async (t) => {
  const served = new Map<number, number>();
  const it = await scene(t, (call) => {
    const before = served.get(call.connection) ?? 0;
    served.set(call.connection, before + 1);
    if (before === 0) call.ok();
    else call.socket.resetAndDestroy();
  });
  for (let n = 0; n < 2; n += 1) {
    const answer = await fetch(`${it.url}/v1/models`, { headers: { authorization: `Bearer ${it.token}` } });
    await answer.text();
    const record = await finished(it.paths.usage, answer.headers.get("x-keybearer-request-id"));
    await ended(t, it, record, { end: "complete", status: 200 });
  }
  t.equal(it.gateway.calls.length, 3, "one of them was sent twice");
  t.equal(recordsIn(it.paths.usage).length, 2);
});

t.test("a websocket has one record, with the bytes of both ways", async (t) => {
  const it = await scene(
    t,
    (call) => {
      call.send(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-Client-Request-ID: ws-1\r\n\r\n",
      );
      call.socket.on("data", (bytes: Buffer) => call.send(Buffer.concat([Buffer.from("echo:"), bytes])));
    },
    { gateway: ["websockets: true"] },
  );
  const client = await openRaw(t, it.port);
  const asking = {
    Connection: "Upgrade",
    Upgrade: "websocket",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
  };
  client.send(head("GET /v1/responses", { ...it.auth, "Sec-WebSocket-Version": "13", ...asking }));
  await client.until("101");
  const id = parsed(client.text()).headers["x-keybearer-request-id"];
  t.equal(recordsIn(it.paths.usage)[0]?.id, id, "there from the beginning");
  t.equal(recordsIn(it.paths.usage)[0]?.end, null);
  client.send("hello");
  await client.until("echo:hello");
  client.socket.destroy();
  await ended(t, it, await finished(it.paths.usage, id), {
    end: "complete",
    status: 101,
    endpoint: "/v1/responses",
    bytes_in: 5,
    bytes_out: 10,
    tokens_from: "none",
    gateway_ids: { "x-client-request-id": "ws-1" },
  });
  t.equal(recordsIn(it.paths.usage).length, 1);
});

longTest(
  t,
  "compressed answers that are still being read at the stop have their tokens all the same",
  async (t) => {
    const text = JSON.stringify({ id: "z", choices: [{ text: "word ".repeat(200_000) }], usage: CHAT_USAGE });
    const body = gzipSync(text);
    const it = await scene(t, (call) =>
      call.answer("200 OK", { ...JSON_HEAD, "Content-Encoding": "gzip" }, body),
    );
    const answers = await Promise.all(Array.from({ length: 20 }, (_, n) => chat(it, `zipped-${n}`)));
    const reading = Promise.all(answers.map((answer) => answer.text()));
    const stopping = it.daemon.stop();
    t.ok(
      (await reading).every((got) => got === text),
      "all of them came whole",
    );
    await stopping;
    const records = recordsIn(it.paths.usage);
    t.equal(records.length, 20);
    for (const record of records) {
      t.match(record, { end: "complete", input_tokens: 11, output_tokens: 5, bytes_out: body.length });
    }
    t.strictSame(faultsIn(it.paths.usage), []);
  },
);

t.test("a stream that is cut by the stop is not the gateway's failure", async (t) => {
  const it = await scene(t, (call) => call.send(SSE_HEAD + FIRST));
  const answer = await chat(it, "cut-by-us", { stream: true });
  const reading = answer.text();
  await Promise.all([t.rejects(reading), it.daemon.stop(100)]);
  const records = recordsIn(it.paths.usage);
  t.equal(records.length, 1);
  t.match(records[0], { model: "cut-by-us", status: 200, end: /^(?:client-left|interrupted)$/ });
  t.type(records[0]?.ended_at, "number");
});
