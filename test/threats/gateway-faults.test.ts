import { type ChildProcess, spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { setTimeout as wait } from "node:timers/promises";
import { createServer as createSecureServer, type TlsOptions } from "node:tls";
import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync } from "node:zlib";
import t, { type Test } from "tap";
import { makeCertificates } from "../doubles/certificates.ts";
import { newHome, saveConfig, startServing } from "../doubles/command.ts";
import { startConnectProxy } from "../doubles/connect-proxy.ts";
import {
  canaryKey,
  type DaemonUnderTest,
  freshToken,
  type OneToolOptions,
  startUnderTest,
  startWithOneTool,
  stillHealthy,
} from "../doubles/daemon-under-test.ts";
import { LONG, oneOf } from "../doubles/effort.ts";
import { CLOSED_PORT } from "../doubles/listen.ts";
import { head, openRaw, parsed } from "../doubles/raw-client.ts";
import { type GatewayCall, startRawGateway } from "../doubles/raw-gateway.ts";
import { echoForms, wholeKeyForms } from "../doubles/secret-scan.ts";
import { dechunked, post, say, settledAs } from "../doubles/stimulus.ts";
import { until, withoutStall } from "../doubles/until.ts";

// These tests mostly wait, so they run side by side.
t.jobs = 8;

/** A daemon with one tool, before a gateway that answers as the test says. */
async function scene(
  t: Test,
  onCall: (call: GatewayCall) => void | Promise<void>,
  options: OneToolOptions & { keepBodies?: boolean } = {},
) {
  const gateway = await startRawGateway(t, onCall, { keepBodies: options.keepBodies ?? true });
  const one = await startWithOneTool(t, gateway.origin, options);
  const { token, key, host, port } = one;
  const auth = { Host: host, Authorization: `Bearer ${token}` };
  return { under: one, gateway, secrets: [token, key], token, key, host, port, auth };
}

type Scene = Awaited<ReturnType<typeof scene>>;

/** What a request needs to get to a gateway, and what must not be in its response. */
interface Way {
  readonly under: DaemonUnderTest;
  readonly auth: Readonly<Record<string, string>>;
  readonly key: string;
}

/** A daemon with several gateways, each with its own tool, as lines of config.yaml. */
async function startGateways<Name extends string>(t: Test, lines: Readonly<Record<Name, string>>) {
  const names = Object.keys(lines) as Name[];
  const key = canaryKey();
  const tokens = new Map(names.map((name) => [name, freshToken()]));
  const gateways = names.map((name) => `  ${name}: { ${lines[name]} }\n`);
  const tools = names.map(
    (name) => `  ${name}: { gateway: ${name}, key: ${key}-${name}, token: "${tokens.get(name)?.hash}" }\n`,
  );
  const under = await startUnderTest(t, `gateways:\n${gateways.join("")}tools:\n${tools.join("")}`);
  const secrets = [key, ...[...tokens.values()].map(({ token }) => token)];
  const way = (name: Name): Way => {
    const auth = {
      Host: `127.0.0.1:${under.daemon.port}`,
      Authorization: `Bearer ${tokens.get(name)?.token}`,
    };
    return { under, auth, key };
  };
  return { under, key, secrets, way };
}

/** keybearer answers in place of the gateway, says what happened, and the client's connection serves the next request. */
async function isExplained(
  t: Test,
  { under, auth, key }: Way,
  line: string,
  [status, code]: readonly [number, string],
  problem: string | RegExp,
): Promise<void> {
  const path = line.slice(line.indexOf(" ") + 1);
  const bytes = line.startsWith("GET") ? head(line, auth) : post(line, auth);
  const heard = await say(t, under.daemon.port, bytes);
  t.strictSame([heard.status, heard.headers["x-keybearer-refusal"]], [status, code], line);
  t.match(JSON.parse(heard.body), { error: { code, type: "keybearer_refusal" } });
  t.match(heard.body, problem);
  t.equal(
    heard.headers["x-should-retry"],
    status === 400 ? "false" : undefined,
    "whether it may be tried again",
  );
  t.notOk(heard.body.includes(key));
  heard.client.send(head("GET /healthz", auth));
  await heard.client.until("ok\n");
  await settledAs(t, under, path, [{ end: "gateway-failed", status, refusal: code }]);
}

t.test("UP-01 a gateway that cannot be reached is reported with the problem", async (t) => {
  const plain = await startRawGateway(t, () => {}, {
    onConnection: (socket) => void socket.write("HTTP/1.1 400 Bad Request\r\n\r\n"),
  });
  const { under, key, secrets, way } = await startGateways(t, {
    refused: `base_url: "http://127.0.0.1:${CLOSED_PORT}/v1", timeouts: { retry_connect: 0s }`,
    unknown: 'base_url: "https://nowhere.invalid/v1", timeouts: { connect: 5s, retry_connect: 0s }',
    // No system connects to the broadcast address; most say at once that no network leads there.
    everywhere: 'base_url: "https://255.255.255.255/v1", timeouts: { connect: 5s, retry_connect: 0s }',
    plain: `base_url: "https://127.0.0.1:${plain.port}/v1"`,
  });
  const network = /there is no network|there is no way to that host|permission denied|not available/i;
  const problems = {
    refused: `gateway refused (http://127.0.0.1:${CLOSED_PORT}) cannot be reached: nothing listens there`,
    unknown: /not known to DNS|DNS did not answer/,
    everywhere: network,
    plain: "TLS with it failed",
  };
  for (const name of ["refused", "unknown", "everywhere", "plain"] as const) {
    await isExplained(t, way(name), `POST /v1/${name}`, [400, "gateway-unreachable"], problems[name]);
  }
  t.notOk(plain.received().includes(key), "a gateway without TLS gets no key");
  await stillHealthy(t, under, secrets);
});

/** A port on which the kernel no longer answers: its queue is full, and the process behind it is stopped. */
async function blackhole(t: Test): Promise<number> {
  const program = `
    const server = require("node:net").createServer();
    server.listen({ port: 0, host: "127.0.0.1", backlog: 1 }, () => console.log(server.address().port));`;
  const child: ChildProcess = spawn(process.execPath, ["-e", program], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  t.teardown(() => child.kill("SIGKILL"));
  const [text] = await once(child.stdout ?? child, "data");
  const port = Number(text);
  child.kill("SIGSTOP");
  // Many more than the queue takes. The kernel connects the first ones by itself, so the queue is full once one connected.
  const sockets = Array.from({ length: 32 }, (): Socket => connect({ port, host: "127.0.0.1" }));
  for (const socket of sockets) {
    socket.on("error", () => {});
    t.teardown(() => socket.destroy());
  }
  await Promise.race(sockets.map((socket) => once(socket, "connect")));
  return port;
}

const CHAT = 'data: {"object":"chat.completion.chunk","choices":[{"delta":{"content":"one"}}]}\n\n';
const SSE = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const chunk = (text: string) => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;

// These wait for time-outs, so they run side by side.
t.test("time-outs end what stalls, and nothing else", { jobs: 8 }, async (t) => {
  t.test("UP-02 a gateway that never accepts the connection, or never TLS, times out", async (t) => {
    const silent = await startRawGateway(t, () => {});
    const timeouts = "timeouts: { connect: 300ms, retry_connect: 0s, first_byte: 60s }";
    const { under, key, secrets, way } = await startGateways(t, {
      blackhole: `base_url: "http://127.0.0.1:${await blackhole(t)}/v1", ${timeouts}`,
      silent: `base_url: "https://127.0.0.1:${silent.port}/v1", ${timeouts}`,
    });
    for (const name of ["blackhole", "silent"] as const) {
      const problem = "cannot be reached: no connection within 0.3 s";
      await isExplained(t, way(name), `POST /v1/${name}`, [400, "gateway-unreachable"], problem);
    }
    await until("the connection is closed", () => silent.open() === 0);
    t.notOk(silent.received().includes(key));
    await stillHealthy(t, under, secrets);
  });

  t.test("UP-08 a stream that stops is cut on both sides after the idle time", async (t) => {
    const it = await scene(
      t,
      (call) => call.send(SSE + (call.target.endsWith("at-once") ? "" : chunk(CHAT))),
      { gateway: ["timeouts: { idle: 500ms }"] },
    );
    for (const path of ["/v1/later", "/v1/at-once"]) {
      const client = await openRaw(t, it.port);
      client.send(head(`GET ${path}`, it.auth));
      await client.closed();
      t.notMatch(client.text(), /\n0\r\n|keybearer:/, "nothing added");
      await it.gateway.calls.at(-1)?.closed;
      await settledAs(t, it.under, path, [{ end: "gateway-failed", status: 200 }]);
    }
    await stillHealthy(t, it.under, it.secrets);
  });

  t.test("UP-09 a gateway that never answers times out; a late one does not", async (t) => {
    const it = await scene(
      t,
      (call) => {
        if (call.target.endsWith("late")) setTimeout(() => call.ok(), 500);
      },
      { gateway: ["timeouts: { connect: 300ms, first_byte: 1500ms }"] },
    );
    await isExplained(t, it, "POST /v1/never", [504, "gateway-timeout"], "no answer within 1.5 s");
    await it.gateway.calls[0]?.closed;
    t.equal(it.gateway.calls.length, 1, "nothing was tried twice");
    const late = await withoutStall(800, () => say(t, it.port, post("POST /v1/late", it.auth)));
    t.equal(late.status, 200, "it may take as long as its time-out");
    await stillHealthy(t, it.under, it.secrets);
  });

  t.test("UP-10 a stream of small pieces that takes longer than the idle time is not cut", async (t) => {
    const it = await scene(
      t,
      (call) => {
        call.send(SSE);
        let n = 0;
        const timer = setInterval(() => {
          n += 1;
          // All of it takes longer than the idle time, and each pause is much shorter.
          call.send(n < 12 ? chunk(":") : "0\r\n\r\n");
          if (n >= 12) clearInterval(timer);
        }, 200);
        t.teardown(() => clearInterval(timer));
      },
      { gateway: ["timeouts: { idle: 2s }"] },
    );
    const { path, answer } = await withoutStall(1500, async () => {
      const client = await openRaw(t, it.port);
      const drip = `/v1/drip-${it.gateway.calls.length}`;
      client.send(head(`GET ${drip}`, it.auth));
      await until("it is over", () => client.isClosed() || client.text().endsWith("\r\n0\r\n\r\n"));
      return { path: drip, answer: parsed(client.text()) };
    });
    const body = String(dechunked(Buffer.from(answer.body)));
    t.equal(body, ":".repeat(11));
    await settledAs(t, it.under, path, [{ end: "complete", status: 200 }]);
    await stillHealthy(t, it.under, it.secrets);
  });

  t.test("a response that takes longer than an idle connection may live is not cut", async (t) => {
    // Announced as two seconds, a connection is kept for one.
    const it = await scene(t, (call) => {
      if (call.target.endsWith("first")) call.answer("200 OK", { "Keep-Alive": "timeout=2" }, "soon");
      else setTimeout(() => call.ok("late"), 1600);
    });
    for (const [path, body] of [
      ["first", "soon"],
      ["second", "late"],
    ]) {
      const heard = await say(t, it.port, head(`GET /v1/models/${path}`, it.auth));
      t.equal(heard.body, body);
    }
    await stillHealthy(t, it.under, it.secrets);
  });

  t.test("a gateway that answers early and stops reading loses its connection", async (t) => {
    const it = await scene(
      t,
      (call) => {
        call.socket.pause();
        call.answer("413 Too Large", {}, "no");
      },
      { keepBodies: false, tool: ["ask_usage: true"] },
    );
    const content = "x".repeat(12 * 1024 * 1024);
    const answer = await fetch(`${it.under.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${it.token}`, "content-type": "application/json" },
      body: JSON.stringify({ model: "m", stream: true, messages: [{ role: "user", content }] }),
    });
    t.equal(answer.status, 413);
    t.equal(await answer.text(), "no");
    const [call] = it.gateway.calls;
    // Longer than the second that the gateway has. The daemon's timer is in this process too, and timers fire in order.
    // A socket that is not read does not report its end.
    await wait(1500);
    call?.socket.resume();
    await call?.closed;
    t.ok((call?.bodyBytes ?? 0) < content.length, "the rest was never sent");
    await stillHealthy(t, it.under, it.secrets);
  });
});

/** One way to fail in the middle of a response: what the client gets, and how the gateway fails then. */
interface Cut {
  readonly begin: string;
  /** The end of what reaches the client. */
  readonly last: string;
  die(call: GatewayCall): void;
  /** What the client may still get of what the gateway sends when it fails. */
  readonly more?: string;
}

const end = (call: GatewayCall) => void call.socket.end();
const reset = (call: GatewayCall) => void call.socket.resetAndDestroy();

/** The client gets the beginning. Then the gateway fails: the client's connection is cut, and nothing is added. */
async function areCut(t: Test, cuts: Readonly<Record<string, Cut>>): Promise<void> {
  const names = Object.keys(cuts);
  const nameOf = (target: string) => names[Number(target.slice("/v1/cut-".length))] ?? "";
  const it = await scene(t, (call) => call.send(cuts[nameOf(call.target)]?.begin ?? ""));
  for (const [at, name] of names.entries()) {
    const path = `/v1/cut-${at}`;
    const client = await openRaw(t, it.port);
    client.send(head(`GET ${path}`, it.auth));
    await client.until(cuts[name]?.last ?? "");
    const before = client.text();
    t.equal(client.status(), 200, name);
    const call = it.gateway.calls.find(({ target }) => target === path);
    if (call) cuts[name]?.die(call);
    await client.closed();
    const added = client.text().slice(before.length);
    t.ok(added === "" || added === cuts[name]?.more, `${name}: nothing is added`, { found: added });
    await settledAs(t, it.under, path, [{ end: "gateway-failed", status: 200, refusal: null }]);
  }
  t.equal(it.gateway.calls.length, names.length, "nothing is tried twice");
  await stillHealthy(t, it.under, it.secrets);
}

t.test("UP-03 a gateway that resets in the middle of a stream cuts the client at once", async (t) => {
  await areCut(t, {
    "behind an event": { begin: SSE + chunk(CHAT), last: `${CHAT}\r\n`, die: reset },
    "before the first event": { begin: SSE, last: "\r\n\r\n", die: reset },
  });
});

t.test("UP-04 a response that ends too early is cut, by one byte or in a chunk", async (t) => {
  const long = `HTTP/1.1 200 OK\r\nContent-Length: ${CHAT.length + 1}\r\n\r\n`;
  await areCut(t, {
    "in a chunk": { begin: `${SSE}${chunk(CHAT)}50\r\nhalf`, last: "half\r\n", die: end },
    "between chunks": { begin: SSE + chunk(CHAT), last: `${CHAT}\r\n`, die: end },
    "one byte short": { begin: long + CHAT, last: CHAT, die: end },
    "before its body": { begin: long, last: "\r\n\r\n", die: end },
    "without its last chunk": { begin: `${SSE}${chunk(CHAT)}0\r\n`, last: `${CHAT}\r\n`, die: end },
  });
});

t.test("UP-05 a stream that ends cleanly without its last event passes, and is not complete", async (t) => {
  const rows: [string, string][] = [
    ["chat", CHAT],
    ["messages", 'event: message_start\ndata: {"type":"message_start"}\n\n'],
    ["responses", 'event: response.created\ndata: {"type":"response.created"}\n\n'],
    ["gemini", 'data: {"candidates":[{"content":{}}]}\n\n'],
  ];
  const it = await scene(t, (call) => {
    const text = rows.find(([name]) => call.target.endsWith(name))?.[1] ?? "";
    call.send(`${SSE}${chunk(text)}0\r\n\r\n`);
  });
  for (const [name, text] of rows) {
    const { body } = await say(t, it.port, head(`GET /v1/${name}`, it.auth));
    t.equal(String(dechunked(Buffer.from(body, "latin1"))), text, `${name}: byte for byte`);
    await settledAs(t, it.under, `/v1/${name}`, [{ end: "gateway-failed", status: 200 }]);
  }
  await stillHealthy(t, it.under, it.secrets);
});

/** By name: what the gateway answers to a request before it fails. */
const broken: Readonly<Record<string, (call: GatewayCall) => void>> = {
  resets: reset,
  ends: end,
  "half-a-head": (call) => void call.socket.end("HTTP/1.1 200 O"),
  "half-an-error": (call) => void call.socket.end('HTTP/1.1 500 Oh\r\nContent-Length: 100\r\n\r\n{"err'),
  ssh: sends("SSH-2.0-OpenSSH_9\r\n"),
  bytes: sends("\x00\x01\x02\r\n\r\n"),
  "two-lengths": sends("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx"),
  "length-and-chunks": sends(
    "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
  ),
  "signed-length": sends("HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\n{}"),
  "status-000": sends("HTTP/1.1 000 Zero\r\nContent-Length: 0\r\n\r\n"),
  "status-099": sends("HTTP/1.1 099 Low\r\nContent-Length: 0\r\n\r\n"),
  "http-3": sends("HTTP/3.0 200 OK\r\n\r\n"),
  "unasked-101": sends("HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"),
};

function sends(bytes: string): (call: GatewayCall) => void {
  return (call) => call.send(Buffer.from(bytes, "latin1"));
}

/** Each is asked for with and without a body, because keybearer sends these in different ways. */
async function areBroken(t: Test, it: Scene, names: readonly string[]): Promise<void> {
  for (const name of names) {
    for (const method of ["POST", "GET"]) {
      const line = `${method} /v1/${name}-${method}`;
      await isExplained(t, it, line, [502, "gateway-broken"], "gateway main");
    }
  }
  t.equal(it.gateway.calls.length, 2 * names.length, "nothing was tried twice");
}

t.test("UP-06 a response that is not HTTP is explained; one that stops being HTTP is cut", async (t) => {
  const it = await scene(t, (call) => broken[call.target.slice(4).replace(/-[A-Z]+$/, "")]?.(call));
  await areBroken(t, it, Object.keys(broken));
  await stillHealthy(t, it.under, it.secrets);
  const bad = ["zz\r\nnonsense\r\n", "5\nhello\n", "3\r\nabcde\r\n", "fffffffffffffffff\r\nx"];
  const cuts = bad.map((bytes): [string, Cut] => [
    JSON.stringify(bytes),
    { begin: SSE + chunk(CHAT), last: `${CHAT}\r\n`, die: sends(bytes), more: chunk("abc") },
  ]);
  await areCut(t, Object.fromEntries(cuts));
});

t.test("UP-07 a broken head is explained; many headers and odd reason phrases pass", async (t) => {
  const heads: Record<string, string> = {
    "too-long": `X-Big: ${"x".repeat(17_000)}\r\n`,
    "too-many": Array.from({ length: 1000 }, (_, n) => `X-${n}: ${"x".repeat(16)}\r\n`).join(""),
    nul: "X-A: a\0b\r\n",
    "bare-cr": "X-A: a\rb\r\n",
    "name-with-space": "X A: 1\r\n",
    folded: "X-A: a\r\n b\r\n",
  };
  const many = Array.from({ length: 300 }, (_, n) => `X-${n}: ${n}\r\n`).join("");
  const phrases = ["200 O\x01K", "200 O\x00K", "200 ", "200", "401 \x1b[31mno", "200 ok\x7f"];
  const it = await scene(t, (call) => {
    const phrase = phrases[Number(/phrase-(\d)$/.exec(call.target)?.[1])];
    if (phrase !== undefined) return call.answer(phrase, {}, "{}");
    const extra = heads[call.target.slice(4).replace(/-[A-Z]+$/, "")] ?? many;
    call.send(Buffer.from(`HTTP/1.1 200 OK\r\n${extra}Content-Length: 2\r\n\r\n{}`, "latin1"));
  });
  await areBroken(t, it, Object.keys(heads));
  const heard = await say(t, it.port, head("GET /v1/many", it.auth));
  t.equal(heard.status, 200);
  t.equal(heard.names.filter((name) => /^x-\d/.test(name)).length, 300, "none is lost");
  for (const [at, phrase] of phrases.entries()) {
    const { status } = await say(t, it.port, head(`GET /v1/phrase-${at}`, it.auth));
    t.ok([200, 401, 502].includes(status), JSON.stringify(phrase));
  }
  await stillHealthy(t, it.under, it.secrets);
});

t.test("UP-11 429 and 529 of the gateway pass byte for byte, and nothing is tried again", async (t) => {
  const body = '{ "type":"error",\n "error":{"type":"rate_limit_error","message":"slow down \u2603"} }\n';
  const rows: [string, Record<string, string>][] = [
    ["429 Too Many Requests", { "Retry-After": "7" }],
    ["429 Too Many Requests", { "Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT" }],
    ["429 Slow Down", { "retry-after-ms": "7000", "x-should-retry": "true" }],
    ["529 Overloaded", { "anthropic-ratelimit-requests-remaining": "0", "X-Request-Id": "req_1" }],
    ["503 Busy", { "Retry-After": "120" }],
  ];
  const it = await scene(t, (call) => {
    const [status = "", headers = {}] = rows[Number(call.target.slice(-1))] ?? [];
    call.answer(status, { "Content-Type": "application/json", ...headers }, body);
  });
  for (const [n, [status, headers]] of rows.entries()) {
    const heard = await say(t, it.port, post(`POST /v1/messages/${n}`, it.auth));
    t.equal(`${heard.status} ${heard.reason}`, status);
    t.equal(heard.body, Buffer.from(body).toString("latin1"), "byte for byte");
    for (const [name, value] of Object.entries(headers))
      t.ok(heard.client.text().includes(`\r\n${name}: ${value}\r\n`), `${name} in its own case`);
    t.equal(heard.headers["x-should-retry"], headers["x-should-retry"], "nothing is added to it");
    const cause = heard.status === 503 ? "unknown" : "rate-limit";
    t.equal(heard.headers["x-keybearer-cause"], cause);
    t.equal(heard.headers["x-keybearer-refusal"], undefined, "it is not keybearer's refusal");
    await settledAs(t, it.under, `/v1/messages/${n}`, [{ end: "complete", status: heard.status, cause }]);
  }
  t.equal(it.gateway.calls.length, rows.length);
  await stillHealthy(t, it.under, it.secrets);
});

t.test("UP-12 an error inside a stream passes unchanged", async (t) => {
  const text =
    'event: message_start\ndata: {"type":"message_start"}\n\n' +
    'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"}}\n\n';
  const it = await scene(t, (call) => call.send(`${SSE}${chunk(text)}0\r\n\r\n`));
  const { body, headers } = await say(t, it.port, post("POST /v1/messages", it.auth));
  t.equal(String(dechunked(Buffer.from(body, "latin1"))), text);
  t.equal(headers["x-keybearer-refusal"], undefined);
  await settledAs(t, it.under, "/v1/messages", [{ end: "gateway-failed", status: 200 }]);
  t.equal(it.gateway.calls.length, 1, "and nothing is tried again");
  await stillHealthy(t, it.under, it.secrets);
});

type Secure = Awaited<ReturnType<typeof startSecure>>;

/** A gateway that speaks TLS and keeps every byte it could read. */
async function startSecure(t: Test, options: TlsOptions) {
  let received = "";
  let connections = 0;
  const server = createSecureServer(options, (socket) => {
    connections += 1;
    socket.on("error", () => {});
    socket.on("data", (part) => {
      received += part;
      socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
    });
  });
  server.on("tlsClientError", () => {});
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => server.close());
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  return { port, received: () => received, connections: () => connections };
}

t.test(
  "UP-13 a key goes only to its gateway with a valid certificate, whatever is in the environment",
  async (t) => {
    const made = makeCertificates(t);
    if (made === null) return;
    const old = { minVersion: "TLSv1", maxVersion: "TLSv1", ciphers: "DEFAULT@SECLEVEL=0" } as const;
    const expired = made.expired();
    if (expired === null) t.skip("an expired certificate: this openssl makes none", async () => {});
    const authority = `, ca_file: "${made.authority}"`;
    const proxy = await startConnectProxy(t);
    const rows: { name: string; server: TlsOptions; settings: string; problem: string | null }[] = [
      { name: "good", server: made.good, settings: authority, problem: null },
      {
        name: "unknown-authority",
        server: made.good,
        settings: "",
        problem: "its certificate cannot be verified",
      },
      {
        name: "other-name",
        server: made.otherName,
        settings: authority,
        problem: "its certificate is for another name",
      },
      {
        name: "self-signed",
        server: made.selfSigned,
        settings: authority,
        problem: "its certificate is self-signed",
      },
      {
        name: "tls-1-0",
        server: { ...made.good, ...old },
        settings: authority,
        problem: "TLS with it failed",
      },
    ];
    if (expired !== null)
      rows.push({
        name: "expired",
        server: expired,
        settings: authority,
        problem: "its certificate has expired",
      });
    const key = canaryKey();
    const gateways: string[] = [];
    const tools: string[] = [];
    const asked: ((typeof rows)[number] & { way: string; token: string; gateway: Secure })[] = [];
    for (const row of rows) {
      const gateway = await startSecure(t, row.server);
      for (const way of ["direct", "proxy"]) {
        const { token, hash } = freshToken();
        const name = `${row.name}-${way}`;
        const outbound = way === "proxy" ? `, proxy: "${proxy.url}"` : "";
        gateways.push(
          `  ${name}: { base_url: "https://127.0.0.1:${gateway.port}/v1"${row.settings}${outbound} }\n`,
        );
        tools.push(`  ${name}: { gateway: ${name}, key: ${key}-${name}, token: "${hash}" }\n`);
        asked.push({ ...row, way, token, gateway });
      }
    }
    const elsewhere = await startRawGateway(t, (call) => call.ok());
    const moved = await startRawGateway(t, (call) =>
      call.answer("307 Moved", { Location: `${elsewhere.origin}/v1/models` }, ""),
    );
    const redirected = freshToken();
    gateways.push(`  moved: { base_url: "${moved.baseUrl}", key_header: x-api-key }\n`);
    tools.push(`  moved: { gateway: moved, key: ${key}-moved, token: "${redirected.hash}" }\n`);
    const home = await newHome(t);
    await saveConfig(home, `listen: localhost:0\ngateways:\n${gateways.join("")}tools:\n${tools.join("")}`);
    const own = await startConnectProxy(t);
    const proxies = { HTTPS_PROXY: own.url, https_proxy: own.url, HTTP_PROXY: own.url, ALL_PROXY: own.url };
    // With FORCE_FETCH_PATH http-proxy-3 would send requests with fetch, which follows redirects.
    const env = { ...proxies, FORCE_FETCH_PATH: "true" };
    const running = await startServing(t, home, { env });
    for (const { name, way, token, problem, gateway } of asked) {
      for (let n = 0; n < 2; n += 1) {
        const answer = await fetch(`${running.url}/v1/models`, {
          headers: { authorization: `Bearer ${token}` },
        });
        const text = await answer.text();
        t.equal(answer.status, problem === null ? 200 : 400, `${name}, ${way}`);
        t.match(text, problem ?? "{}", `${name}, ${way}`);
        const code = problem === null ? null : "gateway-unreachable";
        t.equal(answer.headers.get("x-keybearer-refusal"), code, `${name}, ${way}`);
      }
      if (problem === null) t.match(gateway.received(), `Bearer ${key}-${name}-${way}`);
      else t.equal(gateway.received(), "", `${name}, ${way}: not a byte`);
    }
    const headers = { authorization: `Bearer ${redirected.token}` };
    const answer = await fetch(`${running.url}/v1/models`, { headers, redirect: "manual" });
    t.equal(answer.status, 307);
    t.notOk((await answer.text()).includes(key));
    t.equal(elsewhere.connections(), 0, "a redirect is not followed");
    t.equal(asked[0]?.gateway.connections(), 2, "one handshake for each way");
    t.notOk(proxy.received().includes(key), "the proxy cannot read the key");
    t.equal(own.heads.length, 0, "the environment's proxy is not used");
    running.child.kill("SIGTERM");
    const { code, stdout, stderr } = await running.ended;
    t.equal(code, 0);
    t.notOk((stdout + stderr).includes(key), "no key is printed");
    t.notMatch(stderr, /DeprecationWarning|UnhandledPromise|uncaught/i);
  },
);

t.test("UP-14 compressed responses pass byte for byte, and a bomb is not unpacked", async (t) => {
  const text = JSON.stringify({ text: "keybearer ".repeat(500) });
  // 256 MB in 1 MB.
  const member = gzipSync(Buffer.alloc(4 * 1024 * 1024), { level: 1 });
  const bomb = Buffer.concat(Array.from({ length: 64 }, () => member));
  const rows: Record<string, [string, string, Buffer]> = {
    gzip: ["200 OK", "gzip", gzipSync(text)],
    br: ["200 OK", "br", brotliCompressSync(text)],
    zstd: ["200 OK", "zstd", Buffer.from("28b52ffd2000010000", "hex")],
    wrong: ["200 OK", "gzip", Buffer.from(text)],
    bomb: ["200 OK", "gzip", bomb],
    "bomb-refused": ["429 No", "gzip", bomb],
    "wrong-refused": ["400 No", "br", Buffer.from(text)],
    "many-refused": ["400 No", "gzip, gzip, br", gzipSync(text)],
    "unknown-refused": ["500 Oh", "zstd", Buffer.from("who knows")],
    "long-refused": ["500 Oh", "identity", Buffer.alloc(300_000, "e")],
  };
  const it = await scene(t, (call) => {
    const [status, encoding, bytes] = rows[call.target.slice(4)] ?? ["500 Oh", "", Buffer.alloc(0)];
    call.answer(status, { "Content-Type": "application/json", "Content-Encoding": encoding }, bytes);
  });
  for (const [name, [status, encoding, bytes]] of Object.entries(rows)) {
    const accepts = { ...it.auth, "Accept-Encoding": "gzip, zstd" };
    const heard = await say(t, it.port, head(`GET /v1/${name}`, accepts));
    t.equal(`${heard.status} ${heard.reason}`, status, name);
    const [accepted] = it.gateway.calls.at(-1)?.header("accept-encoding") ?? [];
    t.match(accepted, /^gzip(?:, zstd)?$/, "what keybearer can read");
    // An error is searched for the key, so it must be unpacked. One that is too large for that loses its body.
    const isCut = name === "bomb-refused";
    t.equal(heard.headers["content-encoding"], isCut ? undefined : encoding);
    t.ok((isCut ? Buffer.alloc(0) : bytes).equals(Buffer.from(heard.body, "latin1")), name);
  }
  await stillHealthy(t, it.under, it.secrets);
});

t.test("UP-15 redirects pass unchanged and are never followed", async (t) => {
  const elsewhere = await startRawGateway(t, (call) => call.ok("caught"));
  const paths = [
    `${elsewhere.origin}/v1/steal`,
    `http://localhost:${elsewhere.port}/`,
    "http://169.254.169.254/latest/meta-data/",
    "/v1/again",
    "//evil.test/",
    "https://evil.test/?a=b#c",
  ];
  const statuses = [301, 302, 303, 307, 308];
  const it = await scene(t, (call) => {
    const [, status = "0", place = "0"] = /(\d+)-(\d+)$/.exec(call.target) ?? [];
    call.answer(`${status} Elsewhere`, { Location: paths[Number(place)] ?? "" }, "gone");
  });
  const rows = [...statuses.map((status) => [status, 0]), ...paths.map((_, n) => [307, n])];
  for (const [status = 0, n = 0] of rows) {
    const headers = { ...it.auth, "x-api-key": it.token };
    const heard = await say(t, it.port, post(`POST /v1/${status}-${n}`, headers));
    t.strictSame([heard.status, heard.headers.location, heard.body], [status, paths[n], "gone"]);
  }
  t.equal(elsewhere.connections(), 0, "no request went there");
  t.equal(it.gateway.calls.length, rows.length, "one call each");
  await stillHealthy(t, it.under, it.secrets);
});

t.test("UP-16 the key is redacted from heads and errors of a gateway that repeats it", async (t) => {
  const encodings: Readonly<Record<string, (text: Buffer) => Buffer>> = {
    gzip: gzipSync,
    deflate: deflateSync,
    br: brotliCompressSync,
  };
  const it = await scene(t, async (call) => {
    await call.whole;
    const [, encoding = "", status = "200"] = /([a-z]*)-?(\d{3})$/.exec(call.target) ?? [];
    // 0xff is not UTF-8: the rest of the body stays as it is, whatever its charset.
    const text = Buffer.from(`no such key ${it.key}, x${it.key}x \xff\xe9!`, "latin1");
    const headers = encoding === "" ? {} : { "Content-Encoding": encoding };
    const body = encodings[encoding]?.(text) ?? text;
    call.answer(`${status} ${it.key}`, { "X-Echo": `Bearer ${it.key}`, ...headers }, body);
  });
  const paths = ["/v1/400", "/v1/401", "/v1/403", "/v1/500", "/v1/messages/400"];
  for (const path of [...paths, ...Object.keys(encodings).map((encoding) => `/v1/${encoding}-401`)]) {
    const heard = await say(t, it.port, post(`POST ${path}`, it.auth));
    t.equal(heard.status, Number(path.slice(-3)));
    t.notOk(heard.client.text().includes(it.key), `${path}: not in it`);
    t.equal(heard.headers["x-echo"], "Bearer [redacted]");
    t.equal(heard.reason, "[redacted]");
    t.equal(heard.body, "no such key [redacted], x[redacted]x \xff\xe9!", `${path}: nothing else changes`);
    t.equal(heard.headers["content-encoding"], undefined, "what was changed is sent plain");
    t.equal(heard.headers["content-length"], String(heard.body.length));
  }
  t.notOk(JSON.stringify(await it.under.daemon.status()).includes(it.key), "not in the status");
  const good = await say(t, it.port, post("POST /v1/200", it.auth));
  t.ok(good.body.includes(it.key), "the body of a good response is never changed");
  t.equal(good.headers["x-echo"], "Bearer [redacted]", "its head is");
  await stillHealthy(t, it.under, it.secrets);
});

t.test(
  "the key is redacted from an error that is long, compressed, wrongly labeled or an event",
  async (t) => {
    const noise = () => randomBytes(100_000).toString("hex");
    const answers: Record<string, (call: GatewayCall) => void> = {
      "unknown encoding": (call) =>
        call.answer("401 No", { "Content-Encoding": "exi" }, `{"message":"no key ${it.key}"}`),
      "plain, labeled as gzip": (call) =>
        call.answer("401 No", { "Content-Encoding": "gzip" }, `{"message":"no key ${it.key}"}`),
      "long and compressed": (call) =>
        call.answer("401 No", { "Content-Encoding": "gzip" }, gzipSync(`key ${it.key} ${noise()} ${it.key}`)),
      "behind the end of the compressed part": (call) =>
        call.answer(
          "401 No",
          { "Content-Encoding": "gzip" },
          Buffer.concat([gzipSync("[redacted]"), Buffer.from(it.key)]),
        ),
      "compressed without a head": (call) =>
        call.answer("401 No", { "Content-Encoding": "deflate" }, deflateRawSync(`key ${it.key}`)),
      "compressed tenfold": (call) =>
        call.answer(
          "401 No",
          { "Content-Encoding": "br" },
          brotliCompressSync(`key ${it.key} ${"words ".repeat(200_000)}`),
        ),
      "long and labeled as compressed": (call) =>
        call.answer("401 No", { "Content-Encoding": "br" }, `key ${it.key} ${noise()} ${it.key}`),
      "long and plain": (call) => call.answer("401 No", {}, `key ${it.key} ${noise()} ${it.key}`),
      "an event, cut in the middle of the key": async (call) => {
        const event = `event: error\ndata: {"error":{"message":"no key ${it.key}"}}\n\n`;
        call.send(SSE + chunk(event.slice(0, 55)));
        await new Promise((resolve) => setImmediate(resolve));
        call.send(`${chunk(event.slice(55))}0\r\n\r\n`);
      },
    };
    const it = await scene(t, async (call) => {
      await call.whole;
      answers[decodeURIComponent(call.target.slice(4))]?.(call);
    });
    for (const name of Object.keys(answers)) {
      const heard = await say(t, it.port, post(`POST /v1/${encodeURIComponent(name)}`, it.auth));
      t.match(heard.body, /\[redacted\]|\*{20,}/, `${name}: it is there without the key`);
      t.notOk(heard.body.includes(it.key), name);
      t.notOk(heard.body.includes(it.key.slice(0, 30)), `${name}: nor its beginning`);
    }
    await stillHealthy(t, it.under, it.secrets);
  },
);

t.test("a part of the key, or an encoded key, is found in errors, headers and streams", async (t) => {
  const answers: Record<string, (call: GatewayCall, echo: string, cut: number) => void> = {
    error: (call, echo) => call.answer("401 No", { "Content-Type": "text/plain" }, `no key ${echo}!`),
    value: (call, echo) => call.answer("200 OK", { "X-Echo": `no key ${echo}!` }, "{}"),
    name: (call, echo) => call.answer("200 OK", { [`x-${echo}`]: "1" }, "{}"),
    stream: async (call, echo, cut) => {
      call.send(SSE);
      const event = `data: no key ${echo}!\n\n`;
      for (let at = 0; at < event.length; at += cut) {
        call.send(chunk(event.slice(at, at + cut)));
        await new Promise((resolve) => setImmediate(resolve));
      }
      call.send("0\r\n\r\n");
    },
  };
  const it = await scene(t, async (call) => {
    await call.whole;
    const [, , place = "", form = "", cut = ""] = call.target.split("/").map(decodeURIComponent);
    answers[place]?.(call, echoes().get(form) ?? "", Number(cut));
  });
  // From the middle of the key, and long enough that what is left of it at each end does not count.
  const echoes = () => new Map([...echoForms(it.key.slice(12, 40)), ...wholeKeyForms(it.key)]);
  for (const [form, echo] of echoes()) {
    const places = LONG
      ? ["error", "value", "stream/1", "stream/5", "stream/20"]
      : ["error", "value", "stream/5"];
    if (echo.length < 60 && /^\w+$/.test(echo)) places.push("name");
    for (const place of places) {
      const [kind = "", cut = ""] = place.split("/");
      const path = `/v1/${kind}/${encodeURIComponent(form)}/${cut}`;
      const heard = await say(t, it.port, head(`GET ${path}`, it.auth));
      const isStream = kind === "stream";
      const shown = isStream ? dechunked(Buffer.from(heard.body, "latin1")).toString() : heard.client.text();
      t.match(shown, /\[redacted\]|\*{6,}/, `${form} in ${place}: it is there without the key`);
      if (isStream) {
        t.equal(shown.length, `data: no key ${echo}!\n\n`.length, "no byte more or less");
        t.ok(shown.startsWith("data: no key ") && shown.endsWith("!\n\n"), "the rest passes");
      }
      const parts = Array.from({ length: Math.max(0, echo.length - 15) }, (_, at) => echo.slice(at, at + 16));
      t.notOk(
        parts.some((part) => shown.includes(part)),
        `${form} in ${place}: no 16 characters of it`,
      );
    }
  }
  await stillHealthy(t, it.under, it.secrets);
});

t.test("an event that ends with the beginning of the key passes whole and at once", async (t) => {
  const it = await scene(t, (call) => {
    call.send(SSE + chunk(`data: ${it.key.slice(0, 9)}`));
    if (call.target.endsWith("end")) call.send("0\r\n\r\n");
  });
  const ended = await say(t, it.port, head("GET /v1/end", it.auth));
  t.equal(dechunked(Buffer.from(ended.body, "latin1")).toString(), `data: ${it.key.slice(0, 9)}`);
  const open = await openRaw(t, it.port);
  open.send(head("GET /v1/stays", it.auth));
  await open.until("data: ");
  open.socket.destroy();
  await stillHealthy(t, it.under, it.secrets);
});

t.test("UP-17 cookies, CORS and hop-by-hop headers of the gateway do not reach the client", async (t) => {
  const out = {
    "Set-Cookie": "a=1",
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Credentials": "true",
    "Access-Control-Expose-Headers": "*",
    "Keep-Alive": "timeout=99",
    "Proxy-Authenticate": "Basic",
    Trailer: "X-A",
    Upgrade: "h2c",
    "X-Nominated": "1",
    "X-Keybearer-Refusal": "token-missing",
    "X-Keybearer-Cause": "rate-limit",
    "X-Keybearer-Request-Id": "forged",
  };
  const kept = {
    "request-id": "req_1",
    "x-request-id": "2",
    "X-Client-Request-ID": "3",
    "X-Oneapi-Request-Id": "4",
    "anthropic-ratelimit-tokens-remaining": "4",
    "x-ratelimit-reset-tokens": "6ms",
    "openai-processing-ms": "5",
    Vary: "Origin",
    "Alt-Svc": 'h3=":443"',
    Server: "gateway",
    Date: "Sun, 15 Nov 2026 00:00:00 GMT",
  };
  const it = await scene(t, (call) =>
    call.answer("200 OK", { ...out, Connection: "keep-alive, X-Nominated", ...kept }, "{}"),
  );
  const heard = await say(t, it.port, head("GET /v1/models", it.auth));
  for (const [name, value] of Object.entries(kept)) t.equal(heard.headers[name.toLowerCase()], value, name);
  for (const [name, value] of Object.entries(out)) t.not(heard.headers[name.toLowerCase()], value, name);
  t.equal(heard.names.filter((name) => name === "date").length, 1, "one Date, the gateway's");
  t.equal(heard.names.filter((name) => name === "x-keybearer-request-id").length, 1);
  await stillHealthy(t, it.under, it.secrets);
});

t.test(
  "UP-18 a request on a dead kept connection is repeated once, unless it could be paid twice",
  async (t) => {
    const served = new Map<number, number>();
    const it = await scene(t, (call) => {
      const before = served.get(call.connection) ?? 0;
      served.set(call.connection, before + 1);
      if (before === 0) call.ok();
      else call.socket.resetAndDestroy();
    });
    const warm = async () => t.equal((await say(t, it.port, head("GET /v1/warm", it.auth))).status, 200);
    await warm();
    t.equal((await say(t, it.port, head("GET /v1/models", it.auth))).status, 200);
    const asked = () => it.gateway.calls.filter((call) => call.target === "/v1/models").length;
    t.equal(asked(), 2, "asked again, over another connection");
    await settledAs(t, it.under, "/v1/models", [{ end: "complete", status: 200 }]);
    const chat = "POST /v1/chat/completions";
    await isExplained(t, it, chat, [502, "gateway-broken"], "closed the connection");
    t.equal(
      it.gateway.calls.filter((call) => call.method === "POST").length,
      1,
      "a chat is never sent twice",
    );
    await stillHealthy(t, it.under, it.secrets);

    // Bytes on an idle connection are not the response of the next request.
    const stray = await scene(t, (call) => call.ok("right"));
    // Node closes such a connection after some seconds.
    const statuses = oneOf(["200 OK", "408 Request Timeout", "200 OK"], "200 OK");
    for (const status of statuses) {
      t.equal((await say(t, stray.port, head("GET /v1/models", stray.auth))).body, "right");
      const call = stray.gateway.calls.at(-1);
      call?.send(`HTTP/1.1 ${status}\r\nContent-Length: 5\r\n\r\nstray`);
      // Such a connection is closed.
      await call?.closed;
    }
    t.equal(stray.gateway.connections(), statuses.length);
    await stillHealthy(t, stray.under, stray.secrets);
  },
);

t.test("UP-19 events pass as they come, wherever they are cut and whatever their line ends", async (t) => {
  const events = [
    ": ping\r\n\r\n",
    `data: {"object":"chat.completion.chunk","choices":[{"delta":{"content":"\u4f60\u597d \u{1f511}"}}]}\n\n`,
    "event: x\rdata: 1\r\r",
    `data: {"choices":[{"delta":{"content":"${"m".repeat(1024)}"}}]}\n\n`,
    "data: [DONE]\n\n",
  ].join("");
  const bytes = Buffer.from(events);
  const big = Buffer.from(
    `data: {"object":"chat.completion.chunk","x":"${"y".repeat(1024 * 1024)}"}\n\ndata: [DONE]\n\n`,
  );
  const piece = (part: Buffer) =>
    Buffer.concat([Buffer.from(`${part.length.toString(16)}\r\n`), part, Buffer.from("\r\n")]);
  const it = await scene(t, async (call) => {
    call.send(SSE);
    const at = Number(/at-(\d+)$/.exec(call.target)?.[1] ?? -1);
    if (call.target.endsWith("big")) call.send(piece(big));
    else if (at >= 0) {
      call.send(piece(bytes.subarray(0, at)));
      await new Promise((resolve) => setImmediate(resolve));
      call.send(piece(bytes.subarray(at)));
    } else {
      for (const byte of bytes) {
        call.send(piece(Buffer.from([byte])));
        await new Promise((resolve) => setImmediate(resolve));
      }
    }
    call.send("0\r\n\r\n");
  });
  // Cuts in a line end, in multi-byte letters and in the last event. One byte at a time is every other cut.
  const paths = [1, 9, 88, 112, bytes.length - 9];
  for (const at of paths) {
    const { body } = await say(t, it.port, head(`GET /v1/at-${at}`, it.auth));
    t.ok(dechunked(Buffer.from(body, "latin1")).equals(bytes), `cut at ${at}`);
    await settledAs(t, it.under, `/v1/at-${at}`, [{ end: "complete", bytes_out: bytes.length }]);
  }
  const single = await say(t, it.port, head("GET /v1/bytes", it.auth));
  t.ok(dechunked(Buffer.from(single.body, "latin1")).equals(bytes), "byte by byte");
  await settledAs(t, it.under, "/v1/bytes", [{ end: "complete", bytes_out: bytes.length }]);
  const large = await say(t, it.port, head("GET /v1/big", it.auth));
  t.ok(dechunked(Buffer.from(large.body, "latin1")).equals(big), "an event of 1 MB");
  await settledAs(t, it.under, "/v1/big", [{ end: "complete", bytes_out: big.length }]);
  await stillHealthy(t, it.under, it.secrets);
});

t.test("UP-20 a large download passes unchanged and is not buffered", async (t) => {
  const PIECE = Buffer.alloc(64 * 1024, "gateway ");
  const PIECES = 1280;
  const sent = createHash("sha256");
  const got = createHash("sha256");
  let size = 0;
  let onItsWay = 0;
  const it = await scene(t, async (call) => {
    call.send(`HTTP/1.1 200 OK\r\nContent-Length: ${PIECE.length * PIECES}\r\n\r\n`);
    for (let n = 0; n < PIECES && call.socket.writable; n += 1) {
      sent.update(PIECE);
      if (!call.socket.write(PIECE)) await once(call.socket, "drain");
      onItsWay = Math.max(onItsWay, (n + 1) * PIECE.length - size);
    }
  });
  const answer = await fetch(`${it.under.url}/v1/files/big`, {
    headers: { authorization: `Bearer ${it.token}` },
  });
  for await (const part of answer.body ?? []) {
    size += part.length;
    got.update(part);
  }
  t.equal(size, PIECE.length * PIECES);
  t.equal(got.digest("hex"), sent.digest("hex"));
  // Four buffers of the kernel's, and some in Node. A buffered body would be all of the 80 MB.
  t.ok(onItsWay < size * 0.6, `at most ${Math.round(onItsWay / 1024 / 1024)} MB were on their way`);
  await settledAs(t, it.under, "/v1/files/big", [{ end: "complete", bytes_out: size }]);
  await stillHealthy(t, it.under, it.secrets);
});
