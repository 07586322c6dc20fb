import { join } from "node:path";
import t, { type Test } from "tap";
import { type KeyState, Snapshot } from "../../src/config/snapshot.ts";
import { Secret } from "../../src/core/secret.ts";
import { ConsoleAccount } from "../../src/mirror/connect/account.ts";
import { hasConsole } from "../../src/mirror/consoles/console.ts";
import { KeyCallBudgets } from "../../src/mirror/consoles/key-calls.ts";
import { type StoredLogin, Vault } from "../../src/mirror/vault.ts";
import { newHome } from "../doubles/command.ts";
import { heldClock } from "../doubles/held-clock.ts";
import { configOf } from "../doubles/parsed-config.ts";

const END = 1_800_000_000;

/** A JSON Web Token, as gateways issue them. */
function token(payload: unknown): Secret {
  const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url");
  return new Secret(`${part({ alg: "HS256" })}.${part(payload)}.c2lnbmF0dXJl`);
}

t.test("a token says by itself when it ends, or it is not known", (t) => {
  t.equal(token({ exp: END }).expiresAt, END * 1000);
  for (const payload of [{}, { exp: "soon" }, null, []]) t.equal(token(payload).expiresAt, null);
  for (const text of ["sk-plain", "a.b", "a.!!!.c", ".."]) t.equal(new Secret(text).expiresAt, null);
  t.end();
});

const CONSOLE = "kind: sub2api, url: https://gateway.example.com";

async function endOf(t: Test, login: string, secrets: Record<string, KeyState>, stored: StoredLogin | null) {
  const config = configOf(
    `gateways: { main: { base_url: https://gateway.example.com/v1, console: { ${CONSOLE}, login: { ${login} } } } }\ntools: { codex: {} }\n`,
  );
  const clock = heldClock();
  const home = await newHome(t);
  const vault = new Vault(join(home, "consoles.json"), clock);
  if (stored !== null) await vault.put("main", "https://gateway.example.com", stored);
  const names = Object.entries(secrets).map(([name, state]) => [`main console ${name}`, state] as const);
  const snapshot = new Snapshot(1, config, new Map(names), []);
  const { main } = config.gateways;
  const [only] = main?.console?.logins ?? [];
  if (main === undefined || !hasConsole(main) || only === undefined) throw new Error("there is no login");
  const keyCalls = new KeyCallBudgets(() => clock.now(), join(home, "key-calls.json"));
  return new ConsoleAccount(main, only, { snapshot: () => snapshot, vault, keyCalls }).endsAt;
}

t.test("a login ends with its token, unless keybearer can log in again by itself", async (t) => {
  const configured = token({ exp: END });
  const ready: KeyState = { state: "ready", key: configured };
  const byToken = "refresh_token: env:REFRESH";
  t.equal(await endOf(t, byToken, { refresh_token: ready }, null), END * 1000);
  const later = { refreshToken: token({ exp: END + 60 }), seed: null };
  t.equal(await endOf(t, "email: me@example.com", {}, later), (END + 60) * 1000, "of mirror login");
  t.equal(
    await endOf(t, byToken, { refresh_token: ready }, later),
    END * 1000,
    "config.yaml has another one",
  );
  const seed = configured.digest("refresh-token");
  const extended = { ...later, isExtended: true };
  t.equal(await endOf(t, "email: me@example.com", {}, extended), null, "each use of it moves its end");
  t.equal(await endOf(t, byToken, { refresh_token: ready }, { ...extended, seed }), null);
  t.equal(
    await endOf(t, byToken, { refresh_token: ready }, extended),
    END * 1000,
    "that is known of another token",
  );
  const held: KeyState = { state: "unavailable", problem: "it is locked", next: null };
  t.equal(await endOf(t, byToken, { refresh_token: held }, null), null);
  const byPassword = "email: me@example.com, password: env:PASSWORD";
  const password: KeyState = { state: "ready", key: new Secret("hunter22-hunter22") };
  t.equal(await endOf(t, byPassword, { password }, later), null);
});
