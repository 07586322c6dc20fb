import { once } from "node:events";
import { createServer } from "node:net";
import { setTimeout as wait } from "node:timers/promises";
import t from "tap";
import { startWithOneTool, stillHealthy } from "../doubles/daemon-under-test.ts";
import { head, openRaw, parsed } from "../doubles/raw-client.ts";
import { type GatewayCall, startRawGateway } from "../doubles/raw-gateway.ts";
import { until } from "../doubles/until.ts";

const STREAM = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const EVENT = "b\r\ndata: one\n\n\r\n";

const deaths: [string, string, (call: GatewayCall) => void][] = [
  ["resets", STREAM + EVENT, (call) => void call.socket.resetAndDestroy()],
  ["ends between chunks", STREAM + EVENT, (call) => void call.socket.end()],
  ["ends inside a chunk", `${STREAM}${EVENT}50\r\nhalf`, (call) => void call.socket.end()],
  ["sends a broken chunk", STREAM + EVENT, (call) => call.send("zz\r\nnonsense\r\n")],
  [
    "ends one byte before its length",
    "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\ndata: one\n\n",
    (call) => void call.socket.end(),
  ],
  [
    "ends before any of the body",
    "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n",
    (call) => void call.socket.end(),
  ],
];
for (const [how, bytes, die] of deaths) {
  t.test(`a gateway that ${how} cuts the client at once, and nothing is added`, async (t) => {
    const gateway = await startRawGateway(t, (call) => call.send(bytes));
    const one = await startWithOneTool(t, gateway.origin);
    const client = await openRaw(t, one.port);
    client.send(head("GET /v1/stream", { Host: one.host, Authorization: `Bearer ${one.token}` }));
    await client.until(
      bytes.includes("half") ? "half" : bytes.includes("data") ? "data: one\n\n" : "\r\n\r\n",
    );
    const [call] = gateway.calls;
    if (call) die(call);
    await client.closed();
    const { status, body } = parsed(client.text());
    t.equal(status, 200);
    t.notOk(/\r\n0\r\n\r\n$|^0\r\n\r\n$/.test(body), "no end was made up");
    t.ok(
      bytes.includes(body.replace(/^[0-9a-f]+\r\nhalf\r\n/m, "")) || body.includes("half"),
      "only what came",
    );
    await until("it is settled", () => one.log().some((line) => line.endpoint === "/v1/stream"));
    t.match(
      one.log().filter((line) => line.endpoint === "/v1/stream"),
      [{ end: "gateway-failed", status: 200 }],
    );
    await stillHealthy(t, one, [one.key, one.token]);
  });
}

const early: [string, (call: GatewayCall) => void, number, string][] = [
  ["resets", (call) => void call.socket.resetAndDestroy(), 502, "gateway-broken"],
  ["ends", (call) => void call.socket.end(), 502, "gateway-broken"],
  ["answers half a head and ends", (call) => void call.socket.end("HTTP/1.1 200 O"), 502, "gateway-broken"],
  ["answers garbage", (call) => call.send("\x00\x01\x02 this is not http\r\n\r\n"), 502, "gateway-broken"],
  ["answers as another protocol", (call) => call.send("SSH-2.0-OpenSSH_9\r\n"), 502, "gateway-broken"],
  [
    "has two lengths",
    (call) => call.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx"),
    502,
    "gateway-broken",
  ],
  [
    "has length and chunks",
    (call) =>
      call.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    502,
    "gateway-broken",
  ],
  [
    "has headers without end",
    (call) => call.send(`HTTP/1.1 200 OK\r\nX-Big: ${"x".repeat(20_000)}\r\n\r\n`),
    502,
    "gateway-broken",
  ],
  [
    "has a NUL in a header",
    (call) => call.send("HTTP/1.1 200 OK\r\nX-A: a\x00b\r\nContent-Length: 0\r\n\r\n"),
    502,
    "gateway-broken",
  ],
  [
    "has status 000",
    (call) => call.send("HTTP/1.1 000 Zero\r\nContent-Length: 0\r\n\r\n"),
    502,
    "gateway-broken",
  ],
  [
    "has status 099",
    (call) => call.send("HTTP/1.1 099 Low\r\nContent-Length: 0\r\n\r\n"),
    502,
    "gateway-broken",
  ],
  [
    "changes the protocol unasked",
    (call) =>
      call.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"),
    502,
    "gateway-broken",
  ],
  [
    "dies inside an error",
    (call) => void call.socket.end('HTTP/1.1 500 Oh\r\nContent-Length: 100\r\n\r\n{"err'),
    502,
    "gateway-broken",
  ],
];
for (const [how, answer, status, code] of early) {
  t.test(`a gateway that ${how} before its first byte is explained in words`, async (t) => {
    const gateway = await startRawGateway(t, answer);
    const one = await startWithOneTool(t, gateway.origin);
    const client = await openRaw(t, one.port);
    const headers = { Host: one.host, Authorization: `Bearer ${one.token}` };
    client.send(head("GET /v1/models", headers));
    await client.until("\r\n\r\n");
    const got = parsed(client.text());
    t.equal(got.status, status);
    t.equal(got.headers["x-keybearer-refusal"], code);
    t.equal(got.headers["x-should-retry"], undefined, "the client may try again");
    await client.until('"code":"gateway-broken"}}');
    t.match(client.text(), "gateway main");
    client.send(head("GET /healthz", headers));
    await client.until("ok\n");
    t.equal(gateway.calls.length, 1, "nothing was tried twice");
    t.match(
      one.log().filter((line) => line.endpoint === "/v1/models"),
      [{ end: "gateway-failed", refusal: code }],
    );
    await stillHealthy(t, one, [one.key, one.token]);
  });
}

t.test("a reason phrase with control characters does no harm", async (t) => {
  for (const status of ["200 O\x01K", "200 O\x00K", "200 ", "200", "401 \x1b[31mno", "200 ok\x7f"]) {
    const gateway = await startRawGateway(t, (call) => call.answer(status, {}, "{}"));
    const one = await startWithOneTool(t, gateway.origin);
    const client = await openRaw(t, one.port);
    client.send(head("GET /v1/models", { Host: one.host, Authorization: `Bearer ${one.token}` }));
    await client.until("\r\n\r\n");
    t.ok([200, 401, 502].includes(client.status()), JSON.stringify(status));
    await stillHealthy(t, one, [one.key, one.token]);
  }
});

t.test("a gateway that does not run is gateway-unreachable", async (t) => {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  const port = typeof address === "object" ? address?.port : 0;
  server.close();
  await once(server, "close");
  const one = await startWithOneTool(t, `http://127.0.0.1:${port}`);
  const answer = await fetch(`${one.url}/v1/messages`, {
    method: "POST",
    headers: { authorization: `Bearer ${one.token}` },
    body: "{}",
  });
  t.equal(answer.status, 502);
  t.equal(answer.headers.get("x-keybearer-refusal"), "gateway-unreachable");
  const body = (await answer.json()) as { type: string; error: { type: string; message: string } };
  t.equal(body.type, "error");
  t.equal(body.error.type, "api_error");
  t.match(
    body.error.message,
    `gateway main (http://127.0.0.1:${port}) cannot be reached: nothing listens there`,
  );
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test(
  "a gateway that fails again within half a minute is shown as down, until a request passes",
  async (t) => {
    const gateway = await startRawGateway(t, (call) =>
      call.target.endsWith("/broken") ? void call.socket.end() : call.ok(),
    );
    const one = await startWithOneTool(t, gateway.origin);
    const ask = async (path: string) => {
      const answer = await fetch(one.url + path, { headers: { authorization: `Bearer ${one.token}` } });
      await answer.text();
      return {
        status: answer.status,
        retry: answer.headers.get("x-should-retry"),
        refusal: answer.headers.get("x-keybearer-refusal"),
      };
    };
    const mayRetry = { status: 502, retry: null, refusal: "gateway-broken" };
    const isDown = { status: 400, retry: "false", refusal: "gateway-broken" };
    t.match(await ask("/v1/broken"), mayRetry, "the first failure may be a short one");
    t.match(await ask("/v1/broken"), isDown);
    t.match(await ask("/v1/broken"), isDown);
    t.match(await ask("/v1/models"), { status: 200 }, "every request is tried");
    t.match(await ask("/v1/broken"), mayRetry, "the success ended it");
  },
);

t.test("a name that DNS does not know is gateway-unreachable", async (t) => {
  const one = await startWithOneTool(t, "https://nowhere.invalid", {
    gateway: ["timeouts: { connect: 5s }"],
  });
  const answer = await fetch(`${one.url}/v1/models`, { headers: { authorization: `Bearer ${one.token}` } });
  t.equal(answer.status, 502);
  t.equal(answer.headers.get("x-keybearer-refusal"), "gateway-unreachable");
  await answer.text();
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("a gateway that takes the connection but no TLS times out as connect", async (t) => {
  const gateway = await startRawGateway(t, () => {});
  const one = await startWithOneTool(t, gateway.origin, {
    baseUrl: `https://127.0.0.1:${gateway.port}/v1`,
    gateway: ["timeouts: { connect: 300ms, first_byte: 60s }"],
  });
  const answer = await fetch(`${one.url}/v1/models`, { headers: { authorization: `Bearer ${one.token}` } });
  t.equal(answer.status, 504);
  t.equal(answer.headers.get("x-keybearer-refusal"), "gateway-timeout");
  t.match(await answer.text(), "no connection within 0.3 s (gateways.main.timeouts.connect)");
  await until("the connection is given up", () => gateway.open() === 0);
  t.notOk(gateway.received().includes(one.key));
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("a gateway that speaks plain http where TLS was meant is unreachable, and gets no key", async (t) => {
  const gateway = await startRawGateway(t, () => {}, {
    onConnection: (socket) => void socket.write("HTTP/1.1 400 Bad Request\r\n\r\n"),
  });
  const one = await startWithOneTool(t, gateway.origin, { baseUrl: `https://127.0.0.1:${gateway.port}/v1` });
  const answer = await fetch(`${one.url}/v1/models`, { headers: { authorization: `Bearer ${one.token}` } });
  t.equal(answer.status, 502);
  t.equal(answer.headers.get("x-keybearer-refusal"), "gateway-unreachable");
  t.match(await answer.text(), "TLS with it failed");
  t.notOk(gateway.received().includes(one.key));
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test(
  "a gateway that never answers times out, is let go, and the client's connection lives on",
  async (t) => {
    const gateway = await startRawGateway(t, (call) => {
      if (call.target.endsWith("models")) call.ok();
    });
    const one = await startWithOneTool(t, gateway.origin, { gateway: ["timeouts: { first_byte: 300ms }"] });
    const client = await openRaw(t, one.port);
    const headers = { Host: one.host, Authorization: `Bearer ${one.token}` };
    for (let n = 0; n < 5; n += 1) {
      client.send(head("GET /v1/never", headers));
      await until("it is answered", () => client.status(2 * n) === 504);
      await client.until(/timeouts\.first_byte\)[^{]*}}$/);
      client.send(head("GET /v1/models", headers));
      await until("the next one is answered on the same connection", () => client.status(2 * n + 1) === 200);
    }
    t.match(client.text(), "no answer within 0.3 s");
    await until("the silent calls are closed", () =>
      gateway.calls.filter((call) => call.target.endsWith("never")).every((call) => call.isClosed),
    );
    t.match(
      one.log().find((line) => line.endpoint === "/v1/never"),
      { end: "gateway-failed", status: 504, refusal: "gateway-timeout" },
    );
    await stillHealthy(t, one, [one.key, one.token]);
  },
);

t.test("a slow upload does not count against the first byte", async (t) => {
  const gateway = await startRawGateway(t, async (call) => {
    await call.whole;
    call.ok();
  });
  const one = await startWithOneTool(t, gateway.origin, { gateway: ["timeouts: { first_byte: 1500ms }"] });
  const client = await openRaw(t, one.port);
  const headers = { Host: one.host, Authorization: `Bearer ${one.token}`, "Content-Length": "10" };
  client.send(head("POST /v1/files", headers));
  for (let n = 1; n <= 10; n += 1) {
    client.send("x");
    await until("it is there", () => gateway.calls[0]?.bodyBytes === n);
    // The stimulus: an upload that takes longer than the patience.
    await wait(200);
  }
  await client.until("\r\n\r\n{}");
  t.equal(client.status(), 200, "two seconds of upload with a patience of 1.5");
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("a stream that falls silent is cut after the idle time; one that drips is not", async (t) => {
  const gateway = await startRawGateway(t, (call) => {
    call.send(STREAM + EVENT);
    if (!call.target.endsWith("drip")) return;
    let n = 0;
    // The stimulus: all of it takes longer than the idle time, and no pause nearly so long.
    const timer = setInterval(() => {
      n += 1;
      call.send(n < 30 ? EVENT : "0\r\n\r\n");
      if (n >= 30) clearInterval(timer);
    }, 80);
  });
  const one = await startWithOneTool(t, gateway.origin, { gateway: ["timeouts: { idle: 2s }"] });
  const headers = { Host: one.host, Authorization: `Bearer ${one.token}` };
  const silent = await openRaw(t, one.port);
  silent.send(head("GET /v1/silent", headers));
  const drip = await openRaw(t, one.port);
  drip.send(head("GET /v1/drip", headers));
  await silent.closed();
  t.notOk(silent.text().endsWith("0\r\n\r\n"), "nothing added");
  await drip.until("\r\n0\r\n\r\n");
  t.equal(drip.text().split("data: one").length, 31);
  t.match(
    one.log().find((line) => line.endpoint === "/v1/silent"),
    { end: "gateway-failed", status: 200 },
  );
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("an answer that takes longer than an idle connection may live is not cut", async (t) => {
  // Announced as two seconds, a connection is kept for one.
  const gateway = await startRawGateway(t, (call) => {
    if (call.target.endsWith("first")) call.answer("200 OK", { "Keep-Alive": "timeout=2" }, "soon");
    else setTimeout(() => call.ok("late"), 1600);
  });
  const one = await startWithOneTool(t, gateway.origin);
  for (const [path, words] of [
    ["first", "soon"],
    ["second", "late"],
  ]) {
    const headers = { authorization: `Bearer ${one.token}` };
    t.equal(await (await fetch(`${one.url}/v1/models/${path}`, { headers })).text(), words);
  }
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test(
  "a gateway that answers early and reads no further is let go of, with what it did not read",
  async (t) => {
    const gateway = await startRawGateway(
      t,
      (call) => {
        call.socket.pause();
        call.answer("413 Too Large", {}, "no");
      },
      { keepBodies: false },
    );
    const one = await startWithOneTool(t, gateway.origin, { tool: ["ask_usage: true"] });
    const content = "x".repeat(12 * 1024 * 1024);
    const answer = await fetch(`${one.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${one.token}`, "content-type": "application/json" },
      body: JSON.stringify({ model: "m", stream: true, messages: [{ role: "user", content }] }),
    });
    t.equal(answer.status, 413);
    t.equal(await answer.text(), "no");
    const [call] = gateway.calls;
    // Longer than the second it is given: the daemon's timer is in this process too, and timers go off in order. Who
    // reads nothing does not see the end of its connection.
    await wait(1500);
    call?.socket.resume();
    await call?.closed;
    t.ok((call?.bodyBytes ?? 0) < content.length, "the rest was never sent");
    await stillHealthy(t, one, [one.key, one.token]);
  },
);
