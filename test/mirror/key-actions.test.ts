import { randomBytes } from "node:crypto";
import { Agent } from "node:http";
import { join } from "node:path";
import t, { type Test } from "tap";
import { Secret } from "../../src/core/secret.ts";
import { ConsoleAccount } from "../../src/mirror/connect/account.ts";
import { openConsole } from "../../src/mirror/connect/open-console.ts";
import {
  ConsoleError,
  type ConsoleErrorKind,
  hasConsole,
  type KeyActions,
  type KeyPlan,
  type KeySettings,
  type RenewedSettings,
} from "../../src/mirror/consoles/console.ts";
import { CallHistory, type ConsoleClient } from "../../src/mirror/consoles/http.ts";
import { KeyCallBudgets } from "../../src/mirror/consoles/key-calls.ts";
import { NewApi } from "../../src/mirror/consoles/new-api.ts";
import { OneApi } from "../../src/mirror/consoles/one-api.ts";
import { Sub2api } from "../../src/mirror/consoles/sub2api.ts";
import { Sub2apiSession } from "../../src/mirror/consoles/sub2api-session.ts";
import { Vault } from "../../src/mirror/vault.ts";
import { startClient } from "../doubles/answering-console.ts";
import {
  type AccountKey,
  type ConsoleDouble,
  LOGIN,
  SECOND_LOGIN,
} from "../doubles/consoles/console-double.ts";
import { startNewApi } from "../doubles/consoles/new-api.ts";
import { startOneApi } from "../doubles/consoles/one-api.ts";
import { type Sub2apiOptions, startSub2api } from "../doubles/consoles/sub2api.ts";
import { oneOf } from "../doubles/effort.ts";
import { heldClock } from "../doubles/held-clock.ts";
import { gatewayOf, snapshotOf } from "../doubles/parsed-config.ts";
import { get, startSandbox } from "../doubles/sandbox.ts";

const NOON = Date.UTC(2026, 10, 17, 12);
const DAY = 24 * 3600_000;
const DOLLAR = 1_000_000;
const NO_LIMITS: KeySettings = { group: null, quota: null, windows: [], expires_at: null, models: [] };

/** A clock that moves on when an adapter pauses. */
class TestTime {
  now = NOON;
  readonly pauses: number[] = [];

  readonly deps = {
    now: () => this.now,
    pause: async (milliseconds: number) => {
      this.pauses.push(milliseconds);
      this.now += milliseconds;
    },
  };
}

function sub2apiActions(client: ConsoleClient, time: TestTime, email: string, password: string): KeyActions {
  const session = new Sub2apiSession({
    client,
    now: time.deps.now,
    refreshToken: null,
    credentials: { email, password: new Secret(password) },
    onRefreshToken: async () => {},
  });
  return new Sub2api({ ...time.deps, client, session }).keyActions();
}

async function atSub2api(t: Test, options: Sub2apiOptions = {}) {
  const time = new TestTime();
  const console = await startSub2api(t, { now: time.deps.now, ...options });
  const client = startClient(t, console.url);
  console.addKey({ name: "codex", key: `sk-${"c".repeat(40)}1`, group: "coding", multiplier: 1.5 });
  return { console, time, actions: sub2apiActions(client, time, LOGIN.email, LOGIN.password) };
}

async function atNewApi(t: Test, { version = "v1.0.0-rc.25" as "v0.13.2" | "v1.0.0-rc.25" } = {}) {
  const time = new TestTime();
  const console = await startNewApi(t, { now: time.deps.now, version });
  const client = startClient(t, console.url);
  const adapter = new NewApi({
    ...time.deps,
    client,
    calls: new CallHistory(),
    accessToken: new Secret(LOGIN.accessToken),
    user: LOGIN.user,
    keyCalls: new KeyCallBudgets(time.deps.now, null).of(console.url),
  });
  console.addKey({ name: "codex", key: `sk-${"c".repeat(40)}1`, group: "coding", multiplier: 1.5 });
  return { console, time, actions: adapter.keyActions() };
}

async function atOneApi(t: Test) {
  const time = new TestTime();
  const console = await startOneApi(t, { now: time.deps.now });
  const client = startClient(t, console.url);
  const calls = new CallHistory();
  const adapter = new OneApi({ ...time.deps, client, calls, accessToken: new Secret(LOGIN.accessToken) });
  console.addKey({ name: "codex", key: `sk-${"c".repeat(40)}1` });
  return { console, time, actions: adapter.keyActions() };
}

const CONSOLES = {
  sub2api: atSub2api,
  "new-api v1.0.0-rc.25": atNewApi,
  "new-api v0.13.2": (t: Test) => atNewApi(t, { version: "v0.13.2" }),
  "one-api": atOneApi,
};

function planOf(actions: KeyActions, settings: KeyPlan["settings"], name = "keybearer-codex-1"): KeyPlan {
  const key = actions.takesOwnKeys ? new Secret(`sk-${randomBytes(24).toString("hex")}`) : null;
  return { name, id: randomBytes(8).toString("hex"), key, settings };
}

function named(console: ConsoleDouble, name: string): AccountKey[] {
  return console.keys.filter((key) => key.name === name);
}

/** The only key with this name. */
function only(console: ConsoleDouble, name = "keybearer-codex-1"): AccountKey {
  const [key, ...others] = named(console, name);
  if (key === undefined || others.length > 0) throw new Error(`${others.length} more keys called ${name}`);
  return key;
}

async function errorOf(action: Promise<unknown>): Promise<ConsoleError> {
  try {
    await action;
  } catch (error) {
    if (error instanceof ConsoleError) return error;
    throw error;
  }
  throw new Error("no error");
}

async function isRefused(
  t: Test,
  action: Promise<unknown>,
  words: RegExp,
  kind: ConsoleErrorKind = "refused",
) {
  const error = await errorOf(action);
  t.equal(error.kind, kind, error.message);
  t.match(error.message, words);
}

for (const [name, start] of Object.entries(CONSOLES)) {
  t.test(`${name}: a key is created, found, disabled, enabled and deleted`, async (t) => {
    const { console, actions } = await start(t);
    const { ref, key } = await actions.create(planOf(actions, { ...NO_LIMITS, quota: 20 * DOLLAR }));
    t.equal(only(console).key, key.reveal());
    t.equal(only(console).quota, 20);
    t.equal((await get(`${console.url}/v1/models`, key.reveal())).status, 200);
    t.equal(await actions.find("keybearer-codex-1"), ref);
    t.equal(await actions.find("keybearer-codex"), null, "only the whole name counts");

    await actions.setEnabled(ref, false);
    t.equal(only(console).disabled, true);
    await actions.setEnabled(ref, true);
    t.equal(only(console).disabled, false);

    await actions.delete(ref);
    t.equal(await actions.find("keybearer-codex-1"), null);
    await actions.delete(ref);
    await isRefused(t, actions.setEnabled(ref, true), /no longer has this key|record not found/);
    t.equal(named(console, "codex").length, 1, "other keys stay");
  });

  t.test(`${name}: a key is created once, although it is asked for three times`, async (t) => {
    const { console, actions } = await start(t);
    const plan = planOf(actions, { ...NO_LIMITS, expires_at: NOON + 40 * DAY + 12_345_000 });
    const first = await actions.create(plan);
    const second = await actions.create(plan);
    const third = await actions.create(plan);
    t.same([second.ref, third.ref], [first.ref, first.ref]);
    t.ok(first.key.equals(second.key) && first.key.equals(third.key));
    t.equal(only(console).expiresAt, NOON + 40 * DAY + 12_345_000, "it expires at the exact time");
  });

  t.test(`${name}: a key is created once, although the response was lost`, async (t) => {
    const { console, actions } = await start(t);
    const plan = planOf(actions, { ...NO_LIMITS, expires_at: NOON + DAY });
    let lost = 0;
    console.onReply = ({ method, path }, reply) => {
      if (method !== "POST" || !/\/(?:keys|token\/)$/.test(path) || lost > 0) return reply;
      lost += 1;
      return null;
    };
    t.equal((await errorOf(actions.create(plan))).kind, "unreachable");
    t.equal(only(console).name, plan.name);
    const { key } = await actions.create(plan);
    t.equal(only(console).key, key.reveal());
    t.equal(only(console).expiresAt, NOON + DAY);
  });

  t.test(`${name}: a copy gets what is left of the quota, and the same expiry`, async (t) => {
    const { console, actions } = await start(t);
    const expiresAt = NOON + 3 * DAY + 1000;
    const settings = { ...NO_LIMITS, quota: 20 * DOLLAR, expires_at: expiresAt };
    const old = await actions.create(planOf(actions, settings));
    only(console).usedDollars = 12.5;
    const plan = planOf(actions, { like: old.ref }, "keybearer-codex-2");
    await actions.create(plan);
    const copy = only(console, "keybearer-codex-2");
    t.match(copy, { quota: 7.5, expiresAt, group: only(console).group });

    only(console).usedDollars = 21;
    t.equal(
      (await actions.create(plan)).ref,
      await actions.find(plan.name),
      "it exists, so it is not refused",
    );
    t.equal(only(console, plan.name).quota, 7.5);
    const next = planOf(actions, { like: old.ref }, "keybearer-codex-3");
    await isRefused(t, actions.create(next), /nothing is left of the old key's quota/);
    only(console).usedDollars = 0;
    only(console).expiresAt = NOON - 1000;
    await isRefused(t, actions.create(next), /the old key has expired/);
    await actions.delete(old.ref);
    await isRefused(t, actions.create(next), /no longer has the old key|record not found/);
    t.equal(await actions.find(next.name), null);
  });

  t.test(`${name}: a copy gets a new expiry or quota where that of the old key is over`, async (t) => {
    const { console, actions } = await start(t);
    const expiresAt = NOON + 3 * DAY;
    const settings = { ...NO_LIMITS, quota: 20 * DOLLAR, expires_at: expiresAt };
    const old = await actions.create(planOf(actions, settings));
    const copyOf = async (renewed: RenewedSettings, to: string) => {
      await actions.create(planOf(actions, { like: old.ref, renewed }, to));
      return only(console, to);
    };
    only(console).usedDollars = 20;
    const renewedQuota = await copyOf({ expires_at: null, quota: 8 * DOLLAR }, "keybearer-codex-2");
    t.match(renewedQuota, { quota: 8, expiresAt, group: only(console).group });
    only(console).usedDollars = 5;
    only(console).expiresAt = NOON - 1000;
    const later = NOON + 90 * DAY;
    const renewedExpiry = await copyOf({ expires_at: later, quota: null }, "keybearer-codex-3");
    t.match(renewedExpiry, { quota: 15, expiresAt: later });
    only(console).usedDollars = 25;
    const both = await copyOf({ expires_at: later, quota: 20 * DOLLAR }, "keybearer-codex-4");
    t.match(both, { quota: 20, expiresAt: later });
  });

  t.test(`${name}: a key that has expired already is not created`, async (t) => {
    const { console, actions } = await start(t);
    const plan = planOf(actions, { ...NO_LIMITS, expires_at: NOON - 1 });
    await isRefused(t, actions.create(plan), /would have expired already/);
    t.same(named(console, plan.name), []);
  });

  t.test(`${name}: an unknown group is refused`, async (t) => {
    const { console, actions } = await start(t);
    const plan = planOf(actions, { ...NO_LIMITS, group: "gold" });
    await isRefused(t, actions.create(plan), /has no group gold/);
    t.same(named(console, plan.name), []);
  });

  t.test(`${name}: no message contains a key that a hostile console puts into an error`, async (t) => {
    const { console, actions } = await start(t);
    const plan = planOf(actions, NO_LIMITS);
    const { ref, key } = await actions.create(plan);
    const whole = key.reveal();
    const bare = whole.replace(/^sk-/, "");
    const spellings = [whole, bare, `${"x".repeat(170)} ${bare}`, `[31m${whole}`, encodeURIComponent(whole)];
    for (const status of oneOf([200, 400, 403, 404, 409, 429, 500], 400)) {
      for (const text of spellings) {
        console.onReply = ({ path }, reply) =>
          path.includes("/auth/")
            ? reply
            : {
                status,
                body: {
                  success: false,
                  code: status,
                  reason: "API_KEY_X",
                  message: `no: ${text}`,
                  data: { key: text },
                },
              };
        const attempts = [
          () => actions.create(plan),
          () => actions.create({ ...plan, name: "keybearer-codex-2" }),
          () => actions.setEnabled(ref, false),
          () => actions.delete(ref),
          () => actions.find("codex"),
          () => actions.groups(),
        ];
        for (const attempt of attempts) {
          const message = await attempt().then(
            () => "",
            (error: ConsoleError) => `${error.message} ${error.stack}`,
          );
          // A part of the key would help a thief, too.
          t.notOk(message.includes(bare.slice(0, 16)), `${status}: ${message}`);
        }
      }
    }
  });
}

t.test("sub2api: a copy has the group, the spending limits and the list of addresses", async (t) => {
  const { console, actions } = await atSub2api(t);
  t.same(await actions.groups(), ["coding"]);
  const windows = [
    { window: "5h", most: DOLLAR / 2 },
    { window: "7d", most: 30 * DOLLAR },
  ];
  const old = await actions.create(planOf(actions, { ...NO_LIMITS, group: "coding", windows }));
  const key = only(console);
  t.match(key, { group: "coding", fields: { rate_limit_5h: 0.5, rate_limit_7d: 30 } });
  key.fields = { ...key.fields, ip_whitelist: ["192.0.2.1"], ip_blacklist: [] };
  await actions.setEnabled(old.ref, false);
  t.same(key.fields?.ip_whitelist, ["192.0.2.1"], "a change keeps the list");
  await actions.create(planOf(actions, { like: old.ref }, "keybearer-codex-2"));
  t.match(only(console, "keybearer-codex-2"), {
    group: "coding",
    fields: { rate_limit_5h: 0.5, rate_limit_7d: 30, ip_whitelist: ["192.0.2.1"] },
  });
  const hourly = { ...NO_LIMITS, windows: [{ window: "1h", most: DOLLAR }] };
  await isRefused(t, actions.create(planOf(actions, hourly, "keybearer-codex-3")), /not in 1h/);
});

t.test("sub2api: another key with the same name is refused", async (t) => {
  const { actions } = await atSub2api(t);
  await actions.create(planOf(actions, NO_LIMITS));
  await isRefused(t, actions.create(planOf(actions, NO_LIMITS)), /has another key with the name/);
});

t.test("sub2api: a version that ignores limits gets no key that has some", async (t) => {
  const { console, actions } = await atSub2api(t, { ignoresLimits: true });
  const settings = { ...NO_LIMITS, quota: DOLLAR, expires_at: NOON + DAY };
  await isRefused(t, actions.create(planOf(actions, settings)), /ignores a key's quota, expiry/);
  t.same(named(console, "keybearer-codex-1"), []);
  await actions.create(planOf(actions, NO_LIMITS));
  t.equal(only(console).name, "keybearer-codex-1");
  const old = console.addKey({ name: "old", key: `sk-${"e".repeat(40)}1`, quota: 5, expiresAt: NOON + DAY });
  const copy = planOf(actions, { like: `id:${old.id}` }, "keybearer-codex-2");
  await isRefused(t, actions.create(copy), /ignores a key's quota, .*expiry/);
  t.same(named(console, "keybearer-codex-2"), []);
});

t.test("new-api: a console that ignores limits gets no copy of a key that has some", async (t) => {
  const { console, actions } = await atNewApi(t);
  const old = console.addKey({ name: "old", key: `sk-${"e".repeat(40)}1`, quota: 5, expiresAt: NOON + DAY });
  const copied = () => named(console, "keybearer-codex-2");
  console.onReply = (_call, reply) => {
    for (const key of copied()) Object.assign(key, { quota: undefined, expiresAt: undefined });
    return reply;
  };
  const copy = planOf(actions, { like: `id:${old.id}` }, "keybearer-codex-2");
  await isRefused(t, actions.create(copy), /ignores a key's quota, expiry/);
  t.same(copied(), []);
});

t.test("sub2api: if self-service is disabled, the console's own message is shown", async (t) => {
  const { console, actions } = await atSub2api(t);
  const message = "Backend mode is active. User self-service is disabled.";
  console.onReply = ({ path }, reply) =>
    path.includes("/auth/") ? reply : { status: 403, body: { code: 403, message } };
  await isRefused(t, actions.create(planOf(actions, NO_LIMITS)), /User self-service is disabled/);
  await isRefused(t, actions.groups(), /User self-service is disabled/);
});

t.test("sub2api: a creation that is still in progress is awaited", async (t) => {
  const { console, time, actions } = await atSub2api(t);
  const busy = (reason: string, seconds: string) => ({
    status: 409,
    headers: { "retry-after": seconds },
    body: { code: 409, message: "idempotent request", reason },
  });
  let answers = 0;
  console.onReply = ({ method }, reply) => {
    if (method !== "POST" || answers === 3) return reply;
    answers += 1;
    return answers === 1 ? reply : busy("IDEMPOTENCY_IN_PROGRESS", "30");
  };
  await actions.create(planOf(actions, NO_LIMITS));
  t.same(time.pauses, [1000, 2000]);
  t.equal(only(console).name, "keybearer-codex-1");

  time.pauses.length = 0;
  console.onReply = ({ method }, reply) =>
    method === "POST" ? busy("IDEMPOTENCY_RETRY_BACKOFF", "5") : reply;
  const other = planOf(actions, NO_LIMITS, "keybearer-codex-2");
  const error = await errorOf(actions.create(other));
  t.match(error, { kind: "failing", retryAfter: 5, message: /earlier request/ });
  t.same(time.pauses, [1000, 2000, 4000, 5000, 5000]);
});

t.test("sub2api: a creation that failed is repeated after its pause", async (t) => {
  const { console, time, actions } = await atSub2api(t);
  const [group] = console.groups.splice(0);
  const plan = planOf(actions, NO_LIMITS);
  console.groups.push({ id: 99, name: "other", multiplier: 1 });
  console.onReply = ({ path }, reply) => {
    // The group disappears after it was listed.
    if (path.endsWith("/available")) console.groups.length = 0;
    return reply;
  };
  const wanted = { ...plan, settings: { ...NO_LIMITS, group: "other" } };
  await isRefused(t, actions.create(wanted), /refused the new key: group not found/);
  console.onReply = null;
  if (group !== undefined) console.groups.push(group);
  console.groups.push({ id: 99, name: "other", multiplier: 1 });
  await actions.create(wanted);
  t.same(time.pauses, [1000, 2000, 4000]);
  t.equal(only(console).group, "other");
});

t.test("sub2api: an expired session is renewed before a key is created", async (t) => {
  const { console, time, actions } = await atSub2api(t);
  await actions.groups();
  console.endSessions("access");
  await actions.create(planOf(actions, NO_LIMITS));
  t.equal(only(console).name, "keybearer-codex-1");
  t.same(time.pauses, []);
});

t.test("new-api: a copy has every setting of the old key", async (t) => {
  const { console, actions } = await atNewApi(t);
  t.same(await actions.groups(), ["coding", "auto"]);
  const old = await actions.create(planOf(actions, { ...NO_LIMITS, group: "coding" }));
  const fields = {
    model_limits_enabled: true,
    model_limits: "gpt-5.1,gpt-5.1-mini",
    allow_ips: "192.0.2.1\n192.0.2.2",
    cross_group_retry: true,
    auto_groups: ["coding"],
  };
  only(console).fields = fields;
  await actions.create(planOf(actions, { like: old.ref }, "keybearer-codex-2"));
  t.match(only(console, "keybearer-codex-2"), { group: "coding", fields });
  t.equal(only(console, "keybearer-codex-2").quota, undefined, "it stays unlimited");
});

t.test("new-api: a key can be limited to models, unless an old version ignores that", async (t) => {
  const { console, actions } = await atNewApi(t);
  const settings = { ...NO_LIMITS, models: ["gpt-5.1", "gpt-5.1-mini"] };
  await actions.create(planOf(actions, settings));
  t.match(only(console).fields, { model_limits_enabled: true, model_limits: "gpt-5.1,gpt-5.1-mini" });
  console.onReply = ({ path, method }, reply) => {
    if (method === "POST" && path === "/api/token/") only(console, "keybearer-codex-2").fields = {};
    return reply;
  };
  const next = planOf(actions, settings, "keybearer-codex-2");
  await isRefused(t, actions.create(next), /ignores a key's models, so the new key was deleted again/);
});

t.test("sub2api and one-api limit no models of a key", async (t) => {
  for (const start of [atSub2api, atOneApi]) {
    const { actions } = await start(t);
    const plan = planOf(actions, { ...NO_LIMITS, models: ["gpt-5.1"] });
    await isRefused(t, actions.create(plan), /cannot limit the models of a single key: leave out --models/);
  }
});

t.test("new-api: spending cannot be limited in hours or days", async (t) => {
  const { actions } = await atNewApi(t);
  const windows = [{ window: "1d", most: DOLLAR }];
  await isRefused(
    t,
    actions.create(planOf(actions, { ...NO_LIMITS, windows })),
    /cannot limit what a key spends/,
  );
});

t.test("new-api: an old key among hundreds is found by the search", async (t) => {
  const { console, actions } = await atNewApi(t);
  const { ref } = await actions.create(planOf(actions, NO_LIMITS));
  for (let n = 0; n < 150; n += 1) {
    console.addKey({ name: `keybearer-codex-1${n}`, key: `sk-${randomBytes(20).toString("hex")}` });
  }
  console.asked.length = 0;
  t.equal(await actions.find("keybearer-codex-1"), ref);
  t.equal(await actions.find("keybearer-codex-1149"), `id:${console.keys.at(-1)?.id}`);
  const searches = console.asked.filter(({ path }) => path.includes("search"));
  t.equal(searches.length, 1, "the newest keys need no search");
});

t.test("new-api: a second key that a late request created is deleted", async (t) => {
  const { console, actions } = await atNewApi(t);
  const plan = planOf(actions, NO_LIMITS);
  const { ref, key } = await actions.create(plan);
  console.addKey({ name: plan.name, key: `sk-${randomBytes(20).toString("hex")}` });
  const again = await actions.create(plan);
  t.equal(again.ref, ref);
  t.ok(again.key.equals(key));
  t.equal(only(console).key, key.reveal());
});

t.test(
  "new-api: 16 keys are created in 20 minutes; a key that could not be shown is not created",
  async (t) => {
    const { console, time, actions } = await atNewApi(t);
    for (let n = 0; n < 16; n += 1) await actions.create(planOf(actions, NO_LIMITS, `keybearer-codex-${n}`));
    time.now += 5 * 60_000;
    const plan = planOf(actions, NO_LIMITS, "keybearer-codex-16");
    const error = await errorOf(actions.create(plan));
    t.match(error, { kind: "rate-limited", retryAfter: 15 * 60, message: /again in 15 min/ });
    t.same(named(console, plan.name), []);
    time.now += 15 * 60_000;
    await actions.create(plan);
    t.equal(only(console, plan.name).name, plan.name);
  },
);

t.test("new-api: a deletion that the console refuses is an error", async (t) => {
  const { console, actions } = await atNewApi(t);
  const { ref } = await actions.create(planOf(actions, NO_LIMITS));
  const key = only(console);
  console.onReply = ({ method }, reply) => {
    if (method !== "DELETE") return reply;
    console.keys.push(key);
    return { status: 200, body: { success: false, message: "database is locked" } };
  };
  await isRefused(t, actions.delete(ref), /database is locked/);
});

t.test("one-api: names refer to keys, and keys have no group", async (t) => {
  const { console, actions } = await atOneApi(t);
  t.equal(await actions.groups(), null);
  const { ref } = await actions.create(planOf(actions, NO_LIMITS));
  t.equal(ref, "name:keybearer-codex-1");
  only(console).fields = { models: "gpt-5.1", subnet: "192.0.2.0/24" };
  await actions.create(planOf(actions, { like: ref }, "keybearer-codex-2"));
  t.match(only(console, "keybearer-codex-2").fields, { models: "gpt-5.1", subnet: "192.0.2.0/24" });

  console.addKey({ name: "codex", key: `sk-${"d".repeat(40)}2` });
  await isRefused(t, actions.delete("name:codex"), /several keys with the name codex/);
  t.equal(named(console, "codex").length, 2);
  const longName = planOf(actions, NO_LIMITS, "keybearer-a-tool-with-a-long-name-1");
  await isRefused(t, actions.create(longName), /令牌名称过长/);
});

t.test("each of several accounts has its own keys, and their refs contain the account's name", async (t) => {
  const time = new TestTime();
  const console = await startOneApi(t, { now: time.deps.now });
  const login = "login: [{ name: home }, { name: work }, { name: old }]";
  const settings = `base_url: "${console.url}/v1", console: { kind: one-api, url: "${console.url}", ${login} }`;
  const gateway = gatewayOf(settings);
  if (!hasConsole(gateway)) throw new Error("main has no console");
  const clock = heldClock();
  const vault = new Vault(join(t.testdir(), "consoles.json"), clock);
  await vault.load();
  const snapshot = snapshotOf(`gateways: { main: { ${settings} } }\ntools: { codex: {} }\n`);
  const shared = { ...time.deps, client: startClient(t, console.url), calls: new CallHistory() };
  const agent = new Agent();
  const deps = {
    clock,
    snapshot: () => snapshot,
    vault,
    agentFor: () => agent,
    signal: new AbortController().signal,
    onSkew: () => {},
    calls: shared.calls,
    keyCalls: new KeyCallBudgets(time.deps.now, null),
  };
  const tokens = [LOGIN.accessToken, SECOND_LOGIN.accessToken];
  for (const [index, token] of tokens.entries()) {
    const account = gateway.console.logins[index];
    if (account === undefined) throw new Error("there is no such account");
    await new ConsoleAccount(gateway, account, deps).store({ accessToken: new Secret(token) });
  }
  const adapter = openConsole("one-api", gateway, shared, deps);
  const actionsOf = (account: string | null) => {
    const actions = adapter.keyActions?.(account);
    if (actions === undefined) throw new Error("no key actions");
    return actions;
  };
  const home = actionsOf("home");
  const work = actionsOf("work");
  const { ref } = await work.create(planOf(work, { ...NO_LIMITS, quota: DOLLAR }));
  t.equal(ref, "name:work/keybearer-codex-1");
  t.equal((await adapter.keys())[0]?.ref, ref);
  t.match(only(console), { second: true });
  t.equal(await home.find("keybearer-codex-1"), null);
  const copy = await work.create(planOf(work, { like: ref }, "keybearer-codex-2"));
  t.equal(copy.ref, await work.find("keybearer-codex-2"));
  await work.setEnabled(ref, false);
  t.equal(only(console).disabled, true);
  await work.delete(ref);
  t.equal(await work.find("keybearer-codex-1"), null);
  const error = await errorOf(work.setEnabled(ref, true));
  t.match(error, { account: "work", message: /^\(account work\) no longer has this key/ });
  t.throws(() => actionsOf("old"), { kind: "login-needed", message: /account old.*has no login yet/ });
  t.throws(() => actionsOf(null), { kind: "refused", message: /several accounts/ });
});

t.test("the sandbox serves every key action", async (t) => {
  const sandbox = await startSandbox(t);
  const { email, password } = sandbox.account;
  const time = new TestTime();
  time.now = Date.now();
  const client = startClient(t, sandbox.origin);
  const actions = sub2apiActions(client, time, email, password.reveal());
  t.same(await actions.groups(), ["default", "coding"]);
  const expiresAt = time.now + 90 * DAY + 1;
  const settings: KeySettings = {
    group: "coding",
    quota: 20 * DOLLAR,
    windows: [{ window: "1d", most: 5 * DOLLAR }],
    expires_at: expiresAt,
    models: [],
  };
  const plan = planOf(actions, settings);
  const first = await actions.create(plan);
  t.equal((await actions.create(plan)).ref, first.ref);
  const [key] = sandbox.account.keys;
  t.match(key, { quota: 20, expiresAt, group: { name: "coding" }, spending: { "1d": { limit: 5 } } });
  const copy = await actions.create(planOf(actions, { like: first.ref }, "keybearer-codex-2"));
  t.match(sandbox.account.keys[1], { quota: 20, expiresAt, spending: { "1d": { limit: 5 } } });
  t.equal((await get(`${sandbox.baseUrl}/models`, copy.key.reveal())).status, 200);

  await actions.setEnabled(first.ref, false);
  t.equal((await get(`${sandbox.baseUrl}/models`, first.key.reveal())).status, 401);
  await actions.delete(first.ref);
  await actions.delete(first.ref);
  t.equal(await actions.find(plan.name), null);
  await isRefused(
    t,
    actions.create(planOf(actions, { ...settings, group: "retired" }, "x")),
    /no group retired/,
  );
});
