import { type ChildProcess, spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { createServer as createSecureServer, type TlsOptions } from "node:tls";
import { brotliCompressSync, deflateRawSync, gzipSync } from "node:zlib";
import t, { type Test } from "tap";
import { makeCertificates } from "../doubles/certificates.ts";
import { newHome, saveConfig, startServing } from "../doubles/command.ts";
import {
  canaryKey,
  freshToken,
  type OneToolOptions,
  startWithOneTool,
  stillHealthy,
} from "../doubles/daemon-under-test.ts";
import { CLOSED_PORT } from "../doubles/listen.ts";
import { head, openRaw, parsed } from "../doubles/raw-client.ts";
import { type GatewayCall, startRawGateway } from "../doubles/raw-gateway.ts";
import { dechunked, post, say, settledAs } from "../doubles/stimulus.ts";

// Many of these wait for a time-out; they can wait together.
t.jobs = 3;
/** For those that measure the memory of this process, or keep it busy. */
const ALONE = { buffered: false };

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

type At = Awaited<ReturnType<typeof scene>>;

/**
 * A refusal in the gateway's stead: nothing was answered yet, so keybearer says what happened. After the first failure the
 * client may try again. The next ones are final.
 */
async function toldInWords(
  t: Test,
  it: Omit<At, "gateway">,
  path: string,
  [status, code]: readonly [number, string],
  words: string | RegExp,
  isFinal = false,
): Promise<void> {
  const heard = await say(t, it.port, post(`POST ${path}`, it.auth));
  t.strictSame([heard.status, heard.headers["x-keybearer-refusal"]], [status, code], path);
  t.match(JSON.parse(heard.body), { error: { code, type: "keybearer_refusal" } });
  t.match(heard.body, words);
  t.equal(heard.headers["x-should-retry"], isFinal ? "false" : undefined, "whether it may be tried again");
  t.notOk(heard.body.includes(it.key));
  const expected = [{ end: "gateway-failed", status, refusal: code }];
  await settledAs(t, it.under, path, expected);
}

async function startNowhere(t: Test, baseUrl: string) {
  const one = await startWithOneTool(t, "", { baseUrl, gateway: ["timeouts: { connect: 5s }"] });
  const auth = { Host: one.host, Authorization: `Bearer ${one.token}` };
  return { under: one, secrets: [one.token, one.key], ...one, auth };
}

t.test("UP-01 a gateway that cannot be reached is reported as such, with the reason", async (t) => {
  const refused = await startNowhere(t, `http://127.0.0.1:${CLOSED_PORT}/v1`);
  await toldInWords(
    t,
    refused,
    "/v1/chat/completions",
    [502, "gateway-unreachable"],
    "nothing listens there",
  );
  await stillHealthy(t, refused, refused.secrets);
  const unknown = await startNowhere(t, "https://nowhere.invalid/v1");
  const dns = /not known to DNS|DNS did not answer/;
  await toldInWords(t, unknown, "/v1/chat/completions", [502, "gateway-unreachable"], dns);
  await stillHealthy(t, unknown, unknown.secrets);
  // No system connects to the address that means all others; most say at once that no network leads there.
  const everywhere = await startNowhere(t, "https://255.255.255.255/v1");
  const network = /there is no network|there is no way to that host|permission denied|not available/i;
  await toldInWords(t, everywhere, "/v1/chat/completions", [502, "gateway-unreachable"], network);
  await stillHealthy(t, everywhere, everywhere.secrets);
});

/** A port on which the kernel no longer answers: its queue is full, and the process behind it stands still. */
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

t.test("UP-02 a gateway that never takes the connection times out", async (t) => {
  const port = await blackhole(t);
  const one = await startWithOneTool(t, `http://127.0.0.1:${port}`, {
    gateway: ["timeouts: { connect: 300ms, first_byte: 60s }"],
  });
  const auth = { Host: one.host, Authorization: `Bearer ${one.token}` };
  const it = { under: one, ...one, auth, secrets: [] };
  await toldInWords(t, it, "/v1/responses", [504, "gateway-timeout"], "no connection within 0.3 s");
  await stillHealthy(t, one, [one.token, one.key]);
});

const CHAT = 'data: {"object":"chat.completion.chunk","choices":[{"delta":{"content":"one"}}]}\n\n';
const SSE = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const chunk = (text: string) => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;

/** The client got the beginning; then the gateway dies, and the client's connection with it. Nothing is added. */
async function isCut(t: Test, what: string, begin: string, die: (call: GatewayCall) => void): Promise<void> {
  const it = await scene(t, (call) => call.send(begin));
  const client = await openRaw(t, it.port);
  client.send(head("GET /v1/stream", it.auth));
  await client.until(begin.includes("data:") ? '"one"' : "\r\n\r\n");
  const before = client.text();
  const [call] = it.gateway.calls;
  if (call) die(call);
  await client.closed();
  const added = client.text().slice(before.length);
  t.notMatch(added, /(?:^|\n)0\r\n|\[DONE\]|message_stop|keybearer/, `${what}: nothing is made up`);
  t.equal(it.gateway.calls.length, 1, `${what}: asked once`);
  await settledAs(t, it.under, "/v1/stream", [{ end: "gateway-failed", status: 200, refusal: null }]);
  await stillHealthy(t, it.under, it.secrets);
}

t.test("UP-03 a gateway that resets in the middle of a stream cuts the client at once", async (t) => {
  await isCut(t, "reset", SSE + chunk(CHAT), (call) => void call.socket.resetAndDestroy());
  await isCut(t, "reset before the first event", SSE, (call) => void call.socket.resetAndDestroy());
});

t.test("UP-04 an answer that ends too early is cut as well, by one byte or in a chunk", async (t) => {
  const long = (length: number) => `HTTP/1.1 200 OK\r\nContent-Length: ${length}\r\n\r\n${CHAT}`;
  await isCut(t, "in a chunk", `${SSE}${chunk(CHAT)}50\r\nhalf`, (call) => void call.socket.end());
  await isCut(t, "between chunks", SSE + chunk(CHAT), (call) => void call.socket.end());
  await isCut(t, "short by one", long(CHAT.length + 1), (call) => void call.socket.end());
  await isCut(t, "without its last chunk", `${SSE}${chunk(CHAT)}0\r\n`, (call) => void call.socket.end());
});

t.test("UP-05 a stream that ends cleanly without its last word passes, and is not complete", async (t) => {
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

const broken: Record<string, string> = {
  "no-http": "SSH-2.0-OpenSSH_9\r\n",
  bytes: "\x00\x01\x02\r\n\r\n",
  "two-lengths": "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
  "length-and-chunks": "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
  "signed-length": "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\n{}",
  "status-000": "HTTP/1.1 000 Zero\r\nContent-Length: 0\r\n\r\n",
  "http-3": "HTTP/3.0 200 OK\r\n\r\n",
  "unasked-101": "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
};

t.test(
  "UP-06 an answer that is not HTTP is explained in words; one that stops being it is cut",
  async (t) => {
    const it = await scene(t, (call) => call.send(Buffer.from(broken[call.target.slice(4)] ?? "", "latin1")));
    for (const [at, name] of Object.keys(broken).entries()) {
      const status = at === 0 ? 502 : 400;
      await toldInWords(t, it, `/v1/${name}`, [status, "gateway-broken"], "gateway main", at > 0);
    }
    t.equal(it.gateway.calls.length, Object.keys(broken).length, "nothing was tried twice");
    await stillHealthy(t, it.under, it.secrets);
    const bad = ["zz\r\nnonsense\r\n", "5\nhello\n", "3\r\nabcde\r\n", "fffffffffffffffff\r\nx"];
    for (const bytes of bad) {
      await isCut(t, JSON.stringify(bytes), SSE + chunk(CHAT), (call) => call.send(bytes));
    }
  },
);

t.test("UP-07 heads of any monstrosity are explained in words; many plain headers pass", async (t) => {
  const heads: Record<string, string> = {
    "too-long": `X-Big: ${"x".repeat(17_000)}\r\n`,
    "too-many": Array.from({ length: 1000 }, (_, n) => `X-${n}: ${"x".repeat(16)}\r\n`).join(""),
    nul: "X-A: a\0b\r\n",
    "bare-cr": "X-A: a\rb\r\n",
    "name-with-space": "X A: 1\r\n",
    folded: "X-A: a\r\n b\r\n",
  };
  const many = Array.from({ length: 300 }, (_, n) => `X-${n}: ${n}\r\n`).join("");
  const it = await scene(t, (call) => {
    const extra = heads[call.target.slice(4)] ?? many;
    call.send(Buffer.from(`HTTP/1.1 200 OK\r\n${extra}Content-Length: 2\r\n\r\n{}`, "latin1"));
  });
  for (const [at, name] of Object.keys(heads).entries()) {
    const status = at === 0 ? 502 : 400;
    await toldInWords(t, it, `/v1/${name}`, [status, "gateway-broken"], "gateway main", at > 0);
  }
  const heard = await say(t, it.port, head("GET /v1/many", it.auth));
  t.equal(heard.status, 200);
  t.equal(heard.names.filter((name) => /^x-\d/.test(name)).length, 300, "none is lost");
  await stillHealthy(t, it.under, it.secrets);
});

const QUICK = ["timeouts: { connect: 300ms, first_byte: 500ms, idle: 500ms }"];

t.test("UP-08 a stream that falls silent is cut on both sides after the idle time", async (t) => {
  const it = await scene(t, (call) => call.send(SSE + (call.target.endsWith("at-once") ? "" : chunk(CHAT))), {
    gateway: QUICK,
  });
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

t.test(
  "UP-09 a gateway that takes the request and never answers times out; a late one does not",
  async (t) => {
    const it = await scene(
      t,
      (call) => {
        if (call.target.endsWith("late")) setTimeout(() => call.ok(), 500);
      },
      { gateway: ["timeouts: { connect: 300ms, first_byte: 1500ms }"] },
    );
    await toldInWords(t, it, "/v1/never", [504, "gateway-timeout"], "no answer within 1.5 s");
    await it.gateway.calls[0]?.closed;
    const late = await say(t, it.port, post("POST /v1/late", it.auth));
    t.equal(late.status, 200, "within its time it may think as long as it likes");
    t.equal(it.gateway.calls.length, 2, "nothing was tried twice");
    await stillHealthy(t, it.under, it.secrets);
  },
);

t.test("UP-10 a stream that drips for much longer than the idle time is not cut", async (t) => {
  const it = await scene(
    t,
    (call) => {
      call.send(SSE);
      let n = 0;
      const timer = setInterval(() => {
        n += 1;
        // The stimulus: all of it takes longer than the idle time, and no pause nearly so long.
        call.send(n < 15 ? chunk(":") : "0\r\n\r\n");
        if (n >= 15) clearInterval(timer);
      }, 250);
      t.teardown(() => clearInterval(timer));
    },
    { gateway: ["timeouts: { idle: 2s }"] },
  );
  const client = await openRaw(t, it.port);
  client.send(head("GET /v1/drip", it.auth));
  await client.until("\r\n0\r\n\r\n");
  t.equal(String(dechunked(Buffer.from(parsed(client.text()).body))), ":".repeat(14));
  await settledAs(t, it.under, "/v1/drip", [{ end: "complete", status: 200 }]);
  await stillHealthy(t, it.under, it.secrets);
});

t.test("UP-11 the gateway's own 429 and 529 pass byte for byte, and nothing is tried again", async (t) => {
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
    for (const [name, value] of Object.entries(headers)) t.equal(heard.headers[name.toLowerCase()], value);
    const cause = heard.status === 503 ? "unknown" : "rate-limit";
    t.equal(heard.headers["x-keybearer-cause"], cause);
    t.equal(heard.headers["x-keybearer-refusal"], undefined, "it is not keybearer's refusal");
    await settledAs(t, it.under, `/v1/messages/${n}`, [{ end: "complete", status: heard.status, cause }]);
  }
  t.equal(it.gateway.calls.length, rows.length);
  await stillHealthy(t, it.under, it.secrets);
});

t.test("UP-12 an error that the gateway tells inside its stream passes as it is", async (t) => {
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

async function startSecure(t: Test, options: TlsOptions) {
  let received = "";
  const server = createSecureServer(options, (socket) => {
    socket.on("error", () => {});
    socket.on("data", (part) => {
      received += part;
      socket.end("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}");
    });
  });
  server.on("tlsClientError", () => {});
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => server.close());
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  return { port, received: () => received };
}

t.test(
  "UP-13 a certificate that does not hold keeps the key here, whatever the environment says",
  ALONE,
  async (t) => {
    const made = makeCertificates(t);
    if (made === null) return;
    const old = { minVersion: "TLSv1", maxVersion: "TLSv1", ciphers: "DEFAULT@SECLEVEL=0" } as const;
    const expired = made.expired();
    const rows: [string, TlsOptions, number, string | RegExp][] = [
      ["good", made.good, 200, "{}"],
      ["other-name", made.otherName, 502, "its certificate is for another name"],
      ["self-signed", made.selfSigned, 502, "its certificate is self-signed"],
      ["tls-1-0", { ...made.good, ...old }, 502, "TLS with it failed"],
    ];
    if (expired !== null) rows.push(["expired", expired, 502, "its certificate has expired"]);
    if (expired === null) t.skip("an expired certificate: this openssl makes none", async () => {});
    const gateways: string[] = [];
    const tools: string[] = [];
    const servers = new Map<string, { port: number; received(): string }>();
    const key = canaryKey();
    const tokens = new Map<string, string>();
    for (const [name, options] of rows) {
      const server = await startSecure(t, options);
      servers.set(name, server);
      const { token, hash } = freshToken();
      tokens.set(name, token);
      const address = `base_url: "https://127.0.0.1:${server.port}/v1"`;
      gateways.push(`  ${name}: { ${address}, ca_file: "${made.authority}" }\n`);
      tools.push(`  ${name}: { gateway: ${name}, key: ${key}-${name}, token: "${hash}" }\n`);
    }
    const home = await newHome(t);
    await saveConfig(home, `listen: localhost:0\ngateways:\n${gateways.join("")}tools:\n${tools.join("")}`);
    const running = await startServing(t, home);
    for (const [name, , status, words] of rows) {
      const headers = { authorization: `Bearer ${tokens.get(name)}` };
      const answer = await fetch(`${running.url}/v1/models`, { headers });
      const text = await answer.text();
      t.equal(answer.status, status, name);
      t.match(text, words, name);
      const code = status === 200 ? null : "gateway-unreachable";
      t.equal(answer.headers.get("x-keybearer-refusal"), code, name);
      t.equal(servers.get(name)?.received().includes(key), status === 200, `${name}: where the key is`);
      if (status !== 200) t.equal(servers.get(name)?.received(), "", `${name}: not a byte`);
    }
    running.child.kill("SIGTERM");
    const { stdout, stderr } = await running.ended;
    t.notOk((stdout + stderr).includes(key));
  },
);

t.test("UP-14 compressed answers pass byte for byte, and a bomb is not unpacked", ALONE, async (t) => {
  const text = JSON.stringify({ text: "keybearer ".repeat(500) });
  // 1 GB in 1 MB.
  const member = gzipSync(Buffer.alloc(64 * 1024 * 1024), { level: 1 });
  const bomb = Buffer.concat(Array.from({ length: 16 }, () => member));
  const rows: Record<string, [string, string, Buffer]> = {
    gzip: ["200 OK", "gzip", gzipSync(text)],
    br: ["200 OK", "br", brotliCompressSync(text)],
    zstd: ["200 OK", "zstd", Buffer.from("28b52ffd2000010000", "hex")],
    wrong: ["200 OK", "gzip", Buffer.from(text)],
    bomb: ["200 OK", "gzip", bomb],
    "bomb-refused": ["429 No", "gzip", bomb],
    "wrong-refused": ["400 No", "br", Buffer.from(text)],
    "many-refused": ["400 No", "gzip, gzip, br", gzipSync(text)],
  };
  const it = await scene(t, (call) => {
    const [status, encoding, bytes] = rows[call.target.slice(4)] ?? ["500 Oh", "", Buffer.alloc(0)];
    call.answer(status, { "Content-Type": "application/json", "Content-Encoding": encoding }, bytes);
  });
  for (const [name, [status, encoding, bytes]] of Object.entries(rows)) {
    const heard = await say(t, it.port, head(`GET /v1/${name}`, it.auth));
    t.equal(`${heard.status} ${heard.reason}`, status, name);
    // A refusal of any length is searched for the key, which takes one that can be unpacked in its memory.
    const isCut = name === "bomb-refused";
    t.equal(heard.headers["content-encoding"], isCut ? undefined : encoding);
    t.ok((isCut ? Buffer.alloc(0) : bytes).equals(Buffer.from(heard.body, "latin1")), name);
  }
  await stillHealthy(t, it.under, it.secrets);
});

t.test("UP-15 redirects are passed on as they are, and never followed", async (t) => {
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
  for (const status of statuses) {
    for (const [n, place] of paths.entries()) {
      const heard = await say(
        t,
        it.port,
        post(`POST /v1/${status}-${n}`, { ...it.auth, "x-api-key": it.token }),
      );
      t.strictSame([heard.status, heard.headers.location, heard.body], [status, place, "gone"]);
    }
  }
  t.equal(elsewhere.connections(), 0, "no request went there");
  t.equal(it.gateway.calls.length, statuses.length * paths.length, "one call each");
  await stillHealthy(t, it.under, it.secrets);
});

t.test("UP-16 a key that the gateway says back is blotted out of heads and refusals", async (t) => {
  const it = await scene(t, async (call) => {
    await call.whole;
    const [, status = "200"] = /(\d{3})$/.exec(call.target) ?? [];
    const echo = JSON.stringify({ headers: call.head, again: [it.key, `x${it.key}x`] });
    const body = call.target.includes("gzip") ? gzipSync(echo) : echo;
    const encoding: Record<string, string> = call.target.includes("gzip")
      ? { "Content-Encoding": "gzip" }
      : {};
    call.answer(`${status} ${it.key}`, { "X-Echo": `Bearer ${it.key}`, ...encoding }, body);
  });
  for (const path of ["/v1/400", "/v1/401", "/v1/403", "/v1/500", "/v1/gzip-401", "/v1/messages/400"]) {
    const heard = await say(t, it.port, post(`POST ${path}`, it.auth));
    t.equal(heard.status, Number(path.slice(-3)));
    t.notOk(heard.client.text().includes(it.key), `${path}: not in it`);
    t.equal(heard.headers["x-echo"], "Bearer [redacted]");
    t.equal(heard.reason, "[redacted]");
    t.match(heard.body, /"again":\["\[redacted\]","x\[redacted\]x"\]/, `${path}: nothing else is touched`);
  }
  const good = await say(t, it.port, post("POST /v1/200", it.auth));
  t.ok(good.body.includes(it.key), "a good answer's body is never changed");
  t.equal(good.headers["x-echo"], "Bearer [redacted]", "its head is");
  await stillHealthy(t, it.under, it.secrets);
});

t.test("nor is the key in a refusal with a false encoding, is long, or is a stream's", async (t) => {
  const noise = () => randomBytes(100_000).toString("hex");
  const answers: Record<string, (call: GatewayCall) => void> = {
    "unknown encoding": (call) =>
      call.answer("401 No", { "Content-Encoding": "exi" }, `{"message":"no key ${it.key}"}`),
    "plain that is said to be gzip": (call) =>
      call.answer("401 No", { "Content-Encoding": "gzip" }, `{"message":"no key ${it.key}"}`),
    "long and compressed": (call) =>
      call.answer("401 No", { "Content-Encoding": "gzip" }, gzipSync(`key ${it.key} ${noise()} ${it.key}`)),
    "behind the end of what is compressed": (call) =>
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
    "long and said to be compressed": (call) =>
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
});

t.test("an event that ends like a key begins passes whole, and at once", async (t) => {
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

t.test("UP-17 of the gateway's headers, cookies, CORS and those of its own hop stay out", async (t) => {
  const out = {
    "Set-Cookie": "a=1",
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Expose-Headers": "*",
    "Keep-Alive": "timeout=99",
    "Proxy-Authenticate": "Basic",
    Trailer: "X-A",
    Upgrade: "h2c",
    "X-Nominated": "1",
    "X-Keybearer-Refusal": "token-missing",
    "X-Keybearer-Cause": "rate-limit",
  };
  const kept = {
    "request-id": "req_1",
    "x-request-id": "2",
    "X-Client-Request-ID": "3",
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
  await stillHealthy(t, it.under, it.secrets);
});

t.test("UP-18 a kept connection that died is replaced once, where nothing can be paid twice", async (t) => {
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
  await toldInWords(t, it, "/v1/chat/completions", [502, "gateway-broken"], "closed the connection");
  t.equal(it.gateway.calls.filter((call) => call.method === "POST").length, 1, "a chat is never sent twice");
  await stillHealthy(t, it.under, it.secrets);

  // Words that come on an idle connection answer no request.
  let calls = 0;
  const stray = await scene(t, (call) => {
    calls += 1;
    call.ok(String(calls));
    call.send("");
    setTimeout(() => call.send("HTTP/1.1 408 Request Timeout\r\nContent-Length: 5\r\n\r\nstray"), 20);
  });
  for (let n = 1; n <= 3; n += 1) {
    t.equal((await say(t, stray.port, head("GET /v1/models", stray.auth))).body, String(n));
    // It is given up for what was said on it.
    await stray.gateway.calls.at(-1)?.closed;
  }
  await stillHealthy(t, stray.under, stray.secrets);
});

t.test(
  "UP-19 events pass as they come, wherever they are cut and however they end their lines",
  async (t) => {
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
    // A cut at every place of the multi-byte letters and of the last word, and one byte at a time.
    const paths = [
      1,
      ...range(7, 11),
      ...range(82, 94),
      ...range(106, 118),
      ...range(bytes.length - 16, bytes.length - 1),
    ];
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
  },
);

function range(from: number, to: number): number[] {
  return Array.from({ length: to - from + 1 }, (_, n) => from + n);
}

t.test("UP-20 200 MB come down as they were sent, and are not held back", ALONE, async (t) => {
  const PIECE = Buffer.alloc(64 * 1024, "gateway ");
  const PIECES = 3200;
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
  // Four buffers of the kernel's, and some in Node; a buffered body would be all of the 200 MB.
  t.ok(onItsWay < 64 * 1024 * 1024, `at most ${Math.round(onItsWay / 1024 / 1024)} MB were on their way`);
  await settledAs(t, it.under, "/v1/files/big", [{ end: "complete", bytes_out: size }]);
  await stillHealthy(t, it.under, it.secrets);
});
