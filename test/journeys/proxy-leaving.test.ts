import t, { type Test } from "tap";
import { type OneTool, startWithOneTool, stillHealthy } from "../doubles/daemon-under-test.ts";
import { head, openRaw } from "../doubles/raw-client.ts";
import { type GatewayCall, startRawGateway } from "../doubles/raw-gateway.ts";
import { until } from "../doubles/until.ts";

/** The gateway is given ten minutes for its first byte and five for each pause, so that nothing else closes the call. */
async function closesCall(call: GatewayCall | undefined, leave: () => void): Promise<void> {
  leave();
  await until("the gateway call is closed", () => call?.isClosed);
}

async function settledAs(t: Test, one: OneTool, endpoint: string, end: string): Promise<void> {
  const lines = () => one.log().filter((line) => line.endpoint === endpoint);
  await until(`${endpoint} is settled`, () => lines().length > 0);
  t.strictSame(
    lines().map((line) => line.end),
    [end],
    "settled once",
  );
}

const ways = [
  ["closes", (socket: { destroy(): void }) => socket.destroy()],
  ["resets", (socket: { resetAndDestroy(): void }) => socket.resetAndDestroy()],
  ["ends its side", (socket: { end(): void }) => socket.end()],
] as const;

for (const [how, leave] of ways) {
  t.test(`a client that ${how} before the first byte closes the gateway call`, async (t) => {
    const gateway = await startRawGateway(t, () => {});
    const one = await startWithOneTool(t, gateway.origin);
    const client = await openRaw(t, one.port);
    client.send(
      `${head("POST /v1/responses", {
        Host: one.host,
        Authorization: `Bearer ${one.token}`,
        "Content-Length": "2",
      })}{}`,
    );
    await until("the gateway has the request", () => gateway.calls.length === 1);
    await gateway.calls[0]?.whole;
    await closesCall(gateway.calls[0], () => leave(client.socket));
    await settledAs(t, one, "/v1/responses", "client-left");
    await stillHealthy(t, one, [one.key, one.token]);
  });

  t.test(`a client that ${how} in the middle of a stream closes the gateway call`, async (t) => {
    const gateway = await startRawGateway(t, (call) =>
      call.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n"),
    );
    const one = await startWithOneTool(t, gateway.origin);
    const client = await openRaw(t, one.port);
    client.send(head("GET /v1/stream", { Host: one.host, Authorization: `Bearer ${one.token}` }));
    await client.until("first");
    await closesCall(gateway.calls[0], () => leave(client.socket));
    await settledAs(t, one, "/v1/stream", "client-left");
    await stillHealthy(t, one, [one.key, one.token]);
  });

  t.test(
    `a client that ${how} during its upload closes the gateway call, which never looks complete`,
    async (t) => {
      const gateway = await startRawGateway(t, () => {});
      const one = await startWithOneTool(t, gateway.origin);
      for (const framing of [{ "Content-Length": "100000" }, { "Transfer-Encoding": "chunked" }]) {
        const client = await openRaw(t, one.port);
        const headers = { Host: one.host, Authorization: `Bearer ${one.token}`, ...framing };
        client.send(`${head("POST /v1/files", headers)}400\r\n${"x".repeat(1024)}\r\n`);
        await until("a part is there", () => (gateway.calls.at(-1)?.bodyBytes ?? 0) > 1000);
        const call = gateway.calls.at(-1);
        await closesCall(call, () => leave(client.socket));
        t.notOk(call?.body().toString().endsWith("0\r\n\r\n"), "no end was made up");
        t.ok((call?.bodyBytes ?? 0) < 100_000);
      }
      await stillHealthy(t, one, [one.key, one.token]);
    },
  );
}

t.test("a client that leaves while an error is still being read closes the gateway call", async (t) => {
  const gateway = await startRawGateway(t, (call) =>
    call.send('HTTP/1.1 500 Oh\r\nContent-Length: 100\r\n\r\n{"error"'),
  );
  const one = await startWithOneTool(t, gateway.origin);
  const client = await openRaw(t, one.port);
  client.send(head("GET /v1/broken", { Host: one.host, Authorization: `Bearer ${one.token}` }));
  await until("the gateway has the request", () => gateway.calls.length === 1);
  await closesCall(gateway.calls[0], () => client.socket.destroy());
  await settledAs(t, one, "/v1/broken", "client-left");
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test(
  "a client that leaves closes all the calls it has pipelined, also those it would be answered later",
  async (t) => {
    const gateway = await startRawGateway(t, (call) => {
      if (call.target.endsWith("second"))
        call.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n");
    });
    const one = await startWithOneTool(t, gateway.origin);
    const client = await openRaw(t, one.port);
    const headers = { Host: one.host, Authorization: `Bearer ${one.token}` };
    client.send(["first", "second", "third"].map((name) => head(`GET /v1/${name}`, headers)).join(""));
    await until("all are at the gateway", () => gateway.calls.length === 3);
    client.socket.destroy();
    await until("all gateway calls are closed", () => gateway.calls.every((call) => call.isClosed));
    for (const name of ["first", "second", "third"]) await settledAs(t, one, `/v1/${name}`, "client-left");
    await stillHealthy(t, one, [one.key, one.token]);
  },
);

t.test("two hundred clients that leave at once leave nothing open", async (t) => {
  const gateway = await startRawGateway(t, (call) => {
    if (call.target.endsWith("0"))
      call.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n");
  });
  const one = await startWithOneTool(t, gateway.origin);
  const clients = await Promise.all(Array.from({ length: 200 }, () => openRaw(t, one.port)));
  clients.forEach((client, n) => {
    client.send(head(`GET /v1/${n}`, { Host: one.host, Authorization: `Bearer ${one.token}` }));
  });
  await until("all are at the gateway", () => gateway.calls.length === 200);
  for (const client of clients) client.socket.resetAndDestroy();
  await until("nothing is open", () => gateway.open() === 0);
  const ends = () => one.log().filter((line) => String(line.endpoint).startsWith("/v1/"));
  await until("all are settled", () => ends().length === 200);
  t.ok(ends().every((line) => line.end === "client-left"));
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("a client that hangs up right after the last event has a complete call", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok("all of it"));
  const one = await startWithOneTool(t, gateway.origin);
  for (let n = 0; n < 20; n += 1) {
    const client = await openRaw(t, one.port);
    client.send(head("GET /v1/whole", { Host: one.host, Authorization: `Bearer ${one.token}` }));
    await client.until("all of it");
    client.socket.destroy();
  }
  await until("all are settled", () => one.log().filter((l) => l.endpoint === "/v1/whole").length === 20);
  t.ok(
    one
      .log()
      .filter((line) => line.endpoint === "/v1/whole")
      .every((line) => line.end === "complete" && line.status === 200),
  );
  await stillHealthy(t, one, [one.key, one.token]);
});
