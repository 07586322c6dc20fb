import { createHash } from "node:crypto";
import { request } from "node:http";
import t from "tap";
import { startWithOneTool, stillHealthy } from "../doubles/daemon-under-test.ts";
import { longTest } from "../doubles/effort.ts";
import { head, openRaw, parsed } from "../doubles/raw-client.ts";
import { startRawGateway } from "../doubles/raw-gateway.ts";
import { until } from "../doubles/until.ts";

t.test(
  "a stream passes chunk by chunk: the gateway sends the next only when the client has the last",
  async (t) => {
    const gateway = await startRawGateway(t, (call) =>
      call.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"),
    );
    const one = await startWithOneTool(t, gateway.origin);
    const client = await openRaw(t, one.port);
    client.send(
      `${head("POST /v1/responses", {
        Host: one.host,
        Authorization: `Bearer ${one.token}`,
        "Content-Length": "2",
      })}{}`,
    );
    await client.until("\r\n\r\n");
    t.equal(parsed(client.text()).body, "", "the head is there before the first event");
    const [call] = gateway.calls;
    let sent = "";
    for (let n = 1; n <= 30; n += 1) {
      // Some are cut inside a line and inside a character, as networks do.
      const event = Buffer.from(n % 3 === 0 ? `da` : `data: {"n":${n},"t":"é你"}\n\n`).subarray(
        0,
        n % 7 === 0 ? 20 : 99,
      );
      const chunk = `${event.length.toString(16)}\r\n${event.toString("latin1")}\r\n`;
      sent += chunk;
      call?.send(Buffer.from(chunk, "latin1"));
      await until(`chunk ${n} is with the client`, () => parsed(client.text()).body === sent);
    }
    call?.send("0\r\n\r\n");
    await client.until("\r\n0\r\n\r\n");
    t.equal(parsed(client.text()).body, `${sent}0\r\n\r\n`, "and the very same chunks");
    await stillHealthy(t, one, [one.key, one.token]);
  },
);

t.test("a response with a length passes piece by piece, with its length", async (t) => {
  const gateway = await startRawGateway(t, (call) =>
    call.send("HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n"),
  );
  const one = await startWithOneTool(t, gateway.origin);
  const client = await openRaw(t, one.port);
  client.send(head("GET /v1/models", { Host: one.host, Authorization: `Bearer ${one.token}` }));
  await client.until("\r\n\r\n");
  t.equal(parsed(client.text()).headers["content-length"], "40");
  for (let n = 1; n <= 4; n += 1) {
    gateway.calls[0]?.send(`piece ${n}...`.padEnd(10, "."));
    await until(`piece ${n}`, () => parsed(client.text()).body.length === n * 10);
  }
  await stillHealthy(t, one, [one.key, one.token]);
});

longTest(t, "a large upload passes unchanged and is not buffered", async (t) => {
  const PIECE = Buffer.alloc(64 * 1024, "keybearer ");
  const PIECES = 1280;
  const hashes = { sent: createHash("sha256"), got: createHash("sha256") };
  let arrived = 0;
  let inBody = false;
  const gateway = await startRawGateway(
    t,
    async (call) => {
      await call.whole;
      call.ok(String(arrived));
    },
    {
      keepBodies: false,
      onConnection: (socket) =>
        socket.on("data", (chunk: Buffer) => {
          const body = inBody ? chunk : chunk.subarray(chunk.indexOf("\r\n\r\n") + 4);
          inBody = true;
          arrived += body.length;
          hashes.got.update(body);
        }),
    },
  );
  const one = await startWithOneTool(t, gateway.origin);
  const upload = request(`${one.url}/v1/files`, {
    method: "POST",
    headers: { authorization: `Bearer ${one.token}`, "content-length": PIECE.length * PIECES },
  });
  const answered = new Promise<string>((resolve, reject) => {
    upload.on("error", reject);
    upload.on("response", (answer) => {
      let text = "";
      answer.on("data", (chunk) => {
        text += chunk;
      });
      answer.on("end", () => resolve(text));
    });
  });
  let onItsWay = 0;
  for (let n = 1; n <= PIECES; n += 1) {
    hashes.sent.update(PIECE);
    if (!upload.write(PIECE)) await new Promise((resolve) => upload.once("drain", resolve));
    onItsWay = Math.max(onItsWay, n * PIECE.length - arrived);
  }
  upload.end();
  t.equal(await answered, String(PIECE.length * PIECES));
  t.equal(hashes.got.digest("hex"), hashes.sent.digest("hex"));
  // Four buffers of the kernel's, and some in Node. A buffered body would be all of the 80 MB.
  t.ok(onItsWay < arrived * 0.6, `at most ${Math.round(onItsWay / 1024 / 1024)} MB were on their way`);
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test(
  "a chunked upload passes chunked with any method, and the bytes after it are the next request",
  async (t) => {
    const gateway = await startRawGateway(t, async (call) => {
      await call.whole;
      call.ok();
    });
    const one = await startWithOneTool(t, gateway.origin);
    for (const [n, method] of ["POST", "GET", "PUT"].entries()) {
      const client = await openRaw(t, one.port);
      const headers = {
        Host: one.host,
        Authorization: `Bearer ${one.token}`,
        "Content-Type": "application/octet-stream",
        "Transfer-Encoding": "chunked",
      };
      client.send(head(`${method} /v1/upload`, headers));
      client.send("3;ext=1\r\nabc\r\n");
      await until("the first part is there", () => gateway.calls[n]?.body().toString().includes("abc"));
      client.send("2\r\nde\r\n0\r\nX-Trailer: gone\r\n\r\n");
      await client.until("\r\n\r\n{}");
      const call = gateway.calls[n];
      t.equal(call?.method, method);
      t.strictSame(call?.header("transfer-encoding"), ["chunked"]);
      t.equal(call?.body().toString(), "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", "no extension, no trailer");
    }
    t.equal(gateway.calls.length, 3);
    await stillHealthy(t, one, [one.key, one.token]);
  },
);
