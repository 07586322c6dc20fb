import { existsSync, readFileSync } from "node:fs";
import { Agent, createServer, get, request } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import t, { type Test } from "tap";
import { freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { longTest } from "../doubles/effort.ts";
import { hello, startSandbox } from "../doubles/sandbox.ts";
import { until } from "../doubles/until.ts";

// These tests mostly wait, so they run side by side.
t.jobs = 8;

/** A time that no test sees the end of: if a stop ends, something else has ended it. */
const HOUR_MS = 3_600_000;

async function start(t: Test, wordDelay = 0, settings = "") {
  const sandbox = await startSandbox(t, { wordDelay });
  const { key } = sandbox.createKey({ name: "life", group: "default" });
  const { token, hash } = freshToken();
  const under = await startUnderTest(
    t,
    `${settings}gateway: ${sandbox.baseUrl}\ntools: { codex: { key: ${key.reveal()}, token: "${hash}" } }\n`,
  );
  const stream = () =>
    fetch(`${under.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: JSON.stringify({ ...hello(), stream: true }),
    });
  return { ...under, sandbox, token, stream };
}

t.test("while a stream runs, a stop refuses new connections and lets it finish", async (t) => {
  const { daemon, url, paths, stream, logText } = await start(t, 60);
  const response = await stream();
  const stopped = daemon.stop(HOUR_MS);
  // At once, before anything else is closed.
  await t.rejects(fetch(`${url}/healthz`), { cause: { code: "ECONNREFUSED" } });
  const text = await response.text();
  t.match(text, /data: \[DONE\]\s*$/);
  t.ok(text.split("data: ").length > 5, "it came in several chunks");
  // The end of the last request is the end of the wait.
  await stopped;
  t.notOk(existsSync(paths.socket), "the control socket is gone");
  t.notMatch(logText(), /"level":"error"/);
});

t.test("a stream that takes longer than the stop waits is cut", async (t) => {
  const { daemon, sandbox, stream } = await start(t, HOUR_MS);
  const response = await stream();
  const reading = response.text();
  await Promise.all([daemon.stop(300), t.rejects(reading)]);
  await until("the gateway's end is closed, too", () => sandbox.requests()[0]?.isAborted === true);
});

longTest(
  t,
  "a stop waits as long as drain says, which a reload changes, and logs what it waits for",
  async (t) => {
    const { daemon, paths, save, logText, stream } = await start(t, HOUR_MS, "drain: 10m\n");
    await save(readFileSync(paths.config, "utf8").replace("10m", "1s"));
    await until("the edit is in force", () => daemon.snapshot().config.drain === 1000);
    const reading = (await stream()).text();
    t.equal((await daemon.status()).drain_left_s, null);
    const stopped = daemon.stop();
    t.equal((await daemon.status()).drain_left_s, 1);
    await t.rejects(reading);
    await stopped;
    t.match(logText(), "waiting for 1 request, 1 s left");
  },
);

t.test("cut ends a running stop at once", async (t) => {
  const { daemon, stream } = await start(t, HOUR_MS);
  const reading = (await stream()).text();
  const stopped = daemon.stop(HOUR_MS);
  daemon.cut();
  await t.rejects(reading);
  await stopped;
});

t.test("kept-alive idle connections do not delay a stop", async (t) => {
  const { daemon, port } = await keptAlive(t);
  t.ok(port > 0);
  await daemon.stop(HOUR_MS);
});

t.test("a connection without any request does not delay a stop", async (t) => {
  const { daemon } = await start(t);
  const sockets = await Promise.all(["127.0.0.1", "::1"].map((host) => open(t, host, daemon.port)));
  t.ok(sockets.some((socket) => socket !== null));
  await daemon.stop(HOUR_MS);
});

t.test("a request that never finishes its headers is cut when the stop's time is over", async (t) => {
  const { daemon } = await start(t);
  const socket = await open(t, "127.0.0.1", daemon.port);
  socket?.write("POST /v1/chat/completions HTTP/1.1\r\nHost: lo");
  await until("it has been sent", () => (socket?.bytesWritten ?? 0) > 0 && socket?.writableLength === 0);
  await daemon.stop(300);
});

t.test("an open websocket does not block a stop", async (t) => {
  const gateway = createServer();
  const upgraded: Socket[] = [];
  gateway.on("upgrade", (_req, socket) => {
    upgraded.push(socket as Socket);
    socket.on("error", () => {});
    socket.write("HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\r\n");
  });
  await new Promise<void>((resolve) => gateway.listen(0, "127.0.0.1", resolve));
  t.teardown(() => {
    for (const socket of upgraded) socket.destroy();
    gateway.close();
  });
  const { token, hash } = freshToken();
  const { daemon } = await startUnderTest(
    t,
    `gateways: { main: { base_url: "http://127.0.0.1:${(gateway.address() as AddressInfo).port}/v1", websockets: true } }
tools: { codex: { key: sk-websocket-0123456789, token: "${hash}" } }\n`,
  );
  const asking = request({
    host: "127.0.0.1",
    port: daemon.port,
    path: "/v1/realtime",
    headers: {
      authorization: `Bearer ${token}`,
      connection: "Upgrade",
      upgrade: "websocket",
      "sec-websocket-version": "13",
      "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    },
  });
  asking.on("error", () => {});
  const closed = new Promise<void>((resolve, reject) => {
    asking.once("response", (answer) => reject(new Error(`no upgrade: ${answer.statusCode}`)));
    asking.once("upgrade", (_answer, socket) => {
      socket.on("error", () => {});
      socket.once("close", () => resolve());
      socket.resume();
      started();
    });
  });
  let started = () => {};
  const open = new Promise<void>((resolve) => {
    started = resolve;
  });
  asking.end();
  await Promise.race([open, closed]);
  await daemon.stop(300);
  await closed;
});

t.test("a second stop at the same time does no harm", async (t) => {
  const { daemon, paths } = await start(t);
  await Promise.all([daemon.stop(100), daemon.stop(100)]);
  t.notOk(existsSync(paths.socket));
});

/** A daemon with an idle connection on which an answer has come already. */
async function keptAlive(t: Test) {
  const { daemon } = await start(t);
  const agent = new Agent({ keepAlive: true });
  t.teardown(() => agent.destroy());
  await new Promise<void>((resolve, reject) => {
    const asking = get({ host: "127.0.0.1", port: daemon.port, path: "/healthz", agent }, (answer) => {
      answer.resume();
      answer.once("end", resolve);
    });
    asking.once("error", reject);
  });
  await until("the connection is kept", () => Object.keys(agent.freeSockets).length === 1);
  return { daemon, port: daemon.port };
}

function open(t: Test, host: string, port: number): Promise<Socket | null> {
  return new Promise((resolve) => {
    const socket = connect({ host, port }, () => resolve(socket));
    socket.on("error", () => resolve(null));
    t.teardown(() => void socket.destroy());
  });
}
