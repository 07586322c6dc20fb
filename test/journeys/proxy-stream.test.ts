import { createHash } from "node:crypto";
import { request } from "node:http";
import { gzipSync } from "node:zlib";
import t from "tap";
import { startWithOneTool, stillHealthy } from "../doubles/daemon-under-test.ts";
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

t.test("an answer with a length passes piece by piece too, with its length", async (t) => {
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

t.test("compressed bytes are not touched, and their encoding stays named", async (t) => {
  const packed = gzipSync(JSON.stringify({ text: "x".repeat(5000) }));
  for (const [encoding, bytes] of [
    ["gzip", packed],
    ["br", Buffer.from([0x0b, 0x02, 0x80, 0x68, 0x69, 0x03])],
    ["zstd", Buffer.from("not really zstd, and nobody looks")],
    ["gzip", Buffer.from("a lie about its encoding")],
  ] as const) {
    const gateway = await startRawGateway(t, (call) =>
      call.answer("200 OK", { "Content-Encoding": encoding, ETag: '"1"' }, bytes),
    );
    const one = await startWithOneTool(t, gateway.origin);
    const client = await openRaw(t, one.port);
    client.send(
      head("GET /v1/models", {
        Host: one.host,
        Authorization: `Bearer ${one.token}`,
        "Accept-Encoding": "gzip, zstd",
      }),
    );
    await until("the whole body", () => client.bytes().subarray(-bytes.length).equals(bytes));
    t.equal(parsed(client.text()).headers["content-encoding"], encoding);
    t.match(gateway.calls[0]?.header("accept-encoding")[0], /^gzip(?:, zstd)?$/, "what can be read here");
    await stillHealthy(t, one, [one.key, one.token]);
  }
});

t.test("HEAD, 204 and 304 have no body and leave the connection usable", async (t) => {
  const gateway = await startRawGateway(t, (call) => {
    if (call.target.endsWith("head404")) call.send("HTTP/1.1 404 Not Found\r\nContent-Length: 7\r\n\r\n");
    else if (call.method === "HEAD") call.send("HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n");
    else if (call.target.endsWith("204")) call.send("HTTP/1.1 204 No Content\r\n\r\n");
    else if (call.target.endsWith("304")) call.send('HTTP/1.1 304 Not Modified\r\nETag: "1"\r\n\r\n');
    else if (call.target.endsWith("early")) {
      call.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n");
      call.ok("late");
    } else call.ok("last");
  });
  const one = await startWithOneTool(t, gateway.origin);
  const client = await openRaw(t, one.port);
  const headers = { Host: one.host, Authorization: `Bearer ${one.token}` };
  const steps: [string, RegExp][] = [
    ["HEAD /v1/models", /HTTP\/1.1 200 OK\r\n[\s\S]*content-length: 999\r\n[\s\S]*\r\n\r\n$/i],
    ["GET /v1/204", /HTTP\/1.1 204 No Content\r\n[\s\S]*\r\n\r\n$/],
    ["GET /v1/304", /HTTP\/1.1 304 Not Modified\r\n[\s\S]*\r\n\r\n$/],
    ["HEAD /v1/head404", /HTTP\/1.1 404 Not Found\r\n[\s\S]*\r\n\r\n$/],
    ["GET /v1/early", /late$/],
    ["GET /v1/models", /last$/],
  ];
  for (const [line, expected] of steps) {
    client.send(head(line, headers));
    await client.until(expected);
  }
  t.strictSame(
    [0, 1, 2, 3, 4, 5].map((n) => client.status(n)),
    [200, 204, 304, 404, 200, 200],
    "nothing in between: hints are not passed on",
  );
  await stillHealthy(t, one, [one.key, one.token]);
});

/**
 * What may be on its way between client and gateway: four buffers of the kernel's, and some in Node. Whoever held back a
 * whole body of 200 MB would hold three times as much.
 */
const MOST_ON_ITS_WAY = 64 * 1024 * 1024;

t.test("200 MB go up without being held back, and arrive as they were sent", async (t) => {
  const PIECE = Buffer.alloc(64 * 1024, "keybearer ");
  const PIECES = 3200;
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
  t.ok(onItsWay < MOST_ON_ITS_WAY, `at most ${Math.round(onItsWay / 1024 / 1024)} MB were on their way`);
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("a reader that stops keeps the gateway waiting, not the memory growing", async (t) => {
  const PIECE = Buffer.alloc(64 * 1024, "x");
  let written = 0;
  let stalled = false;
  const gateway = await startRawGateway(t, async (call) => {
    call.send(`HTTP/1.1 200 OK\r\nContent-Length: ${PIECE.length * 3200}\r\n\r\n`);
    for (let n = 0; n < 3200 && call.socket.writable; n += 1) {
      written += PIECE.length;
      if (call.socket.write(PIECE)) continue;
      const drained = new Promise((resolve) => call.socket.once("drain", resolve));
      // It is kept waiting once nothing has been taken for so long; a busy machine is no reason to be kept waiting less.
      const timer = setTimeout(() => {
        stalled = true;
      }, 700);
      await drained;
      clearTimeout(timer);
    }
  });
  const one = await startWithOneTool(t, gateway.origin);
  const client = await openRaw(t, one.port);
  client.send(head("GET /v1/files/big", { Host: one.host, Authorization: `Bearer ${one.token}` }));
  await client.until("\r\n\r\n");
  client.socket.pause();
  await until("the gateway is kept waiting", () => stalled);
  t.ok(written < MOST_ON_ITS_WAY, `only ${Math.round(written / 1024 / 1024)} of 200 MB were sent`);
  client.socket.destroy();
  await gateway.calls[0]?.closed;
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("a reader that never goes on is cut after the idle time, as a client that left", async (t) => {
  const gateway = await startRawGateway(t, (call) => {
    call.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    const piece = `10000\r\n${"x".repeat(65_536)}\r\n`;
    const more = () => {
      while (call.socket.writable && call.socket.write(piece));
      call.socket.once("drain", more);
    };
    more();
  });
  const one = await startWithOneTool(t, gateway.origin, { gateway: ["timeouts: { idle: 500ms }"] });
  const client = await openRaw(t, one.port);
  client.send(head("GET /v1/stream", { Host: one.host, Authorization: `Bearer ${one.token}` }));
  await client.until("\r\n\r\n");
  client.socket.pause();
  await gateway.calls[0]?.closed;
  await until("the request is settled", () => one.log().some((line) => line.endpoint === "/v1/stream"));
  t.match(
    one.log().find((line) => line.endpoint === "/v1/stream"),
    { end: "client-left", status: 200 },
  );
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test(
  "a chunked upload passes chunked, even with GET, and what comes after it stays a request of its own",
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
