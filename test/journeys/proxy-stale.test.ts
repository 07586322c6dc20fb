import { createServer } from "node:https";
import t from "tap";
import { systemClock } from "../../src/core/clock.ts";
import { makeCertificates } from "../doubles/certificates.ts";
import { startWithOneTool, stillHealthy } from "../doubles/daemon-under-test.ts";
import { listen } from "../doubles/listen.ts";
import { head } from "../doubles/raw-client.ts";
import { startRawGateway } from "../doubles/raw-gateway.ts";
import { post, say } from "../doubles/stimulus.ts";

t.test("a gateway that always resets gets a request at most twice", async (t) => {
  let served = 0;
  const gateway = await startRawGateway(t, (call) => {
    served += 1;
    if (served === 1) call.ok();
    else call.socket.resetAndDestroy();
  });
  const one = await startWithOneTool(t, gateway.origin);
  const headers = { authorization: `Bearer ${one.token}` };
  await (await fetch(`${one.url}/v1/models`, { headers })).text();
  t.equal((await fetch(`${one.url}/v1/models`, { headers })).status, 502);
  t.equal(gateway.calls.length, 3);
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("kept connections are not used after the machine slept", async (t) => {
  let slept = 0;
  const clock = { now: () => systemClock.now() + slept, elapsed: () => systemClock.elapsed() };
  const gateway = await startRawGateway(t, (call) => call.ok());
  const one = await startWithOneTool(t, gateway.origin, { clock });
  const ask = async () =>
    (await fetch(`${one.url}/v1/models`, { headers: { authorization: `Bearer ${one.token}` } })).text();
  await ask();
  await ask();
  t.equal(gateway.connections(), 1);
  slept = 3_600_000;
  await ask();
  t.equal(gateway.connections(), 2);
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("a kept connection is closed before the gateway closes it", async (t) => {
  let announced = "timeout=2";
  const gateway = await startRawGateway(t, (call) =>
    call.answer("200 OK", { "Keep-Alive": announced }, "{}"),
  );
  const one = await startWithOneTool(t, gateway.origin);
  const ask = async () =>
    (await fetch(`${one.url}/v1/models`, { headers: { authorization: `Bearer ${one.token}` } })).text();
  await ask();
  await ask();
  t.equal(gateway.connections(), 1, "it is used again");
  await gateway.calls.at(-1)?.closed;
  announced = "timeout=1";
  await ask();
  await ask();
  t.equal(gateway.connections(), 3, "one that the gateway closes within a second is not kept");
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("a request never uses a connection whose certificate was not checked", async (t) => {
  const made = makeCertificates(t);
  if (made === null) return;
  const received: string[] = [];
  const server = createServer(made.selfSigned, (req, res) => {
    received.push(req.url ?? "");
    res.end("{}");
  });
  const { port } = await listen(t, server);
  const before = process.env.NODE_TLS_REJECT_UNAUTHORIZED;
  process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";
  t.teardown(() => {
    if (before === undefined) delete process.env.NODE_TLS_REJECT_UNAUTHORIZED;
    else process.env.NODE_TLS_REJECT_UNAUTHORIZED = before;
  });
  const one = await startWithOneTool(t, `https://127.0.0.1:${port}`, { gateway: ["websockets: true"] });
  const auth = { Host: one.host, Authorization: `Bearer ${one.token}` };
  const upgrade = { Connection: "Upgrade", Upgrade: "websocket", "Sec-WebSocket-Version": "13" };
  // Every way to send, and each twice: what failed once must not be kept for the next.
  const requests = [
    head("GET /v1/models", auth),
    post("POST /v1/responses", { ...auth, "Content-Type": "application/json" }),
    post("POST /v1/files", auth),
  ];
  for (const request of [...requests, ...requests]) {
    const { headers, body } = await say(t, one.port, request);
    t.equal(headers["x-keybearer-refusal"], "gateway-unreachable");
    t.match(body, "its certificate is self-signed");
  }
  const { status } = await say(t, one.port, head("GET /v1/responses", { ...auth, ...upgrade }));
  t.equal(status, 400, "nor does a WebSocket");
  t.strictSame(received, []);
  await stillHealthy(t, one, [one.key, one.token]);
});
