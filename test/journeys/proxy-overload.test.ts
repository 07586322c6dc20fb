import t from "tap";
import { startWithOneTool } from "../doubles/daemon-under-test.ts";
import { openRaw, type RawClient } from "../doubles/raw-client.ts";
import { startRawGateway } from "../doubles/raw-gateway.ts";
import { until } from "../doubles/until.ts";

const MB = 1024 * 1024;

t.test("large bodies beyond 256 MB at once are refused, until there is capacity again", async (t) => {
  const gateway = await startRawGateway(t, async (call) => {
    await call.whole;
    call.ok();
  });
  const one = await startWithOneTool(t, gateway.origin, { tool: ["ask_usage: true"] });
  const body = JSON.stringify({ model: "m", stream: true, padding: "x".repeat(15 * MB) });
  const head =
    `POST /v1/chat/completions HTTP/1.1\r\nhost: ${one.host}\r\nauthorization: Bearer ${one.token}\r\n` +
    `content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n`;
  // Each says how long it is and sends nothing more: the room is taken before the bytes come.
  const clients: RawClient[] = [];
  for (let n = 0; n < 18; n += 1) {
    const client = await openRaw(t, one.port);
    client.send(head);
    clients.push(client);
  }
  const refused = () => clients.filter((client) => client.status() === 503);
  await until("the last of them is refused", () => refused().length > 0);
  t.match(refused()[0]?.text(), /retry-after: 2\r\n[\s\S]*"overloaded"/i);
  t.equal(gateway.calls.length, 0);

  for (const client of clients) client.socket.destroy();
  await until("there is room again", async () => {
    const client = await openRaw(t, one.port);
    client.send(head + body);
    await client.until(/HTTP\/1\.1 \d/);
    return client.status() === 200;
  });
  t.equal(refused().length, 1);
  t.equal(gateway.calls.length, 1);
});

t.test("a chunked body takes only as much of that capacity as it has bytes", async (t) => {
  let release = () => {};
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  const gateway = await startRawGateway(t, async (call) => {
    await call.whole;
    await released;
    call.ok();
  });
  const one = await startWithOneTool(t, gateway.origin, { tool: ["ask_usage: true"] });
  const body = JSON.stringify({ model: "m", stream: true, messages: [] });
  const asking = Array.from({ length: 40 }, () =>
    fetch(`${one.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${one.token}`, "content-type": "application/json" },
      body: new Blob([body]).stream(),
      duplex: "half",
    }),
  );
  await until("all are at the gateway", () => gateway.calls.length === 40);
  release();
  t.strictSame(
    (await Promise.all(asking)).map(({ status }) => status),
    Array(40).fill(200),
  );
});
