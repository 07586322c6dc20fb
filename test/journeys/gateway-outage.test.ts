import { readFile } from "node:fs/promises";
import { createServer as createSecureServer } from "node:https";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import t, { type Test } from "tap";
import { makeCertificates } from "../doubles/certificates.ts";
import { command, newHome, saveConfig, startServing } from "../doubles/command.ts";
import {
  canaryKey,
  freshToken,
  type OneToolOptions,
  startUnderTest,
  startWithOneTool,
  stillHealthy,
} from "../doubles/daemon-under-test.ts";
import { longTest } from "../doubles/effort.ts";
import { heldClock } from "../doubles/held-clock.ts";
import { CLOSED_PORT, freePort, listen } from "../doubles/listen.ts";
import { head, openRaw, parsed } from "../doubles/raw-client.ts";
import { type GatewayCall, startRawGateway } from "../doubles/raw-gateway.ts";
import { post, say } from "../doubles/stimulus.ts";
import { until } from "../doubles/until.ts";
import { faultsIn, recordsIn } from "../doubles/usage-file.ts";

// These tests mostly wait, so they run side by side.
t.jobs = 8;

/** While no connection to the gateway can be made, requests wait for it (timeouts.retry_connect). */

/** A daemon before a gateway that does not run yet, and what a test asks about it. */
async function scene(t: Test, options: OneToolOptions = {}) {
  const port = await freePort();
  const one = await startWithOneTool(t, `http://127.0.0.1:${port}`, options);
  const auth = { Host: one.host, Authorization: `Bearer ${one.token}` };
  const codex = async () => (await one.daemon.status()).tools[0];
  const gateway = async () => (await one.daemon.status()).gateways[0];
  return {
    ...one,
    gatewayPort: port,
    auth,
    gateway,
    secrets: [one.key, one.token],
    /** This many requests hold their place, and the gateway is known to be down. */
    waiting: (count: number) =>
      until(`${count} requests wait`, async () => {
        const isDown = (await gateway())?.state === "failing";
        return isDown && (await codex())?.running === count;
      }),
    startGateway: (onCall: (call: GatewayCall) => void | Promise<void>) =>
      startRawGateway(t, onCall, { port }),
    chat: (signal?: AbortSignal) =>
      fetch(`${one.url}/v1/chat/completions`, {
        method: "POST",
        headers: { authorization: `Bearer ${one.token}`, "content-type": "application/json" },
        body: '{"model":"penny"}',
        ...(signal === undefined ? {} : { signal }),
      }),
  };
}

const UPGRADE = { Connection: "Upgrade", Upgrade: "websocket", "Sec-WebSocket-Version": "13" };
const SWITCHES = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";

t.test("an outage is invisible to requests that come during it, however they are sent", async (t) => {
  const it = await scene(t, { gateway: ["websockets: true"], tool: ["limits: { concurrent: 5 }"] });
  const upload = "u".repeat(300_000);
  const file = { ...it.auth, "Content-Type": "application/octet-stream" };
  const requests = {
    "a chat": post("POST /v1/chat/completions", { ...it.auth, "Content-Type": "application/json" }),
    "no body": head("GET /v1/models", it.auth),
    "an upload": post("POST /v1/files", file, upload),
    "a chunked upload": `${head("POST /v1/uploads", { ...file, "Transfer-Encoding": "chunked" })}3\r\nabc\r\n0\r\n\r\n`,
  };
  const answers = Object.entries(requests).map(
    async ([name, bytes]) => [name, await say(t, it.port, bytes)] as const,
  );
  const socket = await openRaw(t, it.port);
  socket.send(`${head("GET /v1/realtime", { ...it.auth, ...UPGRADE })}early`);
  await it.waiting(5);
  t.match(await it.gateway(), { failures: 0, why: "nothing listens there (ECONNREFUSED)" });
  t.match(
    (await command(t, it.home, ["status"])).stdout,
    /failing since .* \(no request has failed\s+yet\): nothing listens\s+there/,
  );

  const backAt = Date.now();
  const gateway = await it.startGateway(async (call) => {
    await call.whole;
    if (call.target === "/v1/realtime") {
      call.isTunnel = true;
      call.send(SWITCHES);
      call.socket.on("data", (bytes: Buffer) => call.send(bytes));
    } else call.ok();
  });
  for (const [name, answer] of await Promise.all(answers)) t.equal(answer.status, 200, name);
  await socket.until("101 Switching");
  socket.send("late");
  await socket.until("late");
  t.match(parsed(socket.text()).body, /^(?:early)?late$/);
  const targets = gateway.calls.map(({ target }) => target).sort();
  t.strictSame(
    targets,
    ["/v1/chat/completions", "/v1/files", "/v1/models", "/v1/realtime", "/v1/uploads"],
    "each once",
  );
  t.equal(
    gateway.calls
      .find(({ target }) => target === "/v1/files")
      ?.body()
      .toString(),
    upload,
  );
  t.equal(gateway.received().split("early").length, 2, "what came right behind the head, once");
  socket.socket.destroy();
  await until("all are settled", async () =>
    recordsIn(it.paths.usage).every(({ end }) => end === "complete"),
  );
  t.equal(recordsIn(it.paths.usage).length, 5);
  for (const { sent_at } of recordsIn(it.paths.usage))
    t.ok((sent_at ?? 0) >= backAt, "sent when it was back");
  t.strictSame(faultsIn(it.paths.usage), []);
  t.match(await it.gateway(), { state: "reachable", failures: 0 });
  await stillHealthy(t, it, it.secrets);
});

t.test("after its own time a request is refused for good, says why, and counts nothing", async (t) => {
  const { token, hash } = freshToken();
  const key = canaryKey();
  // "At once" is decided by this clock, however busy the machine is.
  const clock = heldClock();
  const silent = await startRawGateway(t, () => {});
  const plain = await startRawGateway(t, () => {}, {
    onConnection: (socket) => void socket.write("HTTP/1.1 400 Bad Request\r\n\r\n"),
  });
  const proxy = async (answer: string) => {
    const { origin } = await listen(
      t,
      createServer((socket) => socket.once("data", () => socket.write(answer))),
    );
    return `base_url: "http://127.0.0.1:${CLOSED_PORT}/v1", proxy: "${origin}"`;
  };
  const rows: readonly [string, string, boolean, RegExp][] = [
    ["refused", `base_url: "http://127.0.0.1:${CLOSED_PORT}/v1"`, true, /nothing listens there/],
    ["unknown", 'base_url: "https://nowhere.invalid/v1"', true, /DNS/],
    ["no-tls", `base_url: "https://127.0.0.1:${silent.port}/v1"`, true, /no connection within 0\.\d s/],
    ["no-proxy", 'base_url: "https://a.example/v1", proxy: "http://127.0.0.1:1"', true, /the outbound proxy/],
    ["proxy-503", await proxy("HTTP/1.1 503 No\r\n\r\n"), true, /answered 503 to CONNECT/],
    // What stays until somebody changes it is not tried again.
    ["proxy-407", await proxy("HTTP/1.1 407 No\r\n\r\n"), false, /answered 407 to CONNECT/],
    ["plain", `base_url: "https://127.0.0.1:${plain.port}/v1"`, false, /TLS with it failed/],
  ];
  const gateways = rows.map(
    ([name, line]) =>
      `  ${name}: { ${line}, timeouts: { retry_connect: 500ms${name === "no-tls" ? ", connect: 200ms" : ""} } }\n`,
  );
  const tokens = new Map(rows.map(([name]) => [name, freshToken()]));
  const tools = rows.map(
    ([name]) =>
      `  ${name}: { gateway: ${name}, key: ${key}-${name}, token: "${tokens.get(name)?.hash}", limits: { requests: 5/day } }\n`,
  );
  const under = await startUnderTest(
    t,
    `gateways:\n${gateways.join("")}tools:\n${tools.join("")}  idle: { gateway: plain, key: ${key}, token: "${hash}" }\n`,
    { clock },
  );
  const ask = (name: string, path = "/v1/models") =>
    fetch(`${under.url}${path}`, { headers: { authorization: `Bearer ${tokens.get(name)?.token}` } });
  await Promise.all(
    rows.map(async ([name, , isTried, problem]) => {
      const answer = await ask(name);
      const text = await answer.text();
      t.equal(answer.status, 400, name);
      t.equal(answer.headers.get("x-keybearer-refusal"), "gateway-unreachable", name);
      t.equal(answer.headers.get("x-should-retry"), "false", name);
      t.match(text, problem, name);
      t.equal(text.includes("(tried for 0.5 s)"), isTried, `${name}: ${text}`);
      if (name !== "refused") return;
      const again = await ask(name);
      t.equal(again.status, 400);
      t.match(await again.text(), "cannot be reached: nothing", "sent again at once, it does not wait again");
      const other = await ask(name, "/v1/models?another");
      t.match(await other.text(), "(tried for 0.5 s)", "another request of the tool waits");
      clock.pass(6000);
      const later = await ask(name);
      t.match(await later.text(), "(tried for 0.5 s)", "sent again later, it waits");
    }),
  );
  await turn();
  const records = recordsIn(under.paths.usage);
  t.equal(records.length, rows.length + 3);
  for (const record of records) {
    t.match(record, {
      end: "gateway-failed",
      status: 400,
      refusal: "gateway-unreachable",
      counts: false,
      sent_at: null,
    });
  }
  for (const { name, limits } of (await under.daemon.status()).tools)
    if (name !== "idle") t.strictSame([limits[0]?.used, limits[0]?.held], [0, 0], name);
  await stillHealthy(t, under, [key, token]);
});

t.test("a client that leaves gives back what its request holds", async (t) => {
  const it = await scene(t, {
    gateway: ["websockets: true"],
    tool: ["limits: { concurrent: 2, requests: 2/day }"],
  });
  const leaving = new AbortController();
  const chat = it.chat(leaving.signal);
  const socket = await openRaw(t, it.port);
  socket.send(head("GET /v1/realtime", { ...it.auth, ...UPGRADE }));
  await it.waiting(2);
  leaving.abort();
  socket.socket.end();
  await t.rejects(chat);
  await it.waiting(0);
  await turn();
  t.match(
    recordsIn(it.paths.usage).map(({ end, counts }) => ({ end, counts })),
    [
      { end: "client-left", counts: false },
      { end: "client-left", counts: false },
    ],
  );
  const next = it.chat();
  await it.waiting(1);
  const gateway = await it.startGateway((call) => call.ok());
  t.equal((await next).status, 200, "it takes the place");
  t.equal(gateway.calls.length, 1, "nothing of the others was sent");
  await stillHealthy(t, it, it.secrets);
});

longTest(t, "a client that leaves is noticed behind a body that passes unread, too", async (t) => {
  const it = await scene(t);
  const upload = async (size: number) => {
    const client = await openRaw(t, it.port);
    const type = { "Content-Type": "application/octet-stream", "Content-Length": String(size) };
    client.send(head("POST /v1/files", { ...it.auth, ...type }));
    client.send(Buffer.alloc(size, "x"));
    return client;
  };
  for (const size of [1000, 100_000, 1_000_000]) {
    const client = await upload(size);
    await it.waiting(1);
    client.socket.destroy();
    await it.waiting(0);
  }
  const staying = await upload(1_000_000);
  await it.waiting(1);
  const gateway = await it.startGateway(async (call) => {
    await call.whole;
    call.ok();
  });
  await staying.until("200 OK");
  t.strictSame(
    gateway.calls.map((call) => call.body().length),
    [1_000_000],
    "only what has a client was sent",
  );
  await turn();
  t.match(
    recordsIn(it.paths.usage).map(({ end, sent_at }) => ({ end, isSent: sent_at !== null })),
    [...Array(3).fill({ end: "client-left", isSent: false }), { end: "complete", isSent: true }],
  );
  await stillHealthy(t, it, it.secrets);
});

t.test("a request whose first attempts got no answer to the connection arrives whole", async (t) => {
  const made = makeCertificates(t);
  if (made === null) return;
  const bodies: string[] = [];
  const secure = createSecureServer(made.good, (req, res) => {
    let body = "";
    req.on("data", (chunk) => {
      body += chunk;
    });
    req.on("end", () => {
      bodies.push(body);
      res.end("{}");
    });
  });
  let attempts = 0;
  // It accepts connections, and the first ones get no TLS.
  const server = createServer((socket) => {
    attempts += 1;
    if (attempts > 3) secure.emit("connection", socket);
  });
  const { port } = await listen(t, server);
  const one = await startWithOneTool(t, `https://127.0.0.1:${port}`, {
    gateway: [`ca_file: ${made.authority}`, "timeouts: { connect: 1s, retry_connect: 10m }"],
  });
  const auth = { Host: one.host, Authorization: `Bearer ${one.token}` };
  const body = JSON.stringify({ model: "penny", input: "x".repeat(300_000) });
  const json = post("POST /v1/responses", { ...auth, "Content-Type": "application/json" }, body);
  const file = post(
    "POST /v1/files",
    { ...auth, "Content-Type": "application/octet-stream" },
    "f".repeat(300_000),
  );
  const answers = await Promise.all([say(t, one.port, json), say(t, one.port, file)]);
  t.strictSame(
    answers.map(({ status }) => status),
    [200, 200],
  );
  t.strictSame(bodies.sort(), ["f".repeat(300_000), body]);
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("a stop refuses the requests that wait at once", async (t) => {
  const it = await scene(t, { gateway: ["websockets: true", "timeouts: { retry_connect: 10m }"] });
  const chat = it.chat();
  const socket = await openRaw(t, it.port);
  socket.send(head("GET /v1/realtime", { ...it.auth, ...UPGRADE }));
  await it.waiting(2);
  // Much longer than a test may take.
  const stopped = it.daemon.stop(600_000);
  const answer = await chat;
  t.equal(answer.status, 503);
  t.equal(answer.headers.get("x-keybearer-refusal"), "shutting-down");
  await answer.text();
  await socket.closed();
  t.match(parsed(socket.text()), { status: 503, headers: { "x-keybearer-refusal": "shutting-down" } });
  await stopped;
  for (const record of recordsIn(it.paths.usage))
    t.match(record, { end: "refused", refusal: "shutting-down", counts: false, sent_at: null });
});

t.test("one probe serves all that wait, through the outbound proxy too", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  let isDown = true;
  let asked = 0;
  const received: Buffer[] = [];
  const server = createServer((socket) => {
    socket.on("data", (bytes: Buffer) => void received.push(bytes));
    socket.once("data", () => {
      asked += 1;
      if (isDown) return void socket.end("HTTP/1.1 503 Unavailable\r\n\r\n");
      const onward = connect(gateway.port, "127.0.0.1");
      socket.write("HTTP/1.1 200 OK\r\n\r\n");
      onward.on("error", () => {});
      socket.pipe(onward).pipe(socket);
    });
  });
  const { origin } = await listen(t, server);
  const one = await startWithOneTool(t, gateway.origin, {
    gateway: [`proxy: ${origin}`, "timeouts: { retry_connect: 10m }"],
  });
  const chats = Array.from({ length: 12 }, () =>
    fetch(`${one.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${one.token}`, "content-type": "application/json" },
      body: "{}",
    }),
  );
  await until("all were tried, and three probes", () => asked >= 12 + 3);
  t.ok(asked < 12 + 12, `${asked} attempts`);
  t.notMatch(Buffer.concat(received).toString(), /HEAD|POST/, "the probe sends nothing");
  isDown = false;
  for (const chat of chats) t.equal((await chat).status, 200);
  t.equal(gateway.calls.length, 12, "each was sent once");
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test(
  "a gateway that comes back with a wrong certificate is reported at once, and gets no key",
  async (t) => {
    const made = makeCertificates(t);
    if (made === null) return;
    const port = await freePort();
    const one = await startWithOneTool(t, `https://127.0.0.1:${port}`, {
      gateway: ["timeouts: { retry_connect: 10m }"],
    });
    const chat = say(
      t,
      one.port,
      head("GET /v1/models", { Host: one.host, Authorization: `Bearer ${one.token}` }),
    );
    await until("it waits", async () => (await one.daemon.status()).gateways[0]?.state === "failing");
    const received: unknown[] = [];
    await listen(
      t,
      createSecureServer(made.selfSigned, (req) => void received.push(req.url)),
      port,
    );
    const { status, body } = await chat;
    t.equal(status, 400);
    t.match(body, "its certificate is self-signed");
    t.strictSame(received, []);
    await stillHealthy(t, one, [one.key, one.token]);
  },
);

longTest(
  t,
  "a save does not change how long a request waits; one that would be refused now does not pass",
  async (t) => {
    const start = async () => {
      const it = await scene(t, { gateway: ["timeouts: { retry_connect: 10m }"] });
      const chat = it.chat();
      await it.waiting(1);
      const config = await readFile(it.paths.config, "utf8");
      const change = async (from: string | RegExp, to: string) => {
        const { revision } = it.daemon.snapshot();
        await it.save(config.replace(from, to));
        await until("the save is in force", () => it.daemon.snapshot().revision > revision);
      };
      return { ...it, waitingChat: chat, change };
    };
    const it = await start();
    await it.change("retry_connect: 10m", "retry_connect: 0s");
    const next = await it.chat();
    t.equal(next.status, 400, "a new request is not tried again");
    t.match(await next.text(), "cannot be reached: nothing listens there");
    await it.startGateway((call) => call.ok());
    t.equal((await it.waitingChat).status, 200);

    const changes: readonly [string, string | RegExp, string][] = [
      ["tool-disabled", /$/, "    enabled: false\n"],
      // It waits for the old address, but the owner has to confirm the new one first.
      ["needs-trust", /base_url: .*/, `base_url: http://127.0.0.1:${CLOSED_PORT}/v1`],
    ];
    for (const [code, from, to] of changes) {
      const held = await start();
      await held.change(from, to);
      const gateway = await held.startGateway((call) => call.ok());
      t.equal((await held.waitingChat).headers.get("x-keybearer-refusal"), code);
      t.equal(gateway.calls.length, 0, code);
      t.match(recordsIn(held.paths.usage), [{ end: "refused", refusal: code, counts: false }]);
    }
  },
);

t.test("after kill -9 only requests that may have been sent have a sent_at and count", async (t) => {
  const home = await newHome(t);
  const folder = join(home, "state", "usage");
  const hung = await startRawGateway(t, () => {});
  const tokens = { down: freshToken(), hung: freshToken() };
  const limits = "limits: { requests: 5/day }";
  // The outbound proxy of one of them comes back.
  let isDown = true;
  const { origin } = await listen(
    t,
    createServer((socket) => {
      socket.on("error", () => {});
      socket.once("data", () => {
        if (isDown) return void socket.end("HTTP/1.1 503 Unavailable\r\n\r\n");
        const onward = connect(hung.port, "127.0.0.1");
        onward.on("error", () => {});
        socket.write("HTTP/1.1 200 OK\r\n\r\n");
        socket.pipe(onward).pipe(socket);
      });
    }),
  );
  await saveConfig(
    home,
    `listen: localhost:0
gateways:
  down: { base_url: "http://127.0.0.1:${CLOSED_PORT}/v1" }
  hung: { base_url: "${hung.baseUrl}", proxy: "${origin}" }
tools:
  down: { gateway: down, key: ${canaryKey()}, token: "${tokens.down.hash}", ${limits} }
  hung: { gateway: hung, key: ${canaryKey()}, token: "${tokens.hung.hash}", ${limits} }
`,
  );
  const running = await startServing(t, home);
  for (const { token } of Object.values(tokens)) {
    fetch(`${running.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: "{}",
    }).catch(() => {});
  }
  await until("both wait", () => recordsIn(folder).filter(({ sent_at }) => sent_at === null).length === 2);
  isDown = false;
  await until("one was sent", () => hung.calls.length === 1);
  running.child.kill("SIGKILL");
  await running.ended;

  const again = await startUnderTest(t, null, { home });
  const records = new Map(recordsIn(folder).map((record) => [record.tool, record]));
  t.match(records.get("down"), { end: "interrupted", sent_at: null, counts: false });
  t.match(records.get("hung"), { end: "interrupted", sent_at: Number, counts: null });
  for (const { name, limits } of (await again.daemon.status()).tools)
    t.equal(limits[0]?.used, name === "down" ? 0 : 1, name);
});
