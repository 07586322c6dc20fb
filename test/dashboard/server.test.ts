import { once } from "node:events";
import { readFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { connect, createServer } from "node:net";
import t, { type Test } from "tap";
import { formatStatus as statusInWords } from "../../src/cli/status.ts";
import type { Digits } from "../../src/control/confirmation.ts";
import type { Now, PlanAnswer, UsageChart } from "../../src/dashboard/api.ts";
import type { MirrorAnswer, MonthBill } from "../../src/dashboard/bill.ts";
import type { Failure } from "../../src/dashboard/failure.ts";
import type { RecordAnswer } from "../../src/dashboard/routes.ts";
import type { ToolAnswer } from "../../src/dashboard/tools.ts";
import type { RecordsPage } from "../../src/dashboard/usage-api.ts";
import { canaryKey, type DaemonUnderTest, freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { openDashboard, say, trade, visit } from "../doubles/dashboard-visit.ts";
import { longTest } from "../doubles/effort.ts";
import { controlOf } from "../doubles/mirror-journey.ts";
import { type PacedGateway, startPacedGateway } from "../doubles/paced-gateway.ts";
import { until } from "../doubles/until.ts";

const key = canaryKey();
const { token, hash } = freshToken();

const TODAY_NOON = new Date().setHours(12, 0, 0, 0);

/** The time goes on from noon, so that no test crosses midnight. */
const NOON = {
  now: () => TODAY_NOON + Math.floor(performance.now()),
  elapsed: () => performance.now(),
};

interface DashboardDaemon extends DaemonUnderTest {
  readonly gateway: PacedGateway;
  readonly config: string;
  /** One chat of the tool. */
  chat(model: string, stream?: boolean, shown?: string): Promise<Response>;
}

async function start(t: Test, dashboard = "{ listen: localhost:0 }"): Promise<DashboardDaemon> {
  const gateway = await startPacedGateway(t);
  const config = `listen: localhost:0
dashboard: ${dashboard}
gateway: ${gateway.baseUrl}
tools:
  # kept as it is
  codex: { key: ${key}, token: "${hash}", limits: { requests: 1000/minute } }
prices: { priced: { input: 1, output: 2 } }
`;
  const under = await startUnderTest(t, config, { clock: NOON });
  const chat = (model: string, stream = false, shown = token) =>
    fetch(`${under.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${shown}`, "content-type": "application/json" },
      body: JSON.stringify({ model, stream, messages: [] }),
    });
  return { ...under, gateway, config, chat };
}

const DATA = [
  "now",
  "events",
  "usage",
  "records",
  "csv",
  "tools/codex",
  "models/codex",
  "mirror",
  "bill?month=2026-10",
  "browsers",
].map((name) => `/api/${name}`);

t.test("every answer has the security headers, and no other file is served", async (t) => {
  const { paths } = await start(t);
  const { url } = await openDashboard(paths.socket);
  for (const [path, type] of [
    ["/", "text/html"],
    ["/main.js", "text/javascript"],
    ["/page.css", "text/css"],
    ["/nothing", "application/json"],
    ["/api/now", "application/json"],
    ["/assets/..%2f..%2fconfig.yaml", "application/json"],
    ["/..%5c..%5cconfig.yaml", "application/json"],
    ["/../config.yaml", "application/json"],
    ["/main.js%00", "application/json"],
    ["//main.js", "application/json"],
    ["/dashboard.js", "application/json"],
  ] as const) {
    const { status, headers } = await say(url, path);
    t.match(headers["content-type"], type, path);
    t.equal(status === 200, !type.includes("json"), `${path}: ${status}`);
    const policy = String(headers["content-security-policy"]);
    for (const part of [
      "default-src 'none'",
      "script-src 'self'",
      "frame-ancestors 'none'",
      "base-uri 'none'",
    ])
      t.ok(policy.includes(part), `${path} has ${part}`);
    t.notMatch(policy, /unsafe|http/);
    t.match(headers, {
      "x-content-type-options": "nosniff",
      "x-frame-options": "DENY",
      "cache-control": "no-store",
      "referrer-policy": "no-referrer",
      "cross-origin-resource-policy": "same-origin",
      "cross-origin-opener-policy": "same-origin",
    });
    t.equal(headers["set-cookie"], undefined);
    t.equal(headers["access-control-allow-origin"], undefined);
  }
  t.equal((await say(url, "/", { method: "HEAD" })).status, 200);
  for (const method of ["POST", "DELETE", "OPTIONS"]) t.equal((await say(url, "/", { method })).status, 405);
});

t.test(
  "a code works once; a tool's token does not open the dashboard, nor a session the tools' port",
  async (t) => {
    const { paths, logText, url: data, daemon } = await start(t);
    const { url, code, expires_in } = await openDashboard(paths.socket);
    t.equal(expires_in, 60);
    const words = statusInWords(await daemon.status(), NOON.now(), 80);
    t.ok(words.includes(`\ndashboard: open on ${url} → keybearer open\n`));
    t.match(url, /^http:\/\/localhost:\d+\/$/, "the code is not in it");
    const first = await trade(url, code);
    t.equal(first.status, 200);
    const session = first.json<{ token: string }>().token;
    const again = await trade(url, code);
    t.equal(again.status, 401);
    t.match(again.json<Failure>(), { code: "code-over", error: /used before.*→ keybearer open/ });
    for (const shown of [token, code, "", `${session}x`, "kd_"]) {
      for (const path of DATA) {
        const { status } = await say(url, path, { headers: { authorization: `Bearer ${shown}` } });
        t.equal(status, 401, `${path} with ${shown.slice(0, 5)}`);
      }
    }
    for (const path of DATA) t.equal((await say(url, path)).status, 401, `${path} without any`);
    t.equal((await say(url, `/api/now?token=${session}`)).status, 401, "it counts in the header alone");
    const there = await fetch(`${data}/v1/models`, { headers: { authorization: `Bearer ${session}` } });
    // Whether it looks like a key depends on its random letters.
    t.match(there.headers.get("x-keybearer-refusal"), /^(?:foreign-key|token-unknown)$/);
    for (const secret of [code, session]) t.notOk(logText().includes(secret), "none of them is in the log");
  },
);

longTest(t, "after any number of wrong codes a right one still works", async (t) => {
  const { paths, log } = await start(t);
  const { url, code } = await openDashboard(paths.socket);
  const statuses: number[] = [];
  for (let tried = 0; tried < 22; tried += 1) statuses.push((await trade(url, `kd_wrong${tried}`)).status);
  t.ok(statuses.every((status) => status === 401));
  t.equal(
    log().filter(({ msg }) => /a wrong or expired code/.test(String(msg))).length,
    1,
    "one line for all",
  );
  t.equal((await trade(url, code)).status, 200);
});

t.test("other origins and other Host names get nothing, even with a session", async (t) => {
  const { paths } = await start(t);
  const { url, token: session } = await visit(paths.socket);
  const { port } = new URL(url);
  const authorization = `Bearer ${session}`;
  const status = async (headers: Record<string, string>, path = "/api/now") =>
    (await say(url, path, { headers: { authorization, ...headers } })).status;
  for (const host of [`localhost:${port}`, `127.0.0.1:${port}`, `[::1]:${port}`, `LOCALHOST:${port}`])
    t.equal(await status({ host }), 200, host);
  for (const host of [
    "localhost",
    "evil.example",
    `evil.example:${port}`,
    `localhost.:${port}`,
    `127.0.0.2:${port}`,
  ])
    t.equal(await status({ host }), 421, host);
  t.equal(await status({ origin: `http://localhost:${port}` }), 200);
  t.equal(
    await status({ origin: `http://127.0.0.1:${port}` }),
    403,
    "localhost is another origin than its address",
  );
  for (const origin of [
    "null",
    "http://evil.example",
    `https://localhost:${port}`,
    "http://localhost:3000",
    "",
  ])
    t.equal(await status({ origin }), 403, `origin ${origin}`);
  for (const site of ["cross-site", "same-site", "x"]) {
    t.equal(await status({ "sec-fetch-site": site }), 403, site);
    t.equal(await status({ "sec-fetch-site": site, "sec-fetch-mode": "no-cors" }, "/main.js"), 403, site);
  }
  for (const site of ["same-origin", "none"]) t.equal(await status({ "sec-fetch-site": site }), 200, site);
  const link = {
    "sec-fetch-site": "cross-site",
    "sec-fetch-mode": "navigate",
    "sec-fetch-dest": "document",
  };
  t.equal(await status(link, "/"), 200, "a link leads to the page, which holds nothing");
  t.equal(await status(link, "/api/now"), 403, "but to no data");
  t.equal(await status({ ...link, "sec-fetch-dest": "iframe" }, "/"), 403);
});

t.test("headers that are too large and bytes that are no request get an error response", async (t) => {
  const { paths } = await start(t);
  const { url } = await openDashboard(paths.socket);
  const large = await say(url, "/", { headers: { "x-pad": "x".repeat(20_000) } });
  t.match(large, { status: 400, text: "" });
  const spoken = connect(Number(new URL(url).port), "127.0.0.1");
  spoken.end("hello\r\n\r\n");
  const chunks: Buffer[] = [];
  for await (const chunk of spoken) chunks.push(chunk);
  t.match(Buffer.concat(chunks).toString(), /^HTTP\/1\.1 400 /);
});

t.test("a body that is too large, not JSON or not what is wanted changes nothing", async (t) => {
  const { paths, config } = await start(t);
  const { url, token: session, post } = await visit(paths.socket);
  const sent = async (body: string, type = "application/json") => {
    const headers = { authorization: `Bearer ${session}`, "content-type": type };
    return (await say(url, "/api/plan", { method: "POST", headers, body })).status;
  };
  const disable = { kind: "disable", tool: "codex" };
  t.equal(await sent("{"), 400);
  t.equal(await sent(JSON.stringify(disable), "text/plain"), 415);
  t.equal(await sent(JSON.stringify({ ...disable, pad: "x".repeat(70_000) })), 413);
  for (const body of [
    {},
    { kind: "disable" },
    { ...disable, key: "x" },
    { ...disable, kind: "no" },
    [],
    null,
  ])
    t.equal((await post("/api/plan", body)).status, 400, JSON.stringify(body));
  for (const tool of ["nobody", "__proto__", "a/b"])
    t.equal((await post("/api/plan", { kind: "disable", tool })).status, 404, tool);
  for (const path of ["/api/trust/codex", "/api/lift/codex", "/api/tools/codex", "/api/tools", "/api/now"])
    t.equal((await post(path, {})).status, 404, `${path} cannot be posted`);
  t.equal(readFileSync(paths.config, "utf8"), config);
});

t.test("a request is shown while it runs, and is in the sums when it has ended", async (t) => {
  const { paths, gateway, chat } = await start(t);
  const { get, follow } = await visit(paths.socket);
  const followed = await follow();
  await until("the first now", () => followed.last("now") !== undefined);
  t.same(followed.last("now")?.running, []);
  const answer = await chat("priced", true);
  await until("three pieces", () => followed.last("now")?.running[0]?.output_tokens === 3);
  const [call] = followed.last("now")?.running ?? [];
  t.match(call, { tool: "codex", model: "priced", waiting: false, tokens_by: "pieces" });
  gateway.release();
  await answer.text();
  t.equal((await chat("x", false, "kb_nobody")).status, 401);
  await until("its sums, and the refusal", () => {
    const seen = followed.last("now");
    return seen?.today?.total.requests === 2 && seen.running.length === 0 && seen.refusals.length === 1;
  });
  const now = (await get("/api/now")).json<Now>();
  t.match(now.today?.tools, [
    { tool: "codex", requests: 1, cost_microdollars: 18 },
    { tool: null, refused: 1 },
  ]);
  t.match(now.refusals[0], { tool: null, refusal: "token-incomplete" });
  t.match(now.today, { usual: null, forecast: null }, "there is no earlier day");
  await until("its session is in the log", () => followed.last("now")?.sessions[0]?.requests === 1);
  const { sessions = [], first_bytes: firstBytes = [] } = followed.last("now") ?? {};
  t.match(sessions, [{ tool: "codex", session: call?.session, cost_microdollars: 18, stopped: false }]);
  t.match(firstBytes, [{ requests: 1 }]);
  t.equal(now.status.tools[0]?.name, "codex");
  followed.end();
});

t.test("the log gives charts, pages, one record and a table", async (t) => {
  const { paths, chat } = await start(t);
  for (const model of ["priced", "priced", "<script>alert(1)</script>"]) await (await chat(model)).text();
  await (await chat("x", false, "kb_nobody")).text();
  const { get } = await visit(paths.socket);
  const chart = (await get("/api/usage?bin=hour&by=model")).json<UsageChart>();
  t.equal(chart.total.requests, 4);
  t.equal(chart.total.cost_microdollars, 36);
  t.equal(chart.rows[0]?.name, "priced");
  for (const series of chart.series) t.equal(series.requests.length, chart.bins.length);
  t.same(chart.unpriced, [{ model: "<script>alert(1)</script>", requests: 1 }]);
  const since = NOON.now() - 7 * 86_400_000;
  t.equal((await get(`/api/usage?bin=day&by=tool&since=${since}`)).json<UsageChart>().bins.length, 8);

  const page = (await get("/api/records")).json<RecordsPage>();
  t.equal(page.records.length, 4);
  t.match(page, { older: null, newer: null });
  const rest = (await get(`/api/records?before=${page.records[1]?.id}`)).json<RecordsPage>();
  t.same(rest.records, page.records.slice(2));
  t.equal(rest.older, null);
  const back = (await get(`/api/records?after=${rest.newer}`)).json<RecordsPage>();
  t.same(back.records, page.records.slice(0, 2), "and back again");
  const found = (await get("/api/records?search=SCRIPT")).json<RecordsPage>();
  t.same(
    found.records.map(({ model }) => model),
    ["<script>alert(1)</script>"],
  );
  const sums = (await get("/api/usage?by=session&search=script")).json<UsageChart>();
  t.equal(sums.total.requests, 1, "the chart is about the same records");
  const strangers = (await get("/api/records?tool=&end=refused")).json<RecordsPage>();
  t.equal(strangers.records.length, 1);
  const [stranger] = strangers.records;
  const one = (await get(`/api/records/${stranger?.id}`)).json<RecordAnswer>();
  t.match(one, { record: { refusal: "token-incomplete" }, compared: null });
  t.equal((await get("/api/records/01JC8ZZZZZZZZZZZZZZZZZZZZZ")).status, 404);

  const csv = await get("/api/csv?tool=codex");
  t.match(csv.headers["content-type"], "text/csv");
  t.equal(csv.text.trimEnd().split("\r\n").length, 4);
  for (const wrong of [
    "since=x",
    "since=2&until=1",
    "bin=year",
    "by=secret",
    "tools=codex",
    "end=x",
    "end=gateway-failed",
  ])
    t.equal((await get(`/api/usage?${wrong}`)).status, 400, wrong);
  for (const wrong of ["limit=2", "before=last", "before='", "after=x"])
    t.equal((await get(`/api/records?${wrong}`)).status, 400, wrong);
  t.equal(
    (await get("/api/usage?bin=hour&since=0&until=1763164800000")).status,
    200,
    "before everything: empty",
  );
});

t.test("the page of a tool gets its settings, tokens and sessions", async (t) => {
  const { paths, chat } = await start(t);
  const { get } = await visit(paths.socket);
  await (await chat("priced")).text();
  await until("its session is in the log", async () => {
    const { sessions } = (await get("/api/tools/codex")).json<ToolAnswer>();
    return sessions[0]?.requests === 1;
  });
  const { settings, tokens, sessions } = (await get("/api/tools/codex")).json<ToolAnswer>();
  t.strictSame(settings, { "limits.requests": "1000/minute" });
  t.match(tokens, [{ name: hash.slice("sha256:".length).slice(0, 8), created: null, last_use: Number }]);
  t.match(sessions, [{ session: /^\d{4}-\d\d-\d\d\//, running: 0, stopped: false, unknown_cost: 0 }]);
  for (const tool of ["nobody", "__proto__", "a%2Fb"])
    t.equal((await get(`/api/tools/${tool}`)).status, 404, tool);
});

t.test("how long a tool's requests wait, and its model, are settings of the form", async (t) => {
  const { paths } = await start(t);
  const { get, post } = await visit(paths.socket);
  const set = async (settings: Record<string, string>) => {
    const planned = await post("/api/plan", { kind: "set", tool: "codex", settings });
    return planned.json<PlanAnswer>();
  };
  const longer = await set({ "limits.wait": "30s" });
  t.match(longer, { needs_digits: true }, "a request that waits is sent after all");
  t.match(longer.diff.join("\n"), /^\+.*wait: 30s/m);
  t.match(await set({ model: "priced" }), { needs_digits: true, what: "set model=priced of codex" });
  const { digits } = await controlOf<Digits>(paths.socket, "POST", `/confirm/${longer.id}`, {});
  t.equal((await post("/api/run", { id: longer.id, digits })).status, 200);
  t.match((await get("/api/tools/codex")).json<ToolAnswer>().settings, { "limits.wait": "30s" });
  t.match(await set({ "limits.wait": "10s" }), {
    needs_digits: false,
    undo: "keybearer tools set codex limits.wait=30s",
  });
});

t.test("a tool is disabled and enabled, and no answer contains a key or hash", async (t) => {
  const { paths, config, chat, logText } = await start(t);
  const { get, post } = await visit(paths.socket);
  const before = await get("/api/tools/codex");
  t.match(before.json<ToolAnswer>(), {
    origin: /^http:\/\/localhost:\d+$/,
    enabled: true,
    source: /the key itself \(…/,
  });
  const disabled = (await post("/api/plan", { kind: "disable", tool: "codex" })).json<PlanAnswer>();
  t.equal(disabled.needs_digits, false);
  t.equal((await chat("priced")).status, 200, "nothing is changed yet");
  t.equal((await post("/api/run", { id: disabled.id, digits: null })).status, 200);
  t.equal((await chat("priced")).headers.get("x-keybearer-refusal"), "tool-disabled");
  t.match(readFileSync(paths.config, "utf8"), /# kept as it is\n.*enabled: false/);
  t.match(logText(), /dashboard: disable codex/);
  t.notSame(readFileSync(paths.config, "utf8"), config);
  const answers = [before, ...(await Promise.all(DATA.filter((path) => path !== "/api/events").map(get)))];
  for (const { text } of answers) {
    t.notOk(text.includes(key), "no key");
    t.notOk(text.includes(hash.slice("sha256:".length)), "no hash");
    t.notOk(text.includes(token), "no token");
  }
  t.same((await get("/api/mirror")).json<MirrorAnswer>(), {
    reports: [],
    diff: [],
    keys: [],
    keys_problems: [],
  });
  t.equal((await get("/api/models/nobody")).status, 404);
  const month = new Date(NOON.now()).toISOString().slice(0, 7);
  t.match((await get(`/api/bill?month=${month}`)).json<MonthBill>(), {
    month,
    total: { requests: 2, refused: 1 },
    tools: [{ name: "codex" }],
    consoles: [],
  });
  for (const wrong of ["", "2026", "2026-13", "1999-01", "2026-1"])
    t.equal((await get(`/api/bill?month=${wrong}`)).status, 400, wrong);
});

longTest(t, "config.yaml opens and closes it at once, and sessions end with the port", async (t) => {
  const { paths, config, save, log } = await start(t, "{ listen: localhost:0, when: always }");
  await until("it is open", () => log().some(({ msg }) => /the dashboard is open/.test(String(msg))));
  const before = await visit(paths.socket);
  const followed = await before.follow();
  await save(config.replace("when: always", "when: never"));
  await followed.ended;
  await t.rejects(openDashboard(paths.socket), /switched off in config\.yaml → write dashboard/);
  await t.rejects(say(before.url, "/"), /ECONNREFUSED/);
  await save(config.replace(", when: always", ""));
  await until("it may be asked for again", () =>
    openDashboard(paths.socket).then(
      () => true,
      () => false,
    ),
  );
  const { url } = await openDashboard(paths.socket);
  const { status } = await say(url, "/api/now", { headers: { authorization: `Bearer ${before.token}` } });
  t.equal(status, 401, "the session of before is over");
});

t.test("a taken port is reported, and tools are served nevertheless", async (t) => {
  const squatter = createServer();
  squatter.listen(0, "127.0.0.1");
  await once(squatter, "listening");
  t.teardown(() => squatter.close());
  const { port } = squatter.address() as AddressInfo;
  const { paths, chat, logText, daemon } = await start(t, `{ listen: "localhost:${port}", when: always }`);
  const status = await daemon.status();
  t.match(status.dashboard, { mode: "always", address: null, why: /is taken by/ });
  t.match(
    statusInWords(status, NOON.now(), 200),
    /^dashboard: not open; keybearer tries again soon\. .* is taken by/m,
  );
  t.match(
    logText(),
    /could not open the dashboard: 127\.0\.0\.1:\d+, the address of the dashboard, is taken by/,
  );
  await t.rejects(openDashboard(paths.socket), /is taken by .*change dashboard\.listen in config\.yaml/);
  t.equal((await chat("priced")).status, 200);
});

longTest(t, "at most sixteen pages follow at once", async (t) => {
  const { paths } = await start(t);
  const { follow, get } = await visit(paths.socket);
  const [first, ...others] = await Promise.all(Array.from({ length: 16 }, follow));
  const refused = await get("/api/events");
  t.equal(refused.status, 429);
  t.match(refused.text, /16 others are following already/);
  first?.end();
  await until("its place is free", () =>
    follow().then(
      (one) => one.end() ?? true,
      () => false,
    ),
  );
  for (const one of others) one.end();
});
