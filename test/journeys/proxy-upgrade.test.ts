import { gzipSync } from "node:zlib";
import t from "tap";
import { type OneTool, startWithOneTool, stillHealthy } from "../doubles/daemon-under-test.ts";
import { head, openRaw, parsed } from "../doubles/raw-client.ts";
import { type GatewayCall, startRawGateway } from "../doubles/raw-gateway.ts";
import { until } from "../doubles/until.ts";

const ON = { gateway: ["websockets: true"] };
const SWITCH =
  "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
  "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSet-Cookie: a=b\r\n\r\n";

/** As Codex asks. */
function upgrade(one: OneTool, more: Record<string, string> = {}): string {
  return head("GET /v1/responses", {
    Host: one.host,
    Authorization: `Bearer ${one.token}`,
    Connection: "Upgrade",
    Upgrade: "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    ...more,
  });
}

function echoing(call: GatewayCall): void {
  call.send(SWITCH);
  call.socket.on("data", (chunk: Buffer) => call.send(Buffer.concat([Buffer.from("echo:"), chunk])));
}

t.test("by default every upgrade gets a 426, and nothing reaches the gateway", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const one = await startWithOneTool(t, gateway.origin);
  for (const more of [{}, { Authorization: "Bearer nonsense" }]) {
    const client = await openRaw(t, one.port);
    client.send(upgrade(one, more));
    await client.closed();
    const got = parsed(client.text());
    t.equal(got.status, 426);
    t.equal(got.headers["x-keybearer-refusal"], "websockets-off");
    t.equal(got.headers.upgrade, "websocket");
    t.ok(got.headers["x-keybearer-request-id"]);
    t.equal(Number(got.headers["content-length"]), got.body.length);
    t.equal(JSON.parse(got.body).error.code, "websockets-off");
  }
  t.equal(gateway.connections(), 0);
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("a websocket request with a body is refused", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.answer("404 Not Found", {}, "{}"));
  const one = await startWithOneTool(t, gateway.origin, ON);
  for (const more of [{ "Content-Length": "40" }, { "Transfer-Encoding": "chunked" }]) {
    const client = await openRaw(t, one.port);
    client.send(upgrade(one, more));
    await client.closed();
    t.equal(parsed(client.text()).status, 400);
  }
  t.equal(gateway.connections(), 0);
  const client = await openRaw(t, one.port);
  client.send(upgrade(one));
  await client.closed();
  t.equal(parsed(client.text()).status, 404);
  await (await fetch(`${one.url}/v1/models`, { headers: { authorization: `Bearer ${one.token}` } })).text();
  t.equal(gateway.connections(), 2, "a connection on which an upgrade was asked for serves no other request");
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("an upgrade to another protocol than WebSocket is ignored, as Java's clients expect", async (t) => {
  const gateway = await startRawGateway(t, async (call) => {
    await call.whole;
    call.ok();
  });
  const one = await startWithOneTool(t, gateway.origin);
  const client = await openRaw(t, one.port);
  const head = [
    "POST /v1/chat/completions HTTP/1.1",
    `Host: 127.0.0.1:${one.port}`,
    `Authorization: Bearer ${one.token}`,
    "Connection: Upgrade, HTTP2-Settings, X-Private",
    "Upgrade: h2c",
    "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
    "X-Private: for this hop only",
    "Content-Length: 11",
  ];
  client.send(`${head.join("\r\n")}\r\n\r\nhello `);
  client.send("world");
  await client.until("\r\n\r\n");
  t.equal(parsed(client.text()).status, 200);
  const [call] = gateway.calls;
  t.strictSame(call?.header("authorization"), [`Bearer ${one.key}`]);
  t.match(gateway.received(), /hello world$/, "the body is whole");
  for (const name of ["upgrade", "http2-settings", "x-private"]) t.strictSame(call?.header(name), [], name);
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("with websockets: true data passes both ways, and the gateway gets the key", async (t) => {
  const gateway = await startRawGateway(t, echoing);
  const one = await startWithOneTool(t, gateway.origin, ON);
  const client = await openRaw(t, one.port);
  // What is sent behind the request already must not be lost.
  client.send(`${upgrade(one)}early`);
  await client.until("echo:early");
  const got = parsed(client.text());
  t.equal(got.status, 101);
  t.match(got.headers, {
    upgrade: "websocket",
    "sec-websocket-accept": "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
    "x-keybearer-request-id": /.+/,
  });
  t.equal(got.headers["set-cookie"], undefined);
  const [call] = gateway.calls;
  t.strictSame(call?.header("authorization"), [`Bearer ${one.key}`]);
  t.strictSame(call?.header("sec-websocket-key"), ["dGhlIHNhbXBsZSBub25jZQ=="]);
  t.strictSame(call?.header("upgrade"), ["websocket"]);
  t.notOk(gateway.received().includes(one.token));
  for (let n = 0; n < 20; n += 1) {
    client.send(`ping${n};`);
    await client.until(`echo:ping${n};`);
  }
  client.socket.end();
  await until("the gateway sees the end", () => call?.isClosed);
  await client.closed();
  await until("it is settled", () => one.ended().some((line) => line.endpoint === "/v1/responses"));
  t.match(
    one.ended().filter((line) => line.endpoint === "/v1/responses"),
    [{ end: "complete", status: 101 }],
  );
  await until("nothing is open", () => gateway.open() === 0);
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("the headers of a 101 pass byte for byte, in their case and order", async (t) => {
  const gateway = await startRawGateway(t, (call) =>
    call.send(Buffer.from(SWITCH.replace("Set-Cookie: a=b", "X-B: \xe9\r\nx-a: 1\r\nX-b: 2"), "latin1")),
  );
  const one = await startWithOneTool(t, gateway.origin, ON);
  const client = await openRaw(t, one.port);
  client.send(upgrade(one));
  await client.until("\r\n\r\n");
  t.match(client.text(), "\r\nX-B: \xe9\r\nx-a: 1\r\nX-b: 2\r\n");
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("data that comes with the gateway's 101 is not lost", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.send(`${SWITCH}first words`));
  const one = await startWithOneTool(t, gateway.origin, ON);
  const client = await openRaw(t, one.port);
  client.send(upgrade(one));
  await client.until("\r\n\r\nfirst words");
  client.socket.destroy();
  await until("it is settled", () => one.ended().some((line) => line.endpoint === "/v1/responses"));
  t.match(
    one.ended().find((line) => line.endpoint === "/v1/responses"),
    { bytes_out: "first words".length },
  );
  await stillHealthy(t, one, [one.key, one.token]);
});

const endings: [string, (call: GatewayCall) => void][] = [
  ["ends", (call) => void call.socket.end("bye")],
  ["resets", (call) => void call.socket.resetAndDestroy()],
];
for (const [how, end] of endings) {
  t.test(`a client's websocket ends when the gateway ${how} it`, async (t) => {
    const gateway = await startRawGateway(t, echoing);
    const one = await startWithOneTool(t, gateway.origin, ON);
    const client = await openRaw(t, one.port);
    client.send(upgrade(one));
    await client.until("\r\n\r\n");
    client.send("x");
    await client.until("echo:x");
    const [call] = gateway.calls;
    if (call) end(call);
    await client.closed();
    if (how === "ends") t.ok(client.text().endsWith("bye"), "the last bytes came");
    await until("it is settled", () => one.ended().some((line) => line.endpoint === "/v1/responses"));
    await until("nothing is open", () => gateway.open() === 0);
    await stillHealthy(t, one, [one.key, one.token]);
  });
}

const leavings = [
  ["closes", (socket: { destroy(): void }) => socket.destroy()],
  ["resets", (socket: { resetAndDestroy(): void }) => socket.resetAndDestroy()],
  ["ends its side", (socket: { end(): void }) => socket.end()],
] as const;
for (const [how, leave] of leavings) {
  t.test(`a client that ${how} ends the gateway's connection, before and after the upgrade`, async (t) => {
    const gateway = await startRawGateway(t, (call) => {
      // A gateway that goes on for ever, whatever the other side does.
      call.socket.removeAllListeners("end");
      call.socket.on("end", () => {
        call.isClosed = true;
      });
      if (gateway.calls.length > 1) call.send(SWITCH);
    });
    const one = await startWithOneTool(t, gateway.origin, ON);
    for (const answered of [false, true]) {
      const client = await openRaw(t, one.port);
      client.send(upgrade(one));
      await until("it is at the gateway", () => gateway.calls.length === (answered ? 2 : 1));
      if (answered) await client.until("\r\n\r\n");
      leave(client.socket);
      await until("the gateway call is closed", () => gateway.calls.at(-1)?.isClosed);
      const lines = () => one.ended().filter((line) => line.endpoint === "/v1/responses");
      await until("it is settled", () => lines().length === (answered ? 2 : 1));
      t.match(lines().at(-1), { end: answered ? "complete" : "client-left" });
    }
    await stillHealthy(t, one, [one.key, one.token]);
  });
}

const refusals: [string, (key: string) => [string, Record<string, string>, string | Buffer]][] = [
  ["401", () => ["401 Unauthorized", {}, '{"code":"INVALID_API_KEY","message":"Invalid API key"}']],
  ["401 that echoes the key", (key) => [`401 No ${key}`, { "X-Echo": key }, `Invalid API key ${key}`]],
  [
    "401 that echoes the key, compressed",
    (key) => ["401 No", { "Content-Encoding": "gzip" }, gzipSync(`Invalid API key ${key}`)],
  ],
];
for (const [what, answer] of refusals) {
  t.test(
    `the response of a gateway that answers an upgrade with ${what} passes without the key`,
    async (t) => {
      let key = "";
      const gateway = await startRawGateway(t, (call) => call.answer(...answer(key)));
      const one = await startWithOneTool(t, gateway.origin, ON);
      key = one.key;
      const client = await openRaw(t, one.port);
      client.send(upgrade(one));
      await client.closed();
      const got = parsed(client.text());
      t.equal(got.status, 401);
      t.equal(got.names.filter((name) => name === "content-length").length, 1);
      t.equal(got.headers["transfer-encoding"], undefined, "one framing, not two");
      t.equal(Number(got.headers["content-length"]), got.body.length);
      t.match(got.body, "Invalid API key");
      t.equal(got.headers["x-keybearer-cause"], "incomplete-key");
      t.equal(got.headers["x-should-retry"], "false");
      t.equal(got.headers.connection, "close");
      t.notOk(client.text().includes(one.key));
      await until("it is settled", () => one.ended().some((line) => line.endpoint === "/v1/responses"));
      t.match(
        one.ended().filter((line) => line.endpoint === "/v1/responses"),
        [{ end: "complete", status: 401, cause: "incomplete-key" }],
      );
      await stillHealthy(t, one, [one.key, one.token]);
    },
  );
}

t.test("the stream of a gateway that ignores an upgrade passes whole", async (t) => {
  const gateway = await startRawGateway(t, (call) =>
    call.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"),
  );
  const one = await startWithOneTool(t, gateway.origin, ON);
  const client = await openRaw(t, one.port);
  client.send(upgrade(one));
  await client.closed();
  const got = parsed(client.text());
  t.equal(got.status, 200);
  t.ok(got.body.includes("hello") && got.body.includes(" world"));
  await stillHealthy(t, one, [one.key, one.token]);
});

const deaths: [string, (call: GatewayCall) => void, string][] = [
  ["resets", (call) => void call.socket.resetAndDestroy(), "gateway-broken"],
  ["ends", (call) => void call.socket.end(), "gateway-broken"],
  ["answers garbage", (call) => call.send("garbage\r\n\r\n"), "gateway-broken"],
];
for (const [how, die, code] of deaths) {
  t.test(`a gateway that ${how} instead of upgrading is reported as broken`, async (t) => {
    const gateway = await startRawGateway(t, die);
    const one = await startWithOneTool(t, gateway.origin, ON);
    const client = await openRaw(t, one.port);
    client.send(upgrade(one));
    await client.closed();
    const got = parsed(client.text());
    t.equal(got.status, 502);
    t.equal(got.headers["x-keybearer-refusal"], code);
    t.equal(Number(got.headers["content-length"]), got.body.length, "and the words come whole");
    await stillHealthy(t, one, [one.key, one.token]);
  });
}

for (const isBack of [true, false])
  t.test(
    `an upgrade over a dead kept connection is sent once more, ${isBack ? "and passes" : "and no more"}`,
    async (t) => {
      const gateway = await startRawGateway(t, (call) => {
        if (call.target.endsWith("/models")) call.ok();
        else if (isBack && call.connection === 2) echoing(call);
        else call.socket.resetAndDestroy();
      });
      const one = await startWithOneTool(t, gateway.origin, ON);
      await (
        await fetch(`${one.url}/v1/models`, { headers: { authorization: `Bearer ${one.token}` } })
      ).text();
      const client = await openRaw(t, one.port);
      client.send(upgrade(one));
      await client.until("\r\n\r\n");
      t.equal(client.status(), isBack ? 101 : 502);
      t.strictSame(
        gateway.calls.map(({ connection }) => connection),
        [1, 1, 2],
      );
      await stillHealthy(t, one, [one.key, one.token]);
    },
  );

t.test("a client does not hang when the gateway fails in its refusal of an upgrade", async (t) => {
  const gateway = await startRawGateway(t, (call) => {
    call.socket.end('HTTP/1.1 401 No\r\nContent-Length: 100\r\n\r\n{"half":');
  });
  const one = await startWithOneTool(t, gateway.origin, ON);
  const client = await openRaw(t, one.port);
  client.send(upgrade(one));
  await client.closed();
  await until("it is settled", () => one.ended().some((line) => line.endpoint === "/v1/responses"));
  t.match(
    one.ended().filter((line) => line.endpoint === "/v1/responses"),
    [{ end: "gateway-failed" }],
  );
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("a gateway that never answers an upgrade times out", async (t) => {
  const gateway = await startRawGateway(t, () => {});
  const one = await startWithOneTool(t, gateway.origin, {
    gateway: ["websockets: true", "timeouts: { connect: 200ms, first_byte: 200ms }"],
  });
  const client = await openRaw(t, one.port);
  client.send(upgrade(one));
  await client.closed();
  t.equal(client.status(), 504);
  t.match(client.text(), "x-keybearer-refusal: gateway-timeout");
  await until("nothing is open", () => gateway.open() === 0);
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("an open websocket is cut when the daemon stops", async (t) => {
  const gateway = await startRawGateway(t, echoing);
  const one = await startWithOneTool(t, gateway.origin, ON);
  const client = await openRaw(t, one.port);
  client.send(upgrade(one));
  await client.until("\r\n\r\n");
  await one.daemon.stop(100);
  await client.closed();
  await until("nothing is open", () => gateway.open() === 0);
});
