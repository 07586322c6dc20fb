import t, { type Test } from "tap";
import { Secret } from "../../src/core/secret.ts";
import type { ConsoleErrorKind } from "../../src/mirror/consoles/console.ts";
import { KeyCallBudgets } from "../../src/mirror/consoles/key-calls.ts";
import { NewApiByKeys } from "../../src/mirror/consoles/new-api-keys.ts";
import {
  type AnsweringConsole,
  answeringConsole,
  type ConsoleCall,
  type ConsoleReply,
  walked,
} from "../doubles/answering-console.ts";

const NOON = Date.UTC(2026, 7, 21, 12) / 1000;
const SINCE = (NOON - 86_400) * 1000;
const OK = { success: true, message: "" };
const MINUTE = 60_000;

type Raw = Record<string, unknown>;

function row(at: number, more: Raw = {}): Raw {
  return {
    id: 1,
    created_at: at,
    type: 2,
    content: "",
    token_name: "codex",
    model_name: "gpt-5.1",
    quota: 1000,
    prompt_tokens: 100,
    completion_tokens: 20,
    use_time: 3,
    is_stream: true,
    token_id: 12,
    group: "g",
    request_id: `r${at}`,
    other: "{}",
    ...more,
  };
}

function held(n: number) {
  const key = new Secret(`sk-nobodys0key0number0${String(n).padStart(4, "0")}`);
  return { fingerprint: key.fingerprint, key };
}

interface Site {
  /** By the last four characters of the key. */
  readonly rows: Map<string, Raw[]>;
  version?: string | null;
  reply?: (call: ConsoleCall, tail: string) => ConsoleReply | undefined;
}

/** The limiter as it is: 20 calls in 20 minutes for all keys and both paths. */
async function siteOf(t: Test, site: Site): Promise<AnsweringConsole> {
  const critical: number[] = [];
  const console: AnsweringConsole = await answeringConsole(t, (call) => {
    if (call.path === "/api/status") {
      const data = site.version === null ? {} : { version: site.version ?? "v0.13.2" };
      return { json: { ...OK, data: { quota_per_unit: 500000, ...data } } };
    }
    while ((critical[0] ?? console.time) <= console.time - 20 * MINUTE) critical.shift();
    if (critical.length >= 20) return { text: "", status: 429 };
    critical.push(console.time);
    const tail = String(call.headers.authorization).slice(-4);
    const own = site.reply?.(call, tail);
    if (own !== undefined) return own;
    const rows = site.rows.get(tail);
    if (rows === undefined) return { json: { success: false, message: "Invalid token" }, status: 401 };
    if (call.path === "/api/log/token") return { json: { ...OK, data: rows.slice(0, 1000) } };
    if (call.path !== "/api/usage/token/")
      return { text: "", status: 301, headers: { location: `${call.path}/` } };
    const facts = {
      object: "token_usage",
      name: `key ${tail}`,
      total_granted: 1_000_000,
      total_used: 250_000,
    };
    const more = { total_available: 750_000, unlimited_quota: false, expires_at: 0 };
    return { json: { code: true, message: "ok", data: { ...facts, ...more } } };
  });
  return console;
}

function budgetOf({ deps }: AnsweringConsole) {
  return new KeyCallBudgets(deps.now, null).of("https://gateway.example.com");
}

function adapterOf(console: AnsweringConsole, count: number, keyCalls = budgetOf(console)) {
  const keys = Array.from({ length: count }, (_, n) => held(n));
  return new NewApiByKeys({
    ...console.deps,
    keyCalls,
    keys: () => keys,
  });
}

const logCalls = ({ calls }: AnsweringConsole) => calls.filter(({ path }) => path === "/api/log/token");
const tails = (console: AnsweringConsole) =>
  logCalls(console).map(({ headers }) => String(headers.authorization).slice(-4));

t.test("each key lists its own rows, which belong to that key", async (t) => {
  const rows = new Map([
    ["0000", [row(NOON - 10), row(NOON - 20, { request_id: "" }), row(NOON - 20, { request_id: "" })]],
    ["0001", [row(NOON - 30, { token_id: 13 })]],
  ]);
  const console = await siteOf(t, { rows });
  const pages = await walked(adapterOf(console, 2), null, SINCE);
  t.same(
    pages.map((page) => page.rows.map(({ key_ref }) => key_ref)),
    [["key:…0000", "key:…0000", "key:…0000"], ["key:…0001"]],
  );
  t.equal(new Set(pages.flatMap((page) => page.rows.map(({ identity }) => identity))).size, 4);
  t.same(
    pages.map(({ gap }) => gap),
    [null, null],
  );
  for (const { headers, query } of logCalls(console)) {
    t.match(headers.authorization, /^Bearer sk-/);
    t.equal(query.size, 0, "a key never stands in an address");
  }
});

t.test("every key gets its turn within the budget, over many walks and restarts", async (t) => {
  const rows = new Map(Array.from({ length: 7 }, (_, n) => [`000${n}`, [row(NOON - n)]]));
  const console = await siteOf(t, { rows });
  let cursor: string | null = null;
  const keyCalls = budgetOf(console);
  let adapter = adapterOf(console, 7, keyCalls);
  for (let round = 0; round < 24; round += 1) {
    // A restart every third time.
    if (round % 3 === 0) adapter = adapterOf(console, 7, keyCalls);
    t.equal((await adapter.keys()).length, 7);
    try {
      for await (const page of adapter.walk(cursor, SINCE)) cursor = page.cursor;
    } catch (error) {
      t.match(error, { kind: "rate-limited", message: /20 key lookups/ });
    }
    console.time += 5 * MINUTE;
  }
  const turns = tails(console);
  const counts = [...rows.keys()].map((tail) => turns.filter((one) => one === tail).length);
  t.ok(Math.max(...counts) - Math.min(...counts) <= 2, `each about as often: ${counts}`);
  t.ok(Math.min(...counts) >= 8, "and often enough");
});

t.test("at most 16 requests are sent in 20 minutes, and the keys that waited come first", async (t) => {
  const rows = new Map(Array.from({ length: 30 }, (_, n) => [String(n).padStart(4, "0"), [row(NOON - n)]]));
  const console = await siteOf(t, { rows });
  const keyCalls = budgetOf(console);
  const adapter = adapterOf(console, 30, keyCalls);
  const first = await walked(adapter, null, SINCE);
  t.equal(first.length, 16);
  t.equal(adapter.skippedKeys?.().length, 14, "the others were not read");
  const usedUp = { kind: "rate-limited", message: /20 key lookups/, retryAfter: 1200 };
  await t.rejects(walked(adapter, first.at(-1)?.cursor ?? null, SINCE), usedUp, "nothing read is no sync");
  const restarted = walked(adapterOf(console, 30, keyCalls), first.at(-1)?.cursor ?? null, SINCE);
  await t.rejects(restarted, usedUp, "after a restart too");
  console.time += 20 * MINUTE;
  const second = await walked(adapterOf(console, 30, keyCalls), first.at(-1)?.cursor ?? null, SINCE);
  t.equal(second.length, 16);
  t.equal(new Set(tails(console)).size, 30, "those who waited came first");
});

t.test("a clock that is set back by a week blocks the budget for 20 minutes, not for a week", async (t) => {
  const rows = new Map(Array.from({ length: 16 }, (_, n) => [String(n).padStart(4, "0"), [row(NOON - n)]]));
  const console = await siteOf(t, { rows });
  const adapter = adapterOf(console, 16);
  const cursor = (await walked(adapter, null, SINCE)).at(-1)?.cursor ?? null;
  console.time -= 7 * 24 * 60 * MINUTE;
  await t.rejects(walked(adapter, cursor, SINCE), { name: "Error", kind: "rate-limited", retryAfter: 1200 });
  console.time += 20 * MINUTE;
  t.equal((await walked(adapter, cursor, SINCE, 1)).length, 1, "it reads again");
});

t.test("rows that the console no longer lists are a gap", async (t) => {
  const rows = new Map([["0000", [row(NOON - 5000)]]]);
  const console = await siteOf(t, { rows });
  const adapter = adapterOf(console, 1);
  const [first] = await walked(adapter, null, SINCE);
  t.equal(first?.gap, null);
  rows.set(
    "0000",
    Array.from({ length: 1200 }, (_, n) => row(NOON - n)),
  );
  const [second] = await walked(adapter, first?.cursor ?? null, SINCE);
  const many = { key: "…0000", cause: "many" };
  t.same(second?.gap, { from: (NOON - 5000) * 1000, to: (NOON - 999) * 1000, ...many });
  t.equal(second?.rows.length, 1000);
  const [third] = await walked(adapter, second?.cursor ?? null, SINCE);
  t.equal(third?.gap, null, "it was all seen before");
  const [restarted] = await walked(adapterOf(console, 1), null, SINCE);
  t.same(restarted?.gap, { from: SINCE, to: (NOON - 999) * 1000, ...many }, "what was before is unknown");
});

t.test("a refused key is skipped and leaves a gap; without any accepted key a login is needed", async (t) => {
  const console = await siteOf(t, { rows: new Map([["0001", [row(NOON - 1)]]]) });
  const pages = await walked(adapterOf(console, 2), null, SINCE);
  t.same(
    pages.map(({ rows }) => rows.length),
    [0, 1],
  );
  const refused = { from: SINCE, to: NOON * 1000, key: "…0000", cause: "refused" };
  t.same(
    pages.map(({ gap }) => gap),
    [refused, null],
  );
  await t.rejects(walked(adapterOf(console, 0), null, SINCE), { kind: "login-needed", message: /no key/ });
  await t.rejects(walked(adapterOf(console, 1), null, SINCE), {
    kind: "login-needed",
    message: /no key/,
  });
});

t.test("a version that needs the key in the URL never gets it", async (t) => {
  const tooOld = { kind: "other-shape", message: /give it an access token/ };
  for (const version of ["v0.10.7", "0.9.99", "v0.4.0-alpha"]) {
    const old = await siteOf(t, { rows: new Map(), version });
    await t.rejects(walked(adapterOf(old, 1), null, SINCE), tooOld, version);
    t.equal(logCalls(old).length, 0, "it is not even asked");
  }
  for (const version of ["v0.10.8", "v0.10.10", "v0.11.0", "v1.0.0", "v0.0.0", "nightly"]) {
    const recent = await siteOf(t, { rows: new Map([["0000", [row(NOON - 1)]]]), version });
    t.equal((await walked(adapterOf(recent, 1), null, SINCE)).length, 1, version);
  }
  const replies: [ConsoleReply, ConsoleErrorKind][] = [
    [{ json: { success: false, message: "record not found" } }, "login-needed"],
    [{ json: { success: false, message: "no" }, status: 401 }, "login-needed"],
    [{ text: "<!doctype html>", headers: { "content-type": "text/html" } }, "other-shape"],
    [{ json: { error: { message: "Invalid URL" } }, status: 404 }, "other-shape"],
  ];
  for (const [reply, kind] of replies) {
    const console = await siteOf(t, { rows: new Map(), version: null, reply: () => reply });
    await t.rejects(walked(adapterOf(console, 1), null, SINCE), { ...tooOld, kind });
    t.ok(console.calls.every(({ query }) => query.size === 0));
  }
});

t.test("an empty 429 is a rate limit, and the pages before it stay", async (t) => {
  const rows = new Map([
    ["0000", [row(NOON - 1)]],
    ["0001", [row(NOON - 2)]],
  ]);
  const console = await siteOf(t, {
    rows,
    reply: (_, tail) => (tail === "0001" ? { text: "", status: 429 } : undefined),
  });
  const walk = adapterOf(console, 2).walk(null, SINCE)[Symbol.asyncIterator]();
  t.equal((await walk.next()).value?.rows.length, 1);
  await t.rejects(walk.next(), { kind: "rate-limited", message: /too many requests/ });
});

t.test("keys are listed with their facts within the budget, and without any request beyond it", async (t) => {
  const console = await siteOf(t, { rows: new Map([["0000", []]]) });
  const usedUp = budgetOf(console);
  while (usedUp.take());
  t.match(await adapterOf(console, 2, usedUp).keys(), [
    { ref: "key:…0000", state: "unknown", quota: null, unlimited: false, as_of: null },
    { ref: "key:…0001", state: "unknown", quota: null, unlimited: false, as_of: null },
  ]);
  t.equal(console.calls.length, 0);
  const adapter = adapterOf(console, 2);
  const listed = await adapter.keys();
  t.match(listed, [
    {
      ref: "key:…0000",
      name: "key 0000",
      // v0.13.2 does not say whether it is disabled.
      state: "unknown",
      quota: 2_000_000,
      quota_used: 500_000,
      expires_at: null,
      shown: { how: "whole" },
    },
    { ref: "key:…0001", state: "deleted" },
  ]);
  const asked = console.calls.length;
  t.same(await adapter.keys(), listed);
  t.equal(console.calls.length, asked, "they are not asked for again at once");
  t.same(await adapter.account(), { balance: null, console_version: "v0.13.2" });
});

t.test("a key that two tools share is read once", async (t) => {
  const console = await siteOf(t, { rows: new Map([["0000", [row(NOON - 1)]]]) });
  const keyCalls = budgetOf(console);
  const adapter = new NewApiByKeys({ ...console.deps, keyCalls, keys: () => [held(0), held(0)] });
  t.equal((await walked(adapter, null, SINCE)).length, 1);
  t.equal((await adapter.keys()).length, 1);
});

t.test("a disabled key is called disabled, and one that the console cannot look up unknown", async (t) => {
  const answers = [
    // new-api 2d8e50bf, in English and in Chinese.
    ["disabled", 401, { message: "This token status is unavailable", success: false }],
    ["disabled", 401, { message: "该令牌状态不可用", success: false }],
    ["deleted", 401, { message: "Invalid token", success: false }],
    ["unknown", 403, { message: "User has been banned", success: false }],
    ["unknown", 200, { message: "Failed to get token info, please try again later", success: false }],
  ] as const;
  for (const [state, status, json] of answers) {
    const rows = new Map([["0000", [row(NOON - 10)]]]);
    const console = await siteOf(t, {
      rows,
      reply: ({ path }) => (path === "/api/usage/token/" ? { json, status } : undefined),
    });
    const adapter = adapterOf(console, 1);
    await walked(adapter, null, SINCE);
    t.match(await adapter.keys(), [{ state, quota: null, unlimited: false }]);
  }
});
