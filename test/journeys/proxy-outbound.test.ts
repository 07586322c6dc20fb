import { once } from "node:events";
import { createServer } from "node:tls";
import t from "tap";
import { makeCertificates } from "../doubles/certificates.ts";
import { startConnectProxy } from "../doubles/connect-proxy.ts";
import { startWithOneTool, stillHealthy } from "../doubles/daemon-under-test.ts";
import { head, openRaw } from "../doubles/raw-client.ts";
import { startRawGateway } from "../doubles/raw-gateway.ts";
import { until } from "../doubles/until.ts";

t.test("with an outbound proxy every call goes through its tunnel, which is used again", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const proxy = await startConnectProxy(t);
  const one = await startWithOneTool(t, gateway.origin, { gateway: [`proxy: ${proxy.url}`] });
  for (let n = 0; n < 5; n += 1) {
    const answer = await fetch(`${one.url}/v1/models`, { headers: { authorization: `Bearer ${one.token}` } });
    t.equal(answer.status, 200);
    await answer.text();
  }
  t.equal(gateway.calls.length, 5);
  t.strictSame(gateway.calls[0]?.header("authorization"), [`Bearer ${one.key}`]);
  t.equal(gateway.connections(), 1, "one tunnel for all of them");
  t.equal(proxy.heads.length, 1);
  t.match(proxy.heads[0], `CONNECT 127.0.0.1:${gateway.port} HTTP/1.1\r\n`);
  t.notOk(proxy.heads[0]?.includes(one.key), "the proxy is asked without the key");
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("a websocket goes through the outbound proxy too", async (t) => {
  const gateway = await startRawGateway(t, (call) => {
    call.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello");
  });
  const proxy = await startConnectProxy(t);
  const one = await startWithOneTool(t, gateway.origin, {
    gateway: [`proxy: ${proxy.url}`, "websockets: true"],
  });
  const client = await openRaw(t, one.port);
  client.send(
    head("GET /v1/realtime", {
      Host: one.host,
      Authorization: `Bearer ${one.token}`,
      Connection: "Upgrade",
      Upgrade: "websocket",
    }),
  );
  await client.until("hello");
  t.equal(proxy.heads.length, 1);
  client.socket.destroy();
  await until("the tunnel is gone", () => proxy.open() === 0 && gateway.open() === 0);
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("a gateway behind an outbound proxy learns its name from SNI", async (t) => {
  const certificates = makeCertificates(t);
  if (certificates === null) return;
  const names: string[] = [];
  const SNICallback = (name: string, done: (error: null) => void) => {
    names.push(name);
    done(null);
  };
  const server = createServer({ ...certificates.good, SNICallback }).listen(0, "127.0.0.1");
  server.on("tlsClientError", () => {});
  await once(server, "listening");
  t.teardown(() => server.close());
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  const proxy = await startConnectProxy(t);
  const one = await startWithOneTool(t, `https://localhost:${port}`, { gateway: [`proxy: ${proxy.url}`] });
  const answer = await fetch(`${one.url}/v1/models`, { headers: { authorization: `Bearer ${one.token}` } });
  t.equal(answer.status, 400, "its certificate is not trusted here");
  await answer.text();
  t.strictSame(names, ["localhost"]);
});

t.test("an outbound proxy that refuses is named, and does not get the key", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  for (const [answer, words] of [
    ["HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 2\r\n\r\nno", "answered 407 to CONNECT"],
    ["HTTP/1.1 502 Bad Gateway\r\n\r\n", "answered 502 to CONNECT"],
    ["HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "to CONNECT"],
    ["nonsense\r\n\r\n", "cannot be reached"],
  ] as const) {
    const proxy = await startConnectProxy(t, answer);
    const one = await startWithOneTool(t, gateway.origin, {
      gateway: [`proxy: ${proxy.url}`, "timeouts: { retry_connect: 0s }"],
    });
    const got = await fetch(`${one.url}/v1/models`, { headers: { authorization: `Bearer ${one.token}` } });
    t.equal(got.status, 400, words);
    t.equal(got.headers.get("x-keybearer-refusal"), "gateway-unreachable");
    const text = await got.text();
    t.match(text, `the outbound proxy ${proxy.url}`);
    t.match(text, words);
    t.notOk(proxy.received().includes(one.key));
    await until("the connection to the proxy is closed", () => proxy.open() === 0);
    await stillHealthy(t, one, [one.key, one.token]);
  }
  t.equal(gateway.connections(), 0, "nothing goes around it");
});

t.test("an outbound proxy that does not run is named, not the gateway behind it", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const one = await startWithOneTool(t, gateway.origin, {
    gateway: ["proxy: http://127.0.0.1:1", "timeouts: { retry_connect: 0s }"],
  });
  const answer = await fetch(`${one.url}/v1/models`, { headers: { authorization: `Bearer ${one.token}` } });
  t.equal(answer.status, 400);
  t.match(await answer.text(), "the outbound proxy http://127.0.0.1:1 cannot be reached (ECONNREFUSED)");
  t.equal(gateway.connections(), 0);
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("an outbound proxy that never answers times out, and its connection is not kept", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const proxy = await startConnectProxy(t, "");
  const one = await startWithOneTool(t, gateway.origin, {
    gateway: [`proxy: ${proxy.url}`, "timeouts: { connect: 300ms, retry_connect: 0s }"],
  });
  const answer = await fetch(`${one.url}/v1/models`, { headers: { authorization: `Bearer ${one.token}` } });
  t.equal(answer.status, 400);
  t.equal(answer.headers.get("x-keybearer-refusal"), "gateway-unreachable");
  await answer.text();
  await until("the connection is closed", () => proxy.open() === 0);
  t.equal(gateway.connections(), 0);
  await stillHealthy(t, one, [one.key, one.token]);
});
