import t from "tap";
import type { KeySource } from "../../../src/config/schema.ts";
import { Secret } from "../../../src/core/secret.ts";
import { readKey } from "../../../src/keys/sources.ts";
import { type Cause, causeFor, findCause, type KeyDetail } from "../../../src/proxy/key-health/cause.ts";
import {
  type ConsoleFacts,
  type KeyFacts,
  type KeyRefusal,
  missingKey,
  reportKey,
} from "../../../src/proxy/key-health/key-problem.ts";
import { newHome } from "../../doubles/command.ts";

process.env.TZ = "UTC";

const NOW = Date.UTC(2026, 10, 17, 12);
const ROTATE = "keybearer tools rotate codex";
const KEYCHAIN: KeySource = { kind: "keychain", service: "keybearer", account: "codex" };

/** What to do about a key that could not be read. */
function step(key: KeySource, more: { absent?: boolean; next?: string | null } = {}): string | null {
  const state = { state: "unavailable", problem: "it cannot be read", next: null, ...more } as const;
  return missingKey({ name: "codex", key }, state).next;
}

async function stepFor(key: KeySource, env: NodeJS.ProcessEnv = {}): Promise<string | null> {
  const reading = await readKey(key, { env: { PATH: process.env.PATH, ...env } });
  if (reading.ok) throw new Error("there is a key");
  return step(key, reading);
}

t.test("the next step for a key that cannot be read just now is not a rotation", async (t) => {
  const folder = await newHome(t);
  const env: KeySource = { kind: "env", name: "CODEX_KEY" };
  t.match(await stepFor(env), /^set CODEX_KEY where keybearer is started/);
  t.equal(await stepFor({ kind: "file", path: folder }), `check the file: ls -l ${folder}`);
  const next = await stepFor({
    kind: "command",
    argv: ["/bin/sh", "-c", "echo 'vault is locked' >&2; exit 1"],
  });
  t.match(next, /^run it yourself to see what it prints: \/bin\/sh -c .*save config\.yaml again$/);
  t.notMatch(next, /rotate/);
  t.match(step(KEYCHAIN), /^unlock the keychain/);
  t.notMatch(step(KEYCHAIN), /rotate/);
});

t.test("the next step for a missing or incomplete key is a rotation", async (t) => {
  const home = await newHome(t);
  const moved = `${ROTATE} --store file`;
  t.equal(
    await stepFor({ kind: "file", path: `${home}/none` }),
    moved,
    "keybearer writes to no file of the person",
  );
  t.equal(await stepFor({ kind: "env", name: "CODEX_KEY" }, { CODEX_KEY: "sk-abc def0123456789" }), moved);
  t.equal(step(KEYCHAIN, { absent: true }), ROTATE);
});

t.test("a next step that the key's source gives is used", (t) => {
  t.equal(step(KEYCHAIN, { next: "keybearer status" }), "keybearer status");
  t.end();
});

const FACTS: ConsoleFacts = { state: "active", windows: [], balance: 5_000_000, as_of: NOW - 120_000 };
const WINDOW = { window: "5h", most: 5_000_000, used: 5_000_001, resets_at: NOW + 3_600_000 };

function refusedWith(cause: Cause | null, status: number): KeyRefusal {
  if (cause === null) throw new Error("it refuses nothing");
  return { cause, status, message: null, since: NOW - 60_000, at: NOW - 60_000, times: 3 };
}

function refusedFor(detail: KeyDetail, status: number): KeyRefusal {
  return refusedWith(causeFor(detail), status);
}

/** sub2api's words for a key that it does not know. */
function unclear(): KeyRefusal {
  const body = '{"code":"INVALID_API_KEY","message":"Invalid API key"}';
  return refusedWith(findCause({ status: 401, contentType: "application/json", body }), 401);
}

function report(known: Partial<KeyFacts>, more: { console?: ConsoleFacts | null; canRotate?: boolean } = {}) {
  const { console = FACTS, canRotate = false } = more;
  const nothing = { refusal: null, acceptedAt: null, fundedAt: null, pause: null };
  const tool = { name: "codex", key: KEYCHAIN };
  const key = { state: "ready", key: new Secret("sk-problem-0123456789a1b2") } as const;
  return reportKey(tool, key, { ...nothing, ...known }, { facts: console, canRotate }, NOW);
}

t.test("a key without known problems has no message", async (t) => {
  const usable = { state: "usable", problem: null, next: null };
  t.match(report({}), usable);
  t.match(report({}, { console: null }), usable);
  t.match(report({}, { console: { ...FACTS, balance: null, windows: [{ ...WINDOW, used: 1 }] } }), usable);
  const returned = { ...FACTS, windows: [{ ...WINDOW, resets_at: NOW - 1 }] };
  t.match(report({}, { console: returned }), usable);
});

t.test("the console's state of a key counts until a request passes", async (t) => {
  const fromConsole = (more: Partial<ConsoleFacts>) => report({}, { console: { ...FACTS, ...more } });
  t.match(fromConsole({ balance: 0 }), {
    state: "usable",
    problem: "balance or quota: the account's balance is used up, as the console said 2 min ago",
    next: /top it up/,
  });
  t.match(fromConsole({ balance: -300_000 }), { problem: /the account's balance is used up/ });
  t.match(fromConsole({ state: "disabled" }), {
    problem: /^disabled key, /,
    next: /; then: keybearer tools rotate codex --manual$/,
  });
  t.match(fromConsole({ state: "expired" }), { problem: /^expired key, / });
  t.match(fromConsole({ state: "deleted" }), { problem: /^deleted key, / });
  t.match(fromConsole({ state: "quota-exhausted" }), {
    problem: /the key's own quota is used up, /,
    next: /keybearer tools rotate codex --manual$/,
  });
  const later = { ...WINDOW, window: "1d", resets_at: NOW + 12 * 3_600_000 };
  t.match(fromConsole({ windows: [WINDOW, later] }), {
    problem: /: the 1d window is used up, and resets tomorrow at 00:00, as the console said/,
    next: /wait, or raise it in the console/,
  });
  const listed = { acceptedAt: NOW - 60_000 };
  const paid = { ...listed, fundedAt: NOW - 60_000 };
  const empty = { console: { ...FACTS, balance: 0 } };
  t.equal(report(paid, empty).problem, null, "a request since then passed");
  t.ok(report(listed, empty).problem, "a list of models costs nothing");
  const disabled = { console: { ...FACTS, state: "disabled" as const } };
  t.equal(report(listed, disabled).problem, null, "it is enabled");
});

t.test("a login replaces a key that the console lists; any other new key is typed", async (t) => {
  const nextFor = (state: ConsoleFacts["state"], canRotate: boolean) =>
    report({}, { console: { ...FACTS, state }, canRotate }).next;
  t.equal(
    nextFor("expired", true),
    "the key has expired: change its expiry in the console, or replace it: keybearer tools rotate codex",
  );
  t.equal(
    nextFor("expired", false),
    "the key has expired: change its expiry in the console, or create a new one; then: keybearer tools rotate codex --manual",
  );
  t.match(nextFor("quota-exhausted", true), /raise it in the console, or replace it: .* codex$/);
  t.match(nextFor("disabled", true), /enable it in the console, or replace it: .* codex$/);
  t.match(nextFor("deleted", true), /create a new one in the console; then: .* codex --manual$/);
  const { next } = report({ refusal: unclear() }, { console: null, canRotate: true });
  t.match(next, /copy it whole .*; then: keybearer tools rotate codex --manual$/);
});

t.test("the tool's own requests count first, and the console says when a window resets", async (t) => {
  t.match(report({ refusal: refusedFor("account-balance", 403) }), {
    state: "refused",
    problem: "balance or quota: the account's balance is used up (403); key …a1b2",
    next: "the account's balance is used up: top it up in the console",
  });
  const refusal = refusedFor("window-used-up", 429);
  t.match(report({ refusal }), {
    problem: "balance or quota: a window of the quota is used up (429); key …a1b2",
  });
  t.match(report({ refusal }, { console: { ...FACTS, windows: [WINDOW] } }), {
    problem: "balance or quota: the 5h window is used up, and resets at 13:00 (429); key …a1b2",
  });
});

t.test("the console explains a refusal that fits several problems, also if it was read before", async (t) => {
  const details = {
    disabled: "key-disabled",
    expired: "key-expired",
    deleted: "key-deleted",
    "quota-exhausted": "key-quota",
  } as const;
  const refusal = unclear();
  for (const [state, detail] of Object.entries(details)) {
    const console = { ...FACTS, state: state as keyof typeof details };
    t.match(report({ refusal }, { console }).refusal, { cause: { detail }, status: 401, times: 3 });
  }
  t.equal(report({ refusal }).refusal, refusal, "it was active when the console was read");
  t.equal(report({ refusal }, { console: null }).refusal, refusal);
});

t.test("a console that was read after the refusal corrects or ends it", async (t) => {
  const later = { ...FACTS, as_of: NOW };
  const after = (refusal: KeyRefusal, more: Partial<ConsoleFacts> = {}) =>
    report({ refusal }, { console: { ...later, ...more } }).refusal;
  const disabled = refusedFor("key-disabled", 401);
  t.match(after(disabled, { state: "deleted" }), { cause: { detail: "key-deleted" } });
  t.equal(after(disabled, { state: "deleted", as_of: FACTS.as_of }), disabled);
  t.equal(after(disabled), null, "it was enabled");
  t.equal(after(disabled, { state: "unknown" }), disabled);
  const empty = refusedFor("account-balance", 403);
  t.equal(after(empty), null, "it was topped up");
  t.match(after(empty, { balance: 0 }), empty);
  t.equal(after(empty, { balance: null }), empty);
  const body = '{"code":"ACCESS_DENIED","message":"access denied"}';
  const address = refusedWith(findCause({ status: 403, contentType: "application/json", body }), 403);
  t.equal(after(address), address, "no console shows this");
});
