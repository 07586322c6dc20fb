import { appendFileSync } from "node:fs";
import t from "tap";
import { startWithOneTool } from "../doubles/daemon-under-test.ts";
import { head } from "../doubles/raw-client.ts";
import { startRawGateway } from "../doubles/raw-gateway.ts";
import { until } from "../doubles/until.ts";
import { keepConnection } from "../threats/kept-connection.ts";

/** Clients repeat their head on a connection that they keep. keybearer remembers what it decided (head.ts). */

t.test("requests that repeat a head keep their own bodies, read or not", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const { host, port, token } = await startWithOneTool(t, gateway.origin);
  const say = keepConnection(t, port);
  const bodies = ["a", "b".repeat(5), "", "c".repeat(70_000), "d"].map((text) => JSON.stringify({ text }));
  for (const path of ["/v1/chat/completions", "/v1/files"]) {
    for (const body of bodies) {
      const headers = { Host: host, Authorization: `Bearer ${token}`, "Content-Length": String(body.length) };
      t.equal((await say(head(`POST ${path}`, headers) + body)).status, 200, `${path}: ${body.length} bytes`);
      const arrived = gateway.calls.at(-1);
      t.equal(arrived?.body().toString(), body);
      t.match(arrived?.head, new RegExp(`\r\ncontent-length: ${body.length}\r\n`, "i"));
    }
  }
  t.equal(gateway.calls.length, 2 * bodies.length);
});

t.test("a stream is asked for without compression, and a plain answer behind it with", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const { host, port, token } = await startWithOneTool(t, gateway.origin);
  const say = keepConnection(t, port);
  for (const [stream, coding] of [
    [true, "identity"],
    [false, "gzip"],
    [true, "identity"],
  ] as const) {
    const body = JSON.stringify({ stream });
    const headers = { Host: host, Authorization: `Bearer ${token}`, "Accept-Encoding": "gzip" };
    await say(
      head("POST /v1/chat/completions", { ...headers, "Content-Length": String(body.length) }) + body,
    );
    t.match(gateway.calls.at(-1)?.head, new RegExp(`\r\naccept-encoding: ${coding}\r\n`, "i"));
  }
});

t.test("an edit counts for the next request of the same connection", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const { paths, host, port, token } = await startWithOneTool(t, gateway.origin);
  const say = keepConnection(t, port);
  const request = head("GET /v1/models", { Host: host, Authorization: `Bearer ${token}` });
  t.equal((await say(request)).status, 200);
  appendFileSync(paths.config, "    enabled: false\n");
  await until("the tool is disabled", async () => {
    const { headers } = await say(request);
    return headers["x-keybearer-refusal"] === "tool-disabled";
  });
});
