import { once } from "node:events";
import { mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { type IncomingMessage, request } from "node:http";
import { join } from "node:path";
import { inspect } from "node:util";
import { gzipSync } from "node:zlib";
import t, { type Test } from "tap";
import type { Tool } from "../../src/config/schema.ts";
import { systemClock } from "../../src/core/clock.ts";
import { Agents } from "../../src/proxy/agents.ts";
import { command, newHome, runProgram, saveConfig, startServing } from "../doubles/command.ts";
import { freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { CLOSED_PORT } from "../doubles/listen.ts";
import { gatewayOf } from "../doubles/parsed-config.ts";
import { head, openRaw } from "../doubles/raw-client.ts";
import { type GatewayCall, startRawGateway } from "../doubles/raw-gateway.ts";
import { canary, filesBelow, oddCanary, scan, shapesOf, textsOf } from "../doubles/secret-scan.ts";
import { until } from "../doubles/until.ts";

// These tests mostly wait, so they run side by side.
t.jobs = 8;

t.test("the scan finds a secret in each of its encodings", async (t) => {
  for (const secret of [canary(), oddCanary(), freshToken().token]) {
    for (const [name, shape] of shapesOf(secret)) {
      t.equal(scan({ log: `{"msg":"before ${shape} after"}` }, { key: secret }).length, 1, name);
    }
    const sentence = Buffer.from(`authorization: Bearer ${secret}, and more`);
    for (const shift of [0, 1, 2]) {
      const bytes = Buffer.concat([Buffer.alloc(shift, 120), sentence]);
      for (const encoding of ["base64", "base64url", "hex"] as const) {
        t.equal(
          scan({ log: bytes.toString(encoding) }, { key: secret }).length,
          1,
          `${encoding} of a sentence`,
        );
      }
    }
    t.same(scan({ log: "nothing here" }, { key: secret }), []);
  }
  const odd = shapesOf(oddCanary());
  for (const name of ["in an address", "in a form", "in JSON", "in JSON twice"])
    t.not(odd.get(name), odd.get("plain"), `an odd secret looks different ${name}`);
});

const TOOLS = ["literal", "env", "file", "command", "closed", "ended", "dead", "mute"] as const;

/** Every secret there is, each in its own slot. */
function makeSecrets() {
  const byTool = <T>(make: () => T) =>
    Object.fromEntries(TOOLS.map((name) => [name, make()])) as Record<(typeof TOOLS)[number], T>;
  return {
    keys: byTool(oddCanary),
    tokens: { ...byTool(freshToken), lost: freshToken() },
    stray: {
      foreign: canary(),
      foreignInQuery: canary(),
      foreignInPath: canary(),
      stranger: freshToken().token,
      inBrokenFile: canary(),
      proxyPassword: canary(),
      cookie: canary(),
      prompt: canary(),
      answer: canary(),
      responseCookie: canary(),
    },
  };
}

type Secrets = ReturnType<typeof makeSecrets>;

/** Does what the last segment of the path says, and echoes the key wherever it can. */
function misbehave(call: GatewayCall, answerText: string): void {
  const shown = call.header("authorization")[0] ?? call.header("x-api-key")[0] ?? "";
  const key = shown.replace(/^Bearer /, "");
  const json = JSON.stringify({ error: { message: `no such key ${key}`, headers: call.head } });
  const headers = {
    "x-echo": shown,
    "x-url": encodeURIComponent(key),
    "set-cookie": `s=${key}`,
    "content-type": "application/json",
  };
  const raw = (text: string) => call.send(text);
  const misdeeds: Record<string, () => void> = {
    echo: () => call.answer(`401 unknown ${key}`, headers, json),
    "echo-plain": () => call.answer("403 Forbidden", headers, `you sent ${shown}`),
    "echo-gzip": () => call.answer("400 Bad", { ...headers, "content-encoding": "gzip" }, gzipSync(json)),
    "echo-url": () => call.answer("404 No", headers, `/login?key=${encodeURIComponent(key)}`),
    "echo-redirect": () =>
      call.answer("302 Found", { ...headers, location: `/x?key=${encodeURIComponent(key)}` }, ""),
    garbage: () => raw(`${key} is not HTTP\r\n\r\n`),
    "bad-header": () => raw(`HTTP/1.1 200 OK\r\nbad header ${key}\r\n\r\n`),
    "bad-chunk": () => raw(`HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n${key}\r\n`),
    "giant-head": () => raw(`HTTP/1.1 200 OK\r\nx: ${`${key} `.repeat(2000)}\r\n\r\n`),
    cut: () => call.socket.destroy(),
    short: () => call.socket.end("HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n"),
    silence: () => {},
  };
  const well = () => call.ok(JSON.stringify({ said: answerText }));
  (misdeeds[call.target.split("/").at(-1) ?? ""] ?? well)();
}

const MISDEEDS = [
  ...["echo", "echo-plain", "echo-gzip", "echo-url", "echo-redirect", "garbage", "bad-header", "bad-chunk"],
  ...["giant-head", "cut", "short"],
];

function configOf(home: string, origins: { live: string; dead: string }, { keys, tokens }: Secrets): string {
  const quoted = (text: string) => `'${text.replaceAll("'", "''")}'`;
  const key: Record<(typeof TOOLS)[number], string> = {
    literal: quoted(keys.literal),
    env: "env:CANARY_KEY",
    file: `"file:${home}/keys/file"`,
    command: `{ command: [/bin/cat, ${home}/keys/command] }`,
    closed: quoted(keys.closed),
    ended: quoted(keys.ended),
    dead: quoted(keys.dead),
    mute: quoted(keys.mute),
  };
  const more: Partial<Record<(typeof TOOLS)[number], string>> = {
    literal: "token_in_url: true, ",
    closed: "enabled: false, ",
    ended: "expires: 2020-01-01, ",
  };
  const gatewayOf = (name: string) => (name === "dead" || name === "mute" ? name : "main");
  return [
    "listen: localhost:0",
    "gateways:",
    `  main: { base_url: "${origins.live}/v1", websockets: true }`,
    `  mute: { base_url: "${origins.live}/v1", timeouts: { first_byte: 1s } }`,
    `  dead: { base_url: "${origins.dead}/v1", timeouts: { retry_connect: 0s } }`,
    "tools:",
    ...TOOLS.map(
      (name) =>
        `  ${name}: { ${more[name] ?? ""}gateway: ${gatewayOf(name)}, token: "${tokens[name].hash}", key: ${key[name]} }`,
    ),
    `  lost: { gateway: main, key: env:NOT_THERE, token: "${tokens.lost.hash}" }`,
    "log: { level: trace }",
    "",
  ].join("\n");
}

/** No other test that runs beside this one is given the port. */
const DEAD_ORIGIN = `http://127.0.0.1:${CLOSED_PORT}`;

async function startScanned(t: Test, secrets: Secrets, env: NodeJS.ProcessEnv = {}) {
  const { keys, stray } = secrets;
  const gateway = await startRawGateway(t, (call) => misbehave(call, stray.answer));
  const home = await newHome(t);
  mkdirSync(join(home, "keys"), { mode: 0o700 });
  for (const name of ["file", "command"] as const)
    writeFileSync(join(home, "keys", name), `${keys[name]}\n`, { mode: 0o600 });
  const config = configOf(home, { live: gateway.origin, dead: DEAD_ORIGIN }, secrets);
  await saveConfig(home, config);
  const running = await startServing(t, home, { env: { CANARY_KEY: keys.env, DEBUG: "*", ...env } });
  return { gateway, home, config, running };
}

/** One raw request and everything that came back. */
async function say(t: Test, port: number, bytes: string): Promise<string> {
  const client = await openRaw(t, port);
  client.send(bytes);
  await until("a whole answer, or the end", () => client.isClosed() || isWhole(client.text()));
  client.socket.destroy();
  return client.text();
}

function isWhole(text: string): boolean {
  const length = /\r\ncontent-length: (\d+)\r\n/i.exec(text)?.[1];
  if (length === undefined) return text.endsWith("\r\n0\r\n\r\n");
  return text.length - text.indexOf("\r\n\r\n") - 4 >= Number(length);
}

/** Requests that must fail, each in its own way: by a name, the bytes, and what the answer shows. */
function badRequests(port: number, { keys, tokens, stray }: Secrets): [string, string, RegExp][] {
  const host = { Host: `localhost:${port}` };
  const as = (name: keyof typeof tokens) => ({ ...host, Authorization: `Bearer ${tokens[name].token}` });
  const { token } = tokens.literal;
  const get = "GET /v1/models";
  const code = (name: string) => new RegExp(`x-keybearer-refusal: ${name}\r\n`, "i");
  return [
    ["no token", head(get, { ...host, Cookie: stray.cookie }), code("token-missing")],
    ["half a token", head(get, { ...host, "x-api-key": token.slice(0, -4) }), code("token-incomplete")],
    ["a stranger", head(get, { ...host, "x-api-key": stray.stranger }), code("token-unknown")],
    ["a real key", head(get, { ...host, "api-key": stray.foreign }), code("foreign-key")],
    ["its own key", head(get, { ...host, "x-api-key": keys.literal }), code("foreign-key|token-unknown")],
    ["two of them", head(get, { ...as("env"), "x-api-key": stray.foreign }), code("foreign-key")],
    ["key in the query", head(`GET /v1/models?key=${stray.foreignInQuery}`, as("env")), code("foreign-key")],
    ["key in the path", head(`GET /${stray.foreignInPath}/v1/models`, as("env")), code("wrong-base-url")],
    ["token in the path", head(`GET /v1/${token}/models`, as("env")), code("bad-request")],
    ["token in the query", head(`GET /v1/models?t=${token}`, as("env")), code("bad-request")],
    ["no token by address", head(`GET /t/${tokens.env.token}/v1/models`, host), code("token-unknown")],
    ["a wrong path", head(`GET /t/${token}/nowhere`, host), code("wrong-base-url")],
    ["a doubled path", head("GET /v1/v1/models", as("literal")), code("wrong-base-url")],
    ["disabled", head(get, as("closed")), code("tool-disabled")],
    ["expired", head(get, as("ended")), code("tool-expired")],
    ["no key", head(get, as("lost")), code("key-unavailable")],
    ["unreachable", head(get, as("dead")), code("gateway-unreachable")],
    ["silent", head("GET /v1/act/silence", as("mute")), code("gateway-timeout")],
    ["another host", head(get, { ...as("literal"), Host: `${token}.evil.test` }), code("host-not-allowed")],
    ["a page", head(get, { ...as("literal"), Origin: `http://${stray.cookie}` }), code("browser-request")],
    [
      "a header twice",
      `${head(get, as("literal")).slice(0, -2)}authorization: ${token}\r\n\r\n`,
      code("bad-request"),
    ],
    ["a bad header", `GET /v1/models HTTP/1.1\r\n${token} ${keys.env}\r\n\r\n`, /^HTTP\/1\.1 400/],
    ["a big header", head(get, { ...as("literal"), x: token.repeat(500) }), code("headers-too-large")],
    ["a loop", head(get, { ...as("literal"), "x-keybearer-hops": "9" }), code("loop")],
    ["an odd coding", head(get, { ...as("literal"), "Transfer-Encoding": token }), /^HTTP\/1\.1 400/],
    ["an odd method", `${keys.env} /v1/models HTTP/1.1\r\n\r\n`, /^HTTP\/1\.1 400/],
    [
      "an upgrade",
      head(get, {
        ...host,
        Connection: "Upgrade",
        Upgrade: "websocket",
        "Sec-WebSocket-Protocol": `key.${token}`,
      }),
      code("websockets-off"),
    ],
    ...MISDEEDS.map((what): [string, string, RegExp] => [
      what,
      head(`GET /v1/act/${what}`, as("literal")),
      /^HTTP\/1\.1 \d/,
    ]),
    ...MISDEEDS.map((what): [string, string, RegExp] => [
      `${what}, upgraded`,
      head(`GET /v1/act/${what}`, { ...as("command"), Connection: "Upgrade", Upgrade: "websocket" }),
      /^HTTP\/1\.1 \d/,
    ]),
    [
      "echo to messages",
      head("POST /v1/messages/echo", { ...host, "x-api-key": token, "Content-Length": "0" }),
      /^HTTP\/1\.1 401/,
    ],
  ];
}

/** The control socket's answers, as bytes. */
function ask(home: string, method: string, path: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const asking = request({ socketPath: join(home, "run", "control.sock"), method, path }, (answer) => {
      let text = JSON.stringify(answer.headers);
      answer.setEncoding("utf8").on("data", (part: string) => {
        text += part;
      });
      answer.on("end", () => resolve(text));
    });
    asking.on("error", reject).end(method === "POST" ? "[]" : undefined);
  });
}

const COMMANDS = [
  ...[["status"], ["status", "--json"], ["tools"], ["tools", "--json"], ["check"], ["check", "--json"]],
  ...[
    ["trust", "literal"],
    ["help"],
    ["help", "run"],
    ["help", "tools"],
    ["nonsense"],
    ["tools", "token", "nobody"],
  ],
];

async function everyCommand(t: Test, home: string, env: NodeJS.ProcessEnv): Promise<string[]> {
  const outputs: string[] = [];
  for (const args of COMMANDS) {
    const { stdout, stderr } = await command(t, home, args, { env });
    outputs.push(stdout, stderr);
  }
  return outputs;
}

t.test(
  "no key, token or prompt is in any output, file or argument, whatever fails",
  { timeout: 110_000 },
  async (t) => {
    const secrets = makeSecrets();
    const { keys, tokens, stray } = secrets;
    const { gateway, home, config, running } = await startScanned(t, secrets);
    const env = { CANARY_KEY: keys.env };
    const outputs: Record<string, string> = {};

    await t.test("valid requests are served", async (t) => {
      for (const name of ["literal", "env", "file", "command"] as const) {
        const answer = await fetch(`${running.url}/v1/chat/completions`, {
          method: "POST",
          headers: { authorization: `Bearer ${tokens[name].token}`, "content-type": "application/json" },
          body: JSON.stringify({ model: "m", messages: [{ role: "user", content: stray.prompt }] }),
        });
        t.match(await answer.text(), stray.answer);
        t.strictSame(
          gateway.calls.at(-1)?.header("authorization"),
          [`Bearer ${keys[name]}`],
          `${name} has its key`,
        );
      }
      const streamed = await fetch(`${running.url}/v1/messages`, {
        method: "POST",
        headers: { "x-api-key": tokens.file.token, "content-type": "application/json" },
        body: JSON.stringify({
          ...{ model: "m", max_tokens: 9, stream: true },
          messages: [{ role: "user", content: stray.prompt }],
        }),
      });
      t.match(await streamed.text(), stray.answer);
      t.equal((await fetch(`${running.url}/t/${tokens.literal.token}/v1/models`)).status, 200);
    });

    await t.test("invalid requests are refused", async (t) => {
      for (const [name, bytes, expected] of badRequests(running.port, secrets)) {
        const text = await say(t, running.port, bytes);
        t.match(text, expected, name);
        outputs[`the answer to ${name}`] = text;
      }
    });

    await t.test("mistakes in the file are reported", async (t) => {
      const literal = `key: '${keys.literal.replaceAll("'", "''")}'`;
      const broken = [
        config.replace(literal, `${literal} ,,`),
        config.replace(literal, literal.replace("key", "kee")),
        config.replace(literal, literal.slice(0, -1)),
        config.replace(literal, `key: [${stray.inBrokenFile}]`),
        config.replace(literal, `key: ${stray.inBrokenFile} two`),
        config.replace(literal, `key: ${stray.inBrokenFile}: {`),
        config.replace(tokens.env.hash, tokens.env.token),
        config.replace("websockets: true", `proxy: "http://me:${stray.proxyPassword}@127.0.0.1:1"`),
        config.replace("websockets: true", `proxy: "http://${stray.proxyPassword}@127.0.0.1:1", x: [`),
        config.replace('base_url: "http://', `base_url: "http://${stray.proxyPassword}:x@`),
        `${stray.inBrokenFile}\n`,
      ];
      for (const [at, text] of broken.entries()) {
        t.not(text, config);
        const before = running.stderr().length;
        await saveConfig(home, text);
        const checking = command(t, home, at % 2 === 0 ? ["check"] : ["check", "--json"], { env });
        await until(`broken file ${at} is reported`, () =>
          running.stderr().slice(before).includes("keeps using the last valid version"),
        );
        const { stdout, stderr } = await checking;
        t.match(stdout + stderr, /config\.yaml|"line"/, "check reports it, too");
        outputs[`check of broken file ${at}`] = stdout + stderr;
        outputs[`status with broken file ${at}`] = await ask(home, "GET", "/status");
      }
      const second = await runProgram(t, home, ["run"], { env });
      outputs["a second run"] = second.stdout + second.stderr;
    });

    await t.test("a key whose gateway changes is held", async (t) => {
      await saveConfig(home, config.replaceAll(gateway.origin, DEAD_ORIGIN));
      await running.logs(/held \(/);
      const held = await say(
        t,
        running.port,
        head("GET /v1/models", { Host: `localhost:${running.port}`, "x-api-key": tokens.literal.token }),
      );
      t.match(held, /x-keybearer-refusal: needs-trust/i);
      outputs.held = held;
      outputs["commands while held"] = (await everyCommand(t, home, env)).join("\n");
      for (const path of ["/status", "/held/literal", "/held/main", "/held/nobody", "/nothing"])
        outputs[`control ${path}`] = await ask(home, "GET", path);
      outputs["control trust"] = await ask(home, "POST", "/trust/literal");
      t.match(outputs["control /status"], /needs-trust/);
    });

    const ps = process.platform === "linux" ? readFileSync(`/proc/${running.pid}/cmdline`, "latin1") : "";
    running.child.kill("SIGTERM");
    const { code } = await running.ended;
    t.equal(code, 0);
    const stderr = running.stderr();
    Object.assign(outputs, { stdout: running.stdout(), stderr, ps });
    t.match(stderr, /http-proxy-3/, "DEBUG was on");
    t.ok(stderr.split("\n").length > 60, "the log has a line for each");

    const placed = [join(home, "config.yaml"), join(home, "keys", "file"), join(home, "keys", "command")];
    const files = filesBelow(home).filter((path) => !placed.includes(path));
    t.ok(files.length > 0, "there are files to scan");
    Object.assign(outputs, textsOf(files));
    const plain = Object.fromEntries(
      Object.entries(tokens).map(([name, { token }]) => [`token ${name}`, token]),
    );
    t.same(scan(outputs, { ...keys, ...plain, ...stray }), []);
    for (const path of filesBelow(home)) {
      const mode = statSync(path, { throwIfNoEntry: false })?.mode ?? 0;
      t.equal(mode & 0o077, 0, `only the user can read ${path}`);
    }
  },
);

t.test("the sandbox's token and key are in no answer, status, log or file", async (t) => {
  const under = await startUnderTest(t, null);
  const { token = "", snapshot } = under.daemon.sandboxSession ?? {};
  const key = snapshot?.keyOf(snapshot.config.tools["try-me"] as Tool);
  const answer = await fetch(`${under.url}/v1/models`, { headers: { "x-api-key": token } });
  t.equal(answer.status, 200);
  const paths = {
    answer: (await answer.text()) + JSON.stringify([...answer.headers]),
    status: JSON.stringify(await under.daemon.status()),
    log: under.logText(),
    ...textsOf(filesBelow(under.home)),
  };
  t.equal(key?.state, "ready");
  t.same(scan(paths, { token, key: key?.state === "ready" ? key.key.reveal() : "" }), []);
});

t.test("a kept connection does not hold the key", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const agents = new Agents(systemClock);
  t.teardown(() => agents.close());
  const agent = agents.agentFor(gatewayOf(`base_url: "${gateway.origin}/v1"`), gateway.origin);
  const key = canary();
  const asking = request(`${gateway.origin}/v1/models`, {
    agent,
    headers: { authorization: `Bearer ${key}` },
  });
  asking.end();
  const [answer] = (await once(asking, "response")) as [IncomingMessage];
  answer.resume();
  await once(answer, "end");
  t.strictSame(gateway.calls[0]?.header("authorization"), [`Bearer ${key}`], "the request has it");
  await until("the connection is kept", () => Object.keys(agent.freeSockets).length === 1);
  t.same(scan({ kept: inspect(agent.freeSockets, { depth: 9, showHidden: true }) }, { key }), []);
});

t.test("a daemon does not start with a NODE_DEBUG that would print keys", async (t) => {
  const secrets = makeSecrets();
  const home = await newHome(t);
  await saveConfig(home, configOf(home, { live: DEAD_ORIGIN, dead: DEAD_ORIGIN }, secrets));
  const env = { NODE_DEBUG: "*", CANARY_KEY: secrets.keys.env };
  const { code, stdout, stderr } = await runProgram(t, home, ["run"], { env });
  t.equal(code, 78);
  t.match(stderr, /start without it: env -u NODE_DEBUG keybearer run/);
  t.same(scan({ stdout, stderr }, secrets.keys), []);
});
