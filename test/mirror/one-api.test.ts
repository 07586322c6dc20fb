import t, { type Test } from "tap";
import { Secret } from "../../src/core/secret.ts";
import type { ConsoleErrorKind } from "../../src/mirror/consoles/console.ts";
import { readCursor } from "../../src/mirror/consoles/log-walk.ts";
import { OneApi } from "../../src/mirror/consoles/one-api.ts";
import {
  type AnsweringConsole,
  answeringConsole,
  type ConsoleReply,
  walked,
} from "../doubles/answering-console.ts";
import { longTest } from "../doubles/effort.ts";

const NOON = Date.UTC(2026, 7, 21, 12) / 1000;
const OK = { success: true, message: "" };

type Raw = Record<string, unknown>;

function row(n: number, more: Raw = {}): Raw {
  return {
    id: 0,
    user_id: 7,
    created_at: NOON - 60 - n,
    type: 2,
    content: "倍率：1.00",
    username: "me",
    token_name: "codex",
    model_name: "gpt-5.1",
    quota: 1000,
    prompt_tokens: 900,
    completion_tokens: 20,
    channel: 4,
    request_id: `20260821110000${n}`,
    elapsed_time: 1234,
    is_stream: false,
    ...more,
  };
}

interface Site {
  rows: Raw[];
  keys?: Raw[];
  reply?: (path: string) => ConsoleReply | undefined;
  before?: (p: number) => void;
}

/** Ten rows a page from page 0, in a bare array without a total. */
async function siteOf(t: Test, site: Site): Promise<AnsweringConsole> {
  return answeringConsole(t, ({ path, query }) => {
    const own = site.reply?.(path);
    if (own !== undefined) return own;
    const start = Number(query.get("p")) * 10;
    switch (path) {
      case "/api/status":
        return { json: { ...OK, data: { version: "v0.6.11-alpha", quota_per_unit: 500000 } } };
      case "/api/user/self":
        return { json: { ...OK, data: { id: 7, quota: -500 } } };
      case "/api/token/":
        return { json: { ...OK, data: (site.keys ?? []).slice(start, start + 10) } };
      case "/api/log/self": {
        site.before?.(start / 10);
        const from = Number(query.get("start_timestamp"));
        const to = Number(query.get("end_timestamp"));
        const inside = site.rows.filter(({ created_at: at }) => Number(at) >= from && Number(at) <= to);
        return { json: { ...OK, data: inside.slice(start, start + 10) } };
      }
      default:
        return { text: "<!doctype html>", headers: { "content-type": "text/html" } };
    }
  });
}

function adapterOf(console: AnsweringConsole) {
  return new OneApi({ ...console.deps, accessToken: new Secret("0123456789abcdef0123456789abcdef") });
}

const identities = (pages: Awaited<ReturnType<typeof walked>>) =>
  pages.flatMap(({ rows }) => rows.map(({ identity }) => identity));

t.test("rows are read ten at a time until a page is short, and refer to keys by name", async (t) => {
  const rows = [...Array.from({ length: 40 }, (_, n) => row(n)), row(40, { type: 5 }), row(41, { type: 1 })];
  const console = await siteOf(t, { rows });
  const adapter = adapterOf(console);
  const pages = await walked(adapter, null, (NOON - 3600) * 1000);
  t.equal(new Set(identities(pages)).size, 40, "a test of a channel and a top-up are no usage");
  t.same(
    console.calls.filter(({ path }) => path === "/api/log/self").map(({ query }) => query.get("p")),
    ["0", "1", "2", "3", "4"],
  );
  const { identity, ...first } = pages[0]?.rows[0] ?? { identity: "" };
  t.match(identity, /^[0-9a-f]{24}$/);
  t.same(first, {
    kind: "use",
    created_at: (NOON - 60) * 1000,
    began_at: (NOON - 60) * 1000 - 1234,
    key_ref: "name:codex",
    request_id: "202608211100000",
    upstream_id: null,
    model: "gpt-5.1",
    group: null,
    multiplier: null,
    service_tier: null,
    stream: false,
    endpoint: null,
    input_tokens: 900,
    cache_read_tokens: null,
    cache_write_tokens: null,
    output_tokens: 20,
    list_microdollars: null,
    billed_microdollars: 2000,
    duration_ms: 1234,
    ip: null,
    user_agent: null,
  });
  t.notOk(console.calls.some(({ headers }) => headers["new-api-user"] !== undefined));
});

t.test("a full last page is followed by an empty one, which ends the stretch", async (t) => {
  const console = await siteOf(t, { rows: Array.from({ length: 20 }, (_, n) => row(n)) });
  const pages = await walked(adapterOf(console), null, (NOON - 3600) * 1000);
  t.same(
    pages.map(({ rows }) => rows.length),
    [10, 10, 0],
  );
  t.same(
    pages.map(({ cursor }) => readCursor(cursor)?.until),
    [NOON - 3600, NOON - 3600, NOON],
  );
});

t.test("a first walk over weeks goes range by range, and resumes after a break", async (t) => {
  const rows = Array.from({ length: 600 }, (_, n) => row(n, { created_at: NOON - 60 - n * 4000 }));
  const console = await siteOf(t, { rows });
  const adapter = adapterOf(console);
  const since = (NOON - 30 * 86_400) * 1000;
  const whole = await walked(adapter, null, since);
  t.equal(new Set(identities(whole)).size, 600);
  const some = await walked(adapter, null, since, 20);
  const reached = readCursor(some.at(-1)?.cursor ?? null)?.until ?? 0;
  t.ok(reached > since / 1000 && reached < NOON, "what is complete is noted");
  const asked = console.calls.length;
  const rest = await walked(adapter, some.at(-1)?.cursor ?? null, since);
  t.equal(new Set([...identities(some), ...identities(rest)]).size, 600);
  const first = console.calls.slice(asked).find(({ path }) => path === "/api/log/self");
  t.equal(Number(first?.query.get("start_timestamp")), reached - 3600);
});

longTest(t, "a time range with very many rows is split", async (t) => {
  const rows = Array.from({ length: 2500 }, (_, n) => row(n, { created_at: NOON - 60 - n }));
  const console = await siteOf(t, { rows });
  const pages = await walked(adapterOf(console), null, (NOON - 3600) * 1000);
  t.equal(new Set(identities(pages)).size, 2500);
  t.ok(new Set(pages.map(({ cursor }) => cursor)).size > 2, "more than one was noted");
});

t.test("rows that arrive while pages are read do not repeat others", async (t) => {
  const site: Site = { rows: Array.from({ length: 35 }, (_, n) => row(n, { request_id: "" })) };
  const console = await siteOf(t, site);
  const before = identities(await walked(adapterOf(console), null, (NOON - 3600) * 1000));
  site.before = (p) => {
    if (p > 0) site.rows.unshift(row(0, { created_at: NOON, request_id: "" }));
  };
  t.same(identities(await walked(adapterOf(console), null, (NOON - 3600) * 1000)), before);
});

t.test("keys are shown whole, and two with the same name are both listed", async (t) => {
  const key = (id: number, more: Raw = {}): Raw => ({
    id,
    user_id: 7,
    key: `fedcba9876543210${id}`,
    status: 1,
    name: `key ${id}`,
    accessed_time: NOON,
    expired_time: -1,
    remain_quota: 500_000,
    unlimited_quota: false,
    used_quota: 0,
    ...more,
  });
  const keys = [
    ...Array.from({ length: 11 }, (_, n) => key(n)),
    key(11, { name: "key 1" }),
    key(12, { status: 2 }),
  ];
  const console = await siteOf(t, { rows: [], keys });
  const listed = await adapterOf(console).keys();
  t.equal(listed.length, 13);
  t.equal(listed.filter(({ ref }) => ref === "name:key 1").length, 2);
  t.match(listed[0], { state: "active", quota: 1_000_000, quota_used: 0, group: null, expires_at: null });
  t.match(listed[12], { state: "disabled" });
  const shown = listed[3]?.shown;
  t.ok(shown?.how === "whole" && shown.key.equals(new Secret("sk-fedcba98765432103")));
});

t.test("the account lists its balance, also below zero", async (t) => {
  const console = await siteOf(t, { rows: [] });
  t.same(await adapterOf(console).account(), { balance: -1000, console_version: "v0.6.11-alpha" });
});

t.test("a denial, a failure or an unusable answer becomes an error of the right kind", async (t) => {
  const cases: [ConsoleReply, ConsoleErrorKind][] = [
    [{ json: { success: false, message: "无权进行此操作，access token 无效" } }, "login-needed"],
    [{ json: { success: false, message: "用户已被封禁" } }, "login-needed"],
    [{ text: "", status: 429 }, "rate-limited"],
    [{ text: "<html>", headers: { "content-type": "text/html" } }, "not-a-console"],
    [{ text: "", status: 301, headers: { location: "/login" } }, "not-a-console"],
    [{ json: { ...OK, data: "none" } }, "other-shape"],
  ];
  for (const [reply, kind] of cases) {
    const console = await siteOf(t, {
      rows: [],
      reply: (path) => (path === "/api/log/self" ? reply : undefined),
    });
    await t.rejects(walked(adapterOf(console), null, (NOON - 3600) * 1000), { kind, message: /./ });
  }
});
