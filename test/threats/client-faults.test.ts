import { spawn } from "node:child_process";
import { existsSync, readdirSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import t, { type Test } from "tap";
import { startWithOneTool, stillHealthy } from "../doubles/daemon-under-test.ts";
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

/** The gateway is given ten minutes for its first byte and five for each pause, so that nothing else closes the call. */
async function closesCall(what: string, call: GatewayCall | undefined, leave: () => void): Promise<void> {
  leave();
  await until(`${what}: the gateway's call is closed`, () => call?.isClosed);
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
    await closesCall(how, it.gateway.calls.at(-1), () => leave(client));
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
    await closesCall(how, it.gateway.calls.at(-1), () => leave(client));
    await settledAs(t, it.under, `/v1/${how}`, [{ end: "client-left", status: null, bytes_out: 0 }]);
  }
  await stillHealthy(t, it.under, it.secrets);
});

t.test("CL-03 an upload that is given up never looks complete to the gateway", async (t) => {
  const it = await scene(t, () => {});
  const framings = { length: { "Content-Length": "100000" }, chunks: { "Transfer-Encoding": "chunked" } };
  for (const [name, framing] of Object.entries(framings)) {
    for (const [how, leave] of ways) {
      // A file passes while it comes.
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
      await closesCall(path, call, () => leave(client));
      t.notOk(whole, `${path}: no end was made up`);
      await settledAs(t, it.under, path, [{ end: "client-left", status: null }]);
    }
  }
  const before = it.gateway.calls.length;
  for (const [name, framing] of Object.entries(framings)) {
    for (const [how, leave] of ways) {
      // A chat passes when all of it is here.
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

const NETSTAT = ["/usr/bin/netstat", "/bin/netstat"].find((path) => existsSync(path));
const noNetstat =
  process.platform === "linux" && NETSTAT !== undefined ? false : "programs are looked up with netstat";

/**
 * A netstat that tells what it saw only when it is let go, so that a client can leave while it is looked up. It names
 * another process in place of this one, because no tool can be an interpreter.
 */
function slowNetstat(t: Test, pid: number | undefined) {
  const folder = t.testdir({});
  const program = `#!/bin/sh
seen=$(${NETSTAT} "$@" | sed 's# ${process.pid}/# ${pid}/#')
touch ${folder}/asked-$$
while [ ! -e ${folder}/go ]; do sleep 0.02; done
printf '%s\\n' "$seen"
`;
  writeFileSync(join(folder, "netstat"), program, { mode: 0o755 });
  const before = process.env.PATH;
  process.env.PATH = `${folder}:${before}`;
  t.teardown(() => {
    process.env.PATH = before;
  });
  return {
    asked: () => readdirSync(folder).filter((name) => name.startsWith("asked")).length,
    letGo: () => writeFileSync(join(folder, "go"), ""),
    hold: () => rmSync(join(folder, "go")),
  };
}

t.test(
  "CL-04 a client that leaves while it is still being looked up is never forwarded",
  { skip: noNetstat },
  async (t) => {
    const program = spawn("sleep", ["600"]);
    t.teardown(() => program.kill());
    const netstat = slowNetstat(t, program.pid);
    const gateway = await startRawGateway(t, (call) => call.ok());
    const one = await startWithOneTool(t, gateway.origin, {
      gateway: ["websockets: true"],
      tool: [`process: ${realpathSync(`/proc/${program.pid}/exe`)}`],
    });
    const auth = { Host: one.host, Authorization: `Bearer ${one.token}` };
    const upgrade = { Connection: "Upgrade", Upgrade: "websocket", "Sec-WebSocket-Version": "13" };
    for (const [what, headers] of Object.entries({ plain: {}, upgrade })) {
      for (const [how, leave] of ways) {
        // Nothing is read from a connection that asks for a WebSocket until it is one, so its end is not seen before.
        if (what === "upgrade" && how === "closes") continue;
        const path = `/v1/${what}-${how}`;
        const before = netstat.asked();
        const client = await openRaw(t, one.port);
        client.send(head(`GET ${path}`, { ...auth, ...headers }));
        await until("its program is looked for", () => netstat.asked() > before);
        leave(client);
        // Loopback delivers at once, and each turn of the event loop reads what was delivered.
        for (let turns = 0; turns < 10; turns += 1) await new Promise((resolve) => setImmediate(resolve));
        netstat.letGo();
        await settledAs(t, one, path, [{ end: "client-left", status: null, tool: "codex", refusal: null }]);
        netstat.hold();
      }
    }
    t.equal(gateway.connections(), 0, "nothing was sent for it");
    netstat.letGo();
    t.equal((await say(t, one.port, head("GET /v1/stays", auth))).status, 200, "one that stays is served");
    await stillHealthy(t, one, [one.token, one.key]);
  },
);

t.test("CL-05 an answer that is not streamed is given up as well", async (t) => {
  const half = '{"choices":[{"message":{"content":"half of ';
  const it = await scene(t, (call) =>
    call.send(`HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n${half}`),
  );
  for (const [how, leave] of ways) {
    const client = await openRaw(t, it.port);
    client.send(post(`POST /v1/${how}`, it.auth));
    await client.until("half of ");
    await closesCall(how, it.gateway.calls.at(-1), () => leave(client));
    await settledAs(t, it.under, `/v1/${how}`, [{ end: "client-left", status: 200, bytes_out: half.length }]);
  }
  await stillHealthy(t, it.under, it.secrets);
});

t.test("CL-06 a client that ends its side after the request has left", async (t) => {
  const it = await scene(t, (call) => {
    if (call.target.endsWith("stream")) call.send(SSE + chunk(CHAT));
  });
  for (const path of ["/v1/stream", "/v1/waiting"]) {
    const client = await openRaw(t, it.port);
    client.send(head(`GET ${path}`, it.auth));
    await until("the gateway has it", () => it.gateway.calls.at(-1)?.target === path);
    if (path.endsWith("stream")) await client.until('"one"');
    await closesCall(path, it.gateway.calls.at(-1), () => void client.socket.end());
    await settledAs(t, it.under, path, [{ end: "client-left" }]);
  }
  await stillHealthy(t, it.under, it.secrets);
});

t.test("CL-07 a reader that stops keeps the gateway waiting, then is cut as one that left", async (t) => {
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
const openFiles = () => readdirSync("/proc/self/fd").length;

t.test("CL-08 connections that are reset at once leave nothing behind", { skip: noFolder }, async (t) => {
  const it = await scene(t, (call) => call.ok());
  t.equal((await say(t, it.port, head("GET /v1/first", it.auth))).status, 200);
  const before = openFiles();
  const logged = it.under.log().length;
  const half = head("POST /v1/half", { ...it.auth, "Content-Length": "10" }).slice(0, 60);
  for (let round = 0; round < 6; round += 1) {
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
  await until("as many files are open as before", () => openFiles() <= before + 5);
  t.equal(it.under.log().length, logged, "nothing is said of them");
  t.equal((await say(t, it.port, head("GET /v1/last", it.auth))).status, 200);
  t.ok(it.gateway.calls.every((call) => /first|last/.test(call.target)));
  await stillHealthy(t, it.under, it.secrets);
});

t.test("CL-09 two hundred streams that are left together are each settled once", async (t) => {
  const it = await scene(t, (call) => {
    if (!call.target.endsWith("silent")) call.send(SSE + chunk(CHAT));
  });
  for (let round = 0; round < 4; round += 1) {
    const clients = await Promise.all(Array.from({ length: 50 }, () => openRaw(t, it.port)));
    for (const [n, client] of clients.entries()) {
      client.send(head(`GET /v1/${n % 3 === 0 ? "silent" : "stream"}`, it.auth));
    }
    await until("all are at the gateway", () => it.gateway.calls.length === 50 * (round + 1));
    for (const client of clients) client.socket.resetAndDestroy();
    await until("nothing is open at the gateway", () => it.gateway.open() === 0);
  }
  const lines = () => it.under.log().filter((line) => /stream|silent/.test(String(line.endpoint)));
  await until("all are settled", () => lines().length >= 200);
  t.equal(lines().length, 200);
  t.equal(new Set(lines().map((line) => line.id)).size, 200, "each once");
  t.ok(lines().every((line) => line.end === "client-left"));
  await stillHealthy(t, it.under, it.secrets);
});

t.test("CL-10 a client that leaves at the very end is complete or has left, and never both", async (t) => {
  const last = "data: [DONE]\n\n";
  const it = await scene(t, (call) => {
    call.send(SSE + chunk(CHAT));
    setImmediate(() => call.send(chunk(last)));
    // Some gateways end the stream right behind its last word, some take their time.
    if (call.target.endsWith("0")) setImmediate(() => call.send("0\r\n\r\n"));
  });
  for (let run = 0; run < 100; run += 1) {
    const client = await openRaw(t, it.port);
    client.send(head(`GET /v1/run-${run % 2}`, it.auth));
    // By turns with the first event, with the last word, and with whatever comes first.
    await client.until(run % 3 === 0 ? '"one"' : run % 3 === 1 ? "[DONE]" : "HTTP/1.1");
    if (run % 2 === 0) client.socket.destroy();
    else client.socket.resetAndDestroy();
  }
  const lines = () => it.under.log().filter((line) => /run/.test(String(line.endpoint)));
  await until("all are settled", () => lines().length >= 100);
  t.equal(lines().length, 100, "none is missing");
  t.equal(new Set(lines().map((line) => line.id)).size, 100, "and none there twice");
  t.ok(lines().every((line) => line.end === "complete" || line.end === "client-left"));
  const whole = CHAT.length + last.length;
  for (const line of lines()) {
    if (line.bytes_out === whole)
      t.equal(line.end, "complete", "a client that leaves after the last word is done");
  }
  t.ok(lines().filter((line) => line.end === "complete").length >= 20, "both kinds were met");
  await until("nothing is left open", () => it.gateway.open() === 0);
  await stillHealthy(t, it.under, it.secrets);
});
