import t from "tap";
import { keyStep } from "../../src/doctor/key-step.ts";
import type { KeySource } from "../../src/key-source.ts";
import { readKey } from "../../src/keys/read.ts";
import { newHome } from "../doubles/command.ts";

const ROTATE = "keybearer tools rotate codex";
const KEYCHAIN: KeySource = { kind: "keychain", service: "keybearer", account: "codex" };

async function stepFor(key: KeySource, env: NodeJS.ProcessEnv = {}): Promise<string> {
  const reading = await readKey(key, { env: { PATH: process.env.PATH, ...env } });
  if (reading.ok) throw new Error("there is a key");
  return keyStep({ name: "codex", key }, reading.reason);
}

t.test("a good key that cannot be had just now is not to be replaced", async (t) => {
  const folder = await newHome(t);
  const env: KeySource = { kind: "env", name: "CODEX_KEY" };
  t.match(await stepFor(env), /^set CODEX_KEY where keybearer is started/);
  t.equal(await stepFor({ kind: "file", path: folder }), `look at the file: ls -l ${folder}`);
  const step = await stepFor({ kind: "command", argv: ["sh", "-c", "echo 'vault is locked' >&2; exit 1"] });
  t.match(step, /^type it yourself and see what it says: sh -c .*save config\.yaml again$/);
  t.notMatch(step, /rotate/);
  const locked = "the keychain is locked, and its password was not given: unlock it";
  t.match(keyStep({ name: "codex", key: KEYCHAIN }, locked), /^unlock the keychain/);
  t.notMatch(keyStep({ name: "codex", key: KEYCHAIN }, locked), /rotate/);
});

t.test("a key that is missing or not whole is to be put there", async (t) => {
  const home = await newHome(t);
  t.equal(await stepFor({ kind: "file", path: `${home}/none` }), ROTATE);
  t.equal(await stepFor({ kind: "env", name: "CODEX_KEY" }, { CODEX_KEY: "sk-abc def0123456789" }), ROTATE);
  t.equal(keyStep({ name: "codex", key: KEYCHAIN }, "the keychain has no entry keybearer/codex: …"), ROTATE);
});

t.test("a reason that names what to type is taken at its word, unless a program outside said it", (t) => {
  t.equal(
    keyStep({ name: "codex", key: KEYCHAIN }, "could not be asked → keybearer status"),
    "keybearer status",
  );
  const command: KeySource = { kind: "command", argv: ["vault"] };
  t.match(keyStep({ name: "codex", key: command }, "vault failed: see → rm -rf /"), /^type it yourself/);
  t.end();
});
