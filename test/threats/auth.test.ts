import { once } from "node:events";
import { chmodSync, readdirSync, readFileSync } from "node:fs";
import { request } from "node:http";
import { connect } from "node:net";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import t, { type Test } from "tap";
import { StartError } from "../../src/core/errors.ts";
import { looksLikeCredential } from "../../src/core/redact.ts";
import { hashToken, tokenShape } from "../../src/core/token.ts";
import { newHome } from "../doubles/command.ts";
import {
  canaryKey,
  freshToken,
  startUnderTest,
  startWithOneTool,
  stillHealthy,
} from "../doubles/daemon-under-test.ts";
import { asOtherUser, cannotBeOtherUser } from "../doubles/other-user.ts";
import { ROOT } from "../doubles/paths.ts";
import { head, openRaw } from "../doubles/raw-client.ts";
import { startRawGateway } from "../doubles/raw-gateway.ts";
import { post, refuses, say, settledAs } from "../doubles/stimulus.ts";
import { until } from "../doubles/until.ts";
import { keepConnection } from "./kept-connection.ts";

/** One tool, codex, and a gateway that answers each request with its target. */
async function scene(t: Test, tool: readonly string[] = []) {
  const gateway = await startRawGateway(t, (call) => call.ok(JSON.stringify(call.target)));
  const one = await startWithOneTool(t, gateway.origin, { tool });
  const { token, key, host, port } = one;
  const secrets = [token, key];
  return { under: one, gateway, secrets, token, key, host, port, say: keepConnection(t, port) };
}

/** Two tools with keys of their own: a with two tokens, b with one. */
async function twoTools(t: Test) {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const tool = (tokens: readonly ReturnType<typeof freshToken>[]) => {
    const key = canaryKey();
    const hashes = tokens.map(({ hash }) => `"${hash}"`).join(", ");
    return { key, yaml: `{ key: ${key}, token: [${hashes}], token_in_url: true }` };
  };
  const [first, second, other] = [freshToken(), freshToken(), freshToken()];
  const a = { ...tool([first, second]), token: first.token, second: second.token };
  const b = { ...tool([other]), token: other.token };
  const config = `gateway: ${gateway.origin}/v1\ntools: { a: ${a.yaml}, b: ${b.yaml} }\n`;
  const under = await startUnderTest(t, config);
  const { port } = under.daemon;
  const secrets = [a.key, a.token, a.second, b.key, b.token];
  return { under, gateway, secrets, a, b, host: `127.0.0.1:${port}`, say: keepConnection(t, port) };
}

/** Why a daemon with this configuration does not start. */
async function failureOf(t: Test, config: string): Promise<StartError> {
  try {
    await startUnderTest(t, config, { home: await newHome(t) });
  } catch (error) {
    if (error instanceof StartError) return error;
    throw error;
  }
  throw new Error("it started");
}

t.test("AUTH-01 a call without a token is refused in the caller's protocol, before its body", async (t) => {
  const { say: _, ...it } = await scene(t);
  const rows = [
    ["/v1/chat/completions", "openai"],
    ["/v1/responses", "openai"],
    ["/v1/models", "openai"],
    ["/v1/messages", "messages"],
    ["/v1/messages/count_tokens", "messages"],
    ["/v1beta/models/gemini-2.5-pro:generateContent", "gemini"],
  ] as const;
  for (const [path, protocol] of rows) {
    const expected = { status: 401, code: "token-missing", protocol } as const;
    // Each on its own connection, which waits for the rest of the body.
    const heard = await refuses(
      t,
      it,
      path,
      head(`POST ${path}`, { Host: it.host, "Content-Length": "1000000" }),
      expected,
    );
    t.match(heard.body, "keybearer tools token");
    t.equal(heard.headers["x-should-retry"], "false", "a retry does not help");
  }
  await stillHealthy(t, it.under, it.secrets);
});

t.test("AUTH-02 a value that differs from the token in one character is refused", async (t) => {
  const it = await scene(t);
  const { token } = it;
  const capitals = token.toUpperCase();
  const last = token.endsWith("A") ? "B" : "A";
  const rows: [string, string, "token-unknown" | "token-incomplete" | "token-missing" | "foreign-key"][] = [
    ["an unknown token", `Bearer ${freshToken().token}`, "token-unknown"],
    ["another unknown token", `Bearer ${freshToken().token}`, "token-unknown"],
    ["its last character changed", `Bearer ${token.slice(0, -1)}${last}`, "token-incomplete"],
    ["one in its middle changed", `Bearer ${token.slice(0, 20)}!${token.slice(21)}`, "token-incomplete"],
    ["its beginning", `Bearer ${token.slice(0, 30)}`, "token-incomplete"],
    ["all but the last", `Bearer ${token.slice(0, -1)}`, "token-incomplete"],
    ["longer by one", `Bearer ${token}x`, "token-incomplete"],
    ["twice", `Bearer ${token}${token}`, "token-incomplete"],
    ["two in one header", `Bearer ${token}, ${token}`, "token-incomplete"],
    ["only the prefix", "Bearer kb_", "token-incomplete"],
    // One in a hundred has so many dashes that it does not look like a key.
    ["in capitals", `Bearer ${capitals}`, looksLikeCredential(capitals) ? "foreign-key" : "token-unknown"],
    ["its first letter in a wider form", `Bearer \uff4b${token.slice(1)}`, "foreign-key"],
    ["as Basic", `Basic ${Buffer.from(`codex:${token}`).toString("base64")}`, "foreign-key"],
    ["a word", "Bearer none", "token-unknown"],
    ["Bearer and nothing", "Bearer ", "token-missing"],
    ["Bearer alone", "Bearer", "token-missing"],
    ["nothing at all", "", "token-missing"],
  ];
  const bodies = new Map<string, Set<string>>();
  for (const [what, authorization, code] of rows) {
    const bytes = Buffer.from(head("GET /v1/models", { Host: it.host, Authorization: authorization }));
    const { body } = await refuses(t, it, what, bytes, { status: code === "foreign-key" ? 400 : 401, code });
    bodies.set(code, (bodies.get(code) ?? new Set()).add(body));
  }
  const messages: Record<string, string> = {
    "token-missing": "keybearer tools token",
    "token-unknown": "no tool has the token in authorization",
    "token-incomplete": "authorization is incomplete",
    "foreign-key": "a real key in authorization",
  };
  for (const [code, texts] of bodies) {
    t.equal(texts.size, 1, `${code}: the same body for every value`);
    t.match([...texts][0], messages[code] ?? "no message");
  }
  await stillHealthy(t, it.under, it.secrets);
});

t.test("a token with a wrong checksum is refused even if config.yaml has its hash", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const { token, hash } = freshToken();
  const wrong = `${token.slice(0, -1)}${token.endsWith("x") ? "y" : "x"}`;
  const hashes = `["${hash}", "sha256:${hashToken(wrong)}"]`;
  const key = canaryKey();
  const config = `gateway: ${gateway.origin}/v1\ntools: { a: { key: ${key}, token: ${hashes} } }\n`;
  const under = await startUnderTest(t, config);
  const { port } = under.daemon;
  const it = { under, gateway, secrets: [token, wrong, key], say: keepConnection(t, port) };
  const ask = (shown: string) =>
    head("GET /v1/models", { Host: `127.0.0.1:${port}`, Authorization: `Bearer ${shown}` });
  // Twice: the second time the daemon may remember the first.
  for (let time = 0; time < 2; time += 1) {
    t.equal((await it.say(ask(token))).status, 200);
    await refuses(t, it, "the wrong one", ask(wrong), { status: 401, code: "token-incomplete" });
  }
});

t.test("AUTH-03 each token of a tool injects that tool's key once, and no token is forwarded", async (t) => {
  const it = await twoTools(t);
  const rows = [
    { token: it.a.token, own: it.a.key, other: it.b.key },
    { token: it.a.second, own: it.a.key, other: it.b.key },
    { token: it.b.token, own: it.b.key, other: it.a.key },
  ];
  for (const { token, own, other } of rows) {
    for (const path of ["/v1/chat/completions", "/v1/messages", "/v1beta/models/m:generateContent"]) {
      const request = post(`POST ${path}`, { Host: it.host, Authorization: `Bearer ${token}` });
      t.equal((await it.say(request)).status, 200);
      const text = it.gateway.calls.at(-1)?.text() ?? "";
      t.equal(text.split(own).length, 2, `${path}: the key is there once`);
      t.notOk(text.includes(other), `${path}: and no other`);
    }
  }
  for (const { token } of rows) t.notOk(it.gateway.received().includes(token), "no token is forwarded");
  await stillHealthy(t, it.under, it.secrets);
});

t.test("AUTH-04 the token is read from four headers and, where allowed, from the address", async (t) => {
  const it = await scene(t);
  const slots = ["Authorization", "x-api-key", "api-key", "X-Goog-Api-Key"];
  for (const slot of slots) {
    for (const path of ["/v1/models", "/v1/messages", "/v1beta/models"]) {
      const heard = await it.say(post(`POST ${path}`, { Host: it.host, [slot]: it.token }));
      t.equal(heard.status, 200, `${slot} ${path}`);
      const call = it.gateway.calls.at(-1);
      t.equal(call?.text().split(it.key).length, 2, `${slot} ${path}: the key once`);
      t.notOk(call?.text().includes(it.token), `${slot} ${path}: the token not at all`);
    }
  }
  const all = Object.fromEntries(slots.map((slot) => [slot, it.token]));
  t.equal((await it.say(head("GET /v1/models", { Host: it.host, ...all }))).status, 200, "in all of them");
  const no = async (what: string, line: string, headers: Record<string, string>, code: "token-missing") =>
    refuses(t, it, what, head(line, { Host: it.host, ...headers }), { status: 401, code });
  for (const slot of ["x_api_key", "authorization_", "Proxy-Authorization", "Cookie", "X-Token", "X-Key"]) {
    await no(slot, "GET /v1/models", { [slot]: it.token }, "token-missing");
  }
  for (const query of [`key=${it.token}`, `a=1&api_key=${it.token}`]) {
    await refuses(t, it, "in the query", head(`GET /v1/models?${query}`, { Host: it.host }), {
      status: 400,
      code: "bad-request",
    });
  }
  const inAddress = head(`GET /t/${it.token}/v1/models`, { Host: it.host });
  const { body } = await refuses(t, it, "in the address", inAddress, { status: 401, code: "token-unknown" });
  t.match(body, "tools.codex.token_in_url: true");
  await stillHealthy(t, it.under, it.secrets);

  const allowed = await scene(t, ["token_in_url: true"]);
  const line = `GET /t/${allowed.token}/v1/models?limit=2`;
  t.equal((await allowed.say(head(line, { Host: allowed.host }))).status, 200);
  t.equal(allowed.gateway.calls[0]?.target, "/v1/models?limit=2", "cut off");
  t.notOk(allowed.gateway.received().includes(allowed.token));
  await stillHealthy(t, allowed.under, allowed.secrets);
});

t.test("AUTH-05 one tool's token never reaches another tool's key", async (t) => {
  const it = await twoTools(t);
  const own = { Host: it.host, Authorization: `Bearer ${it.a.token}` };
  const rows: [string, string, Record<string, string>][] = [
    ["two tools' tokens in headers", "/v1/models", { "x-api-key": it.b.token }],
    ["two of one tool's tokens", "/v1/models", { "x-api-key": it.a.second }],
    ["another tool's token in the address", `/t/${it.b.token}/v1/models`, {}],
  ];
  for (const [what, path, more] of rows) {
    const expected = { status: 400, code: "foreign-key" } as const;
    const { body } = await refuses(t, it, what, head(`GET ${path}`, { ...own, ...more }), expected);
    t.match(body, "two different credentials", what);
  }
  const names: [string, Record<string, string>][] = [
    ["/v1/models?tool=b", {}],
    ["/v1/models", { "x-keybearer-tool": "b", "x-tool": "b", "User-Agent": "b" }],
  ];
  for (const [path, more] of names) {
    t.equal((await it.say(head(`GET ${path}`, { ...own, ...more }))).status, 200);
    t.strictSame(it.gateway.calls.at(-1)?.header("authorization"), [`Bearer ${it.a.key}`], path);
  }
  await refuses(t, it, "b under a's address", head("GET /b/v1/models", own), {
    status: 400,
    code: "wrong-base-url",
  });
  t.notOk(it.gateway.received().includes(it.b.key));
  await stillHealthy(t, it.under, it.secrets);
});

/** Every route of the control socket, read from the table itself, so that none is missing here. */
function controls(): { readonly method: string; readonly path: string }[] {
  const file = join(ROOT, "src", "control", "routes.ts");
  const rows = [...readFileSync(file, "utf8").matchAll(/^ {2}"([A-Z]+) (\/[^"]*)":/gm)];
  return rows.map(([, method = "", path = ""]) => ({ method, path: path.replace(":name", "codex") }));
}

t.test(
  "AUTH-06 the port for tools serves no route of the control socket, with a token or without",
  async (t) => {
    const it = await scene(t);
    const all = controls();
    t.ok(all.length >= 3, "the table was found");
    for (const { method, path } of all) {
      for (const headers of [{}, { Authorization: `Bearer ${it.token}` }]) {
        for (const [prefix, code, status] of [
          ["", "wrong-base-url", 400],
          ["/control", "wrong-base-url", 400],
          ["/v1/..", "bad-request", 400],
        ] as const) {
          const line = `${method} ${prefix}${path}`;
          await refuses(t, it, line, post(line, { Host: it.host, ...headers }, "[]"), { status, code });
        }
      }
    }
    await stillHealthy(t, it.under, it.secrets);
  },
);

function control(socketPath: string, method: string, path: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const asking = request({ socketPath, method, path }, (answer) => {
      let text = "";
      answer.setEncoding("utf8").on("data", (part) => {
        text += part;
        // A route that follows the log never ends; one record is enough.
        if (text.includes('"record"')) answer.destroy();
      });
      answer.on("close", () => resolve(text));
    });
    asking.on("error", reject);
    asking.end(method === "POST" ? "[]" : undefined);
  });
}

t.test(
  "AUTH-08 no route of the control socket shows more of a key or a token than a fingerprint",
  async (t) => {
    const it = await scene(t);
    const request = head("GET /v1/models", { Host: it.host, "api-key": it.token });
    t.equal((await it.say(request)).status, 200);
    const asked = controls().map(({ method, path }) => control(it.under.paths.socket, method, path));
    let answered = false;
    const all = Promise.all(asked).finally(() => {
      answered = true;
    });
    // The routes that follow the log wait for a record.
    while (!answered) await it.say(request);
    const texts = await all;
    texts.push(JSON.stringify(await it.under.daemon.status()));
    const hash = readFileSync(it.under.paths.config, "utf8").match(/sha256:([0-9a-f]{64})/)?.[1] ?? "?";
    t.match(texts.join(), `…${it.key.slice(-4)}`, "its last four are shown");
    for (const text of texts) {
      for (const secret of [it.key, it.token, hash, it.key.slice(-12)]) t.notOk(text.includes(secret));
    }
    await stillHealthy(t, it.under, it.secrets);
  },
);

t.test(
  "AUTH-09 a real key is refused with the name of its header, and is neither forwarded nor logged",
  async (t) => {
    const it = await scene(t);
    const random = canaryKey().slice("sk-canary-".length);
    const keys = [
      `sk-ant-api03-${random}`,
      `sk-proj-${random}`,
      `AIzaSy${random}`,
      `eyJhbGciOi.${random}.${random}`,
      `AKIA-${random}`,
      `Ab1${random}`,
    ];
    for (const key of keys) {
      for (const slot of ["authorization", "x-api-key", "api-key", "x-goog-api-key"]) {
        const value = slot === "authorization" ? `Bearer ${key}` : key;
        const heard = await refuses(
          t,
          it,
          `${key.slice(0, 8)} in ${slot}`,
          head("GET /v1/models", { Host: it.host, [slot]: value }),
          { status: 400, code: "foreign-key" },
        );
        t.match(heard.body, `a real key in ${slot}`);
      }
    }
    for (const [slot, tokenSlot] of [
      ["authorization", "x-api-key"],
      ["x-api-key", "authorization"],
    ] as const) {
      const beside = head("GET /v1/models", { Host: it.host, [tokenSlot]: it.token, [slot]: keys[0] ?? "" });
      const heard = await refuses(t, it, "beside the token", beside, { status: 400, code: "foreign-key" });
      t.match(heard.body, `the one in ${slot} is not the token`);
    }
    await stillHealthy(t, it.under, [...it.secrets, random]);
  },
);

t.test("AUTH-10 hostile values in place of a token are refused like any other value", async (t) => {
  const it = await scene(t);
  const values = [
    "' OR 1=1--",
    '" OR ""="',
    "../../etc/passwd",
    "%00",
    '{"$ne":1}',
    "$(reboot)",
    "__proto__",
    "constructor",
    "\u00ff\u00fe",
    "a".repeat(8000),
    "kb".repeat(4000),
  ];
  for (const value of values) {
    for (const slot of ["Authorization", "x-api-key"]) {
      const bytes = Buffer.from(head("GET /v1/models", { Host: it.host, [slot]: value }), "latin1");
      await refuses(t, it, `${value.slice(0, 20)} in ${slot}`, bytes, { status: 401, code: "token-unknown" });
    }
  }
  const long = head("GET /v1/models", { Host: it.host, Authorization: `Bearer kb_${"a".repeat(8000)}` });
  await refuses(t, it, "a long one of ours", long, { status: 401, code: "token-incomplete" });
  const nul = head("GET /v1/models", { Host: it.host, Authorization: `Bearer ${it.token}\0` });
  await refuses(t, it, "NUL", nul, { status: 400, code: "bad-request" });
  await stillHealthy(t, it.under, it.secrets);
});

t.test("AUTH-11 every token is new, and no token in the documentation works", async (t) => {
  const tokens = new Set(Array.from({ length: 100 }, () => freshToken().token));
  t.equal(tokens.size, 100);
  for (const token of tokens) {
    t.equal(Buffer.from(token.slice(3, 46), "base64url").length, 32, "256 bits");
  }
  const it = await scene(t);
  const documents = readdirSync(ROOT).filter((name) => /\.(?:md|yaml)$/.test(name));
  t.ok(documents.includes("README.md"));
  const written = documents.flatMap((name) => [
    ...readFileSync(join(ROOT, name), "utf8").matchAll(/\bkb_[A-Za-z0-9_-]*/g),
  ]);
  for (const [token] of written) {
    t.not(tokenShape(token), "complete", token);
    const bytes = head("GET /v1/models", { Host: it.host, Authorization: `Bearer ${token}` });
    await refuses(t, it, token, bytes, { status: 401, code: "token-incomplete" });
  }
  for (const token of ["kb_plain", freshToken().token, "sha256:4f1c…", "sha256:"]) {
    const config = `gateway: http://127.0.0.1:9/v1\ntools: { codex: { key: env:NONE, token: "${token}" } }\n`;
    t.equal((await failureOf(t, config)).exitCode, 78, "only a whole hash is taken");
  }
});

t.test("AUTH-12 a thousand wrong tokens do not delay another tool", async (t) => {
  const it = await twoTools(t);
  const { port } = it.under.daemon;
  let wrong = 0;
  const sendWrong = async () => {
    const send = keepConnection(t, port);
    for (let n = 0; n < 100; n += 1) {
      const { token } = freshToken();
      await send(head("GET /v1/wrong", { Host: it.host, Authorization: `Bearer ${token}` }));
      wrong += 1;
    }
  };
  const sending = Promise.all(Array.from({ length: 10 }, sendWrong));
  const statuses: number[] = [];
  while (wrong < 1000) {
    const bytes = head("GET /v1/right", { Host: it.host, Authorization: `Bearer ${it.b.token}` });
    statuses.push((await it.say(bytes)).status);
  }
  await sending;
  t.ok(statuses.length > 0, `${statuses.length} answers meanwhile`);
  t.ok(
    statuses.every((status) => status === 200),
    "each of them is 200",
  );
  t.ok(it.gateway.calls.every((call) => call.target === "/v1/right"));
  // At most twenty a minute have their own line.
  t.ok(it.under.log().filter((line) => line.endpoint === "/v1/wrong").length < 100);
  await stillHealthy(t, it.under, it.secrets);
});

/** What another user of this machine gets from the port, the control socket and the files. */
const STRANGER = `
import { connect } from "node:net";
import { readFileSync, readdirSync } from "node:fs";
const [port, token, socket, ...files] = process.argv.slice(1);
const said = {};
for (const path of files) {
  for (const read of [readFileSync, readdirSync]) {
    try { read(path); said[path] = "read"; break; } catch (error) { said[path] ??= error.code; }
  }
}
const call = (to, text) => new Promise((done) => {
  const client = connect(to);
  let got = "";
  client.on("connect", () => client.write(text));
  client.on("data", (part) => { got += part; if (got.includes("\\r\\n\\r\\n")) client.destroy(); });
  client.on("error", (error) => { got = error.code; });
  client.on("close", () => done([got.split("\\r\\n")[0], /x-keybearer-refusal: (.*)/.exec(got)?.[1] ?? null]));
});
const head = "GET /v1/models HTTP/1.1\\r\\nHost: 127.0.0.1:" + port + "\\r\\nAuthorization: Bearer " + token + "\\r\\n\\r\\n";
said.tcp = await call({ host: "127.0.0.1", port: Number(port) }, head);
said.socket = await call({ path: socket }, "GET /status HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n");
console.log(JSON.stringify(said));
`;

t.test(
  "AUTH-13 another user gets 403 from the port, even with a token, and can open no file",
  { skip: cannotBeOtherUser() },
  async (t) => {
    const it = await scene(t);
    const { paths, home } = it.under;
    // As a home folder often is: readable for others, so the files inside must be protected themselves.
    chmodSync(home, 0o755);
    const files = [paths.config, paths.state, paths.run, paths.trust];
    const printed = await asOtherUser(t, STRANGER, String(it.port), it.token, paths.socket, ...files);
    t.strictSame(JSON.parse(printed), {
      ...Object.fromEntries(files.map((path) => [path, "EACCES"])),
      tcp: ["HTTP/1.1 403 Forbidden", "other-user"],
      socket: ["EACCES", null],
    });
    t.equal(it.gateway.connections(), 0, "nothing reached the gateway");
    const own = head("GET /v1/models", { Host: it.host, Authorization: `Bearer ${it.token}` });
    t.equal((await it.say(own)).status, 200, "its own user is served");
    await stillHealthy(t, it.under, it.secrets);
  },
);

t.test("AUTH-14 the daemon listens only on loopback", async (t) => {
  const rest = "gateway: http://127.0.0.1:9/v1\ntools: { codex: {} }\n";
  const wide = ["0.0.0.0:0", "'[::]:0'", "192.168.1.10:0", "10.0.0.1:0", "'*:0'", "example.com:0", "'0:0'"];
  for (const listen of [...wide, "127.0.0.1.nip.io:0", "'[::ffff:192.168.1.10]:0'", "169.254.169.254:0"]) {
    const { exitCode, message } = await failureOf(t, `listen: ${listen}\n${rest}`);
    t.equal(exitCode, 78, `${listen} is a problem of the file`);
    t.match(message, "listen", `${listen} is named`);
  }
  const it = await scene(t);
  const own = [`127.0.0.1:${it.port}`, `[::1]:${it.port}`];
  t.ok(it.under.daemon.addresses.every((address) => own.includes(address)));
  const outside = Object.values(networkInterfaces())
    .flatMap((all) => all ?? [])
    .filter(({ internal, family }) => !internal && family === "IPv4");
  for (const { address } of outside) {
    const client = connect({ host: address, port: it.port });
    const [error] = await once(client, "error");
    t.equal(error.code, "ECONNREFUSED", `${address} is closed`);
  }
});

t.test("AUTH-15 a token that an edit removes is refused at once; its stream finishes", async (t) => {
  const gateway = await startRawGateway(t, (call) => {
    if (!call.target.endsWith("stream")) return call.ok();
    call.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n");
  });
  const [old, fresh] = [freshToken(), freshToken()];
  const key = canaryKey();
  const config = (name: string, hash: string) =>
    `gateway: ${gateway.origin}/v1\ntools: { ${name}: { key: ${key}, token: "${hash}" } }\n`;
  const under = await startUnderTest(t, config("codex", old.hash));
  const secrets = [old.token, fresh.token, key];
  const { port } = under.daemon;
  const ask = (path: string, token: string) =>
    head(`GET ${path}`, { Host: `127.0.0.1:${port}`, Authorization: `Bearer ${token}` });
  const statusOf = async (token: string) => (await say(t, port, ask("/v1/models", token))).status;

  const client = await openRaw(t, port);
  client.send(ask("/v1/stream", old.token));
  await client.until("first");
  await under.save(config("codex", fresh.hash));
  await until("the old token is refused", async () => (await statusOf(old.token)) === 401);
  t.equal(await statusOf(fresh.token), 200, "and the new one is let in");
  await under.save(config("another", fresh.hash.replace(/.{4}$/, "0000")));
  await until("the tool is gone", async () => (await statusOf(fresh.token)) === 401);
  const expected = { status: 401, code: "token-unknown" } as const;
  await refuses(t, { under, gateway, secrets }, "the old token", ask("/v1/x", old.token), expected);

  gateway.calls[0]?.send("4\r\nlast\r\n0\r\n\r\n");
  await client.until("last\r\n0\r\n\r\n");
  await settledAs(t, under, "/v1/stream", [{ end: "complete", status: 200, tool: "codex" }]);
  await stillHealthy(t, under, secrets);
});
