import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t, { type Test } from "tap";
import { systemClock } from "../../src/core/clock.ts";
import { Secret } from "../../src/core/secret.ts";
import { Vault } from "../../src/mirror/vault.ts";
import { asOrdinaryUser } from "../doubles/ordinary-user.ts";

const HERE = "https://console.example.com";
const ELSEWHERE = "https://elsewhere.example.com";
const REFRESH = "rt_0123456789abcdef";

function place(t: Test) {
  const file = join(t.testdir(), "consoles.json");
  return { file, vault: new Vault(file, systemClock) };
}

t.test("entries are there after a restart, and only the owner can read the file", async (t) => {
  const { file, vault } = place(t);
  t.same(vault.load(), null, "no file yet is no problem");
  await vault.put("main", HERE, { refreshToken: new Secret(REFRESH), seed: "abc" });
  await vault.put("other", HERE, { accessToken: new Secret("pat-123456"), user: "7" });
  t.equal(statSync(file).mode & 0o777, 0o600);

  const again = new Vault(file, systemClock);
  t.same(again.load(), null);
  const main = again.get("main", HERE);
  t.ok(main?.refreshToken?.equals(new Secret(REFRESH)));
  t.match(main, { seed: "abc" });
  t.equal(again.get("other", HERE)?.user, "7");
  t.equal([...again.secrets()].length, 2);
  t.same(readdirSync(join(file, "..")), ["consoles.json"], "nothing is left lying beside it");
});

t.test("an entry of another origin is never returned, only its origin", async (t) => {
  const { vault } = place(t);
  await vault.put("main", HERE, { refreshToken: new Secret(REFRESH) });
  t.equal(vault.get("main", ELSEWHERE), null);
  t.equal(vault.otherOrigin("main"), HERE);
  t.equal(vault.otherOrigin("unknown"), null);
  t.ok(vault.get("main", HERE));
});

t.test("a file that others can read is refused and not overwritten until its mode is right", async (t) => {
  const { file, vault } = place(t);
  await vault.put("main", HERE, { refreshToken: new Secret(REFRESH) });
  chmodSync(file, 0o640);
  const open = new Vault(file, systemClock);
  const problem = open.load();
  t.match(problem, { problem: /others can read/, next: /chmod 600/ });
  t.notMatch(JSON.stringify(problem), REFRESH);
  t.equal(open.get("main", HERE), null);
  const before = readFileSync(file, "utf8");
  await t.rejects(open.put("other", HERE, { user: "7" }), /chmod 600/);
  t.equal(readFileSync(file, "utf8"), before);

  chmodSync(file, 0o600);
  await open.put("other", HERE, { user: "7" });
  t.ok(open.get("main", HERE), "what was in it before is still there");
});

t.test("a damaged file is set aside, and the vault starts empty", async (t) => {
  const damages = {
    "cut off": '{"version":1,"entries":[{"gateway":"main"',
    "another version": '{"version":2,"entries":[]}',
    "an entry without an origin": '{"version":1,"entries":[{"gateway":"main","refresh_token":"x"}]}',
    "a number for a token":
      '{"version":1,"entries":[{"gateway":"main","origin":"https://a","refresh_token":5}]}',
    "one gateway twice":
      '{"version":1,"entries":[{"gateway":"m","origin":"https://a"},{"gateway":"m","origin":"https://b"}]}',
  };
  for (const [name, text] of Object.entries(damages)) {
    await t.test(name, async (t) => {
      const { file, vault } = place(t);
      writeFileSync(file, text, { mode: 0o600 });
      t.match(vault.load(), { problem: /damaged/ });
      const aside = readdirSync(join(file, "..")).find((one) => one.includes(".set-aside-")) ?? "";
      await vault.put("main", HERE, { refreshToken: new Secret(REFRESH) });
      t.equal(readFileSync(join(file, "..", aside), "utf8"), text, "the copy is untouched by the next write");
      t.ok(vault.get("main", HERE));
    });
  }
});

t.test("a file that is not regular or far too large is refused", async (t) => {
  const { file, vault } = place(t);
  mkdirSync(file);
  t.match(vault.load(), { problem: /not a regular file|cannot be read/ });
  await t.rejects(vault.put("main", HERE, { user: "7" }));

  const large = join(file, "..", "large.json");
  writeFileSync(large, " ".repeat(2 ** 20 + 1), { mode: 0o600 });
  t.match(new Vault(large, systemClock).load(), { problem: /is larger than/ });
});

t.test("changes at the same time all reach the file", async (t) => {
  const { file, vault } = place(t);
  const names = Array.from({ length: 20 }, (_, i) => `gateway-${i}`);
  await Promise.all(names.map((name) => vault.put(name, HERE, { user: name })));
  const again = new Vault(file, systemClock);
  await again.load();
  t.same(
    names.filter((name) => again.get(name, HERE)?.user !== name),
    [],
  );
});

t.test("a change that cannot be written throws, and the old entries stay", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "kb-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, "consoles.json");
  const vault = new Vault(file, systemClock);
  await vault.put("main", HERE, { refreshToken: new Secret(REFRESH) });
  chmodSync(folder, 0o500);
  t.teardown(() => chmodSync(folder, 0o700));
  asOrdinaryUser(t, folder, file);
  await t.rejects(vault.put("main", HERE, { refreshToken: new Secret("rt_another_one") }));
  t.ok(vault.get("main", HERE)?.refreshToken?.equals(new Secret(REFRESH)));
  t.match(readFileSync(file, "utf8"), REFRESH);
});
