import { once } from "node:events";
import { Agent, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import t, { type Test } from "tap";
import { systemClock } from "../../src/core/clock.ts";
import { Secret } from "../../src/core/secret.ts";
import type { ConsoleAdapter, Page } from "../../src/mirror/consoles/console.ts";
import { HttpClient } from "../../src/mirror/consoles/http.ts";
import { Sub2api } from "../../src/mirror/consoles/sub2api.ts";
import { Sub2apiSession } from "../../src/mirror/consoles/sub2api-session.ts";
import { dollarsToMicrodollars } from "../../src/mirror/consoles/values.ts";
import { startClient } from "../doubles/answering-console.ts";
import { longTest } from "../doubles/effort.ts";
import { startSandbox } from "../doubles/sandbox.ts";

const NOW = Date.parse("2026-11-15T12:00:00Z");
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

/** A log that answers GET /api/v1/usage, newest first; what it is asked is counted. */
async function logServer(
  t: Test,
  options: { readonly mostSize?: number; readonly says?: number; readonly onAsk?: () => void } = {},
) {
  const log: Record<string, unknown>[] = [];
  let sorted: Record<string, unknown>[] = [];
  const asked: { page: number; size: number }[] = [];
  const { mostSize = 1000 } = options;
  const server = createServer((request, response) => {
    const url = new URL(request.url ?? "", "http://x");
    const send = (data: unknown) => {
      response.setHeader("content-type", "application/json");
      response.end(JSON.stringify({ code: 0, message: "success", data }));
    };
    if (url.pathname.endsWith("/auth/refresh"))
      return send({ access_token: "at-of-the-test-account", expires_in: 3600 });
    if (!url.pathname.endsWith("/usage")) return void response.writeHead(404).end("404 page not found");
    const page = Number(url.searchParams.get("page"));
    const wanted = Number(url.searchParams.get("page_size"));
    asked.push({ page, size: wanted });
    options.onAsk?.();
    const size = wanted <= mostSize ? wanted : 20;
    if (sorted.length !== log.length) sorted = log.toSorted((a, b) => Number(b.id) - Number(a.id));
    const items = sorted.slice((page - 1) * size, page * size);
    send({
      items,
      total: log.length,
      page,
      page_size: options.says ?? size,
      pages: Math.ceil(log.length / size),
    });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { url, log, asked };
}

/** Row n was written n minutes after row 0, unless given otherwise. */
function item(id: number, more: Record<string, unknown> = {}): Record<string, unknown> {
  const at = new Date(NOW - 100 * 24 * HOUR + id * MINUTE).toISOString();
  return { id, api_key_id: 3, request_id: `client:uuid-${id}`, model: "m", created_at: at, ...more };
}

function range(from: number, to: number): number[] {
  return Array.from({ length: to - from + 1 }, (_, i) => from + i);
}

function adapterFor(t: Test, url: string, time = { now: NOW }): ConsoleAdapter {
  const client = startClient(t, url);
  const now = () => time.now;
  const session = new Sub2apiSession({
    client,
    now,
    refreshToken: new Secret("rt"),
    credentials: null,
    onRefreshToken: async () => {},
  });
  return new Sub2api({ client, now, pause: pauseOf(time), session });
}

/** A wait that takes no time, but makes it later. */
function pauseOf(time: { now: number }): (milliseconds: number) => Promise<void> {
  return async (milliseconds) => {
    time.now += milliseconds;
  };
}

/** Walks at most so many pages, as a process does that is killed after them. */
async function walked(adapter: ConsoleAdapter, cursor: string | null, max = 1000, since = 0) {
  const pages: Page[] = [];
  for await (const page of adapter.walk(cursor, since)) {
    pages.push(page);
    if (pages.length >= max) break;
  }
  return {
    pages,
    cursor: pages.at(-1)?.cursor ?? null,
    ids: new Set(pages.flatMap(({ rows }) => rows.map((row) => Number(row.identity)))),
  };
}

function missing(seen: ReadonlySet<number>, wanted: readonly number[]): number[] {
  return wanted.filter((id) => !seen.has(id));
}

t.test("a row is mapped field by field", async (t) => {
  const { url, log } = await logServer(t);
  log.push({
    id: 77,
    user_id: 1,
    api_key_id: 12,
    account_id: 9,
    request_id: "client:6f1c",
    model: "gpt-5.1",
    inbound_endpoint: "/v1/responses",
    group_id: 2,
    input_tokens: 400,
    output_tokens: 342,
    stream: true,
    cache_creation_tokens: 7,
    cache_read_tokens: 800,
    total_cost: 0.0054205,
    actual_cost: 0.00813,
    rate_multiplier: 1.5,
    service_tier: "priority",
    duration_ms: 2333,
    ip_address: "203.0.113.9",
    user_agent: `curl/8.5.0 sk-${"ab12".repeat(16)}`,
    created_at: "2026-11-15T20:00:00.123456+08:00",
    api_key: { id: 12, name: "codex", key: `sk-${"ab12".repeat(16)}` },
    group: { id: 2, name: "coding" },
    user: { email: "me@example.com" },
  });
  const { pages } = await walked(adapterFor(t, url), null);
  t.same(
    pages.flatMap(({ rows }) => rows),
    [
      {
        identity: "77",
        kind: "use",
        created_at: NOW + 123,
        key_ref: "id:12",
        request_id: "6f1c",
        upstream_id: null,
        model: "gpt-5.1",
        group: "coding",
        multiplier: 1.5,
        service_tier: "priority",
        stream: true,
        endpoint: "/v1/responses",
        input_tokens: 400,
        cache_read_tokens: 800,
        cache_write_tokens: 7,
        output_tokens: 342,
        list_microdollars: 5421,
        billed_microdollars: 8130,
        duration_ms: 2333,
        began_at: NOW + 123 - 2333,
        ip: "203.0.113.9",
        user_agent: "curl/8.5.0 [hidden]",
      },
    ],
  );
});

t.test("only an id that the gateway returned counts as one", async (t) => {
  const { url, log } = await logServer(t);
  const ids = [
    "client:u-1",
    "req-old",
    "web_search:1",
    "local:x",
    "generated:y",
    "grok-video:z",
    "client:local:x",
  ];
  for (const [i, request_id] of ids.entries()) log.push(item(100 - i, { request_id }));
  log.push(item(1, { request_id: "resp_1", openai_ws_mode: true }));
  log.push(item(0, { request_id: `sk-${"ab12".repeat(16)}`, model: `x sk-${"ab12".repeat(16)}` }));
  const { pages } = await walked(adapterFor(t, url), null);
  const rows = pages.flatMap((page) => page.rows);
  t.same(
    rows.map((row) => row.request_id),
    ["u-1", "req-old", null, null, null, null, null, null, null],
  );
  t.equal(rows.at(-1)?.model, "x [hidden]");
});

t.test("money is rounded half up, and noise does not decide", (t) => {
  t.equal(dollarsToMicrodollars(1.0000005), 1_000_001);
  t.equal(dollarsToMicrodollars(0.1 + 0.2), 300_000);
  t.equal(dollarsToMicrodollars(0.0000004999), 0);
  t.equal(dollarsToMicrodollars(4.35e-5), 44, "43.5, whose double is a little less");
  t.equal(dollarsToMicrodollars(1e300), null);
  t.end();
});

t.test("a first walk reads everything down to since, the next only what is new", async (t) => {
  const { url, log, asked } = await logServer(t);
  for (const id of range(1, 4500)) log.push(item(id));
  const time = { now: NOW };
  const adapter = adapterFor(t, url, time);
  const since = Date.parse(String(item(1800).created_at));
  const first = await walked(adapter, null, 1000, since);
  t.same(missing(first.ids, range(1800, 4500)), []);
  t.equal(asked.length, 4, "ends at the first page that is older");
  t.same(
    first.pages.map(({ done, total }) => [done, total]),
    [
      [1000, 4500],
      [2000, 4500],
      [3000, 4500],
      [4000, 4500],
    ],
  );

  for (const id of range(4501, 4600)) log.push(item(id));
  asked.length = 0;
  time.now += 5 * MINUTE;
  const second = await walked(adapter, first.cursor, 1000, since);
  t.same(missing(second.ids, range(4501, 4600)), []);
  t.equal(asked.length, 2, "the page in which old and new meet, and one that is all old");

  asked.length = 0;
  time.now += 5 * MINUTE;
  await walked(adapter, second.cursor, 1000, since);
  t.equal(asked.length, 1, "nothing new is one question");
});

t.test("a walk that is killed after any page resumes, also with new rows", async (t) => {
  for (const [killedAfter, arrived] of [
    [1, 2500],
    [2, 150],
    [4, 0],
  ] as const) {
    const { url, log, asked } = await logServer(t, { mostSize: 1000 });
    for (const id of range(1, 5000)) log.push(item(id));
    const first = await walked(adapterFor(t, url), null, killedAfter);
    for (const id of range(5001, 5000 + arrived)) log.push(item(id));
    asked.length = 0;
    const second = await walked(adapterFor(t, url), first.cursor);
    const seen = new Set([...first.ids, ...second.ids]);
    const name = `killed after ${killedAfter}, ${arrived} new`;
    t.same(missing(seen, range(1, 5000 + arrived)), [], name);
    t.ok(
      asked.length <= 5 - killedAfter + 4 + Math.ceil(arrived / 1000) + 1,
      `${name}: ${asked.length} questions`,
    );
    t.equal(JSON.parse(second.cursor ?? "").going, null, "complete");
  }
});

t.test("a walk that is killed several times reads everything in the end", async (t) => {
  const { url, log } = await logServer(t, { mostSize: 100 });
  for (const id of range(1, 2000)) log.push(item(id));
  const seen = new Set<number>();
  let cursor: string | null = null;
  let newest = 2000;
  for (let run = 0; run < 40; run += 1) {
    // One page of the top, one that is read twice, and one that is new.
    const part = await walked(adapterFor(t, url), cursor, 3);
    for (const id of part.ids) seen.add(id);
    cursor = part.cursor;
    log.push(item(newest + 1));
    newest += 1;
  }
  t.same(missing(seen, range(1, 2030)), []);
});

t.test("rows deleted during a walk hide no other", async (t) => {
  const { url, log } = await logServer(t);
  for (const id of range(1, 5000)) log.push(item(id));
  const seen = new Set<number>();
  let read = 0;
  for await (const page of adapterFor(t, url).walk(null, 0)) {
    for (const row of page.rows) seen.add(Number(row.identity));
    read += 1;
    if (read === 2) log.splice(4500, 300);
  }
  t.same(missing(seen, range(1, 4500)), []);
});

t.test("while the number of rows adds up, older rows are read again once a day", async (t) => {
  const { url, log, asked } = await logServer(t, { mostSize: 100 });
  for (const id of range(1, 3000)) log.push(item(id));
  const time = { now: NOW };
  const adapter = adapterFor(t, url, time);
  let { cursor } = await walked(adapter, null);
  const calls: number[] = [];
  for (const hour of range(1, 25)) {
    log.push(item(3000 + hour));
    time.now += HOUR;
    asked.length = 0;
    ({ cursor } = await walked(adapter, cursor));
    calls.push(asked.length);
  }
  t.same(calls, [...Array(23).fill(2), 16, 2]);
});

t.test("a late row is found by the hourly overlap, and by a walk after a pause", async (t) => {
  for (const pause of [HOUR, 72 * HOUR]) {
    const { url, log } = await logServer(t, { mostSize: 100 });
    for (const id of range(1, 3000)) if (id !== 2000) log.push(item(id));
    const time = { now: NOW };
    const adapter = adapterFor(t, url, time);
    const first = await walked(adapter, null);
    log.push(item(2000));
    time.now += 5 * MINUTE;
    const soon = await walked(adapter, first.cursor);
    t.notOk(soon.ids.has(2000), "16 hours back is not looked at every time");
    time.now += pause;
    const later = await walked(adapter, soon.cursor);
    t.ok(later.ids.has(2000));
    t.notOk(later.ids.has(1000), "but not the whole log");
  }
});

t.test("a log that was reset is read from the beginning", async (t) => {
  const { url, log } = await logServer(t, { mostSize: 100 });
  for (const id of range(1, 500)) log.push(item(id));
  const adapter = adapterFor(t, url);
  const { cursor } = await walked(adapter, null);
  log.length = 0;
  t.same((await walked(adapter, cursor)).ids, new Set());
  for (const id of range(1, 300)) log.push(item(id));
  t.same(missing((await walked(adapter, cursor)).ids, range(1, 300)), []);
});

t.test("a server may send fewer rows a page than requested", async (t) => {
  for (const [name, options, size] of [
    ["at most 100", { mostSize: 100 }, 100],
    ["always 20", { mostSize: 20 }, 20],
    ["20, and says 1000", { mostSize: 20, says: 1000 }, 20],
  ] as const) {
    const { url, log, asked } = await logServer(t, options);
    for (const id of range(1, 450)) log.push(item(id));
    const { ids, cursor } = await walked(adapterFor(t, url), null);
    t.same(missing(ids, range(1, 450)), [], name);
    t.equal(asked.at(-1)?.size, size, name);
    t.ok(asked.length <= 450 / size + 3, `${name}: ${asked.length} questions`);
    t.equal(JSON.parse(cursor ?? "").going, null, name);
  }
});

t.test("an unreadable cursor starts from the beginning, and an empty log is complete", async (t) => {
  const { url, log } = await logServer(t);
  const empty = await walked(adapterFor(t, url), null);
  t.equal(empty.pages.length, 1);
  for (const id of range(1, 30)) log.push(item(id));
  for (const cursor of [empty.cursor, "{", "null", '{"v":9}', '{"v":1,"overlapAt":0,"going":{"below":-1}}']) {
    t.same(missing((await walked(adapterFor(t, url), cursor)).ids, range(1, 30)), [], String(cursor));
  }
});

t.test("one unreadable row is skipped; if all are unreadable, the shape is unknown", async (t) => {
  const { url, log } = await logServer(t);
  log.push(item(1), item(2, { created_at: "yesterday" }), item(3));
  t.same([...(await walked(adapterFor(t, url), null)).ids], [3, 1]);
  log.splice(0, 3, { id: 5, time: 1 }, { id: 6, time: 2 });
  await t.rejects(walked(adapterFor(t, url), null), { kind: "other-shape", message: /created_at/ });
});

longTest(t, "a long walk asks no more than 50 times in any minute, and is bounded", async (t) => {
  const time = { now: NOW };
  const at: number[] = [];
  const onAsk = () => {
    at.push(time.now);
    time.now += 20;
  };
  const long = await logServer(t, { mostSize: 20, onAsk });
  for (const id of range(1, 20 * 200)) long.log.push(item(id));
  await walked(adapterFor(t, long.url, time), null, 10_000);
  const busiest = Math.max(
    ...at.map((from) => at.filter((one) => one >= from && one < from + MINUTE).length),
  );
  t.ok(busiest <= 50, `${busiest} in a minute`);
  t.ok((at[49] ?? 0) - NOW < 2000, "the first 50 at once: 50,000 rows of a recent version");
  t.ok(time.now - NOW < 8 * MINUTE, "and not much slower than it may be");

  const { url, log, asked } = await logServer(t, { mostSize: 20 });
  for (const id of range(1, 20 * 510)) log.push(item(id));
  const first = await walked(adapterFor(t, url), null, 10_000);
  t.ok(asked.length <= 502);
  t.not(JSON.parse(first.cursor ?? "").going, null, "it is not complete");
  const second = await walked(adapterFor(t, url), first.cursor, 10_000);
  t.same(
    missing(new Set([...first.ids, ...second.ids]), range(1, 20 * 510)),
    [],
    "and goes on the next time",
  );
});

/** How long a refresh token of the sandbox's console is valid. */
const REFRESH_TOKEN_LIFE_MS = 30 * 24 * 3_600_000;

t.test("the sandbox's console is read: rows with the answers' ids, late rows, keys, account", async (t) => {
  let passed = 0;
  const clock = { now: () => Date.now() + passed, elapsed: () => performance.now() + passed };
  const sandbox = await startSandbox(t, { clock });
  const { id, key } = sandbox.createKey({ name: "codex", group: "coding", quota: 12.5 });
  const agent = new Agent();
  t.teardown(() => agent.destroy());
  const { signal } = new AbortController();
  const url = sandbox.origin;
  const client = new HttpClient({ url, clock: systemClock, agent: () => agent, signal, onSkew: () => {} });
  const now = () => Date.now();
  const session = new Sub2apiSession({
    client,
    now,
    refreshToken: null,
    credentials: sandbox.account,
    onRefreshToken: async () => {},
  });
  const adapter = new Sub2api({ client, now, pause: async () => {}, session });
  const ask = async () => {
    const group = sandbox.account.groups.find(({ name }) => name === "coding");
    const body = JSON.stringify({ model: group?.models[0]?.id, messages: [{ role: "user", content: "hi" }] });
    const headers = { authorization: `Bearer ${key.reveal()}`, "content-type": "application/json" };
    const answer = await fetch(`${sandbox.baseUrl}/chat/completions`, { method: "POST", headers, body });
    await answer.text();
    return answer.headers.get("x-client-request-id");
  };
  const first = await ask();
  const rows = [...sandbox.usage()];
  const heldUsage = t.capture(sandbox.account, "usage", () => rows);
  const late = await ask();
  const one = await walked(adapter, null);
  t.same(
    one.pages.flatMap(({ rows }) => rows.map((row) => [row.request_id, row.key_ref, row.group])),
    [[first, `id:${id}`, "coding"]],
  );
  heldUsage.restore();
  passed = REFRESH_TOKEN_LIFE_MS;
  t.ok(first !== null && late !== null);
  await t.rejects(
    walked(adapter, one.cursor),
    { name: "Error", kind: "failing" },
    "no second login within ten minutes",
  );

  const fresh = new Sub2apiSession({
    client,
    now,
    refreshToken: null,
    credentials: sandbox.account,
    onRefreshToken: async () => {},
  });
  const again = new Sub2api({ client, now, pause: async () => {}, session: fresh });
  const two = await walked(again, one.cursor);
  t.ok(two.pages.some(({ rows }) => rows.some((row) => row.request_id === late)));
  const listed = (await again.keys()).find(({ name }) => name === "codex");
  const mask = sandbox.account.keys.find(({ name }) => name === "codex")?.mask ?? "";
  t.match(listed, {
    ref: `id:${id}`,
    group: "coding",
    state: "active",
    quota: 12_500_000,
    expires_at: null,
    windows: [],
  });
  t.same(listed?.shown, {
    how: "ends",
    head: mask.split("…")[0]?.replace("sk-", ""),
    tail: mask.split("…")[1],
  });
  const account = await again.account();
  t.equal(account.console_version, "sandbox");
  t.equal(account.balance, dollarsToMicrodollars(sandbox.account.balance));
});
