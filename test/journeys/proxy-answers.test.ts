import { once } from "node:events";
import { createServer } from "node:net";
import { brotliCompressSync, deflateSync, gunzipSync, gzipSync } from "node:zlib";
import t from "tap";
import { startWithOneTool, stillHealthy } from "../doubles/daemon-under-test.ts";
import { head, openRaw, parsed, type RawClient } from "../doubles/raw-client.ts";
import { type GatewayCall, startRawGateway } from "../doubles/raw-gateway.ts";
import { until } from "../doubles/until.ts";

async function ask(client: RawClient, host: string, token: string, line = "GET /v1/models"): Promise<void> {
  client.send(head(line, { Host: host, Authorization: `Bearer ${token}` }));
  await until("the whole answer", () => {
    const { headers, body } = parsed(client.text());
    return client.text().includes("\r\n\r\n") && body.length >= Number(headers["content-length"] ?? 0);
  });
}

t.test("redirects are passed on, never followed: the other server sees nothing", async (t) => {
  const elsewhere = createServer().listen(0, "127.0.0.1");
  await once(elsewhere, "listening");
  t.teardown(() => elsewhere.close());
  let visits = 0;
  elsewhere.on("connection", (socket) => {
    visits += 1;
    socket.destroy();
  });
  const address = elsewhere.address();
  const port = typeof address === "object" ? address?.port : 0;
  for (const status of ["301", "302", "303", "307", "308"]) {
    const location = `http://127.0.0.1:${port}/stolen`;
    const gateway = await startRawGateway(t, (call) =>
      call.answer(`${status} Moved`, { Location: location }, "away"),
    );
    const one = await startWithOneTool(t, gateway.origin);
    const client = await openRaw(t, one.port);
    await ask(client, one.host, one.token);
    const got = parsed(client.text());
    t.equal(got.status, Number(status));
    t.equal(got.headers.location, location);
    t.equal(got.body, "away");
    t.equal(gateway.calls.length, 1);
    await stillHealthy(t, one, [one.key, one.token]);
  }
  t.equal(visits, 0);
});

t.test(
  "429 and 529 pass byte for byte with their headers, are not tried again, and may be by the client",
  async (t) => {
    for (const [status, words] of [
      ["429", "Too Many Requests"],
      ["529", "Overloaded At The Moment"],
    ]) {
      const body = ` {"error":{"message":"slow down","type":"rate_limit_error"}}\n`;
      const gateway = await startRawGateway(t, (call) =>
        call.answer(
          `${status} ${words}`,
          {
            "Retry-After": "7",
            "retry-after-ms": "6500",
            "Anthropic-RateLimit-Requests-Remaining": "0",
            "X-Request-Id": "abc",
            Date: "Sun, 15 Nov 2026 00:00:00 GMT",
          },
          body,
        ),
      );
      const one = await startWithOneTool(t, gateway.origin);
      const client = await openRaw(t, one.port);
      await ask(client, one.host, one.token);
      const got = parsed(client.text());
      t.equal(`${got.status} ${got.reason}`, `${status} ${words}`);
      t.equal(got.body, body);
      t.match(got.headers, {
        "retry-after": "7",
        "retry-after-ms": "6500",
        "anthropic-ratelimit-requests-remaining": "0",
        "x-request-id": "abc",
        date: "Sun, 15 Nov 2026 00:00:00 GMT",
        "x-keybearer-cause": "rate-limit",
        "x-keybearer-request-id": /^.{10,}/,
      });
      t.equal(got.headers["x-should-retry"], undefined);
      t.equal(got.headers["x-keybearer-refusal"], undefined, "it is not keybearer who refuses");
      t.ok(client.text().includes("Anthropic-RateLimit-Requests-Remaining: 0"), "in their own case");
      t.equal(gateway.calls.length, 1);
      await stillHealthy(t, one, [one.key, one.token]);
    }
  },
);

t.test("the gateway's own 401 passes byte for byte, with its cause beside it", async (t) => {
  const body = '{"code":"INVALID_API_KEY","message":"Invalid API key"}';
  for (const bytes of [Buffer.from(body), gzipSync(body)]) {
    const gateway = await startRawGateway(t, (call) =>
      call.answer(
        "401 Unauthorized",
        {
          "Content-Type": "application/json",
          "WWW-Authenticate": "Bearer",
          "X-Should-Retry": "true",
          ...(bytes.length === body.length ? {} : { "Content-Encoding": "gzip" }),
        },
        bytes,
      ),
    );
    const one = await startWithOneTool(t, gateway.origin);
    const client = await openRaw(t, one.port);
    await ask(client, one.host, one.token);
    const got = parsed(client.text());
    t.equal(got.status, 401);
    t.ok(client.bytes().subarray(-bytes.length).equals(bytes), "byte for byte");
    t.equal(got.headers["x-keybearer-cause"], "incomplete-key");
    t.equal(got.headers["x-should-retry"], "false");
    t.equal(got.names.filter((name) => name === "x-should-retry").length, 1);
    t.equal(got.headers["www-authenticate"], "Bearer");
    const named = async () => JSON.stringify((await one.daemon.status()).tools).includes("incomplete-key");
    // The client has its answer a moment before the request is settled.
    await until("it is in the status too", named);
    t.notOk(JSON.stringify(await one.daemon.status()).includes(one.key));
    await stillHealthy(t, one, [one.key, one.token]);
  }
});

t.test("a key that the gateway says back is blotted out of headers, reason and error bodies", async (t) => {
  const packers: [string, (text: Buffer) => Buffer][] = [
    ["", (text) => text],
    ["gzip", (text) => gzipSync(text)],
    ["deflate", (text) => deflateSync(text)],
    ["br", (text) => brotliCompressSync(text)],
  ];
  for (const [encoding, pack] of packers) {
    let key = "";
    // 0xff is no UTF-8: whatever the charset, the rest of the body stays as it was.
    const gateway = await startRawGateway(t, (call) => {
      const text = Buffer.concat([
        Buffer.from(`no such key ${key}, really: ${key}`),
        Buffer.from([0xff, 0xe9, 0x21]),
      ]);
      call.answer(
        `401 bad key ${key}`,
        { "X-Echo": `Bearer ${key}`, ...(encoding === "" ? {} : { "Content-Encoding": encoding }) },
        pack(text),
      );
    });
    const one = await startWithOneTool(t, gateway.origin);
    key = one.key;
    const client = await openRaw(t, one.port);
    await ask(client, one.host, one.token);
    t.notOk(client.text().includes(one.key), `${encoding || "plain"}: nowhere in the answer`);
    const got = parsed(client.text());
    t.equal(got.status, 401);
    t.equal(got.headers["content-encoding"], undefined, "what was changed is sent plain");
    t.equal(got.headers["x-echo"], "Bearer [redacted]");
    t.equal(got.reason, "bad key [redacted]");
    t.equal(got.body, "no such key [redacted], really: [redacted]\xff\xe9!");
    t.equal(got.headers["content-length"], String(got.body.length));
    t.notOk(JSON.stringify(await one.daemon.status()).includes(one.key), "nor in the status");
    await stillHealthy(t, one, [one.key, one.token]);
  }
});

t.test("a long error passes whole, and of a bomb nothing is passed or unpacked", async (t) => {
  const long = "e".repeat(300_000);
  const bomb = gzipSync(Buffer.alloc(50 * 1024 * 1024));
  for (const [headers, body, passed = body] of [
    [{}, Buffer.from(long)],
    [{ "Content-Encoding": "gzip" }, bomb, Buffer.alloc(0)],
    [{ "Content-Encoding": "gzip" }, Buffer.from("not gzip at all")],
    [{ "Content-Encoding": "zstd" }, Buffer.from("who knows")],
  ] as const) {
    const gateway = await startRawGateway(t, (call) => call.answer("500 Oh", headers, body));
    const one = await startWithOneTool(t, gateway.origin);
    const client = await openRaw(t, one.port);
    await ask(client, one.host, one.token);
    t.equal(parsed(client.text()).body, passed.toString("latin1"), "byte for byte");
    t.equal(parsed(client.text()).headers["content-length"], String(passed.length));
    await stillHealthy(t, one, [one.key, one.token]);
  }
  t.equal(gunzipSync(bomb).length, 50 * 1024 * 1024, "the bomb was one");
});

t.test(
  "a long error that says the key back near its beginning is blotted and still passes whole",
  async (t) => {
    let key = "";
    const tail = "t".repeat(200_000);
    const gateway = await startRawGateway(t, (call) => call.answer("500 Oh", {}, `${key}${tail}`));
    const one = await startWithOneTool(t, gateway.origin);
    key = one.key;
    const answer = await fetch(`${one.url}/v1/models`, { headers: { authorization: `Bearer ${one.token}` } });
    t.equal(await answer.text(), `${"*".repeat(key.length)}${tail}`);
    await stillHealthy(t, one, [one.key, one.token]);
  },
);

t.test("a console's page instead of an answer is named a wrong base url", async (t) => {
  const page = "<!doctype html><title>console</title>";
  const gateway = await startRawGateway(t, (call) =>
    call.answer("200 OK", { "Content-Type": "text/html; charset=utf-8" }, page),
  );
  const one = await startWithOneTool(t, gateway.origin);
  const client = await openRaw(t, one.port);
  await ask(client, one.host, one.token);
  const got = parsed(client.text());
  t.match(got, { status: 200, body: page });
  t.equal(got.headers["x-keybearer-cause"], "wrong-base-url");
  t.equal(got.headers["x-should-retry"], "false");
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test(
  "cookies, hop-by-hop and CORS headers and false words of keybearer's stay out of answers",
  async (t) => {
    const gateway = await startRawGateway(t, (call) =>
      call.answer(
        "200 OK",
        {
          "Set-Cookie": "session=1",
          "Access-Control-Allow-Origin": "*",
          "Access-Control-Allow-Credentials": "true",
          Connection: "X-Nominated, keep-alive",
          "X-Nominated": "1",
          "Keep-Alive": "timeout=77",
          "Proxy-Authenticate": "Basic",
          Trailer: "X-T",
          Upgrade: "h2c",
          "X-Keybearer-Refusal": "token-missing",
          "X-Keybearer-Cause": "rate-limit",
          "X-Keybearer-Request-Id": "forged",
          "X-Oneapi-Request-Id": "kept",
        },
        "{}",
      ),
    );
    const one = await startWithOneTool(t, gateway.origin);
    const client = await openRaw(t, one.port);
    await ask(client, one.host, one.token);
    const { headers, names } = parsed(client.text());
    for (const gone of [
      "set-cookie",
      "x-nominated",
      "proxy-authenticate",
      "trailer",
      "upgrade",
      "x-keybearer-refusal",
      "x-keybearer-cause",
    ]) {
      t.notOk(names.includes(gone), `${gone} is gone`);
    }
    t.notOk(names.some((name) => name.startsWith("access-control-")));
    t.not(headers["keep-alive"], "timeout=77");
    t.equal(headers["x-oneapi-request-id"], "kept");
    t.not(headers["x-keybearer-request-id"], "forged");
    t.equal(names.filter((name) => name === "x-keybearer-request-id").length, 1);
    await stillHealthy(t, one, [one.key, one.token]);
  },
);

t.test("after a 401 the status shows the tool as refused, until it is served again", async (t) => {
  let answer = (call: GatewayCall) =>
    call.answer(
      "403 Forbidden",
      {},
      '{"code":"INSUFFICIENT_BALANCE","message":"Insufficient account balance"}',
    );
  const gateway = await startRawGateway(t, (call) => answer(call));
  const one = await startWithOneTool(t, gateway.origin);
  const headers = { authorization: `Bearer ${one.token}` };
  const refused = await fetch(`${one.url}/v1/models`, { headers });
  t.equal(refused.headers.get("x-keybearer-cause"), "balance-or-quota");
  t.equal(refused.headers.get("x-should-retry"), "false");
  await refused.text();
  t.match(JSON.stringify(await one.daemon.status()), "balance-or-quota");
  answer = (call) => call.ok();
  // A list of models would not do: gateways list them to keys without money, too.
  const served = await fetch(`${one.url}/v1/chat/completions`, {
    method: "POST",
    headers: { ...headers, "content-type": "application/json" },
    body: '{"model":"m","messages":[]}',
  });
  await served.text();
  await until(
    "it is forgotten",
    async () => !JSON.stringify(await one.daemon.status()).includes("balance-or-quota"),
  );
  await stillHealthy(t, one, [one.key, one.token]);
});
