import { once } from "node:events";
import { createServer } from "node:http";
import { connect } from "node:net";
import t, { type Test } from "tap";
import { formatStatus } from "../../src/cli/status.ts";
import type { Status } from "../../src/control/status.ts";
import type { PeerLookup } from "../../src/core/peer-user.ts";
import { makeToken } from "../../src/core/token.ts";
import type { Exporter } from "../../src/metrics/exporter.ts";
import { MetricsServer } from "../../src/metrics/server.ts";
import { command } from "../doubles/command.ts";
import { canaryKey, type DaemonUnderTest, freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { freePort, listen } from "../doubles/listen.ts";
import { asOtherUser, cannotBeOtherUser } from "../doubles/other-user.ts";
import { quietLog } from "../doubles/quiet-log.ts";
import { until } from "../doubles/until.ts";
import { findFaults, parseScrape, type Sample } from "./scrape.ts";

const key = canaryKey();
const codex = freshToken();
const claude = freshToken();
const metricsToken = freshToken();
const PROMPT = "a prompt that nobody else may read";

/** Answers chats, messages and embeddings with a usage, and the model `refused` with a 429. */
async function startGateway(t: Test): Promise<string> {
  const server = createServer(async (req, res) => {
    const chunks: Buffer[] = [];
    for await (const chunk of req) chunks.push(chunk);
    const { model = "", stream = false } = JSON.parse(Buffer.concat(chunks).toString() || "{}");
    const isMessages = req.url?.includes("messages") ?? false;
    const answered = model === "gpt-5.1" ? "gpt-5.1-mini" : model;
    const usage = isMessages
      ? {
          input_tokens: 10,
          cache_read_input_tokens: 5,
          cache_creation_input_tokens: 2,
          output_tokens: 7,
        }
      : { prompt_tokens: 12, completion_tokens: 3, total_tokens: 15 };
    if (model === "refused") {
      res.writeHead(429, { "content-type": "application/json" });
      return res.end(JSON.stringify({ error: { message: "too many requests" } }));
    }
    if (stream) {
      res.writeHead(200, { "content-type": "text/event-stream" });
      res.write(`data: ${JSON.stringify({ model: answered, choices: [] })}\n\n`);
      // Left open: the client leaves.
      if (model === "endless") return;
      return res.end(`data: ${JSON.stringify({ model: answered, choices: [], usage })}\n\ndata: [DONE]\n\n`);
    }
    res.writeHead(200, { "content-type": "application/json" });
    return res.end(JSON.stringify({ id: "1", model: answered, choices: [], content: [], usage }));
  });
  return (await listen(t, server)).origin;
}

const ON = "{ listen: localhost:0 }";

function configFor(origin: string, metrics: string | null, more = ""): string {
  return `listen: localhost:0
${metrics === null ? "" : `metrics: ${metrics}`}
gateways: { main: { base_url: ${origin}/v1 } }
tools:
  codex: { key: ${key}, token: "${codex.hash}", limits: { requests: 1000/day } }
  claude: { key: ${canaryKey()}, token: "${claude.hash}", quota: $50 }
prices: { priced: { input: 1, output: 2 }, other-priced: { input: 3, output: 4 } }
${more}`;
}

interface MetricsDaemon extends DaemonUnderTest {
  readonly origin: string;
  chat(model: string, options?: { token?: string; path?: string; stream?: boolean }): Promise<Response>;
}

async function start(t: Test, metrics: string | null = ON): Promise<MetricsDaemon> {
  const origin = await startGateway(t);
  const under = await startUnderTest(t, configFor(origin, metrics));
  const chat: MetricsDaemon["chat"] = async (model, options = {}) => {
    const { token = codex.token, path = "/v1/chat/completions", stream = false } = options;
    return fetch(under.url + path, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: JSON.stringify({ model, stream, messages: [{ role: "user", content: PROMPT }] }),
    });
  };
  return { ...under, origin, chat };
}

async function addressOf({ daemon }: DaemonUnderTest): Promise<string> {
  let status: Status | null = null;
  await until("the metrics can be read", async () => {
    status = await daemon.status();
    return status.metrics?.address != null;
  });
  // Of both addresses, the one that every machine has.
  return (status as Status | null)?.metrics?.address?.replace("localhost", "127.0.0.1") ?? "";
}

async function scrape(under: DaemonUnderTest): Promise<{ text: string; samples: Sample[] }> {
  const response = await fetch(await addressOf(under));
  const text = await response.text();
  return { text, samples: parseScrape(text) };
}

/** The sum of the samples that have these labels. */
function sum(samples: readonly Sample[], name: string, labels: Record<string, string> = {}): number {
  return samples
    .filter((sample) => sample.name === name)
    .filter((sample) => Object.entries(labels).every(([label, value]) => sample.labels[label] === value))
    .reduce((total, { value }) => total + value, 0);
}

t.test("a scrape says what the records say, and has no secret in it", async (t) => {
  const under = await start(t);
  const { chat } = under;
  for (let count = 0; count < 3; count += 1) await (await chat("priced")).text();
  await (await chat("priced", { stream: true })).text();
  await (await chat("unpriced-one")).text();
  await (await chat("gpt-5.1")).text();
  await (await chat("refused")).text();
  await (await chat("other-priced", { token: claude.token, path: "/v1/messages" })).text();
  await (await chat("priced", { token: makeToken() })).text();
  await (await fetch(`${under.url}/v1/models`)).text();
  const left = await chat("endless", { stream: true });
  await left.body?.cancel();
  await until("every request has its record", () => under.ended().length === 11);
  const { text, samples } = await scrape(under);
  const records = under.ended();
  for (const tool of ["codex", "claude", ""]) {
    const own = records.filter((record) => (record.tool ?? "") === tool);
    t.equal(
      sum(samples, "keybearer_requests_total", { tool }),
      own.length,
      `requests of ${tool || "nobody"}`,
    );
    for (const end of ["complete", "refused", "client-left", "gateway-failed"]) {
      const ended = own.filter((record) => record.end === end).length;
      t.equal(sum(samples, "keybearer_requests_total", { tool, end }), ended, `${tool} ${end}`);
    }
    const added = (name: "input_tokens" | "cache_read_tokens" | "cache_write_tokens" | "output_tokens") =>
      own.reduce((total, record) => total + (record[name] ?? 0), 0);
    t.equal(sum(samples, "keybearer_tokens_total", { tool, type: "input" }), added("input_tokens"));
    t.equal(sum(samples, "keybearer_tokens_total", { tool, type: "cache_read" }), added("cache_read_tokens"));
    t.equal(
      sum(samples, "keybearer_tokens_total", { tool, type: "cache_write" }),
      added("cache_write_tokens"),
    );
    t.equal(sum(samples, "keybearer_tokens_total", { tool, type: "output" }), added("output_tokens"));
    const cost = own.reduce((total, record) => total + (record.cost_microdollars ?? 0), 0);
    t.equal(sum(samples, "keybearer_cost_dollars_total", { tool }), cost / 1_000_000);
  }
  for (const record of records.filter(({ refusal }) => refusal !== null)) {
    const labels = { tool: record.tool ?? "", code: record.refusal ?? "" };
    t.equal(
      sum(samples, "keybearer_refusals_total", labels),
      records.filter(({ tool, refusal }) => tool === record.tool && refusal === record.refusal).length,
      JSON.stringify(labels),
    );
  }
  t.notOk(
    samples.some(
      ({ name, labels }) => name === "keybearer_cost_dollars_total" && labels.model === "unpriced-one",
    ),
    "an unknown price is not a price of 0",
  );
  t.equal(sum(samples, "keybearer_gateway_up", { gateway: "main" }), 1);
  t.equal(sum(samples, "keybearer_requests_in_flight"), 0);
  t.ok(
    samples.some(({ name, labels }) => name === "keybearer_requests_in_flight" && labels.tool === "claude"),
  );
  const used = records.filter(({ tool, sent_at }) => tool === "codex" && sent_at !== null).length;
  t.equal(
    sum(samples, "keybearer_limit_used_ratio", { tool: "codex", limit: "requests", per: "day" }),
    used / 1000,
  );
  t.ok(sum(samples, "keybearer_limit_used_ratio", { tool: "claude", limit: "quota", per: "" }) > 0);
  t.equal(sum(samples, "keybearer_build_info"), 1);
  t.equal(sum(samples, "keybearer_other_model_answers_total", { tool: "codex" }), 1);
  t.ok(
    samples.some(
      ({ name, labels, value }) =>
        name === "keybearer_other_model_answers_total" && labels.tool === "claude" && value === 0,
    ),
    "Prometheus sees no increase in a series that begins with 1",
  );
  const chats = records.filter(({ sent_at }) => sent_at !== null);
  t.equal(sum(samples, "gen_ai_client_operation_duration_seconds_count"), chats.length);
  t.equal(
    sum(samples, "gen_ai_client_token_usage_sum", {
      gen_ai_token_type: "input",
      gen_ai_provider_name: "anthropic",
    }),
    17,
    "input has the cached tokens",
  );
  t.ok(
    sum(samples, "gen_ai_client_operation_duration_seconds_count", {
      error_type: "rate-limit",
      gen_ai_request_model: "refused",
    }) +
      sum(samples, "gen_ai_client_operation_duration_seconds_count", {
        error_type: "429",
        gen_ai_request_model: "refused",
      }) ===
      1,
    "an error has its type",
  );
  t.same(findFaults(text), [], "it is valid");
  for (const secret of [
    key,
    codex.token,
    claude.token,
    PROMPT,
    "sk-canary",
    "kb_",
    "sha256",
    under.home,
    "/v1",
  ])
    t.notOk(text.includes(secret), `no ${secret.slice(0, 6)}… in a scrape`);
});

t.test("while metrics are off, nothing listens; they are opened, moved and closed by a reload", async (t) => {
  const under = await start(t, null);
  await (await under.chat("priced")).text();
  t.equal((await under.daemon.status()).metrics, null);
  const first = await freePort();
  await under.save(configFor(under.origin, `{ listen: "localhost:${first}" }`));
  await under.daemon.reload();
  const address = await addressOf(under);
  t.match(address, `:${first}/`);
  t.equal(sum((await scrape(under)).samples, "keybearer_requests_total"), 0, "it counts from here on");
  await (await under.chat("priced")).text();
  await until(
    "it is counted",
    async () => sum((await scrape(under)).samples, "keybearer_requests_total") === 1,
  );
  await under.save(configFor(under.origin, ON));
  await under.daemon.reload();
  await until("it has another port", async () => {
    const moved = (await under.daemon.status()).metrics?.address;
    return moved != null && !moved.includes(`:${first}/`);
  });
  t.equal(
    sum((await scrape(under)).samples, "keybearer_requests_total"),
    1,
    "another port keeps the counters",
  );
  await t.rejects(fetch(address), "the first port is closed");
  const last = await addressOf(under);
  await under.save(configFor(under.origin, null));
  await under.daemon.reload();
  await until("it is closed", () =>
    fetch(last).then(
      () => false,
      () => true,
    ),
  );
  t.equal((await under.daemon.status()).metrics, null);
});

t.test("a port that is taken is reported, and opened once it is free", async (t) => {
  const blocker = createServer();
  const { port } = await listen(t, blocker);
  const under = await start(t, `{ listen: "127.0.0.1:${port}" }`);
  const { metrics } = await under.daemon.status();
  t.match(metrics, { address: null, why: new RegExp(`127.0.0.1:${port}.*taken.*metrics.listen`) });
  t.match(formatStatus(await under.daemon.status(), Date.now(), 500), /metrics: not open; .*taken/);
  const doctor = await command(t, under.home, ["doctor", "--json"]);
  const { findings } = JSON.parse(doctor.stdout) as { findings: { id: string; what: string }[] };
  t.match(findings.find(({ id }) => id === "metrics")?.what, /cannot be read: .*taken/);
  t.equal((await under.chat("priced")).status, 200, "tools are served");
  blocker.close();
  await once(blocker, "close");
  await under.daemon.reload();
  t.equal(sum((await scrape(under)).samples, "keybearer_requests_total"), 1, "it counted meanwhile");
});

t.test("only GET and HEAD of /metrics are served", async (t) => {
  const under = await start(t);
  const address = await addressOf(under);
  const origin = new URL(address).origin;
  for (const [method, path, status] of [
    ["GET", "/metrics", 200],
    ["GET", "/metrics?name[]=x", 200],
    ["HEAD", "/metrics", 200],
    ["POST", "/metrics", 404],
    ["DELETE", "/metrics", 404],
    ["GET", "/", 404],
    ["GET", "/metrics/", 404],
    ["GET", "/v1/models", 404],
    ["GET", "/healthz", 404],
  ] as const) {
    const response = await fetch(origin + path, { method });
    t.equal(response.status, status, `${method} ${path}`);
    const text = await response.text();
    t.equal(text.includes("keybearer_"), status === 200 && method === "GET", `${method} ${path}`);
  }
  const { headers } = await fetch(address);
  for (const path of ["/../metrics", "/%2e%2e/metrics", "//metrics", "http://localhost/metrics"]) {
    const head = `GET ${path} HTTP/1.1\r\nhost: ${new URL(address).host}\r\n\r\n`;
    t.equal(await sendRaw(Number(new URL(address).port), head), 400, path);
  }
  t.equal(headers.get("content-type"), "text/plain; version=0.0.4; charset=utf-8");
});

/** What a client sends byte for byte. Returns the status. */
async function sendRaw(port: number, head: string): Promise<number> {
  const socket = connect(port, "127.0.0.1");
  socket.on("error", () => {});
  socket.write(head);
  const chunks: Buffer[] = [];
  for await (const chunk of socket) {
    chunks.push(chunk);
    if (Buffer.concat(chunks).includes("\r\n\r\n")) break;
  }
  socket.destroy();
  return Number(/^HTTP\/1\.1 (\d{3})/.exec(Buffer.concat(chunks).toString())?.[1] ?? 0);
}

t.test("pages, other names of the address and requests that are not whole are refused", async (t) => {
  const under = await start(t, `{ listen: localhost:0, token: "${metricsToken.hash}" }`);
  const port = Number(new URL(await addressOf(under)).port);
  const bearer = `authorization: Bearer ${metricsToken.token}\r\n`;
  const get = (more: string, host = `localhost:${port}`) =>
    sendRaw(port, `GET /metrics HTTP/1.1\r\nhost: ${host}\r\n${more}\r\n`);
  t.equal(await get(bearer), 200);
  for (const [what, more, host, status] of [
    ["a name that resolves to this address", "", "attacker.example.com", 421],
    ["the name without its port", "", "localhost", 421],
    ["another port's name", "", "localhost:80", 421],
    ["two hosts", "host: localhost\r\n", `localhost:${port}`, 400],
    ["a page's origin", "origin: https://attacker.example.com\r\n", undefined, 403],
    ["its own origin", `origin: http://localhost:${port}\r\n`, undefined, 403],
    ["no origin", "origin: null\r\n", undefined, 403],
    ["another site", "sec-fetch-site: cross-site\r\n", undefined, 403],
    ["a page of this machine", "sec-fetch-site: same-site\r\n", undefined, 403],
    ["a script of a page", "sec-fetch-mode: no-cors\r\nsec-fetch-dest: script\r\n", undefined, 403],
    ["a person at a browser", "sec-fetch-site: none\r\nsec-fetch-mode: navigate\r\n", undefined, 403],
    ["two credentials", bearer, undefined, 400],
    ["another expectation", "expect: something\r\n", undefined, 400],
  ] as const) {
    t.equal(await get(bearer + more, host), status, what);
  }
  t.equal(await get(`x: ${"a".repeat(20_000)}\r\n`), 400, "headers that are too large");
  t.equal(
    await get(Array.from({ length: 120 }, (_, n) => `x-${n}: 1\r\n`).join("")),
    431,
    "too many headers",
  );
  t.equal(await sendRaw(port, "not http at all\r\n\r\n"), 400);
  t.equal(await get("connection: upgrade\r\nupgrade: websocket\r\n"), 400, "a websocket");
  t.equal(await get(bearer), 200, "it still serves");
});

t.test("a wrong token is refused even to the owner, and no token is not", async (t) => {
  const under = await start(t, `{ listen: localhost:0, token: "${metricsToken.hash}" }`);
  const address = await addressOf(under);
  const read = async (authorization?: string) => {
    const response = await fetch(address, authorization === undefined ? {} : { headers: { authorization } });
    await response.text();
    return response.status;
  };
  t.equal(await read(`Bearer ${metricsToken.token}`), 200);
  t.equal(await read(`bearer ${metricsToken.token}`), 200);
  t.equal(await read(`Bearer ${makeToken()}`), 401);
  t.equal(await read(`Bearer ${codex.token}`), 401, "the token of a tool");
  t.equal(await read(`Bearer ${metricsToken.hash}`), 401, "the hash in config.yaml");
  t.equal(await read(`Basic ${Buffer.from(`x:${metricsToken.token}`).toString("base64")}`), 401);
  t.equal(await read("Bearer "), 401);
  const ownsLookup = process.platform === "linux";
  t.equal(await read(), ownsLookup ? 200 : 401, "without a token, where the user can be found");
  t.equal(
    (await fetch(`${under.url}/v1/models`, { headers: { authorization: `Bearer ${metricsToken.token}` } }))
      .status,
    401,
    "it is no token of a tool",
  );
});

t.test("where the user of a connection cannot be found, everyone needs the token", async (t) => {
  const server = new MetricsServer({
    log: quietLog([]),
    peers: { supported: false, of: async () => "ours" } as unknown as PeerLookup,
    tokenHash: () => metricsToken.hash.slice("sha256:".length),
    exporter: { contentType: "text/plain", write: async () => "all metrics\n" } as unknown as Exporter,
  });
  await server.open({ host: "127.0.0.1", port: 0 });
  t.teardown(() => server.close());
  const none = await fetch(server.url);
  t.equal(none.status, 401);
  t.equal(none.headers.get("www-authenticate"), "Bearer");
  t.match(await none.text(), /does not show whose.*keybearer metrics token/);
  const authorized = { headers: { authorization: `Bearer ${metricsToken.token}` } };
  t.equal(await (await fetch(server.url, authorized)).text(), "all metrics\n");
});

t.test("another user reads with the token only", { skip: cannotBeOtherUser() }, async (t) => {
  const under = await start(t, `{ listen: localhost:0, token: "${metricsToken.hash}" }`);
  const address = await addressOf(under);
  const code = `
    const [address, token] = process.argv.slice(1);
    const read = async (headers) => {
      const response = await fetch(address, { headers });
      return response.status + " " + (await response.text()).includes("keybearer_build_info");
    };
    const answers = [await read({}), await read({ authorization: "Bearer " + token }), await read({ authorization: "Bearer x" })];
    console.log(answers.join(", "));`;
  const said = await asOtherUser(t, code, address, metricsToken.token);
  t.equal(said.trim(), "401 false, 200 true, 401 false");
  await under.save(configFor(under.origin, `{ listen: "127.0.0.1:${new URL(address).port}" }`));
  await under.daemon.reload();
  await until(
    "the token has ended",
    async () =>
      (await fetch(await addressOf(under), { headers: { authorization: `Bearer ${metricsToken.token}` } }))
        .status === 401,
  );
  const later = await asOtherUser(t, code, await addressOf(under), metricsToken.token);
  t.equal(
    later.trim(),
    "401 false, 401 false, 401 false",
    "without a token in config.yaml no other user reads",
  );
});

t.test("a client that invents models gets no more series than 100", async (t) => {
  const under = await start(t);
  for (let number = 0; number < 150; number += 1) await (await under.chat(`invented-${number}`)).text();
  for (let number = 0; number < 5; number += 1)
    await (
      await under.chat(number === 0 ? "priced" : `claude-opus-4-${number - 1}`, { token: claude.token })
    ).text();
  await until(
    "all are counted",
    async () => sum((await scrape(under)).samples, "keybearer_requests_total") === 155,
  );
  const { samples, text } = await scrape(under);
  const models = (tool: string) =>
    new Set(
      samples
        .filter(({ name, labels }) => name === "keybearer_requests_total" && labels.tool === tool)
        .map(({ labels }) => labels.model),
    );
  t.equal(models("codex").size, 101, "100 and other");
  t.equal(sum(samples, "keybearer_requests_total", { tool: "codex", model: "other" }), 50);
  t.equal(models("claude").size, 5, "another tool has its own 100");
  const genai = new Set(samples.map(({ labels }) => labels.gen_ai_request_model).filter(Boolean));
  t.equal(genai.size, 101);
  t.same(findFaults(text), []);
});

t.test("names that need escaping are escaped", async (t) => {
  const under = await start(t);
  const model = 'a "quoted" \\ model\nwith a line';
  await (await under.chat(model)).text();
  await until(
    "it is counted",
    async () => sum((await scrape(under)).samples, "keybearer_requests_total") === 1,
  );
  const { text, samples } = await scrape(under);
  t.same(findFaults(text), []);
  const [record] = under.ended();
  t.equal(
    sum(samples, "keybearer_requests_total", { model: record?.model ?? "" }),
    1,
    "as the record has it",
  );
});
