import { once } from "node:events";
import { connect } from "node:net";
import { hostname } from "node:os";
import t, { type Test } from "tap";
import { startWithOneTool, stillHealthy } from "../doubles/daemon-under-test.ts";
import { head, openRaw, parsed } from "../doubles/raw-client.ts";
import { startRawGateway } from "../doubles/raw-gateway.ts";
import { post, type Refused, refuses } from "../doubles/stimulus.ts";
import { until } from "../doubles/until.ts";
import { keepConnection } from "./kept-connection.ts";

const DESK = "vscode-webview://desk.example";
const EVIL = "https://evil.test";

/** One tool that allows one desktop client, and a gateway that would answer. browsers-live.long.test.ts has a real browser. */
async function scene(t: Test) {
  const gateway = await startRawGateway(t, (call) =>
    call.answer("200 OK", { "Set-Cookie": "a=1", "Access-Control-Allow-Origin": "*" }, "{}"),
  );
  const one = await startWithOneTool(t, gateway.origin, { tool: [`allow_origins: ["${DESK}"]`] });
  const { token, key, host, port } = one;
  return {
    under: one,
    gateway,
    secrets: [token, key],
    token,
    host,
    port,
    say: keepConnection(t, port),
  };
}

const BROWSER: Refused = { status: 403, code: "browser-request" };

/** Each of these headers, with the tool's own token and without. The worst case is a page that has stolen it. */
async function pageIsRefused(
  t: Test,
  line: string,
  rows: readonly Record<string, string>[],
  expected: Refused,
  body: string | null = null,
): Promise<void> {
  const it = await scene(t);
  for (const row of rows) {
    for (const credential of [{}, { Authorization: `Bearer ${it.token}` }]) {
      const headers = { Host: it.host, ...credential, ...row };
      const bytes = body === null ? head(line, headers) : post(line, headers, body);
      await refuses(t, it, `${line} ${JSON.stringify(row)}`, bytes, expected);
    }
  }
  t.equal(it.gateway.received(), "", "nothing reached the gateway");
  await stillHealthy(t, it.under, it.secrets);
}

const MESSAGES: Refused = { ...BROWSER, protocol: "messages" };

t.test("BRW-01 fetch() from a page on another origin is refused without a CORS header", async (t) => {
  const cors = { "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty" };
  const origins = [EVIL, "http://localhost:3000", "http://127.0.0.1", "chrome-extension://abcdef", "file://"];
  const rows = origins.flatMap((origin) => [{ Origin: origin }, { Origin: origin, ...cors }]);
  await pageIsRefused(t, "POST /v1/messages", rows, MESSAGES, "{}");
});

t.test("BRW-02 a simple request, which needs no preflight, is refused", async (t) => {
  const rows = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"].map(
    (type) => ({
      Origin: EVIL,
      "Content-Type": type,
      "Sec-Fetch-Site": "cross-site",
      "Sec-Fetch-Mode": "no-cors",
    }),
  );
  await pageIsRefused(t, "POST /v1/messages", rows, MESSAGES, '{"model":"m"}');
});

t.test("BRW-03 a preflight from any origin is refused", async (t) => {
  const rows = [EVIL, "http://localhost:3000", "http://127.0.0.1:5397", "null"].flatMap((origin) => [
    {
      Origin: origin,
      "Access-Control-Request-Method": "POST",
      "Access-Control-Request-Headers": "authorization",
    },
    {
      Origin: origin,
      "Access-Control-Request-Method": "GET",
      "Access-Control-Request-Private-Network": "true",
    },
  ]);
  for (const path of ["/v1/chat/completions", "/", "/healthz", "/nowhere"]) {
    await pageIsRefused(t, `OPTIONS ${path}`, rows, BROWSER);
  }
  await pageIsRefused(t, "OPTIONS /v1/models", [{ "Access-Control-Request-Method": "POST" }], BROWSER);
});

t.test("BRW-04 what a page can load or send without a script is refused", async (t) => {
  const from = (mode: string, dest: string, more = {}) => ({
    "Sec-Fetch-Site": "cross-site",
    "Sec-Fetch-Mode": mode,
    "Sec-Fetch-Dest": dest,
    ...more,
  });
  const loads = [
    from("no-cors", "image"),
    from("no-cors", "script"),
    from("no-cors", "style"),
    from("no-cors", "audio"),
    from("navigate", "document", { "Sec-Fetch-User": "?1", "Upgrade-Insecure-Requests": "1" }),
    from("navigate", "iframe"),
    from("cors", "empty", { Origin: EVIL, Accept: "text/event-stream" }),
  ];
  await pageIsRefused(t, "GET /v1/models", loads, BROWSER);
  const sends = [
    from("navigate", "document", { Origin: EVIL, "Content-Type": "application/x-www-form-urlencoded" }),
    from("no-cors", "empty", { Origin: EVIL, "Content-Type": "text/plain;charset=UTF-8" }),
    from("navigate", "document", { Origin: "null" }),
  ];
  await pageIsRefused(t, "POST /v1/chat/completions", sends, BROWSER, "model=m");
});

t.test("BRW-05 a page's WebSocket is refused before the upgrade, with a token or without", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const one = await startWithOneTool(t, gateway.origin, {
    gateway: ["websockets: true"],
    tool: ["token_in_url: true"],
  });
  const it = { under: one, gateway, secrets: [one.token, one.key] };
  const upgrade = {
    Host: one.host,
    Connection: "Upgrade",
    Upgrade: "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
  };
  const page = { Origin: EVIL, "Sec-Fetch-Mode": "websocket", "Sec-Fetch-Site": "cross-site" };
  const rows: [string, Record<string, string>, Refused][] = [
    ["/v1/responses", page, BROWSER],
    ["/v1/responses", { Origin: EVIL }, BROWSER],
    ["/v1/responses", { Origin: EVIL, Authorization: `Bearer ${one.token}` }, BROWSER],
    ["/v1/responses", { "Sec-Fetch-Mode": "websocket", Authorization: `Bearer ${one.token}` }, BROWSER],
    [`/t/${one.token}/v1/responses`, page, BROWSER],
    [`/t/${one.token}/v1/responses`, { Origin: "null" }, BROWSER],
    ["/v1/responses", {}, { status: 426, code: "websockets-off" }],
    [`/v1/responses?key=${one.token}`, {}, { status: 426, code: "websockets-off" }],
  ];
  for (const [path, headers, expected] of rows) {
    const what = `${path.replace(one.token, "<token>")} ${Object.keys(headers)}`;
    const { client } = await refuses(t, it, what, head(`GET ${path}`, { ...upgrade, ...headers }), expected);
    await client.closed();
  }
  t.equal(gateway.received(), "", "nothing reached the gateway");
  await stillHealthy(t, one, it.secrets);
});

t.test("BRW-06 an Origin that is null, empty or sent twice is refused", async (t) => {
  await pageIsRefused(t, "GET /v1/models", [{ Origin: "null" }, { Origin: "" }], BROWSER);
  const it = await scene(t);
  for (const [name, first, second] of [
    ["Origin", DESK, EVIL],
    ["Origin", EVIL, DESK],
    ["Origin", DESK, DESK],
    // A program may send it once.
    ["Sec-Fetch-Mode", "cors", "cors"],
  ] as const) {
    const bytes =
      `GET /v1/models HTTP/1.1\r\nHost: ${it.host}\r\nAuthorization: Bearer ${it.token}\r\n` +
      `${name}: ${first}\r\n${name.toLowerCase()}: ${second}\r\n\r\n`;
    await refuses(t, it, `${name}: ${first} and ${second}`, bytes, BROWSER);
  }
  await stillHealthy(t, it.under, it.secrets);
});

t.test("BRW-07 Sec-Fetch headers alone identify a browser; those that programs send do not", async (t) => {
  const sites = ["cross-site", "same-site", "same-origin", "none", "x"];
  const modes = ["no-cors", "navigate", "same-origin", "websocket", "CORS", "cors, cors"];
  const rows = [
    ...sites.map((site) => ({ "Sec-Fetch-Site": site })),
    ...sites.map((site) => ({ "Sec-Fetch-Site": site, "Sec-Fetch-Mode": "cors" })),
    ...modes.map((mode) => ({ "Sec-Fetch-Mode": mode })),
    { "Sec-Fetch-Dest": "empty" },
    { "Sec-Fetch-User": "?1" },
  ];
  await pageIsRefused(t, "GET /v1/models", rows, BROWSER);

  const it = await scene(t);
  const own = { Host: it.host, Authorization: `Bearer ${it.token}` };
  const programs = [
    {},
    { "Sec-Fetch-Mode": "cors" },
    { Origin: DESK, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty" },
  ];
  for (const headers of programs) {
    const heard = await it.say(head("GET /v1/models", { ...own, ...headers }));
    t.equal(heard.status, 200, JSON.stringify(headers));
    const call = it.gateway.calls.at(-1);
    for (const name of ["origin", "sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest"]) {
      t.strictSame(call?.header(name), [], `${name} is not forwarded`);
    }
  }
  await stillHealthy(t, it.under, it.secrets);
});

t.test("BRW-08 an allowed origin must match exactly, and counts for its own tool only", async (t) => {
  const near = [
    `${DESK}.evil.test`,
    `${DESK}evil`,
    `${DESK}:443`,
    `${DESK}/`,
    `${DESK} `.trimEnd().toUpperCase(),
    "vscode-webview://desk",
    "vscode-webview://desk.example@evil.test",
    "https://vscode-webview://desk.example",
    "vscode-webview://DESK.example",
    `${DESK},${EVIL}`,
    "*",
    "desk.example",
  ].map((origin) => ({ Origin: origin }));
  await pageIsRefused(t, "GET /v1/models", near, BROWSER);

  const it = await scene(t);
  const heard = await it.say(
    head("GET /v1/models", { Host: it.host, Authorization: `Bearer ${it.token}`, Origin: DESK }),
  );
  t.equal(heard.status, 200);
  t.strictSame(
    heard.names.filter((name) => name.startsWith("access-control-")),
    [],
    "no CORS header for it either",
  );
  await refuses(t, it, "without a token", head("GET /v1/models", { Host: it.host, Origin: DESK }), {
    status: 401,
    code: "token-missing",
  });
  // An allowed origin allows no other mode and no second origin.
  const mode = {
    Host: it.host,
    Authorization: `Bearer ${it.token}`,
    Origin: DESK,
    "Sec-Fetch-Mode": "no-cors",
  };
  await refuses(t, it, "an allowed origin in no-cors", head("GET /v1/models", mode), BROWSER);
  await stillHealthy(t, it.under, it.secrets);

  const other = await startWithOneTool(t, it.gateway.origin);
  const there = { under: other, gateway: it.gateway, secrets: [other.token, other.key] };
  const bytes = head("GET /v1/models", {
    Host: other.host,
    Authorization: `Bearer ${other.token}`,
    Origin: DESK,
  });
  await refuses(t, there, "another tool's origin", bytes, BROWSER);
});

const HOST: Refused = { status: 421, code: "host-not-allowed" };

t.test("BRW-09 a rebound name gets nothing, on any path", async (t) => {
  const it = await scene(t);
  const paths = [
    "/",
    "/healthz",
    "/status",
    "/api/hello",
    "/v1/models",
    "/favicon.ico",
    "/index.html",
    "/t/x/v1/a",
  ];
  for (const path of paths) {
    for (const method of ["GET", "POST", "HEAD", "OPTIONS"]) {
      const headers = { Host: `rebind.test:${it.port}`, Authorization: `Bearer ${it.token}` };
      if (method !== "HEAD")
        await refuses(t, it, `${method} ${path}`, head(`${method} ${path}`, headers), HOST);
      else {
        const client = await openRaw(t, it.port);
        client.send(head(`HEAD ${path}`, headers));
        await client.until("\r\n\r\n");
        t.equal(client.status(), 421, `HEAD ${path}`);
        t.equal(parsed(client.text()).body, "", "and no body");
      }
    }
  }
  // The Host is checked first, so that a rebound page learns nothing else.
  const wrongInAll = { Host: "rebind.test", Origin: EVIL, "x-keybearer-hops": "9" };
  await refuses(t, it, "all wrong", head("GET //evil.test", wrongInAll), HOST);
  t.equal(it.gateway.received(), "", "nothing reached the gateway");
  await stillHealthy(t, it.under, it.secrets);
});

t.test("BRW-10 exactly three names with the port are allowed as Host", async (t) => {
  const it = await scene(t);
  const p = it.port;
  const auth = { Authorization: `Bearer ${it.token}` };
  for (const host of [`127.0.0.1:${p}`, `localhost:${p}`, `[::1]:${p}`, `LOCALHOST:${p}`]) {
    t.equal((await it.say(head("GET /v1/models", { Host: host, ...auth }))).status, 200, host);
  }
  const refused = [
    "localhost",
    "127.0.0.1",
    "[::1]",
    `localhost:${p + 1}`,
    `localhost:0${p}`,
    `localhost:+${p}`,
    `localhost:`,
    `localhost.:${p}`,
    `LOCALHOST.evil:${p}`,
    `localhost.com:${p}`,
    "localhost.com",
    `127.0.0.1.nip.io:${p}`,
    `0.0.0.0:${p}`,
    `[::]:${p}`,
    `127.1:${p}`,
    `127.0.0.2:${p}`,
    `2130706433:${p}`,
    `0x7f.1:${p}`,
    `0177.0.0.1:${p}`,
    `[::ffff:127.0.0.1]:${p}`,
    `[0:0:0:0:0:0:0:1]:${p}`,
    `::1:${p}`,
    `user@localhost:${p}`,
    `localhost:${p}@evil.test`,
    `localhost:${p}/`,
    `localhost:${p}, evil.test`,
    `localhost:${p}, localhost:${p}`,
    `http://localhost:${p}`,
    ...(hostname() === "localhost" ? [] : [`${hostname()}:${p}`]),
    `me.local:${p}`,
    `foo.localhost:${p}`,
    `evil.test:${p}`,
  ];
  for (const host of refused) {
    await refuses(t, it, host, head("GET /v1/models", { Host: host, ...auth }), HOST);
  }
  await refuses(t, it, "empty", head("GET /v1/models", { Host: "", ...auth }), {
    status: 400,
    code: "bad-request",
  });
  await stillHealthy(t, it.under, it.secrets);
});

t.test("BRW-11 an absolute request line is refused, even if line and Host are right", async (t) => {
  const it = await scene(t);
  const auth = { Authorization: `Bearer ${it.token}` };
  const rows: [string, string, Refused][] = [
    ["http://evil.test/v1/models", it.host, { status: 400, code: "bad-request" }],
    [`http://${it.host}/v1/models`, `evil.test:${it.port}`, HOST],
    [`http://${it.host}/v1/models`, it.host, { status: 400, code: "bad-request" }],
    ["https://evil.test:443/v1/models", it.host, { status: 400, code: "bad-request" }],
    [`http://evil.test/v1/models`, "evil.test", HOST],
  ];
  for (const [target, host, expected] of rows) {
    await refuses(t, it, `${target} at ${host}`, head(`GET ${target}`, { Host: host, ...auth }), expected);
  }
  t.equal(it.gateway.received(), "");
  await stillHealthy(t, it.under, it.secrets);
});

t.test("BRW-12 0.0.0.0, which some systems route to loopback, is refused as Host", async (t) => {
  const it = await scene(t);
  const client = connect({ host: "0.0.0.0", port: it.port });
  t.teardown(() => client.destroy());
  let text = "";
  client.on("data", (part) => {
    text += part;
  });
  const [reached] = await Promise.race([
    once(client, "connect").then(() => [true]),
    once(client, "error").then(() => [false]),
  ]);
  if (reached) {
    client.write(head("GET /healthz", { Host: `0.0.0.0:${it.port}` }));
    await until("an answer", () => text.includes("\r\n\r\n"));
    t.match(text, /^HTTP\/1\.1 421 /);
    t.match(text, "x-keybearer-refusal: host-not-allowed");
  }
  t.equal(it.gateway.connections(), 0);
  await stillHealthy(t, it.under, it.secrets);
});

t.test("BRW-15 no answer sets a cookie", async (t) => {
  const it = await scene(t);
  const auth = { Host: it.host, Authorization: `Bearer ${it.token}` };
  const rows: [string, number, Record<string, string>][] = [
    ["GET /v1/models", 200, auth],
    ["GET /healthz", 200, { Host: it.host }],
    ["GET /", 200, { Host: it.host }],
    ["GET /nowhere", 400, auth],
    ["GET /v1/models", 401, { Host: it.host }],
    ["GET /v1/models", 403, { ...auth, Origin: EVIL }],
    ["GET /v1/models", 421, { ...auth, Host: "evil" }],
    ["GET /v1/models", 426, { ...auth, Connection: "Upgrade", Upgrade: "websocket" }],
    ["BREW /v1/models", 400, auth],
    ["GET /v1/models", 431, { ...auth, "X-Big": "x".repeat(20_000) }],
  ];
  for (const [line, status, headers] of rows) {
    const client = await openRaw(t, it.port);
    client.send(head(line, headers));
    await client.until("\r\n\r\n");
    t.equal(client.status(), status, line);
    t.notMatch(client.text(), /^(?:set-cookie|access-control-[a-z-]+|cookie2?):/im, `${line} ${status}`);
  }
  t.equal(it.gateway.calls.length, 1, "only the first one is forwarded");
  await stillHealthy(t, it.under, it.secrets);
});
