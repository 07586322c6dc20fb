import t from "tap";
import { startWithOneTool, stillHealthy } from "../doubles/daemon-under-test.ts";
import { head, openRaw } from "../doubles/raw-client.ts";
import { startRawGateway } from "../doubles/raw-gateway.ts";
import { post, say, settledAs } from "../doubles/stimulus.ts";

/** Heads of answers, and what a gateway says in front of one. */

t.test("reason phrases and lengths pass unchanged, and a malformed head is refused", async (t) => {
  const words = Buffer.from("额度不足 é").toString("latin1");
  const heads: Record<string, string> = {
    "/v1/words": `HTTP/1.1 200 ${words}\r\nContent-Length: 2\r\n\r\n{}`,
    "/v1/same": 'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\nContent-Length: 5\r\n\r\n',
    "/v1/garbage": "SSH-2.0-OpenSSH\r\n",
    "/v1/two": "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
  };
  const gateway = await startRawGateway(t, (call) =>
    call.send(Buffer.from(heads[call.target] ?? "", "latin1")),
  );
  const one = await startWithOneTool(t, gateway.origin);
  const get = (path: string) => head(`GET ${path}`, { Host: one.host, Authorization: `Bearer ${one.token}` });
  t.equal((await say(t, one.port, get("/v1/words"))).reason, words);
  const client = await openRaw(t, one.port);
  client.send(get("/v1/same"));
  await client.until("304 Not Modified");
  await settledAs(t, one, "/v1/same", [{ end: "complete", status: 304 }]);
  for (const path of ["/v1/garbage", "/v1/two"]) {
    const refused = await say(t, one.port, get(path));
    t.equal(refused.headers["x-keybearer-refusal"], "gateway-broken", path);
    t.match(refused.body, "is not HTTP");
  }
  await stillHealthy(t, one, [one.key, one.token]);
});

const CONTINUE = "HTTP/1.1 100 Continue\r\nx-why: no reason\r\n\r\n";
const HINTS = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n";
const ANSWER = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

t.test("informational responses are skipped, in any number and however they are cut", async (t) => {
  let bytes = "";
  let size = 1;
  const gateway = await startRawGateway(t, async (call) => {
    await call.whole;
    for (let at = 0; at < bytes.length; at += size) {
      call.send(bytes.slice(at, at + size));
      await new Promise((resolve) => setImmediate(resolve));
    }
  });
  const one = await startWithOneTool(t, gateway.origin);
  const auth = { Host: one.host, Authorization: `Bearer ${one.token}` };
  // None, a body that was read, and a body that passes unread.
  const requests = [
    head("GET /v1/models", auth),
    post("POST /v1/responses", { ...auth, "Content-Type": "application/json" }),
    post("POST /v1/files", auth),
  ];
  let asked = 0;
  for (const before of [CONTINUE, HINTS, CONTINUE + HINTS + CONTINUE + CONTINUE, CONTINUE.repeat(200)]) {
    bytes = before + ANSWER;
    for (size of [1, 5, 11, 12, 13, CONTINUE.length, CONTINUE.length + 1, bytes.length]) {
      // Not in thousands of pieces.
      if (bytes.length / size > 600) continue;
      for (const request of requests) {
        const { client, status, body } = await say(t, one.port, request);
        asked += 1;
        const what = `${before.length} bytes before it, ${size} at a time`;
        t.strictSame([status, body], [200, "ok"], what);
        t.notMatch(client.text(), /HTTP\/1\.1 1\d\d|x-why|link:/i, `${what}: nothing of them is passed on`);
      }
    }
  }
  t.equal(gateway.calls.length, asked, "nothing was asked twice");
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("text in a body that looks like an informational response passes", async (t) => {
  const body = CONTINUE + ANSWER + CONTINUE;
  const gateway = await startRawGateway(t, async (call) => {
    call.send(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n`);
    await new Promise((resolve) => setImmediate(resolve));
    call.send(body);
  });
  const one = await startWithOneTool(t, gateway.origin);
  const heard = await say(
    t,
    one.port,
    head("GET /v1/models", { Host: one.host, Authorization: `Bearer ${one.token}` }),
  );
  t.equal(heard.body, body);
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("a head of informational responses without an end is refused", async (t) => {
  const endless = `HTTP/1.1 103 Early Hints\r\nx-long: ${"x".repeat(40_000)}`;
  const gateway = await startRawGateway(t, (call) => call.send(endless));
  const one = await startWithOneTool(t, gateway.origin);
  const refused = await say(
    t,
    one.port,
    head("GET /v1/models", { Host: one.host, Authorization: `Bearer ${one.token}` }),
  );
  t.equal(refused.status, 502);
  t.equal(refused.headers["x-keybearer-refusal"], "gateway-broken");
  await gateway.calls[0]?.closed;
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("the next request is answered, whatever the gateway says about its connection", async (t) => {
  const announced = [
    "timeout=0",
    "timeout=1",
    "timeout=5",
    "timeout=20, max=100",
    "timeout=3600",
    `timeout=${"9".repeat(400)}`,
    "timeout=-1",
    "timeout=soon",
    "max=5",
    "",
  ];
  const warnings: string[] = [];
  const onWarning = (warning: Error) => void warnings.push(warning.message);
  process.on("warning", onWarning);
  t.teardown(() => process.off("warning", onWarning));
  let value = "";
  const gateway = await startRawGateway(t, async (call) => {
    await call.whole;
    call.answer("200 OK", { Connection: "keep-alive", "Keep-Alive": value }, "{}");
  });
  const one = await startWithOneTool(t, gateway.origin);
  const headers = { authorization: `Bearer ${one.token}`, "content-type": "application/json" };
  for (value of announced) {
    for (const path of ["/v1/responses", "/v1/files", "/v1/responses", "/v1/files"]) {
      const answer = await fetch(one.url + path, { method: "POST", headers, body: "{}" });
      t.equal(answer.status, 200, `${value.slice(0, 20)}: ${path}`);
      await answer.text();
    }
  }
  t.strictSame(warnings, [], "no time is too long for a timer");
  await stillHealthy(t, one, [one.key, one.token]);
});
