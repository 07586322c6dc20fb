import t from "tap";
import {
  canaryKey,
  freshToken,
  startUnderTest,
  startWithOneTool,
  stillHealthy,
} from "../doubles/daemon-under-test.ts";
import { head, openRaw, parsed } from "../doubles/raw-client.ts";
import { startRawGateway } from "../doubles/raw-gateway.ts";
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

t.test("a connection that the gateway closed behind its answer is not used again", async (t) => {
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

t.test("pipelined requests of two tools keep their keys and their order", async (t) => {
  const gateway = await startRawGateway(t, (call) => {
    const wait = call.target.includes("slow") ? 150 : 0;
    setTimeout(() => call.ok(JSON.stringify(call.target)), wait);
  });
  const [a, b] = [freshToken(), freshToken()];
  const [keyA, keyB] = [canaryKey(), canaryKey()];
  const under = await startUnderTest(
    t,
    `gateway: ${gateway.origin}/v1\ntools:\n  a: { key: ${keyA}, token: ${a.hash} }\n  b: { key: ${keyB}, token: ${b.hash} }\n`,
  );
  const host = `127.0.0.1:${under.daemon.port}`;
  const client = await openRaw(t, under.daemon.port);
  const ask = (path: string, token: string) =>
    head(`GET ${path}`, { Host: host, Authorization: `Bearer ${token}` });
  client.send(
    ask("/v1/slow-a", a.token) +
      ask("/v1/none", `${a.token}x`) +
      ask("/v1/fast-b", b.token) +
      ask("/v1/a", a.token),
  );
  await client.until('"/v1/a"');
  t.strictSame(
    [0, 1, 2, 3].map((n) => client.status(n)),
    [200, 401, 200, 200],
  );
  const text = client.text();
  t.ok(text.indexOf('"/v1/slow-a"') < text.indexOf("token-incomplete"));
  t.ok(text.indexOf("token-incomplete") < text.indexOf('"/v1/fast-b"'));
  t.equal(gateway.calls.length, 3);
  for (const call of gateway.calls) {
    const key = call.target.endsWith("b") ? keyB : keyA;
    t.strictSame(call.header("authorization"), [`Bearer ${key}`], call.target);
  }
  await stillHealthy(t, under, [keyA, keyB, a.token, b.token]);
});

const SMUGGLED = "GET /v1/smuggled HTTP/1.1\r\nHost: evil\r\n\r\n";
const refusedFramings: [string, string, Record<string, string>, string][] = [
  [
    "a chunked DELETE",
    "DELETE",
    { "Transfer-Encoding": "chunked" },
    `${SMUGGLED.length.toString(16)}\r\n${SMUGGLED}\r\n0\r\n\r\n`,
  ],
  ["a chunked OPTIONS", "OPTIONS", { "Transfer-Encoding": "chunked" }, "0\r\n\r\n"],
  ["gzip, chunked", "POST", { "Transfer-Encoding": "gzip, chunked" }, "0\r\n\r\n"],
  ["a length and chunks", "POST", { "Transfer-Encoding": "chunked", "Content-Length": "3" }, "0\r\n\r\n"],
  ["a length with a plus", "POST", { "Content-Length": "+3" }, "abc"],
  ["a space before the colon", "POST", { "Content-Length ": "3" }, "abc"],
  ["chunked, identity", "POST", { "Transfer-Encoding": "chunked, identity" }, "0\r\n\r\n"],
];
for (const [what, method, framing, body] of refusedFramings) {
  t.test(`${what} is refused, and nothing of it reaches the gateway`, async (t) => {
    const gateway = await startRawGateway(t, (call) => call.ok());
    const one = await startWithOneTool(t, gateway.origin);
    const client = await openRaw(t, one.port);
    const headers = { Host: one.host, Authorization: `Bearer ${one.token}`, ...framing };
    client.send(head(`${method} /v1/files/1`, headers) + body);
    await client.until("\r\n\r\n");
    t.equal(client.status(), 400);
    t.equal(parsed(client.text()).headers["x-keybearer-refusal"], "bad-request");
    t.equal(gateway.connections(), 0);
    await stillHealthy(t, one, [one.key, one.token]);
  });
}

t.test(
  "Expect: 100-continue with a bad token gets its 401 without 100, and the connection ends",
  async (t) => {
    const gateway = await startRawGateway(t, (call) => call.ok());
    const one = await startWithOneTool(t, gateway.origin);
    const client = await openRaw(t, one.port);
    client.send(
      head("POST /v1/files", {
        Host: one.host,
        Authorization: `Bearer ${one.token}x`,
        "Content-Length": "1000",
        Expect: "100-continue",
      }),
    );
    await client.until("token-incomplete");
    t.equal(client.status(), 401, "the first answer is the 401");
    // Whether the body still comes is not known, so nothing can follow on this connection.
    t.equal(parsed(client.text()).headers.connection, "close");
    await client.closed();
    t.equal(gateway.connections(), 0);
    await stillHealthy(t, one, [one.key, one.token]);
  },
);

t.test("Expect: 100-continue with a good token gets its 100, then its answer", async (t) => {
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

const targets: [string, number][] = [
  ["GET http://evil.example.com/v1/models", 400],
  ["GET //evil.example.com/v1/models", 400],
  ["GET /\\evil.example.com/v1/models", 400],
  ["GET \\\\evil.example.com", 400],
  ["GET /v1/models#@evil.example.com", 400],
  ["GET /v1/../admin", 400],
  ["GET /v1/%2e%2e/admin", 400],
  ["GET /v1/..;/admin", 400],
  ["OPTIONS *", 400],
  ["TRACE /v1/models", 400],
  ["BREW /v1/models", 400],
];
t.test("a target that is not a plain path, and unneeded methods, are refused", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const one = await startWithOneTool(t, gateway.origin);
  for (const [line, status] of targets) {
    const client = await openRaw(t, one.port);
    client.send(head(line, { Host: one.host, Authorization: `Bearer ${one.token}` }));
    await client.until("\r\n\r\n");
    t.equal(client.status(), status, line);
  }
  const tunnel = await openRaw(t, one.port);
  tunnel.send(
    head(`CONNECT 127.0.0.1:${gateway.port}`, { Host: one.host, Authorization: `Bearer ${one.token}` }),
  );
  await tunnel.closed();
  t.notOk(tunnel.text().includes("HTTP/1.1 200"), "no tunnel");
  t.equal(gateway.connections(), 0);
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("hosts that are not this port's names get nothing, on every path", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const one = await startWithOneTool(t, gateway.origin);
  for (const path of ["/", "/healthz", "/v1/models", "/nowhere"]) {
    const client = await openRaw(t, one.port);
    client.send(
      head(`GET ${path}`, { Host: `rebind.test:${one.port}`, Authorization: `Bearer ${one.token}` }),
    );
    await client.until("\r\n\r\n");
    t.equal(client.status(), 421, path);
  }
  for (const hosts of [
    `Host: ${one.host}\r\nHost: evil\r\n`,
    `Host: evil\r\nHost: ${one.host}\r\n`,
    "Host:\r\n",
    "",
  ]) {
    const client = await openRaw(t, one.port);
    client.send(`GET /v1/models HTTP/1.1\r\n${hosts}Authorization: Bearer ${one.token}\r\n\r\n`);
    await client.until("\r\n\r\n");
    t.equal(client.status(), 400, JSON.stringify(hosts));
  }
  t.equal(gateway.connections(), 0);
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("a web page gets 403 and no CORS header, whatever it tries", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const one = await startWithOneTool(t, gateway.origin, { tool: ['allow_origins: ["app://desk.example"]'] });
  const tries: Record<string, string>[] = [
    { Origin: "https://evil.test" },
    { Origin: "null" },
    { Origin: "" },
    { Origin: "app://desk.example.evil.test" },
    { Origin: "APP://desk.example" },
    { "Sec-Fetch-Site": "cross-site" },
    { "Sec-Fetch-Site": "same-origin" },
    { "Sec-Fetch-Mode": "no-cors" },
    { "Sec-Fetch-Dest": "image" },
    { Origin: "https://evil.test", "Access-Control-Request-Method": "POST" },
  ];
  for (const headers of tries) {
    const client = await openRaw(t, one.port);
    client.send(
      head("POST /v1/messages", { Host: one.host, Authorization: `Bearer ${one.token}`, ...headers }),
    );
    await client.until("\r\n\r\n");
    t.equal(client.status(), 403, JSON.stringify(headers));
    t.notMatch(client.text(), /access-control-/i);
  }
  t.equal(gateway.connections(), 0);
  const desk = await openRaw(t, one.port);
  desk.send(
    head("GET /v1/models", {
      Host: one.host,
      Authorization: `Bearer ${one.token}`,
      Origin: "app://desk.example",
    }),
  );
  await desk.until("\r\n\r\n{}");
  t.strictSame(gateway.calls[0]?.header("origin"), [], "the origin is not the gateway's business");
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test(
  "a gateway that answers before the upload is through is heard, and the client is not left hanging",
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
    await until("the gateway call is let go", () => {
      gateway.calls[0]?.socket.resume();
      return gateway.open() === 0;
    });
    await stillHealthy(t, one, [one.key, one.token]);
  },
);

t.test("more headers than anybody needs are refused, never dropped in silence", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const one = await startWithOneTool(t, gateway.origin);
  const many = Object.fromEntries(Array.from({ length: 1200 }, (_, n) => [`X${n}`, "1"]));
  for (const headers of [
    { Host: one.host, ...many, Authorization: `Bearer ${one.token}` },
    { Host: one.host, Authorization: `Bearer ${one.token}`, "X-Big": "x".repeat(20_000) },
  ]) {
    const client = await openRaw(t, one.port);
    client.send(head("GET /v1/models", headers));
    await client.until("\r\n\r\n");
    t.equal(client.status(), 431);
    t.match(client.text(), "x-keybearer-refusal: headers-too-large");
  }
  t.equal(gateway.connections(), 0);
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("a request that went through keybearer often enough is a loop", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const one = await startWithOneTool(t, gateway.origin);
  const headers = { authorization: `Bearer ${one.token}` };
  for (const hops of ["2", "9", "nonsense"]) {
    const answer = await fetch(`${one.url}/v1/models`, { headers: { ...headers, "x-keybearer-hops": hops } });
    t.equal(answer.status, 508, hops);
    t.equal(answer.headers.get("x-keybearer-refusal"), "loop");
    await answer.text();
  }
  t.equal(gateway.connections(), 0);
  await (await fetch(`${one.url}/v1/models`, { headers: { ...headers, "x-keybearer-hops": "1" } })).text();
  t.strictSame(gateway.calls[0]?.header("x-keybearer-hops"), ["2"], "each hop counts");
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("a gateway that is keybearer itself does not become a storm", async (t) => {
  const { token, hash } = freshToken();
  const under = await startUnderTest(
    t,
    `gateway: http://127.0.0.1:1/v1\ntools:\n  me: { key: ${canaryKey()}, token: ${hash} }\n`,
  );
  const key = canaryKey();
  await under.save(`gateway: ${under.url}/v1\ntools:\n  another: { key: ${key}, token: ${hash} }\n`);
  await under.daemon.reload();
  const answer = await fetch(`${under.url}/v1/models`, { headers: { authorization: `Bearer ${token}` } });
  t.equal(answer.status, 401, "its key is no token of its own");
  t.notOk((await answer.text()).includes(key));
  t.equal(under.log().filter((line) => line.endpoint === "/v1/models").length, 2);
  await stillHealthy(t, under, [key, token]);
});
