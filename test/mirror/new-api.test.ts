import t, { type Test } from "tap";
import { Secret } from "../../src/core/secret.ts";
import { ConsoleError, type ConsoleErrorKind } from "../../src/mirror/consoles/console.ts";
import { CallHistory } from "../../src/mirror/consoles/http.ts";
import { KeyCallBudgets } from "../../src/mirror/consoles/key-calls.ts";
import { planWalk, readCursor } from "../../src/mirror/consoles/log-walk.ts";
import { callLimit, NewApi, readNewApiRow } from "../../src/mirror/consoles/new-api.ts";
import { toMicrodollars } from "../../src/mirror/consoles/one-api-protocol.ts";
import {
  type AnsweringConsole,
  answeringConsole,
  type ConsoleCall,
  type ConsoleReply,
  startClient,
  walked,
} from "../doubles/answering-console.ts";
import { startNewApi } from "../doubles/consoles/new-api.ts";
import { longTest, oneOf } from "../doubles/effort.ts";

const NOON = Date.UTC(2026, 7, 21, 12) / 1000;
const ACCESS = "nA7access0token0of0nobody0at0all";

type Raw = Record<string, unknown>;

/** A row as v0.13.2 lists it; its id is its position and is given when it is listed. */
function row(n: number, more: Raw = {}): Raw {
  return {
    user_id: 7,
    created_at: NOON - 60 - n,
    type: 2,
    content: "",
    username: "me",
    token_name: "codex",
    model_name: "gpt-5.1",
    quota: 1000 + n,
    prompt_tokens: 100,
    completion_tokens: 20,
    use_time: 3,
    is_stream: true,
    channel: 4,
    channel_name: "",
    token_id: 12,
    group: "coding",
    ip: "",
    request_id: `2026082111${String(n).padStart(5, "0")}`,
    other: '{"group_ratio":1.5}',
    ...more,
  };
}

interface Site {
  rows: Raw[];
  /** Called before a page is listed. */
  before?: (call: ConsoleCall) => void;
  reply?: (call: ConsoleCall) => ConsoleReply | undefined;
}

const OK = { success: true, message: "" };

function status(more: Raw = {}): ConsoleReply {
  return { json: { ...OK, data: { version: "v0.13.2", quota_per_unit: 500000, ...more } } };
}

/** Newest first, inclusive at both ends, counted no further than the cap, ids overwritten with positions. */
function logPage(site: Site, { query }: ConsoleCall): ConsoleReply {
  const p = Math.max(1, Number(query.get("p")));
  const size = Math.min(100, Number(query.get("page_size") ?? 10));
  const from = Number(query.get("start_timestamp"));
  const to = Number(query.get("end_timestamp"));
  const inside = site.rows.filter(({ created_at: at }) => Number(at) >= from && Number(at) <= to);
  const start = (p - 1) * size;
  const items = inside.slice(start, start + size).map((raw, at) => ({ ...raw, id: start + at + 1 }));
  const total = Math.min(inside.length, 10_000);
  return { json: { ...OK, data: { page: p, page_size: size, total, items } } };
}

async function siteOf(t: Test, site: Site): Promise<AnsweringConsole> {
  return answeringConsole(t, (call) => {
    const own = site.reply?.(call);
    if (own !== undefined) return own;
    if (call.path === "/api/status") return status();
    if (call.path !== "/api/log/self") return { json: { error: { message: "Invalid URL" } }, status: 404 };
    site.before?.(call);
    return logPage(site, call);
  });
}

function adapterOf(console: AnsweringConsole, user: string | null = "7") {
  const keyCalls = new KeyCallBudgets(console.deps.now, null).of(console.url);
  return new NewApi({ ...console.deps, accessToken: new Secret(ACCESS), user, keyCalls });
}

const SINCE = (NOON - 30 * 86_400) * 1000;
const identities = (pages: Awaited<ReturnType<typeof walked>>) =>
  pages.flatMap(({ rows }) => rows.map(({ identity }) => identity));

async function failsWith(
  t: Test,
  kind: ConsoleErrorKind,
  says: RegExp,
  run: () => Promise<unknown>,
): Promise<void> {
  const error = await run().then(
    () => null,
    (thrown: unknown) => thrown,
  );
  t.ok(error instanceof ConsoleError, "it is an error of the console");
  t.match(error, { kind, message: says });
  t.notOk(String(error).includes(ACCESS), "the access token is not in it");
}

t.test("all rows are read over many pages, with the access token and the user's number", async (t) => {
  const console = await siteOf(t, { rows: Array.from({ length: 250 }, (_, n) => row(n)) });
  const pages = await walked(adapterOf(console), null, SINCE);
  t.equal(new Set(identities(pages)).size, 250);
  t.same(
    pages.map(({ done, total }) => [done, total]),
    [
      [100, 250],
      [200, 250],
      [250, 250],
    ],
  );
  t.equal(
    readCursor(pages[1]?.cursor ?? null)?.until,
    SINCE / 1000,
    "a stretch that is not complete is not noted",
  );
  t.equal(readCursor(pages[2]?.cursor ?? null)?.until, NOON);
  const asked = console.calls.filter(({ path }) => path === "/api/log/self");
  t.same(
    asked.map(({ query }) => query.get("p")),
    ["1", "2", "3"],
  );
  for (const { headers } of asked) {
    t.equal(headers.authorization, `Bearer ${ACCESS}`);
    t.equal(headers["new-api-user"], "7");
  }
  t.notOk(console.calls[0]?.headers.authorization, "the status is for everybody");
  t.match(pages[0]?.rows[0], {
    kind: "use",
    created_at: (NOON - 60) * 1000,
    key_ref: "id:12",
    request_id: "202608211100000",
    model: "gpt-5.1",
    group: "coding",
    multiplier: 1.5,
    stream: true,
    input_tokens: 100,
    output_tokens: 20,
    list_microdollars: null,
    billed_microdollars: 2000,
    duration_ms: 3000,
    ip: null,
  });
});

t.test("rows that arrive while pages are read neither repeat nor hide other rows", async (t) => {
  for (const ids of [true, false]) {
    const site: Site = {
      rows: Array.from({ length: 150 }, (_, n) => row(n, ids ? {} : { request_id: "", quota: 5 })),
    };
    // Four of one second that nothing distinguishes, and a page's border among what moves.
    site.rows.splice(
      97,
      4,
      ...Array.from({ length: 4 }, () => ({ ...row(97), ...(ids ? {} : { request_id: "" }) })),
    );
    const console = await siteOf(t, site);
    const before = identities(await walked(adapterOf(console), null, SINCE));
    site.before = ({ query }) => {
      if (query.get("p") === "2") site.rows.unshift(row(0, { created_at: NOON, request_id: "" }));
    };
    const during = await walked(adapterOf(console), null, SINCE);
    t.same(new Set(identities(during)), new Set(before), `with request ids: ${ids}`);
    if (!ids) t.equal(identities(during).length, 150, "none is repeated");
    t.equal(
      new Set(before).size,
      ids ? 147 : 150,
      "alike rows with one request id are one, without one they are four",
    );
  }
});

t.test("the identity of a row does not contain its position in the list", async (t) => {
  const site: Site = { rows: [row(5), row(6)] };
  const console = await siteOf(t, site);
  const before = identities(await walked(adapterOf(console), null, SINCE));
  site.rows.unshift(row(1));
  const after = identities(await walked(adapterOf(console), null, SINCE));
  t.same(after.slice(1), before);
});

t.test("a time range with more rows than the console counts is read in halves", async (t) => {
  const rows = Array.from({ length: 900 }, (_, n) => row(n, { created_at: NOON - 60 - 40 * n }));
  const console = await siteOf(t, { rows });
  // The cap itself is the adapter's: a site that counts a stretch as 10000 is one that may hold more.
  const capped: Site = {
    rows,
    reply: (call) => {
      if (call.path !== "/api/log/self") return undefined;
      const long = Number(call.query.get("end_timestamp")) - Number(call.query.get("start_timestamp")) > 9000;
      return long
        ? { json: { ...OK, data: { page: 1, page_size: 100, total: 10_000, items: [row(0)] } } }
        : undefined;
    },
  };
  const narrow = await siteOf(t, capped);
  const since = (NOON - 40_000) * 1000;
  const pages = await walked(adapterOf(narrow), null, since);
  t.same(new Set(identities(pages)), new Set(identities(await walked(adapterOf(console), null, since))));
  t.equal(new Set(identities(pages)).size, 900);
  const cursors = pages.map(({ cursor }) => readCursor(cursor)?.until ?? 0);
  t.same(
    cursors,
    cursors.toSorted((a, b) => a - b),
  );
  t.ok(new Set(cursors).size > 3, "stretch by stretch");
  t.equal(cursors.at(-1), NOON);

  const half = await walked(adapterOf(narrow), null, since, Math.ceil(pages.length / 2));
  const rest = await walked(adapterOf(narrow), half.at(-1)?.cursor ?? null, since);
  t.equal(new Set([...identities(half), ...identities(rest)]).size, 900, "broken off and gone on with");
});

longTest(t, "a single second with more rows than are counted is a gap, and the walk goes on", async (t) => {
  const console = await siteOf(t, {
    rows: [],
    reply: ({ path, query }) => {
      if (path !== "/api/log/self") return undefined;
      const from = Number(query.get("start_timestamp"));
      const to = Number(query.get("end_timestamp"));
      const p = Number(query.get("p"));
      const crowded = from <= NOON - 100 && to >= NOON - 100;
      const length = crowded ? 100 : 0;
      const items = Array.from({ length }, (_, n) => row(p * 100 + n, { created_at: NOON - 100 }));
      return { json: { ...OK, data: { page: p, page_size: 100, total: crowded ? 10_000 : 0, items } } };
    },
  });
  const pages = await walked(adapterOf(console), null, (NOON - 200) * 1000);
  const gaps = pages.map(({ gap }) => gap).filter((gap) => gap !== null);
  t.same(gaps, [{ from: (NOON - 100) * 1000 - 1, to: (NOON - 100) * 1000 + 999 }]);
  t.equal(new Set(identities(pages)).size, 10_000, "what can be had is had");
  t.equal(readCursor(pages.at(-1)?.cursor ?? null)?.until, NOON);
});

t.test("an older version that lists a bare array with pages from 0 is read too", async (t) => {
  const rows = Array.from({ length: 35 }, (_, n) => row(n, { request_id: "" }));
  const console = await siteOf(t, {
    rows,
    reply: ({ path, query }) => {
      if (path !== "/api/log/self") return undefined;
      const from = Number(query.get("start_timestamp"));
      const to = Number(query.get("end_timestamp"));
      const inside = rows.filter(({ created_at: at }) => Number(at) >= from && Number(at) <= to);
      const p = Number(query.get("p"));
      return { json: { ...OK, data: inside.slice(p * 10, p * 10 + 10) } };
    },
  });
  const pages = await walked(adapterOf(console), null, (NOON - 86_400) * 1000);
  t.equal(new Set(identities(pages)).size, 35);
  t.equal(identities(pages).length, 35);
  t.equal(pages.at(-1)?.total, null);
});

t.test("a console whose pages 0 and 1 are the same is not counted twice", async (t) => {
  const rows = Array.from({ length: 25 }, (_, n) => row(n, { request_id: "" }));
  const console = await siteOf(t, {
    rows,
    reply: ({ path, query }) => {
      if (path !== "/api/log/self") return undefined;
      const p = Math.max(1, Number(query.get("p"))) - 1;
      return { json: { ...OK, data: rows.slice(p * 10, p * 10 + 10) } };
    },
  });
  t.equal(identities(await walked(adapterOf(console), null, (NOON - 3600) * 1000)).length, 25);
});

t.test("the next walk checks an hour, and once a day a whole day is read again", async (t) => {
  const console = await siteOf(t, { rows: [row(1)] });
  const adapter = adapterOf(console);
  const starts: number[][] = [];
  let cursor: string | null = null;
  for (let hour = 0; hour <= 26; hour += 1) {
    const seen = console.calls.length;
    cursor = (await walked(adapter, cursor, SINCE)).at(-1)?.cursor ?? null;
    const lists = console.calls.slice(seen).filter(({ path }) => path === "/api/log/self");
    starts.push(lists.map(({ query }) => console.time / 1000 - Number(query.get("start_timestamp"))));
    console.time += 3600_000;
  }
  t.same(starts[0], [30 * 86_400]);
  t.same(
    starts.slice(1, 24),
    Array.from({ length: 23 }, () => [7200]),
  );
  t.same(starts[24], [7200, 86_400 + 3600]);
  t.same(starts.slice(25), [[7200], [7200]]);
});

t.test("a console whose clock is wrong by a day is read up to its own now", async (t) => {
  for (const skew of [-86_400, 86_400]) {
    const site: Site = { rows: [] };
    const console = await siteOf(t, site);
    console.skew = skew * 1000;
    const adapter = adapterOf(console);
    const cursor = (await walked(adapter, null, SINCE)).at(-1)?.cursor ?? null;
    const first = console.calls.find(({ path }) => path === "/api/log/self");
    t.equal(Number(first?.query.get("start_timestamp")), SINCE / 1000 + skew);
    console.time += 300_000;
    site.rows.push(row(0, { created_at: NOON + 290 + skew }));
    t.equal(identities(await walked(adapter, cursor, SINCE)).length, 1, `${skew} s`);
  }
});

t.test("a clock that was set back, and a cursor that cannot be read, lose nothing", (t) => {
  const cursor = { until: NOON + 86_400, day: NOON, again: null, late: 0 };
  t.equal(planWalk(cursor, 0, NOON * 1000).from, NOON - 86_400);
  t.equal(readCursor("{"), null);
  t.equal(readCursor('{"calls":[]}'), null);
  t.equal(planWalk(null, (NOON + 50) * 1000, NOON * 1000).from, NOON, "there is nothing to come");
  const broken = { until: NOON - 100, day: NOON - 90_000, again: NOON - 50_000, late: 0 };
  t.equal(
    planWalk(broken, 0, NOON * 1000).again,
    NOON - 50_000,
    "a day that was looked over in part is gone on with",
  );
  t.end();
});

t.test("each version has its rate limit", (t) => {
  const old = ["v0.13.2", "v1.0.0-rc.1", "v1.0.0-rc.10", "v0.0.0", "nightly-20260821", "", null];
  for (const version of old) t.ok(callLimit(version).calls < 180, String(version));
  for (const version of ["v1.0.0-rc.11", "v1.0.0-rc.25", "v1.0.0", "1.2.3", "v2.0.0-rc.1"])
    t.match(callLimit(version), { calls: 330, milliseconds: 180_000 }, version);
  t.end();
});

longTest(t, "a long walk stays below what the console allows", async (t) => {
  const rows = Array.from({ length: 20_000 }, (_, n) => row(n, { created_at: NOON - 60 * n }));
  // Read in common/init.go of each: so many calls in 180 s.
  const versions = [
    ["v0.13.2", 180],
    ["v1.0.0-rc.25", 360],
  ] as const;
  for (const [version, limit] of versions) {
    const at: number[] = [];
    const console: AnsweringConsole = await siteOf(t, {
      rows,
      reply: ({ path }) => {
        at.push(console.time);
        // As fast as a real one answered on this machine's loopback.
        console.time += 50;
        return path === "/api/status" ? status({ version }) : undefined;
      },
    });
    const began = console.time;
    const adapter = adapterOf(console);
    t.equal(new Set(identities(await walked(adapter, null, SINCE))).size, rows.length, version);
    const busiest = Math.max(
      ...at.map((from) => at.filter((one) => one >= from && one < from + 180_000).length),
    );
    t.ok(busiest <= limit - 30, `${version}: ${busiest} calls in 180 s, of ${limit}`);
    const took = console.time - began;
    t.ok(
      took < (limit === 360 ? 60_000 : 420_000),
      `${version}: ${rows.length} rows in ${took / 1000} s of its clock`,
    );
  }
});

t.test("a denial, a failure or an unusable answer becomes an error of the right kind", async (t) => {
  const words: [ConsoleReply, ConsoleErrorKind, RegExp][] = [
    [
      { json: { success: false, message: "无权进行此操作，access token 无效" } },
      "login-needed",
      /access token/,
    ],
    [
      { json: { success: false, message: "无权进行此操作，未登录且未提供 access token" } },
      "login-needed",
      /未登录/,
    ],
    [
      { json: { success: false, message: "无权进行此操作，未提供 New-Api-User" } },
      "login-needed",
      /login\.user/,
    ],
    [
      { json: { success: false, message: "Unauthorized, New-Api-User header not provided" }, status: 401 },
      "login-needed",
      /login\.user/,
    ],
    [
      { json: { success: false, code: "AUTH_TOKEN_EXPIRED", message: "expired" }, status: 401 },
      "login-needed",
      /expired/,
    ],
    [{ json: { success: false, code: "AUTH_USER_DISABLED", message: "x" } }, "login-needed", /access token/],
    [{ json: { success: false, code: 403, message: "x" }, status: 403 }, "login-needed", /access token/],
    [
      { json: { success: false, message: `bad: ${ACCESS} and sk-abcdefghijkl` } },
      "failing",
      /\[redacted\] and \[hidden\]/,
    ],
    [{ json: { success: false, message: "database is locked" } }, "failing", /database is locked/],
    [{ text: "", status: 429 }, "rate-limited", /too many requests/],
    [{ text: "", status: 200 }, "not-a-console", /empty body/],
    [{ text: "<!doctype html><p>hi", headers: { "content-type": "text/html" } }, "not-a-console", /web page/],
    [{ text: "", status: 302, headers: { location: "http://127.0.0.1:1/" } }, "not-a-console", /redirect/],
    [{ json: { data: [] } }, "other-shape", /success/],
    [{ json: { ...OK, data: { items: 5, total: 1 } } }, "other-shape", /items/],
    [
      { json: { ...OK, data: { items: [{ type: "2" }, 7], total: 2 } } },
      "other-shape",
      /usable time and type/,
    ],
    [{ json: { error: { message: "Invalid URL (GET /api/log/self)" } }, status: 404 }, "other-shape", /404/],
    [{ json: { success: false, message: "panic" }, status: 500 }, "failing", /panic/],
  ];
  for (const [reply, kind, says] of words) {
    const console = await siteOf(t, {
      rows: [],
      reply: ({ path }) => (path === "/api/log/self" ? reply : undefined),
    });
    await failsWith(t, kind, says, () => walked(adapterOf(console, null), null, SINCE));
    t.notOk(console.calls.at(-1)?.headers["new-api-user"], "a user that is not known is not sent");
  }
});

t.test("the wait after a 429 is the console's Retry-After", async (t) => {
  const console = await siteOf(t, {
    rows: [],
    reply: ({ path }) =>
      path === "/api/log/self" ? { text: "", status: 429, headers: { "retry-after": "33" } } : undefined,
  });
  const error = await walked(adapterOf(console), null, SINCE).catch((thrown: unknown) => thrown);
  t.match(error, { kind: "rate-limited", retryAfter: 33 });
});

t.test("the quota per dollar is read again for each walk", async (t) => {
  let unit: unknown = 100_000;
  const console = await siteOf(t, {
    rows: [row(0)],
    reply: ({ path }) => (path === "/api/status" ? status({ quota_per_unit: unit }) : undefined),
  });
  const adapter = adapterOf(console);
  const billed = async () => (await walked(adapter, null, SINCE))[0]?.rows[0]?.billed_microdollars;
  t.equal(await billed(), 10_000);
  unit = 0;
  t.equal(await billed(), 2000, "nothing usable is the usual");
  t.equal(toMicrodollars(1, 500_000), 2);
  t.equal(toMicrodollars(1, 3_000_000), 0);
  t.equal(toMicrodollars(3, 2_000_000), 2, "half up");
  t.equal(toMicrodollars(-3, 2_000_000), -1, "half up below zero too");
  t.equal(
    toMicrodollars(9_007_199_254_740, 500_000),
    18_014_398_509_480,
    "exact beyond what doubles multiply",
  );
  t.equal(toMicrodollars(7, 0.5), 14_000_000);
  t.end();
});

t.test("tokens are read as the row declares them", (t) => {
  const read = (raw: Raw) => readNewApiRow(row(0, { prompt_tokens: 1000, ...raw }), 500_000);
  const tokens = (input: unknown, cacheRead: unknown, cacheWrite: unknown, output: unknown = 20) => ({
    input_tokens: input,
    cache_read_tokens: cacheRead,
    cache_write_tokens: cacheWrite,
    output_tokens: output,
  });
  const other = (more: Raw) => ({ other: JSON.stringify(more) });
  t.match(read(other({ cache_tokens: 700, cache_creation_tokens: 100 })), tokens(200, 700, 100));
  t.match(read(other({ cache_tokens: 700, cache_write_tokens: 100 })), tokens(200, 700, 100));
  t.match(
    read(other({ cache_creation_tokens_5m: 30, cache_creation_tokens_1h: 40, usage_semantic: "anthropic" })),
    tokens(1000, 0, 70),
  );
  t.match(read(other({ cache_tokens: 5000, claude: true })), tokens(1000, 5000, 0));
  t.match(read(other({ cache_tokens: 5000 })), tokens(0, 5000, 0));
  for (const broken of ["", "{", "[]", "null", 5]) {
    t.match(read({ other: broken }), { ...tokens(1000, null, null), multiplier: null, endpoint: null });
  }
  const content = "上游没有返回计费信息，无法扣费（可能是上游超时）";
  t.match(read({ content, quota: 0, prompt_tokens: 0, completion_tokens: 0, ...other({ group_ratio: 2 }) }), {
    ...tokens(null, null, null, null),
    billed_microdollars: 0,
    multiplier: 2,
  });
  t.end();
});

t.test("a row's kind, multiplier, key and texts are read, without secrets and control characters", (t) => {
  const read = (raw: Raw) => readNewApiRow(row(0, raw), 500_000);
  t.match(read({ type: 5, quota: 0 }), { kind: "error", billed_microdollars: 0 });
  t.match(read({ type: 6, quota: 500 }), { kind: "refund", billed_microdollars: 1000 });
  for (const type of [0, 1, 3, 4, 7, 99]) t.equal(read({ type }), "other");
  t.equal(read({ created_at: "today" }), "unreadable");
  t.match(read({ other: '{"group_ratio":1.5,"user_group_ratio":0}' }), { multiplier: 0 });
  t.match(read({ other: '{"group_ratio":1.5,"user_group_ratio":-1}' }), { multiplier: 1.5 });
  t.match(read({ token_id: 0, token_name: "my\u001b[2J key" }), { key_ref: /^name:my[\x20-\x7e]* key$/ });
  t.match(read({ token_id: 0, token_name: "" }), { key_ref: null });
  t.match(read({ other: '{"request_path":"/v1beta/models/x?key=AIzaSyNobody00000000"}' }), {
    endpoint: "/v1beta/models/x",
  });
  t.match(read({ model_name: "sk-abcdefghijklmnop", upstream_request_id: "up1", ip: "1.2.3.4" }), {
    model: "[hidden]",
    upstream_id: "up1",
    ip: "1.2.3.4",
  });
  t.end();
});

t.test("a request id says when the request began, also where its row was written late", (t) => {
  const id = (at: number) =>
    `${new Date(at).toISOString().replace(/\D/g, "").slice(0, 14)}4390787998268d9d6TNPlaUbF`;
  const sent = Date.UTC(2026, 10, 17, 6, 0, 16);
  const beganAt = (created: number, requestId: string) =>
    readNewApiRow(row(0, { created_at: created / 1000, use_time: 2, request_id: requestId }), 500_000);
  t.match(beganAt(sent + 3000, id(sent)), { began_at: sent + 439 });
  t.match(beganAt(sent + 10_000, id(sent)), { began_at: sent + 439 }, "its database was busy");
  t.match(beganAt(sent - 4000, id(sent)), { began_at: sent - 6000 }, "it cannot begin after its end");
  t.match(beganAt(sent + 3_600_000, id(sent)), { began_at: sent + 3_598_000 }, "an id that is no time");
  t.end();
});

const key = (id: number, more: Raw = {}): Raw => ({
  id,
  user_id: 7,
  key: "abcd**********wxyz",
  status: 1,
  name: `key ${id}`,
  created_time: NOON - 9000,
  accessed_time: NOON - 5,
  expired_time: -1,
  remain_quota: 250_000,
  used_quota: 750_000,
  unlimited_quota: false,
  model_limits: "",
  group: "coding",
  ...more,
});

t.test("keys are listed whole or by their ends, with their state", async (t) => {
  const keys = [
    key(1),
    key(2, { key: "0123456789abcdefghijABCDEFGHIJ", group: "auto" }),
    key(3, { key: "sk-0123456789abcdefghijABCDEFGHIJ", group: "" }),
    key(4, { expired_time: NOON - 1 }),
    key(5, { remain_quota: 0 }),
    key(6, { remain_quota: 0, unlimited_quota: true }),
    key(7, { status: 2, remain_quota: 0 }),
    key(8, { key: "**********", status: 9, accessed_time: NOON - 9000 }),
    ...Array.from({ length: 100 }, (_, n) => key(100 + n)),
  ];
  const console = await siteOf(t, {
    rows: [],
    reply: ({ path, query }) => {
      const p = Number(query.get("p"));
      const data = { page: p, page_size: 100, total: keys.length, items: keys.slice((p - 1) * 100, p * 100) };
      if (path === "/api/token/") return { json: { ...OK, data } };
      if (path !== "/api/user/self/groups") return undefined;
      return {
        json: { ...OK, data: { coding: { ratio: 1.5, desc: "" }, auto: { ratio: "自动", desc: "" } } },
      };
    },
  });
  const listed = await adapterOf(console).keys();
  t.equal(listed.length, 108);
  const [masked, whole, prefixed, expired, spent, unlimited, disabled, hidden] = listed;
  t.same(masked, {
    ref: "id:1",
    name: "key 1",
    shown: { how: "ends", head: "abcd", tail: "wxyz" },
    state: "active",
    quota: 2_000_000,
    unlimited: false,
    quota_used: 1_500_000,
    windows: [],
    created_at: (NOON - 9000) * 1000,
    expires_at: null,
    last_used_at: (NOON - 5) * 1000,
    group: "coding",
    multiplier: 1.5,
  });
  const real = new Secret("sk-0123456789abcdefghijABCDEFGHIJ");
  for (const one of [whole, prefixed]) t.ok(one?.shown.how === "whole" && one.shown.key.equals(real));
  t.match(whole, { group: "auto", multiplier: null });
  t.match(prefixed, { group: null, multiplier: null });
  t.match(expired, { state: "expired", expires_at: (NOON - 1) * 1000 });
  t.match(spent, { state: "quota-exhausted" });
  t.match(unlimited, { state: "active", quota: null });
  t.match(disabled, { state: "disabled" });
  t.match(hidden, { state: "unknown", shown: { how: "hidden" } });
  t.equal(hidden?.last_used_at, null, "it was never used since it was created");
});

t.test("keys are listed even if the groups cannot be read", async (t) => {
  const console = await siteOf(t, {
    rows: [],
    reply: ({ path }) =>
      path === "/api/token/"
        ? { json: { ...OK, data: { page: 1, page_size: 100, total: 1, items: [key(1)] } } }
        : undefined,
  });
  t.match(await adapterOf(console).keys(), [{ ref: "id:1", group: "coding", multiplier: null }]);
});

t.test("the account lists its balance, and the console its version", async (t) => {
  const console = await siteOf(t, {
    rows: [],
    reply: ({ path }) => {
      if (path === "/api/user/self") return { json: { ...OK, data: { id: 7, quota: 1_234_567 } } };
      if (path !== "/api/status") return undefined;
      return { json: { ...OK, data: { version: "old" } }, headers: { "X-New-Api-Version": "v1.0.0-rc.25" } };
    },
  });
  t.same(await adapterOf(console).account(), { balance: 2_469_134, console_version: "v1.0.0-rc.25" });
});

for (const version of oneOf(["v0.13.2", "v1.0.0-rc.25"], "v1.0.0-rc.25")) {
  t.test(`what was billed at ${version} is what is read`, async (t) => {
    const double = await startNewApi(t, { version });
    const adapter = new NewApi({
      client: startClient(t, double.url),
      now: Date.now,
      pause: async () => {},
      calls: new CallHistory(),
      accessToken: new Secret(double.login.accessToken),
      user: double.login.user,
      keyCalls: new KeyCallBudgets(Date.now, null).of(double.url),
    });
    const whole = `sk-${"a1B2".repeat(12)}`;
    const { id } = double.addKey({ name: "codex", key: whole, group: "coding", multiplier: 1.5, quota: 20 });
    const use = {
      key: whole,
      model: "gpt-5.1",
      stream: true,
      input: 10,
      cacheRead: 4,
      cacheWrite: 2,
      output: 5,
    };
    const handed = double.bill({ ...use, dollars: 0.003, errors: 2 });
    double.bill({ ...use, dollars: 0.006, endpoint: "/v1/messages" });
    for (let n = 0; n < 250; n += 1) double.bill({ ...use, dollars: 0.000002 * n });
    // Somebody goes on working while pages are read.
    double.onAsk = ({ path }) => void (path.includes("p=2") && double.bill({ ...use, dollars: 1 }));
    const rows = (await walked(adapter, null, Date.now() - 86_400_000)).flatMap((page) => page.rows);
    const uses = rows.filter(
      ({ kind, billed_microdollars: billed }) => kind === "use" && billed !== 1_000_000,
    );
    t.equal(new Set(uses.map(({ identity }) => identity)).size, 252);
    const tokens = { input_tokens: 10, cache_read_tokens: 4, cache_write_tokens: 2, output_tokens: 5 };
    for (const one of uses)
      t.match(one, { ...tokens, key_ref: `id:${id}`, multiplier: 1.5, group: "coding" });
    t.match(
      uses.find(({ billed_microdollars: billed }) => billed === 3000),
      { request_id: handed },
    );
    t.ok(rows.some(({ kind, request_id }) => kind === "error" && request_id === handed));
    const [key] = await adapter.keys();
    t.match(key, { ref: `id:${id}`, shown: { how: "ends", head: "a1B2", tail: "a1B2" }, quota: 20_000_000 });
    t.match(await adapter.account(), { balance: Number, console_version: version });
    double.fault = "401";
    await t.rejects(adapter.account(), { kind: "login-needed", message: /access token/ });
    double.fault = "redirect";
    await t.rejects(adapter.account(), { kind: "not-a-console", message: /redirect/ });
    t.same(double.thief.seen, [], "the redirect is not followed");
  });
}
