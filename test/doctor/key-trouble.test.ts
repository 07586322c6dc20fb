import t from "tap";
import { keyStep } from "../../src/doctor/key-trouble.ts";
import type { KeySource } from "../../src/key-source.ts";
import { readKey } from "../../src/keys/read.ts";
import { newHome } from "../doubles/command.ts";

const ROTATE = "keybearer tools rotate codex";
const KEYCHAIN: KeySource = { kind: "keychain", service: "keybearer", account: "codex" };

async function stepFor(key: KeySource, env: NodeJS.ProcessEnv = {}): Promise<string> {
  const reading = await readKey(key, { env: { PATH: process.env.PATH, ...env } });
  if (reading.ok) throw new Error("there is a key");
  return keyStep({ name: "codex", key }, reading);
}

t.test("a good key that cannot be had just now is not to be replaced", async (t) => {
  const folder = await newHome(t);
  const env: KeySource = { kind: "env", name: "CODEX_KEY" };
  t.match(await stepFor(env), /^set CODEX_KEY where keybearer is started/);
  t.equal(await stepFor({ kind: "file", path: folder }), `look at the file: ls -l ${folder}`);
  const step = await stepFor({ kind: "command", argv: ["sh", "-c", "echo 'vault is locked' >&2; exit 1"] });
  t.match(step, /^type it yourself and see what it says: sh -c .*save config\.yaml again$/);
  t.notMatch(step, /rotate/);
  t.match(keyStep({ name: "codex", key: KEYCHAIN }, {}), /^unlock the keychain/);
  t.notMatch(keyStep({ name: "codex", key: KEYCHAIN }, {}), /rotate/);
});

t.test("a key that is missing or not whole is to be put there", async (t) => {
  const home = await newHome(t);
  t.equal(await stepFor({ kind: "file", path: `${home}/none` }), ROTATE);
  t.equal(await stepFor({ kind: "env", name: "CODEX_KEY" }, { CODEX_KEY: "sk-abc def0123456789" }), ROTATE);
  t.equal(keyStep({ name: "codex", key: KEYCHAIN }, { absent: true }), ROTATE);
});

t.test("where another step is known, it is named", (t) => {
  t.equal(keyStep({ name: "codex", key: KEYCHAIN }, { next: "keybearer status" }), "keybearer status");
  t.end();
});
