import { realpathSync } from "node:fs";
import { connect } from "node:net";
import t, { type Test } from "tap";
import { ProcessLookup } from "../../src/core/process-lookup.ts";
import { startWithOneTool, stillHealthy } from "../doubles/daemon-under-test.ts";
import { openSockets } from "../doubles/open-sockets.ts";
import { head, openRaw, type RawClient } from "../doubles/raw-client.ts";
import { type GatewayCall, startRawGateway } from "../doubles/raw-gateway.ts";
import { post, say, settledAs } from "../doubles/stimulus.ts";
import { until } from "../doubles/until.ts";

async function scene(
  t: Test,
  onCall: (call: GatewayCall) => void | Promise<void>,
  gatewayLines: string[] = [],
) {
  const gateway = await startRawGateway(t, onCall);
  const one = await startWithOneTool(t, gateway.origin, { gateway: gatewayLines });
  const { token, key, host, port } = one;
  const auth = { Host: host, Authorization: `Bearer ${token}` };
  return { under: one, gateway, secrets: [token, key], token, key, host, port, auth };
}

const ways: [string, (client: RawClient) => void][] = [
  ["closes", (client) => void client.socket.destroy()],
  ["resets", (client) => void client.socket.resetAndDestroy()],
];

/** The gateway has ten minutes for its first byte and five for each pause, so that nothing else closes the call. */
async function closesCall(call: GatewayCall | undefined, leave: () => void): Promise<void> {
  leave();
  await call?.closed;
}

const SSE = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const chunk = (text: string) => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
const CHAT = 'data: {"object":"chat.completion.chunk","choices":[{"delta":{"content":"one"}}]}\n\n';

t.test("CL-01 a client that leaves in the middle of a stream ends the gateway's call", async (t) => {
  const it = await scene(t, (call) => call.send(SSE + chunk(CHAT)));
  for (const [how, leave] of ways) {
    const client = await openRaw(t, it.port);
    client.send(head(`GET /v1/${how}`, it.auth));
    await client.until('"one"');
    await closesCall(it.gateway.calls.at(-1), () => leave(client));
    await settledAs(t, it.under, `/v1/${how}`, [{ end: "client-left", status: 200, bytes_out: CHAT.length }]);
  }
  await stillHealthy(t, it.under, it.secrets);
});

t.test("CL-02 a client that leaves before the first byte ends the gateway's call", async (t) => {
  const it = await scene(t, () => {});
  for (const [how, leave] of ways) {
    const client = await openRaw(t, it.port);
    client.send(post(`POST /v1/${how}`, it.auth));
    await until("the gateway has it", () => it.gateway.calls.at(-1)?.target === `/v1/${how}`);
    await it.gateway.calls.at(-1)?.whole;
    await closesCall(it.gateway.calls.at(-1), () => leave(client));
    await settledAs(t, it.under, `/v1/${how}`, [{ end: "client-left", status: null, bytes_out: 0 }]);
  }
  await stillHealthy(t, it.under, it.secrets);
});

t.test("CL-03 an upload that the client stops never looks complete to the gateway", async (t) => {
  const it = await scene(t, () => {});
  const framings = { length: { "Content-Length": "100000" }, chunks: { "Transfer-Encoding": "chunked" } };
  for (const [name, framing] of Object.entries(framings)) {
    for (const [how, leave] of ways) {
      // A file is sent on while it comes.
      const path = `/v1/files/${how}-${name}`;
      const client = await openRaw(t, it.port);
      client.send(`${head(`POST ${path}`, { ...it.auth, ...framing })}400\r\n${"x".repeat(1024)}\r\n`);
      await until("a part is there", () => {
        const call = it.gateway.calls.at(-1);
        return call?.target === path && call.bodyBytes > 1000;
      });
      const call = it.gateway.calls.at(-1);
      let whole = false;
      void call?.whole.then(() => {
        whole = true;
      });
      await closesCall(call, () => leave(client));
      t.notOk(whole, `${path}: no end was made up`);
      t.ok((call?.bodyBytes ?? 0) < 100_000);
      await settledAs(t, it.under, path, [{ end: "client-left", status: null }]);
    }
  }
  const before = it.gateway.calls.length;
  for (const [name, framing] of Object.entries(framings)) {
    for (const [how, leave] of ways) {
      // A chat is sent on when all of it is here.
      const path = `/v1/chat/completions/${how}-${name}`;
      const client = await openRaw(t, it.port);
      const headers = { ...it.auth, ...framing, "Content-Type": "application/json" };
      client.send(`${head(`POST ${path}`, headers)}400\r\n${"x".repeat(1024)}\r\n`);
      // Loopback delivers at once, and each turn of the event loop reads what was delivered.
      for (let turns = 0; turns < 10; turns += 1) await new Promise((resolve) => setImmediate(resolve));
      leave(client);
      await settledAs(t, it.under, path, [{ end: "client-left", status: null }]);
    }
  }
  t.equal(it.gateway.calls.length, before, "nothing of it was sent");
  await stillHealthy(t, it.under, it.secrets);
});

const PROGRAM = realpathSync("/bin/sleep");

/**
 * Lookups of processes that wait before they answer, so that a client can leave meanwhile. They find PROGRAM in place of this
 * process, because no tool can be an interpreter.
 */
function slowLookup(t: Test) {
  const { of } = ProcessLookup.prototype;
  let asked = 0;
  let isHeld = true;
  ProcessLookup.prototype.of = async function (socket) {
    const owner = await of.call(this, socket);
    asked += 1;
    await until("the lookup may answer", () => !isHeld);
    return owner === null ? null : { ...owner, program: PROGRAM };
  };
  t.teardown(() => {
    ProcessLookup.prototype.of = of;
  });
  return {
    asked: () => asked,
    letGo: () => {
      isHeld = false;
    },
    hold: () => {
      isHeld = true;
    },
  };
}

t.test(
  "CL-04 a client that leaves during the lookup of its process is never forwarded",
  { skip: process.platform === "linux" ? false : "the lookup has been run on Linux only" },
  async (t) => {
    const lookup = slowLookup(t);
    const gateway = await startRawGateway(t, (call) => call.ok());
    const one = await startWithOneTool(t, gateway.origin, {
      gateway: ["websockets: true"],
      tool: [`process: ${PROGRAM}`],
    });
    const auth = { Host: one.host, Authorization: `Bearer ${one.token}` };
    const upgrade = { Connection: "Upgrade", Upgrade: "websocket", "Sec-WebSocket-Version": "13" };
    for (const [what, headers] of Object.entries({ plain: {}, upgrade })) {
      for (const [how, leave] of ways) {
        // A connection that asks for a WebSocket is not read until it is one, so its end is not seen before.
        if (what === "upgrade" && how === "closes") continue;
        const path = `/v1/${what}-${how}`;
        const before = lookup.asked();
        const client = await openRaw(t, one.port);
        client.send(head(`GET ${path}`, { ...auth, ...headers }));
        await until("its program is looked for", () => lookup.asked() > before || client.size() > 0);
        t.equal(client.text(), "", "it has no answer before that");
        leave(client);
        // Loopback delivers at once, and each turn of the event loop reads what was delivered.
        for (let turns = 0; turns < 10; turns += 1) await new Promise((resolve) => setImmediate(resolve));
        lookup.letGo();
        await settledAs(t, one, path, [{ end: "client-left", status: null, tool: "codex", refusal: null }]);
        lookup.hold();
      }
    }
    t.equal(gateway.connections(), 0, "nothing was sent for it");
    lookup.letGo();
    t.equal((await say(t, one.port, head("GET /v1/stays", auth))).status, 200, "one that stays is served");
    await stillHealthy(t, one, [one.token, one.key]);
  },
);

t.test(
  "CL-05 a client that leaves during a response that is not a stream ends the gateway's call",
  async (t) => {
    const half = '{"choices":[{"message":{"content":"half of ';
    const it = await scene(t, (call) => {
      const status = call.target.startsWith("/v1/error") ? "500 Oh" : "200 OK";
      call.send(
        `HTTP/1.1 ${status}\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n${half}`,
      );
    });
    for (const [how, leave] of ways) {
      const client = await openRaw(t, it.port);
      client.send(post(`POST /v1/${how}`, it.auth));
      await client.until("half of ");
      await closesCall(it.gateway.calls.at(-1), () => leave(client));
      await settledAs(t, it.under, `/v1/${how}`, [
        { end: "client-left", status: 200, bytes_out: half.length },
      ]);

      // keybearer reads an error to its end before it passes it on.
      const path = `/v1/error-${how}`;
      const early = await openRaw(t, it.port);
      early.send(post(`POST ${path}`, it.auth));
      await until("the gateway has it", () => it.gateway.calls.at(-1)?.target === path);
      await closesCall(it.gateway.calls.at(-1), () => leave(early));
      await settledAs(t, it.under, path, [{ end: "client-left" }]);
    }
    await stillHealthy(t, it.under, it.secrets);
  },
);

t.test("CL-06 a client that ends its side of the connection has left", async (t) => {
  const it = await scene(t, (call) => {
    if (call.target.endsWith("stream")) call.send(SSE + chunk(CHAT));
  });
  for (const path of ["/v1/stream", "/v1/waiting", "/v1/files"]) {
    const client = await openRaw(t, it.port);
    // The upload is not complete.
    if (path === "/v1/files")
      client.send(`${head(`POST ${path}`, { ...it.auth, "Content-Length": "100" })}half`);
    else client.send(head(`GET ${path}`, it.auth));
    await until("the gateway has it", () => it.gateway.calls.at(-1)?.target === path);
    if (path === "/v1/stream") await client.until('"one"');
    await closesCall(it.gateway.calls.at(-1), () => void client.socket.end());
    await settledAs(t, it.under, path, [{ end: "client-left" }]);
  }
  await stillHealthy(t, it.under, it.secrets);
});

t.test("a client that leaves ends the calls of all its pipelined requests", async (t) => {
  const it = await scene(t, (call) => {
    if (call.target.endsWith("second")) call.send(SSE + chunk(CHAT));
  });
  const client = await openRaw(t, it.port);
  const names = ["first", "second", "third"];
  client.send(names.map((name) => head(`GET /v1/${name}`, it.auth)).join(""));
  await until("all are at the gateway", () => it.gateway.calls.length === 3);
  client.socket.destroy();
  await Promise.all(it.gateway.calls.map((call) => call.closed));
  for (const name of names) await settledAs(t, it.under, `/v1/${name}`, [{ end: "client-left" }]);
  await stillHealthy(t, it.under, it.secrets);
});

t.test("CL-07 a client that stops reading makes the gateway wait, then is cut and has left", async (t) => {
  const PIECE = Buffer.alloc(64 * 1024, "x");
  const PIECES = 960;
  let written = 0;
  const it = await scene(
    t,
    async (call) => {
      call.send(`HTTP/1.1 200 OK\r\nContent-Length: ${PIECE.length * PIECES}\r\n\r\n`);
      for (let n = 0; n < PIECES && call.socket.writable; n += 1) {
        written += PIECE.length;
        if (call.socket.write(PIECE)) continue;
        await Promise.race([new Promise((resolve) => call.socket.once("drain", resolve)), call.closed]);
      }
    },
    ["timeouts: { idle: 1500ms }"],
  );
  const client = await openRaw(t, it.port);
  client.send(head("GET /v1/big", it.auth));
  await client.until("\r\n\r\n");
  client.socket.pause();
  await it.gateway.calls[0]?.closed;
  t.ok(written < 40 * 1024 * 1024, `only ${Math.round(written / 1024 / 1024)} of 60 MB were sent`);
  await settledAs(t, it.under, "/v1/big", [{ end: "client-left", status: 200 }]);

  // One that only pauses gets everything.
  const slow = await openRaw(t, it.port);
  written = 0;
  slow.send(head("GET /v1/slow", it.auth));
  await slow.until("\r\n\r\n");
  slow.socket.pause();
  await until("the pause reaches the gateway", () => it.gateway.calls.at(-1)?.socket.writableNeedDrain);
  slow.socket.resume();
  await until("all of it came", () => slow.size() > PIECE.length * PIECES);
  await settledAs(t, it.under, "/v1/slow", [{ end: "complete", bytes_out: PIECE.length * PIECES }]);
  await stillHealthy(t, it.under, it.secrets);
});

const noFolder = process.platform === "linux" ? false : "open files are counted in /proc, which is not here";

t.test("CL-08 connections that are reset at once leave nothing behind", { skip: noFolder }, async (t) => {
  const it = await scene(t, (call) => call.ok());
  t.equal((await say(t, it.port, head("GET /v1/first", it.auth))).status, 200);
  const before = openSockets(process.pid);
  const logged = it.under.log().length;
  const half = head("POST /v1/half", { ...it.auth, "Content-Length": "10" }).slice(0, 60);
  for (let round = 0; round < 2; round += 1) {
    const sockets = Array.from({ length: 50 }, (_, n) => {
      const socket = connect({ port: it.port, host: "127.0.0.1" });
      socket.on("error", () => {});
      socket.once("connect", () => {
        if (n % 2 === 1) socket.write(half);
        socket.resetAndDestroy();
      });
      return new Promise((resolve) => socket.once("close", resolve));
    });
    await Promise.all(sockets);
  }
  await until("as many sockets are open as before", () => openSockets(process.pid) <= before + 5);
  t.equal(it.under.log().length, logged, "nothing is logged about them");
  t.equal((await say(t, it.port, head("GET /v1/last", it.auth))).status, 200);
  t.ok(it.gateway.calls.every((call) => /first|last/.test(call.target)));
  await stillHealthy(t, it.under, it.secrets);
});

t.test("CL-09 a hundred streams that clients leave at once are each settled once", async (t) => {
  const it = await scene(t, (call) => {
    if (!call.target.endsWith("silent")) call.send(SSE + chunk(CHAT));
  });
  const clients = await Promise.all(Array.from({ length: 100 }, () => openRaw(t, it.port)));
  for (const [n, client] of clients.entries()) {
    client.send(head(`GET /v1/${n % 3 === 0 ? "silent" : "stream"}`, it.auth));
  }
  await until("all are at the gateway", () => it.gateway.calls.length === 100);
  for (const client of clients) client.socket.resetAndDestroy();
  await until("nothing is open at the gateway", () => it.gateway.open() === 0);
  const lines = () => it.under.ended().filter(({ endpoint }) => /stream|silent/.test(endpoint));
  await until("all are settled", () => lines().length >= 100);
  t.equal(lines().length, 100);
  t.equal(new Set(lines().map((line) => line.id)).size, 100, "each once");
  t.ok(lines().every((line) => line.end === "client-left"));
  await stillHealthy(t, it.under, it.secrets);
});

t.test(
  "CL-10 a client that leaves at the end of the response is complete or has left, never both",
  async (t) => {
    const last = "data: [DONE]\n\n";
    const it = await scene(t, (call) => {
      if (call.target.endsWith("whole")) return call.ok("all of it");
      call.send(SSE + chunk(CHAT));
      setImmediate(() => call.send(chunk(last)));
      // Some gateways end the stream at once after its last event, some later.
      if (call.target.endsWith("0")) setImmediate(() => call.send("0\r\n\r\n"));
    });
    for (let run = 0; run < 30; run += 1) {
      const client = await openRaw(t, it.port);
      client.send(head(`GET /v1/run-${run % 2}`, it.auth));
      // By turns with the first event, with the last event, and with the first byte.
      await client.until(run % 3 === 0 ? '"one"' : run % 3 === 1 ? "[DONE]" : "HTTP/1.1");
      if (run % 2 === 0) client.socket.destroy();
      else client.socket.resetAndDestroy();
    }
    const lines = () => it.under.ended().filter(({ endpoint }) => /run/.test(endpoint));
    await until("all are settled", () => lines().length >= 30);
    t.equal(lines().length, 30, "none is missing");
    t.equal(new Set(lines().map((line) => line.id)).size, 30, "none is there twice");
    t.ok(lines().every((line) => line.end === "complete" || line.end === "client-left"));
    const whole = CHAT.length + last.length;
    for (const line of lines()) {
      if (line.bytes_out === whole)
        t.equal(line.end, "complete", "a client that leaves after the last event is done");
    }
    t.ok(lines().filter((line) => line.end === "complete").length >= 10, "those that got the last event");

    for (let n = 0; n < 3; n += 1) {
      const client = await openRaw(t, it.port);
      client.send(head("GET /v1/whole", it.auth));
      await client.until("all of it");
      client.socket.destroy();
    }
    const complete = { end: "complete", status: 200 };
    await settledAs(t, it.under, "/v1/whole", [complete, complete, complete]);
    // The others can be used again.
    const unended = it.gateway.calls.filter(({ target }) => target === "/v1/run-1");
    await Promise.all(unended.map((call) => call.closed));
    await stillHealthy(t, it.under, it.secrets);
  },
);
