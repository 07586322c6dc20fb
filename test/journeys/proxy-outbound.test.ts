import { once } from "node:events";
import { createServer } from "node:tls";
import t, { type Test } from "tap";
import { type Certificate, makeCertificates } from "../doubles/certificates.ts";
import { newHome, saveConfig, startServing } from "../doubles/command.ts";
import { startConnectProxy } from "../doubles/connect-proxy.ts";
import { canaryKey, freshToken, startWithOneTool, stillHealthy } from "../doubles/daemon-under-test.ts";
import { startRawGateway } from "../doubles/raw-gateway.ts";
import { until } from "../doubles/until.ts";

t.test("with an outbound proxy every call goes through its tunnel, which is used again", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const proxy = await startConnectProxy(t);
  const one = await startWithOneTool(t, gateway.origin, { gateway: [`proxy: ${proxy.url}`] });
  for (let n = 0; n < 5; n += 1) {
    const answer = await fetch(`${one.url}/v1/models`, { headers: { authorization: `Bearer ${one.token}` } });
    t.equal(answer.status, 200);
    await answer.text();
  }
  t.equal(gateway.calls.length, 5);
  t.strictSame(gateway.calls[0]?.header("authorization"), [`Bearer ${one.key}`]);
  t.equal(gateway.connections(), 1, "one tunnel for all of them");
  t.equal(proxy.heads.length, 1);
  t.match(proxy.heads[0], `CONNECT 127.0.0.1:${gateway.port} HTTP/1.1\r\n`);
  t.notOk(proxy.heads[0]?.includes(one.key), "the proxy is asked without the key");
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("a websocket goes through the outbound proxy too", async (t) => {
  const gateway = await startRawGateway(t, (call) => {
    call.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello");
  });
  const proxy = await startConnectProxy(t);
  const one = await startWithOneTool(t, gateway.origin, {
    gateway: [`proxy: ${proxy.url}`, "websockets: true"],
  });
  const { openRaw, head } = await import("../doubles/raw-client.ts");
  const client = await openRaw(t, one.port);
  client.send(
    head("GET /v1/realtime", {
      Host: one.host,
      Authorization: `Bearer ${one.token}`,
      Connection: "Upgrade",
      Upgrade: "websocket",
    }),
  );
  await client.until("hello");
  t.equal(proxy.heads.length, 1);
  client.socket.destroy();
  await until("the tunnel is gone", () => proxy.open() === 0 && gateway.open() === 0);
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("through the outbound proxy, too, a gateway learns the name it is asked by", async (t) => {
  const certificates = makeCertificates(t);
  if (certificates === null) return;
  const names: string[] = [];
  const SNICallback = (name: string, done: (error: null) => void) => {
    names.push(name);
    done(null);
  };
  const server = createServer({ ...certificates.good, SNICallback }).listen(0, "127.0.0.1");
  server.on("tlsClientError", () => {});
  await once(server, "listening");
  t.teardown(() => server.close());
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  const proxy = await startConnectProxy(t);
  const one = await startWithOneTool(t, `https://localhost:${port}`, { gateway: [`proxy: ${proxy.url}`] });
  const answer = await fetch(`${one.url}/v1/models`, { headers: { authorization: `Bearer ${one.token}` } });
  t.equal(answer.status, 502, "nobody here trusts its certificate");
  await answer.text();
  t.strictSame(names, ["localhost"]);
});

t.test("an outbound proxy that refuses is named, and the key stays here", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  for (const [answer, words] of [
    ["HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 2\r\n\r\nno", "answered 407 to CONNECT"],
    ["HTTP/1.1 502 Bad Gateway\r\n\r\n", "answered 502 to CONNECT"],
    ["HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "to CONNECT"],
    ["nonsense\r\n\r\n", "cannot be reached"],
  ] as const) {
    const proxy = await startConnectProxy(t, answer);
    const one = await startWithOneTool(t, gateway.origin, { gateway: [`proxy: ${proxy.url}`] });
    const got = await fetch(`${one.url}/v1/models`, { headers: { authorization: `Bearer ${one.token}` } });
    t.equal(got.status, 502, words);
    t.equal(got.headers.get("x-keybearer-refusal"), "gateway-unreachable");
    const text = await got.text();
    t.match(text, `the outbound proxy ${proxy.url}`);
    t.match(text, words);
    t.notOk(proxy.received().includes(one.key));
    await until("the proxy is let go", () => proxy.open() === 0);
    await stillHealthy(t, one, [one.key, one.token]);
  }
  t.equal(gateway.connections(), 0, "and nothing goes around it");
});

t.test("an outbound proxy that does not run is named, not the gateway behind it", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const one = await startWithOneTool(t, gateway.origin, { gateway: ["proxy: http://127.0.0.1:1"] });
  const answer = await fetch(`${one.url}/v1/models`, { headers: { authorization: `Bearer ${one.token}` } });
  t.equal(answer.status, 502);
  t.match(await answer.text(), "the outbound proxy http://127.0.0.1:1 cannot be reached (ECONNREFUSED)");
  t.equal(gateway.connections(), 0);
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("an outbound proxy that never answers times out, and its connection is not kept", async (t) => {
  const gateway = await startRawGateway(t, (call) => call.ok());
  const proxy = await startConnectProxy(t, "");
  const one = await startWithOneTool(t, gateway.origin, {
    gateway: [`proxy: ${proxy.url}`, "timeouts: { connect: 300ms }"],
  });
  const answer = await fetch(`${one.url}/v1/models`, { headers: { authorization: `Bearer ${one.token}` } });
  t.equal(answer.status, 504);
  t.equal(answer.headers.get("x-keybearer-refusal"), "gateway-timeout");
  await answer.text();
  await until("the connection is given up", () => proxy.open() === 0);
  t.equal(gateway.connections(), 0);
  await stillHealthy(t, one, [one.key, one.token]);
});

t.test("no variable of the environment makes a key follow a redirect", async (t) => {
  const elsewhere = await startRawGateway(t, (call) => call.ok());
  const gateway = await startRawGateway(t, (call) =>
    call.answer("307 Moved", { Location: `${elsewhere.origin}/v1/models` }, ""),
  );
  const home = await newHome(t);
  const { token, hash } = freshToken();
  const key = canaryKey();
  await saveConfig(
    home,
    `listen: localhost:0\ngateways: { main: { base_url: "${gateway.origin}/v1", key_header: x-api-key } }\n` +
      `tools: { codex: { key: ${key}, token: "${hash}" } }\n`,
  );
  for (const env of [{}, { FORCE_FETCH_PATH: "true", HTTP_PROXY: elsewhere.origin }]) {
    const running = await startServing(t, home, { env });
    const answer = await fetch(`${running.url}/v1/models`, {
      headers: { authorization: `Bearer ${token}` },
      redirect: "manual",
    });
    t.ok([307, 502].includes(answer.status), `${answer.status}`);
    t.notOk((await answer.text()).includes(key));
    running.child.kill("SIGTERM");
    const { code, stdout, stderr } = await running.ended;
    t.equal(code, 0);
    t.notOk((stdout + stderr).includes(key));
  }
  t.equal(elsewhere.connections(), 0);
});

/** A gateway that speaks TLS and remembers every byte it could read. */
async function startSecure(t: Test, certificate: Certificate) {
  let received = "";
  let connections = 0;
  const server = createServer({ ...certificate }, (socket) => {
    connections += 1;
    socket.on("error", () => {});
    socket.on("data", (chunk: Buffer) => {
      received += chunk.toString("latin1");
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

t.test("TLS", async (t) => {
  const certificates = makeCertificates(t);
  if (certificates === null) return;
  const proxy = await startConnectProxy(t);
  const secure = {
    good: await startSecure(t, certificates.good),
    otherName: await startSecure(t, certificates.otherName),
    selfSigned: await startSecure(t, certificates.selfSigned),
  };

  /** Asks each of these gateways three times, directly and through the proxy. */
  async function ask(
    t: Test,
    names: readonly (keyof typeof secure)[],
    { caFile, env = {} }: { caFile?: string; env?: NodeJS.ProcessEnv } = {},
  ) {
    const home = await newHome(t);
    const key = canaryKey();
    const ways = names.flatMap((name) => [
      { name, through: false, ...freshToken() },
      { name, through: true, ...freshToken() },
    ]);
    const gateways = ways.map(({ name, through }, n) => {
      const outbound = through ? `, proxy: "${proxy.url}"` : "";
      const authority = caFile === undefined ? "" : `, ca_file: "${caFile}"`;
      return `  g${n}: { base_url: "https://127.0.0.1:${secure[name].port}/v1"${outbound}${authority} }\n`;
    });
    const tools = ways.map(
      ({ hash }, n) => `  t${n}: { gateway: g${n}, key: ${key}-${n}, token: "${hash}" }\n`,
    );
    await saveConfig(home, `listen: localhost:0\ngateways:\n${gateways.join("")}tools:\n${tools.join("")}`);
    const running = await startServing(t, home, { env });
    const answers: { name: string; through: boolean; status: number; text: string }[] = [];
    for (const { name, through, token } of ways) {
      for (let n = 0; n < 3; n += 1) {
        const answer = await fetch(`${running.url}/v1/models`, {
          headers: { authorization: `Bearer ${token}` },
        });
        answers.push({ name, through, status: answer.status, text: await answer.text() });
      }
    }
    const health = await fetch(`${running.url}/healthz`);
    t.equal(await health.text(), "ok\n", "still healthy");
    running.child.kill("SIGTERM");
    const { code, stdout, stderr } = await running.ended;
    t.equal(code, 0);
    t.notOk((stdout + stderr).includes(key), "no key is printed");
    t.notMatch(stderr, /DeprecationWarning|UnhandledPromise|uncaught/i);
    t.notOk(proxy.received().includes(key), "the proxy reads nothing of it");
    return { answers, key };
  }

  await t.test(
    "a good certificate is trusted, one for another name is not, directly and by proxy",
    async (t) => {
      const { answers, key } = await ask(t, ["good", "otherName"], { caFile: certificates.authority });
      for (const { name, through, status, text } of answers) {
        t.equal(status === 200, name === "good", `${name}, ${through ? "by proxy" : "directly"}`);
        if (name === "otherName") t.match(text, "its certificate is for another name");
      }
      t.match(secure.good.received(), `Bearer ${key}-0`);
      t.match(secure.good.received(), `Bearer ${key}-1`);
      t.equal(secure.good.connections(), 2, "one handshake for each way");
      t.equal(secure.otherName.received(), "", "not a byte");
    },
  );

  await t.test("self-signed and unknown certificates are refused, and the key never sent", async (t) => {
    const before = secure.good.received();
    const { answers } = await ask(t, ["good", "selfSigned"]);
    for (const { name, status, text } of answers) {
      t.ok(status === 502 || status === 400, String(status));
      t.match(text, "gateway-unreachable");
      t.match(text, name === "good" ? "cannot be verified" : "self-signed");
    }
    t.equal(secure.good.received(), before, "not a byte more");
    t.equal(secure.selfSigned.received(), "", "not a byte");
  });

  await t.test("the environment cannot lead through a proxy of its own", async (t) => {
    const own = await startConnectProxy(t);
    const env = { HTTPS_PROXY: own.url, https_proxy: own.url, HTTP_PROXY: own.url, ALL_PROXY: own.url };
    const { answers } = await ask(t, ["selfSigned"], { env });
    for (const { status, text } of answers) {
      t.ok(status === 502 || status === 400, String(status));
      t.match(text, "self-signed");
    }
    t.equal(secure.selfSigned.received(), "", "not a byte");
    t.equal(own.heads.length, 0);
  });
});
