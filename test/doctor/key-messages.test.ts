import t from "tap";
import type { KeySource } from "../../src/config/schema.ts";
import {
  type KeyKnowledge,
  keyTrouble,
  missingKey,
  refusalWithConsole,
} from "../../src/doctor/key-messages.ts";
import { readKey } from "../../src/keys/sources.ts";
import type { ToolConsoleFacts } from "../../src/mirror/report/shape.ts";
import type { KeyRefusal } from "../../src/proxy/key-health/key-health.ts";
import { newHome } from "../doubles/command.ts";

process.env.TZ = "UTC";

const NOW = Date.UTC(2026, 10, 17, 12);
const ROTATE = "keybearer tools rotate codex";
const KEYCHAIN: KeySource = { kind: "keychain", service: "keybearer", account: "codex" };

/** What to do about a key that could not be read. */
function step(key: KeySource, more: { absent?: boolean; next?: string } = {}): string {
  const state = { state: "unavailable", reason: "it cannot be read", ...more } as const;
  return missingKey({ name: "codex", key }, state)?.next ?? "";
}

async function stepFor(key: KeySource, env: NodeJS.ProcessEnv = {}): Promise<string> {
  const reading = await readKey(key, { env: { PATH: process.env.PATH, ...env } });
  if (reading.ok) throw new Error("there is a key");
  return step(key, reading);
}

t.test("the next step for a key that cannot be read just now is not a rotation", async (t) => {
  const folder = await newHome(t);
  const env: KeySource = { kind: "env", name: "CODEX_KEY" };
  t.match(await stepFor(env), /^set CODEX_KEY where keybearer is started/);
  t.equal(await stepFor({ kind: "file", path: folder }), `check the file: ls -l ${folder}`);
  const next = await stepFor({ kind: "command", argv: ["sh", "-c", "echo 'vault is locked' >&2; exit 1"] });
  t.match(next, /^run it yourself to see what it prints: sh -c .*save config\.yaml again$/);
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

const FACTS: ToolConsoleFacts = {
  state: "active",
  group: null,
  multiplier: null,
  multiplier_here: null,
  quota: null,
  quota_used: null,
  windows: [],
  expires_at: null,
  balance: 5_000_000,
  as_of: NOW - 120_000,
};
const REFUSED: KeyRefusal = {
  cause: "balance-or-quota",
  detail: "account-balance",
  status: 403,
  since: NOW - 60_000,
  at: NOW - 60_000,
  times: 3,
  next: "top it up in the console",
  words: null,
  key: "…a1b2",
};
const WINDOW = { window: "5h", most: 5_000_000, used: 5_000_001, resets_at: NOW + 3_600_000 };

function trouble(more: Partial<KeyKnowledge>) {
  const nothing = { refused: null, accepted: null, console: FACTS, canRotate: false };
  return keyTrouble({ name: "codex", ...nothing, ...more }, NOW);
}

t.test("a key without known problems has no message", async (t) => {
  t.equal(trouble({}), null);
  t.equal(trouble({ console: null }), null);
  t.equal(trouble({ console: { ...FACTS, balance: null, windows: [{ ...WINDOW, used: 1 }] } }), null);
  t.equal(
    trouble({ console: { ...FACTS, windows: [{ ...WINDOW, resets_at: NOW - 1 }] } }),
    null,
    "it returned",
  );
});

t.test("the console's state of a key counts until a request passes", async (t) => {
  const fromConsole = (more: Partial<ToolConsoleFacts>) => trouble({ console: { ...FACTS, ...more } });
  t.match(fromConsole({ balance: 0 }), {
    what: "balance or quota: the account's balance is used up, as the console said 2 min ago",
    next: /top it up/,
  });
  t.match(fromConsole({ balance: -300_000 }), { what: /the account's balance is used up/ });
  t.match(fromConsole({ state: "disabled" }), {
    what: /^disabled key, /,
    next: /; then: keybearer tools rotate codex --manual$/,
  });
  t.match(fromConsole({ state: "expired" }), { what: /^expired key, / });
  t.match(fromConsole({ state: "deleted" }), { what: /^deleted key, / });
  t.match(fromConsole({ state: "quota-exhausted" }), {
    what: /the key's own quota is used up, /,
    next: /keybearer tools rotate codex --manual$/,
  });
  const later = { ...WINDOW, window: "1d", resets_at: NOW + 12 * 3_600_000 };
  t.match(fromConsole({ windows: [WINDOW, later] }), {
    what: /: the 1d window is used up, and resets tomorrow at 00:00, as the console said/,
    next: /wait, or raise it in the console/,
  });
  const listed = { at: NOW - 60_000, fundedAt: null };
  const paid = { at: NOW - 60_000, fundedAt: NOW - 60_000 };
  t.equal(
    trouble({ console: { ...FACTS, balance: 0 }, accepted: paid }),
    null,
    "a request since then passed",
  );
  t.ok(trouble({ console: { ...FACTS, balance: 0 }, accepted: listed }), "a list of models costs nothing");
  t.equal(trouble({ console: { ...FACTS, state: "disabled" }, accepted: listed }), null, "it is enabled");
});

t.test("a login replaces a key that the console lists; any other new key is typed", async (t) => {
  const nextFor = (state: ToolConsoleFacts["state"], canRotate: boolean) =>
    trouble({ console: { ...FACTS, state }, canRotate })?.next;
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
  const unknown: KeyRefusal = { ...REFUSED, cause: "incomplete-key", detail: null, next: "copy it whole" };
  t.equal(
    trouble({ refused: unknown, console: null, canRotate: true })?.next,
    "copy it whole; then: keybearer tools rotate codex --manual",
  );
});

t.test("the tool's own requests count first, and the console says when a window resets", async (t) => {
  const balance = trouble({ refused: REFUSED, console: FACTS });
  t.equal(balance?.what, "balance or quota: the account's balance is used up (403); key …a1b2");
  t.equal(balance?.next, "top it up in the console");
  const refused: KeyRefusal = { ...REFUSED, status: 429, detail: "window-used-up" };
  t.match(trouble({ refused }), {
    what: "balance or quota: a window of the quota is used up (429); key …a1b2",
  });
  t.match(trouble({ refused, console: { ...FACTS, windows: [WINDOW] } }), {
    what: "balance or quota: the 5h window is used up, and resets at 13:00 (429); key …a1b2",
  });
});

t.test("the console explains a refusal that fits several faults, also if it was read before", async (t) => {
  const unclear: KeyRefusal = { ...REFUSED, cause: "incomplete-key", detail: null, status: 401 };
  const faults = {
    disabled: "key-disabled",
    expired: "key-expired",
    deleted: "key-deleted",
    "quota-exhausted": "key-quota",
  } as const;
  for (const [state, detail] of Object.entries(faults)) {
    const console = { ...FACTS, state: state as keyof typeof faults };
    t.match(refusalWithConsole(unclear, console, NOW), { detail, status: 401, times: 3 });
  }
  t.equal(refusalWithConsole(unclear, FACTS, NOW), unclear, "it was active when the console was read");
  t.equal(refusalWithConsole(unclear, null, NOW), unclear);
});

t.test("a console that was read after the refusal corrects or ends it", async (t) => {
  const later = { ...FACTS, as_of: NOW };
  const disabled: KeyRefusal = { ...REFUSED, cause: "unknown", detail: "key-disabled", status: 401 };
  t.match(refusalWithConsole(disabled, { ...later, state: "deleted" }, NOW), { detail: "key-deleted" });
  t.equal(refusalWithConsole(disabled, { ...FACTS, state: "deleted" }, NOW), disabled);
  t.equal(refusalWithConsole(disabled, later, NOW), null, "it was enabled");
  t.equal(refusalWithConsole(disabled, { ...later, state: "unknown" }, NOW), disabled);
  t.equal(refusalWithConsole(REFUSED, later, NOW), null, "it was topped up");
  t.equal(refusalWithConsole(REFUSED, { ...later, balance: 0 }, NOW), REFUSED);
  t.equal(refusalWithConsole(REFUSED, { ...later, balance: null }, NOW), REFUSED);
  const address: KeyRefusal = { ...REFUSED, cause: "unknown", detail: "ip-not-allowed" };
  t.equal(refusalWithConsole(address, later, NOW), address, "no console shows this");
});
