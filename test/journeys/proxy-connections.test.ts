import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { ClientRequest, IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import t from "tap";
import {
  canaryKey,
  freshToken,
  startUnderTest,
  startWithOneTool,
  stillHealthy,
} from "../doubles/daemon-under-test.ts";
import { head, openRaw } from "../doubles/raw-client.ts";
import { startRawGateway } from "../doubles/raw-gateway.ts";
import { post } from "../doubles/stimulus.ts";
import { until } from "../doubles/until.ts";

t.test("one connection to the gateway serves one call after the other, errors included", async (t) => {
  const gateway = await startRawGateway(t, (call) => {
    if (call.target.endsWith("error")) call.answer("429 Slow", {}, "{}");
    else call.ok();
  });
  const one = await startWithOneTool(t, gateway.origin);
  const headers = { authorization: `Bearer ${one.token}` };
  for (let n = 0; n < 10; n += 1) {
    const path = n % 3 === 0 ? "/v1/error" : n % 3 === 1 ? "/v1/models" : "/v1/messages";
    await (await fetch(one.url + path, { method: "POST", headers, body: "{}" })).text();
  }
  t.equal(gateway.calls.length, 10);
  t.equal(gateway.connections(), 1);
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("tools of one gateway and key share no connection to it, each keeps its own", async (t) => {
  const gateway = await startRawGateway(t, async (call) => {
    await call.whole;
    call.ok();
  });
  const [a, b] = [freshToken(), freshToken()];
  const key = canaryKey();
  const under = await startUnderTest(
    t,
    `gateway: ${gateway.origin}/v1\ntools:\n  a: { key: ${key}, token: ${a.hash} }\n  b: { key: ${key}, token: ${b.hash} }\n`,
  );
  // Both ways to send: what is here whole, and what is sent while it comes.
  for (const path of ["/v1/messages", "/v1/files"]) {
    const before = gateway.calls.length;
    for (const { token } of [a, b, a, b]) {
      const headers = { authorization: `Bearer ${token}` };
      await (await fetch(under.url + path, { method: "POST", headers, body: "{}" })).text();
    }
    const [first, second, third, fourth] = gateway.calls.slice(before).map(({ connection }) => connection);
    t.not(first, second);
    t.strictSame([third, fourth], [first, second]);
  }
});

t.test("a connection that the gateway closes after its response is not used again", async (t) => {
  const gateway = await startRawGateway(t, (call) => {
    call.answer("200 OK", { Connection: "close" }, "{}");
    call.socket.end();
  });
  const one = await startWithOneTool(t, gateway.origin);
  for (let n = 0; n < 5; n += 1) {
    const answer = await fetch(`${one.url}/v1/models`, { headers: { authorization: `Bearer ${one.token}` } });
    t.equal(answer.status, 200);
    await answer.text();
  }
  t.equal(gateway.connections(), 5);
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("no listener stays on a connection after its request, on either side", async (t) => {
  const gateway = await startRawGateway(t, async (call) => {
    await call.whole;
    call.ok();
  });
  const one = await startWithOneTool(t, gateway.origin);
  const counts = { client: [] as number[], gateway: [] as number[] };
  const listeners = (socket: Socket) =>
    socket.eventNames().reduce((sum, name) => sum + socket.listenerCount(name), 0);
  // Node publishes the sockets of both sides on these channels.
  const onRequest = (message: unknown) => {
    const { socket, request } = message as { socket: Socket; request: IncomingMessage };
    if (request.url === "/v1/last") counts.client.push(listeners(socket));
  };
  const onResponse = (message: unknown) => {
    const { request } = message as { request: ClientRequest };
    if (request.path === "/v1/last" && request.socket) counts.gateway.push(listeners(request.socket));
  };
  subscribe("http.server.request.start", onRequest);
  subscribe("http.client.response.finish", onResponse);
  t.teardown(() => {
    unsubscribe("http.server.request.start", onRequest);
    unsubscribe("http.client.response.finish", onResponse);
  });
  const client = await openRaw(t, one.port);
  const auth = { Host: one.host, Authorization: `Bearer ${one.token}` };
  let sent = 0;
  const ask = async (bytes: string) => {
    client.send(bytes);
    sent += 1;
    await client.until(() => client.status(sent - 1) !== 0 && client.text().endsWith("}"));
  };
  for (let round = 0; round < 3; round += 1) {
    await ask(head("GET /v1/last", auth));
    for (let n = 0; n < 5; n += 1) {
      // With a body, without one, and refused.
      await ask(post("POST /v1/chat/completions", { ...auth, "Content-Type": "application/json" }));
      await ask(head("GET /v1/models", auth));
      await ask(head("GET /v1/models", { Host: one.host }));
    }
  }
  t.equal(gateway.connections(), 1);
  for (const found of [counts.client, counts.gateway]) {
    t.equal(found.length, 3);
    t.equal(found[2], found[1], "as many after ten more requests");
  }
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("Expect: 100-continue with a valid token gets its 100, then its response", async (t) => {
  const gateway = await startRawGateway(t, async (call) => {
    await call.whole;
    call.ok(call.body().toString());
  });
  const one = await startWithOneTool(t, gateway.origin);
  const client = await openRaw(t, one.port);
  client.send(
    head("POST /v1/files", {
      Host: one.host,
      Authorization: `Bearer ${one.token}`,
      "Content-Length": "5",
      Expect: "100-continue",
    }),
  );
  await client.until("HTTP/1.1 100 Continue\r\n\r\n");
  client.send("hello");
  await client.until("hello");
  t.equal(client.status(1), 200);
  t.strictSame(gateway.calls[0]?.header("expect"), []);
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test(
  "the response of a gateway that answers before the end of an upload passes, and the client does not hang",
  async (t) => {
    const gateway = await startRawGateway(t, (call) => {
      call.socket.pause();
      call.answer("413 Too Large", {}, '{"error":"too large"}');
    });
    const one = await startWithOneTool(t, gateway.origin);
    const client = await openRaw(t, one.port);
    const LENGTH = 6 * 1024 * 1024;
    client.send(
      head("POST /v1/files", {
        Host: one.host,
        Authorization: `Bearer ${one.token}`,
        "Content-Length": String(LENGTH),
      }),
    );
    client.send(Buffer.alloc(1024, "x"));
    await client.until("too large");
    t.equal(client.status(), 413);
    let flushed = false;
    client.socket.write(Buffer.alloc(LENGTH - 1024, "x"), () => {
      flushed = true;
    });
    await until("the rest is taken, or the connection ended", () => flushed || client.isClosed());
    if (!client.isClosed()) {
      client.send(head("GET /healthz", { Host: one.host }));
      await until("the next request is served", () => client.text().includes("ok\n") || client.isClosed());
    }
    await until("the call is closed", () => {
      gateway.calls[0]?.socket.resume();
      return gateway.open() === 0;
    });
    await stillHealthy(t, one, [one.key, one.token]);
  },
);

t.test("a gateway that is keybearer itself does not cause endless requests", async (t) => {
  const { token, hash } = freshToken();
  const under = await startUnderTest(
    t,
    `gateway: http://127.0.0.1:1/v1\ntools:\n  me: { key: ${canaryKey()}, token: ${hash} }\n`,
  );
  const key = canaryKey();
  await under.save(`gateway: ${under.url}/v1\ntools:\n  another: { key: ${key}, token: ${hash} }\n`);
  await under.daemon.reload();
  const answer = await fetch(`${under.url}/v1/models`, { headers: { authorization: `Bearer ${token}` } });
  t.equal(answer.status, 400, "its key is no token of its own");
  t.notOk((await answer.text()).includes(key));
  t.equal(under.ended().filter(({ endpoint }) => endpoint === "/v1/models").length, 2);
  await stillHealthy(t, under, [key, token]);
});
