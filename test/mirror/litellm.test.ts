import { readFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import type { JsonObject } from "../../src/core/json.ts";
import { Secret } from "../../src/core/secret.ts";
import type { ConsoleErrorKind, KeyPlan, KeySettings } from "../../src/mirror/consoles/console.ts";
import { LiteLlm, readLiteLlmRow } from "../../src/mirror/consoles/litellm.ts";
import { LiteLlmSession } from "../../src/mirror/consoles/litellm-session.ts";
import { answeringConsole, startClient, walked } from "../doubles/answering-console.ts";
import { LOGIN } from "../doubles/consoles/console-double.ts";
import { startLiteLlm } from "../doubles/consoles/litellm.ts";
import { ROOT } from "../doubles/paths.ts";

/** Recorded from LiteLLM 1.106.2, without the prices of the model and what names the machine. */
const { rows } = JSON.parse(readFileSync(join(ROOT, "test/mirror/litellm-rows.json"), "utf8")) as {
  readonly rows: Readonly<Record<string, JsonObject>>;
};
const HASH = "5e".repeat(32);
const DOLLAR = 1_000_000;
const NO_LIMITS: KeySettings = { group: null, quota: null, windows: [], expires_at: null, models: [] };

function read(name: string) {
  const row = readLiteLlmRow(rows[name] ?? {});
  if (typeof row === "string") throw new Error(`${name} is ${row}`);
  return row;
}

const tokens = (row: ReturnType<typeof read>) => [
  row.input_tokens,
  row.cache_read_tokens,
  row.cache_write_tokens,
  row.output_tokens,
];

t.test("a row has the id that its request brought, its key, its times and its money", async (t) => {
  t.match(read("plain"), {
    identity: "chatcmpl-plain",
    kind: "use",
    request_id: "KB-plain",
    key_ref: `hash:${HASH}`,
    began_at: Date.UTC(2026, 10, 19, 13, 43, 36, 516),
    created_at: Date.UTC(2026, 10, 19, 13, 43, 38, 491),
    model: "gpt-4.1-mini",
    multiplier: 1,
    list_microdollars: 800,
    billed_microdollars: 800,
    duration_ms: 1974,
    ip: "127.0.0.1",
    user_agent: "Python-urllib/3.11",
  });
  t.same(tokens(read("plain")), [80, 0, 0, 80]);
});

t.test("every kind of row is read as what it is", async (t) => {
  const cases: [name: string, kind: string, model: string, tokens: (number | null)[], billed: number][] = [
    ["stream", "use", "gpt-4.1-mini", [80, 0, 0, 80], 800],
    ["response", "use", "gpt-4.1-mini", [80, 0, 0, 80], 800],
    ["embedding", "use", "emb", [80, 0, 0, 0], 2],
    ["image", "use", "img", [80, 0, 0, 80], 3600],
    ["fallback", "use", "flaky", [80, 0, 0, 80], 240],
    ["messages from the provider's cache", "use", "claude-sonnet-4-5", [80, 800, 0, 80], 1512],
    ["failure", "error", "gpt-4.1-mini", [null, null, null, null], 0],
    ["refused by the router", "error", "gpt-4.1-mini", [null, null, null, null], 0],
    ["unknown model", "error", "unknown-model", [null, null, null, null], 0],
    ["cut stream", "error", "gpt-4.1-mini", [130, 0, 0, 8], 324],
    ["client left before the answer", "use", "gpt-4.1-mini", [132, 0, 0, 0], 264],
    ["client left in the stream", "use", "gpt-4.1-mini", [134, 0, 0, 10], 348],
  ];
  for (const [name, kind, model, counts, billed] of cases) {
    const row = read(name);
    t.match(row, { kind, model, billed_microdollars: billed }, name);
    t.same(tokens(row), counts, name);
  }
});

t.test("rows with one call id are told apart, however long the id of their answer is", async (t) => {
  const identities = ["a", "b"].map((letter) => {
    const row = readLiteLlmRow({ ...rows.response, request_id: `resp_${letter.repeat(392)}` });
    return typeof row === "string" ? row : row.identity;
  });
  t.not(identities[0], identities[1]);
});

t.test("LiteLLM's discount is the factor between its list price and its bill", async (t) => {
  t.match(read("messages with a discount"), {
    list_microdollars: 1440,
    multiplier: 0.9,
    billed_microdollars: 1296,
  });
});

t.test("so is its margin", async (t) => {
  t.match(read("with a margin"), {
    list_microdollars: 800,
    multiplier: 1.2,
    billed_microdollars: 960,
  });
});

t.test("an attempt that timed out is a row of the request, with a cost", async (t) => {
  t.match(read("attempt that timed out"), {
    identity: "KB-to1-attempt-0",
    kind: "error",
    request_id: "KB-to1",
    model: "slow",
    billed_microdollars: 278,
  });
});

t.test("an answer from LiteLLM's own cache costs nothing, in a tier of its own", async (t) => {
  t.match(read("cache hit"), {
    identity: /^chatcmpl-cache_cache_hit/,
    request_id: "KB-cache2",
    service_tier: "litellm-cache",
    list_microdollars: 0,
    billed_microdollars: 0,
  });
});

t.test("a version without call ids lists a row under the id of the provider's answer", async (t) => {
  const { litellm_call_id: _, ...plain } = rows.plain ?? {};
  const { litellm_call_id: __, ...metadata } = plain.metadata as Record<string, unknown>;
  const row = readLiteLlmRow({ ...plain, metadata: JSON.stringify(metadata) });
  t.match(row, { request_id: "chatcmpl-plain", billed_microdollars: 800 });
});

t.test("a refusal that names no model is no usage", async (t) => {
  const row = rows["unknown model"] ?? {};
  const metadata = { ...(row.metadata as Record<string, unknown>), original_model_group: "" };
  const bare = { ...row, model: "", model_group: "", metadata };
  t.equal(readLiteLlmRow(bare), "other");
});

t.test("a row without a start or an id cannot be read", async (t) => {
  t.equal(readLiteLlmRow({ ...rows.plain, startTime: null }), "unreadable");
  t.equal(readLiteLlmRow({ ...rows.plain, request_id: null }), "unreadable");
});

const NOON = Date.UTC(2026, 7, 21, 12);

/** A log of rows that began a second apart, counted up to 10,000. */
async function logOf(t: Test, count: number) {
  const began = Array.from({ length: count }, (_, n) => NOON - 1000 * n - 60_000);
  const console = await answeringConsole(t, ({ path, query }) => {
    if (path !== "/spend/logs/v2") return { json: { detail: "Not Found" }, status: 404 };
    const from = Date.parse(`${query.get("start_date")}Z`);
    const to = Date.parse(`${query.get("end_date")}Z`);
    const size = Number(query.get("page_size"));
    const start = (Number(query.get("page")) - 1) * size;
    const found = began.filter((time) => time >= from && time <= to);
    const data = found.slice(start, start + size).map((time) => ({
      request_id: `chatcmpl-${time}`,
      startTime: new Date(time).toISOString(),
    }));
    return { json: { data, total: Math.min(10_000, found.length) } };
  });
  const session = sessionAt(console.deps, { key: new Secret("sk-login-0123456789") });
  return { console, adapter: new LiteLlm({ ...console.deps, session }) };
}

function sessionAt(
  { client, now }: Pick<ConstructorParameters<typeof LiteLlmSession>[0], "client" | "now">,
  { key = null, password }: { key?: Secret | null; password?: string },
): LiteLlmSession {
  const credentials = password === undefined ? null : { user: LOGIN.email, password: new Secret(password) };
  return new LiteLlmSession({ client, now, key, credentials });
}

t.test("more rows than LiteLLM counts are read in smaller windows, each row once", async (t) => {
  const { console, adapter } = await logOf(t, 12_000);
  const pages = await walked(adapter, null, NOON - 24 * 3600_000);
  const identities = pages.flatMap(({ rows: found }) => found.map(({ identity }) => identity));
  t.equal(new Set(identities).size, 12_000);
  t.same(
    pages.filter(({ gap }) => gap !== null),
    [],
  );
  t.ok(console.calls.every(({ headers }) => headers.authorization === "Bearer sk-login-0123456789"));

  console.time += 60_000;
  const calls = console.calls.length;
  const again = await walked(adapter, pages.at(-1)?.cursor ?? null, NOON);
  const known = new Set(identities);
  t.ok(again.every(({ rows: found }) => found.every(({ identity }) => known.has(identity))));
  t.ok(console.calls.length - calls <= 2, "the total shows that nothing is new");
});

t.test("what is no list of rows is not taken for one", async (t) => {
  const cases: [json: unknown, status: number, kind: ConsoleErrorKind, says: RegExp][] = [
    [{ total: 1 }, 200, "other-shape", /data/],
    [{ data: [] }, 200, "other-shape", /total/],
    [{ data: [{ request_id: "x" }], total: 1 }, 200, "other-shape", /time/],
    [{ detail: "Not Found" }, 404, "other-shape", /404/],
    [{ detail: "This account's password must be changed" }, 403, "login-needed", /password must be changed/],
    [{ error: { message: "no_db_connection" } }, 503, "failing", /no_db_connection/],
  ];
  for (const [json, status, kind, says] of cases) {
    const console = await answeringConsole(t, () => ({ json, status }));
    const session = sessionAt(console.deps, { key: new Secret("sk-login-0123456789") });
    const adapter = new LiteLlm({ ...console.deps, session });
    await t.rejects(walked(adapter, null, NOON - 3600_000), { name: "Error", kind, message: says });
  }
});

async function atDouble(t: Test, options: { password?: string } = {}) {
  const double = await startLiteLlm(t);
  double.addKey({ name: "codex", key: "sk-codex0123456789abcdef", quota: 5, fields: { models: ["m"] } });
  const client = startClient(t, double.url);
  let time = Date.now();
  const now = () => time;
  const pass = (milliseconds: number) => {
    time += milliseconds;
  };
  const own = options.password === undefined ? { key: new Secret(LOGIN.accessToken) } : options;
  const session = sessionAt({ client, now }, own);
  const deps = { client, now, pause: async () => {}, calls: undefined as never };
  return { double, adapter: new LiteLlm({ ...deps, session }), pass };
}

t.test("keys are listed with budget, spend, expiry, models and state, and known by their hash", async (t) => {
  const { double, adapter } = await atDouble(t);
  const [codex] = double.keys;
  if (codex !== undefined) codex.usedDollars = 1.25;
  double.addKey({ name: "off", key: "sk-off0123456789abcdefgh", disabled: true });
  double.addKey({ name: "spent", key: "sk-spent0123456789abcdef", quota: 1, fields: { spend: 1 } });
  const fields = { budget_duration: "7d", budget_reset_at: "2026-11-26T00:00:00Z", total_spend: 9 };
  double.addKey({ name: "weekly", key: "sk-weekly0123456789abcde", quota: 3, fields });
  double.addKey({ name: "web", key: "sk-web0123456789abcdefgh", fields: { team_id: "litellm-dashboard" } });
  const [first, ...others] = await adapter.keys();
  t.match(first, {
    name: "codex",
    state: "active",
    quota: 5 * DOLLAR,
    quota_used: 1.25 * DOLLAR,
    models: ["m"],
    shown: { how: "hash", tail: "cdef" },
  });
  const hash = first?.shown.how === "hash" ? first.shown.hash : "";
  t.equal(hash, new Secret("sk-codex0123456789abcdef").sha256());
  t.equal(first?.ref, `hash:${hash}`);
  t.match(others, [
    { name: "off", state: "disabled", unlimited: true },
    { name: "spent", state: "quota-exhausted" },
    {
      name: "weekly",
      quota: null,
      quota_used: 9 * DOLLAR,
      windows: [{ window: "7d", most: 3 * DOLLAR, used: 0, resets_at: Date.UTC(2026, 10, 26) }],
    },
  ]);
  t.equal(others.length, 3, "the web pages' own keys are left out");
  t.match(await adapter.account(), { balance: 50 * DOLLAR, console_version: null });
});

t.test("a password makes a session, which is renewed once it has ended", async (t) => {
  const { double, adapter, pass } = await atDouble(t, { password: LOGIN.password });
  await adapter.keys();
  await adapter.account();
  const logins = () => double.asked.filter(({ path }) => path === "/v2/login").length;
  t.equal(logins(), 1);
  double.endSessions();
  await t.rejects(adapter.keys(), { kind: "login-needed", message: /a short while ago/ });
  pass(11 * 60_000);
  t.equal((await adapter.keys()).length, 1);
  t.equal(logins(), 2);
});

t.test("a wrong password is the login's failure", async (t) => {
  const { adapter } = await atDouble(t, { password: "wrong" });
  await t.rejects(adapter.keys(), { kind: "login-refused", message: /Invalid credentials/ });
});

function plan(name: string, settings: KeyPlan["settings"]): KeyPlan {
  return { name, id: "0123456789", key: null, settings };
}

t.test("a key is created with its limits, found by its alias, disabled, enabled and deleted", async (t) => {
  const { double, adapter } = await atDouble(t);
  const actions = adapter.keyActions();
  const expires_at = Date.now() + 3600_000;
  const limits = { ...NO_LIMITS, quota: 2 * DOLLAR, expires_at, models: ["m"] };
  const made = await actions.create(plan("made", limits));
  const key = double.keys.find(({ name }) => name === "made");
  t.match(key, { quota: 2, fields: { key_type: "llm_api", models: ["m"] } });
  t.ok(made.key.equals(new Secret(key?.key ?? "")));
  t.equal(await actions.find("made"), made.ref);
  t.equal(await actions.find("mad"), null);
  await actions.setEnabled(made.ref, false);
  t.equal(key?.disabled, true);
  await actions.setEnabled(made.ref, true);
  t.equal(key?.disabled, false);
  await actions.delete(made.ref);
  await actions.delete(made.ref);
  t.equal(await actions.find("made"), null, "a key that is gone counts as deleted");
  double.locked = true;
  const codex = (await adapter.keys())[0]?.ref ?? "";
  await t.rejects(actions.setEnabled(codex, false), { kind: "refused", message: /Only proxy admins/ });
  await t.rejects(actions.create(plan("made", { ...NO_LIMITS, group: "coding" })), {
    kind: "refused",
    message: /teams instead of groups/,
  });
});

t.test("a successor has what is left of the old key's budget, and its other settings", async (t) => {
  const { double, adapter } = await atDouble(t);
  const [old] = await adapter.keys();
  const [codex] = double.keys;
  if (old === undefined || codex === undefined) throw new Error("there is no key");
  codex.usedDollars = 1.5;
  const actions = adapter.keyActions();
  await actions.create(plan("next", { like: old.ref }));
  t.match(double.keys.at(-1), { name: "next", quota: 3.5, fields: { models: ["m"] } });
  codex.usedDollars = 5;
  await t.rejects(actions.create(plan("later", { like: old.ref })), {
    kind: "refused",
    message: /nothing is left/,
  });
  const renewed = { expires_at: null, quota: 4 * DOLLAR };
  await actions.create(plan("later", { like: old.ref, renewed }));
  t.match(double.keys.at(-1), { name: "later", quota: 4 });
});

t.test("a key whose answer was lost is made again, and there is never a second one", async (t) => {
  const { double, adapter } = await atDouble(t);
  const actions = adapter.keyActions();
  double.onReply = ({ path }, reply) => (path === "/key/generate" ? null : reply);
  const asked = plan("made", { ...NO_LIMITS, quota: 2 * DOLLAR });
  await t.rejects(actions.create(asked), { name: "Error", kind: "unreachable" });
  const lost = double.keys.find(({ name }) => name === "made")?.key;
  t.ok(lost, "LiteLLM made it");
  double.onReply = null;
  const made = await actions.create(asked);
  const keys = double.keys.filter(({ name }) => name === "made");
  t.equal(keys.length, 1);
  t.match(keys[0], { quota: 2 });
  t.not(keys[0]?.key, lost);
  t.ok(made.key.equals(new Secret(keys[0]?.key ?? "")));
});
