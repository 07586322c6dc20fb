import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t from "tap";
import { askDaemon } from "../../src/control/client.ts";
import { type Problem, withNext } from "../../src/core/display.ts";
import { Secret } from "../../src/core/secret.ts";
import { askKeychain } from "../../src/keys/keychain.ts";
import { type KeyReading, readKey } from "../../src/keys/sources.ts";
import { forgetKey, keychainThere, storeKey, tryKeychain } from "../../src/keys/stored-keys.ts";
import { ask, holdsNone, lastKey, toolState } from "../doubles/config-journey.ts";
import { freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { failureText } from "../doubles/failure-text.ts";
import { newKey, startSandbox } from "../doubles/sandbox.ts";
import { missingForSecrets, startBus, startSecretService } from "../doubles/secret-service.ts";
import { HANG_MS, until } from "../doubles/until.ts";

const ONE = "sk-canary-one-8f3a1c9d2b7e";
const TWO = "sk-canary-two-5d1e7a9c3f60";

const entry = (account: string, service = "keybearer") => ({ kind: "keychain", service, account }) as const;

function noKeychain({ problem }: { readonly problem: Problem | null }): string {
  return problem === null ? "there is one" : withNext(problem);
}

function describeState(reading: KeyReading): string {
  return reading.ok ? `a key: ${reading.key.reveal()}` : withNext(reading);
}

const noBus = process.platform === "linux" ? false : "only Linux reaches its keychain over a bus";
const missing = missingForSecrets();

t.test(
  "without a session bus there is no keychain, and the message names alternatives",
  { skip: noBus },
  async (t) => {
    const problem = /there is no session bus here .*use file: or command:/;
    t.match(describeState(await readKey(entry("codex"), { env: {} })), problem);
    t.match(noKeychain(await keychainThere({ env: {} })), problem);
    t.match(failureText(await storeKey(entry("codex"), new Secret(ONE), { env: {} })), problem);
    const env = { XDG_RUNTIME_DIR: t.testdir() };
    t.match(
      describeState(await readKey(entry("codex"), { env })),
      problem,
      "a folder without a bus is none either",
    );
  },
);

t.test(
  "a bus that is gone or does not answer is not reported as a missing entry",
  { skip: noBus },
  async (t) => {
    // Short, because a unix socket is in it.
    const folder = await mkdtemp(join(tmpdir(), "kb-"));
    t.teardown(() => rm(folder, { recursive: true, force: true }));
    const gone = { DBUS_SESSION_BUS_ADDRESS: `unix:path=${join(folder, "gone")}` };
    t.match(describeState(await readKey(entry("codex"), { env: gone })), /the session bus does not answer/);
    const deaf = createServer(() => {}).listen(join(folder, "bus"));
    await once(deaf, "listening");
    t.teardown(() => deaf.close());
    const env = { XDG_RUNTIME_DIR: folder };
    t.match(
      describeState(await readKey(entry("codex"), { env, limit: 400 })),
      /did not answer within 0.4 s/,
      "found in the folder",
    );
    const stop = new AbortController();
    const reading = readKey(entry("codex"), { env, limit: 60_000, signal: stop.signal });
    stop.abort();
    t.match(describeState(await reading), /was not read, because the configuration changed/);
  },
);

t.test("a key file is private, complete, and replaces another key only if asked", async (t) => {
  const folder = join(t.testdir(), "keys");
  const place = { kind: "file", path: join(folder, "codex") } as const;
  const store = (key: string, replace = false) => storeKey(place, new Secret(key), { env: {}, replace });
  const read = async () => describeState(await readKey(place, { env: {} }));
  t.same(await store(ONE), { ok: true, made: true });
  t.equal((await stat(folder)).mode & 0o777, 0o700);
  t.equal((await stat(place.path)).mode & 0o777, 0o600);
  t.same(await store(ONE), { ok: true, made: false }, "the same key is there already");
  const refused = await store(TWO);
  t.match(refused, { ok: false, problem: /already exists with something else in it/ });
  t.notMatch(JSON.stringify(refused), /canary/);
  t.equal(await read(), `a key: ${ONE}`);
  t.same(await store(TWO, true), { ok: true, made: true });
  t.equal(await read(), `a key: ${TWO}`);
  t.same(await readdir(folder), ["codex"], "nothing is left beside it");
  t.same(await forgetKey(place, { env: {} }), { ok: true });
  t.same(await forgetKey(place, { env: {} }), { ok: true }, "twice is no mistake");
  t.same(await readdir(folder), []);
});

t.test("one of many keys stored in one file at once is kept, the others are refused", async (t) => {
  const place = { kind: "file", path: join(t.testdir(), "codex") } as const;
  const keys = Array.from({ length: 8 }, (_, at) => new Secret(`${ONE}-${at}`));
  const outcomes = await Promise.all(keys.map((key) => storeKey(place, key, { env: {} })));
  t.equal(outcomes.filter(({ ok }) => ok).length, 1);
  const winner = keys[outcomes.findIndex(({ ok }) => ok)];
  t.equal(describeState(await readKey(place, { env: {} })), `a key: ${winner?.reveal()}`);
});

t.test("a key is not stored through a link or where no file can be, with the reason", async (t) => {
  const folder = t.testdir({ sub: {} });
  const at = (path: string) => ({ kind: "file", path }) as const;
  const store = (path: string, replace = false) => storeKey(at(path), new Secret(ONE), { env: {}, replace });
  await writeFile(join(folder, "theirs"), "something");
  await symlink(join(folder, "theirs"), join(folder, "link"));
  t.match(await store(join(folder, "link")), { ok: false, problem: /was not changed/ });
  t.match(await forgetKey(at(join(folder, "link")), { env: {} }), { ok: false, problem: /was not changed/ });
  t.same(await store(join(folder, "link"), true), { ok: true, made: true });
  t.equal(await readFile(join(folder, "theirs"), "utf8"), "something", "the link went, not what it led to");
  t.match(await store(join(folder, "sub"), true), { ok: false, problem: /is a folder/ });
  t.match(await store(join(folder, "theirs", "key")), { ok: false, problem: /is not a folder/ });
  t.match(await store("codex"), { ok: false, problem: /not an absolute path/ });
  t.match(await forgetKey(at(join(folder, "sub")), { env: {} }), {
    ok: false,
    problem: /not a regular file/,
  });
});

t.test("a bus without a secret service is reported", { skip: missing ?? false }, async (t) => {
  const { env } = await startBus(t);
  const problem = /no program on the session bus stores secrets.* use file: or command:/;
  t.match(describeState(await readKey(entry("codex"), { env })), problem);
  t.match(noKeychain(await keychainThere({ env })), problem);
});

t.test("a real keychain keeps keys", { skip: missing ?? false }, async (t) => {
  const service = await startSecretService(t);
  const { env } = service;
  const read = async (account: string, limit = HANG_MS) =>
    describeState(await readKey(entry(account), { env, limit }));
  const store = (account: string, key: string, replace = false) =>
    storeKey(entry(account), new Secret(key), { env, replace });

  await t.test("a key that was stored is read, and other accounts have their own", async (t) => {
    t.same(await keychainThere({ env }), { there: true, problem: null });
    t.equal(await tryKeychain({ env }), null, "and it takes keys");
    t.same(await store("codex", ONE), { ok: true, made: true });
    t.same(await store("codex-2", TWO), { ok: true, made: true });
    t.equal(await read("codex"), `a key: ${ONE}`);
    t.equal(await read("codex-2"), `a key: ${TWO}`);
    t.match(await read("other"), /no entry keybearer\/other/);
  });

  await t.test("another key is replaced only if asked", async (t) => {
    t.same(await store("codex", ONE), { ok: true, made: false }, "the same key is there already");
    const refused = await store("codex", TWO);
    t.match(refused, { ok: false, problem: /the keychain already has another key as keybearer\/codex/ });
    t.notMatch(JSON.stringify(refused), /canary/);
    t.equal(await read("codex"), `a key: ${ONE}`);
    t.same(await store("codex", TWO, true), { ok: true, made: true });
    t.equal(await read("codex"), `a key: ${TWO}`);
    t.same(await store("codex", ONE, true), { ok: true, made: true });
  });

  await t.test("a removed key is gone, and may be removed again", async (t) => {
    t.same(await store("short-lived", ONE), { ok: true, made: true });
    t.same(await forgetKey(entry("short-lived"), { env }), { ok: true });
    t.match(await read("short-lived"), /has no entry/);
    t.same(await forgetKey(entry("short-lived"), { env }), { ok: true });
    t.equal(await read("codex"), `a key: ${ONE}`, "and no other");
  });

  await t.test("entries of other programs are neither written nor removed", async (t) => {
    const theirs = entry("me", "login");
    t.ok(
      (await askKeychain(theirs, { operation: "store", key: "x", replace: false }, { env, limit: HANG_MS }))
        .ok,
    );
    const foreign = { ok: false, problem: /must begin with keybearer, not login/ };
    t.match(await storeKey(theirs, new Secret(ONE), { env, replace: true }), foreign);
    t.match(await forgetKey(theirs, { env }), foreign);
    t.match(await askKeychain(theirs, { operation: "read" }, { env, limit: HANG_MS }), { found: "x" });
  });

  await t.test("what cannot be a key is not stored, and is reported if it is there", async (t) => {
    t.match(await store("spaced", `${ONE} `), {
      ok: false,
      problem: "incomplete key: the key contains a space",
    });
    const written = { operation: "store", key: `${ONE} and more`, replace: false } as const;
    t.match(await askKeychain(entry("spaced"), written, { env, limit: HANG_MS }), { ok: true, done: true });
    const problem = await read("spaced");
    t.match(problem, /incomplete key: the key contains a space \(from keychain:keybearer\/spaced\)/);
    t.notMatch(problem, /canary/);
  });

  await t.test(
    "options for Node and keys in the environment do not reach the keychain's process",
    async (t) => {
      const env = { ...service.env, NODE_OPTIONS: "--require /nowhere/to/be/found.cjs" };
      t.equal(describeState(await readKey(entry("codex"), { env })), `a key: ${ONE}`);
    },
  );

  await t.test("a locked keychain whose password is not entered is reported", async (t) => {
    service.lock();
    const problem = /the keychain is locked, and its password was not entered → unlock it/;
    t.match(await read("codex"), problem);
    const locked = { problem: /is locked/, next: "unlock it, then run this again" };
    t.match(await store("codex-3", TWO), { ok: false, ...locked });
    t.match(await tryKeychain({ env }), locked);
  });

  await t.test("a locked keychain blocks neither other reads nor the event loop", async (t) => {
    await service.window("stays");
    t.match(await keychainThere({ env }), { there: true }, "it is there");
    t.equal(service.asked(), 0, "and looking asks for no password");
    let answered = 0;
    const stop = new AbortController();
    // More than the thread pool has threads.
    const readings = ["codex", "codex-2", "codex", "codex-2", "codex", "codex-2"].map(async (account) => {
      const words = describeState(await readKey(entry(account), { env, limit: 60_000, signal: stop.signal }));
      answered += 1;
      return words;
    });
    await until("the keychain asks for its password", () => service.asked() > 0);
    await readFile(join(service.folder, "bus.xml"));
    t.equal(answered, 0, "a file was read while all of them still waited");
    stop.abort();
    for (const words of await Promise.all(readings)) t.match(words, /was not read/);
    t.match(
      await read("codex", 500),
      /did not answer within 0.5 s.* → unlock it, then save config.yaml again/,
    );
  });

  await t.test("an unlocked keychain gives the same key again", async (t) => {
    await service.unlock();
    t.equal(await read("codex"), `a key: ${ONE}`);
  });

  await t.test("a daemon uses keys from the keychain, and the next one after a rotation", async (t) => {
    const gateway = await startSandbox(t);
    const [first, second] = [newKey(gateway), newKey(gateway)];
    const { token, hash } = freshToken();
    const config = (account: string) =>
      `gateway: ${gateway.baseUrl}\ntools: { claude: { key: "keychain:keybearer/${account}", token: "${hash}" } }\n`;
    t.same(await store("claude", first.text), { ok: true, made: true });
    const under = await startUnderTest(t, config("claude"), { env });
    t.equal((await ask(under, token)).status, 200);
    t.equal(lastKey(gateway), first.id);

    t.same(await store("claude-2", second.text), { ok: true, made: true });
    // As `keybearer tools rotate` does.
    const claim = { place: entry("claude-2"), origins: [gateway.origin] };
    t.match(await askDaemon(under.paths, "POST", "/claim/claude", claim), { ok: true });
    await under.save(config("claude-2"));
    const inForce = async () => (await toolState(under, "claude"))?.key === second.fingerprint;
    await until("the second key is in force", inForce);
    t.equal((await ask(under, token)).status, 200);
    t.equal(lastKey(gateway), second.id);

    t.same(await forgetKey(entry("claude-2"), { env }), { ok: true });
    await under.daemon.reload();
    await until("it is gone", async () => (await toolState(under, "claude"))?.state === "key-unavailable");
    t.match(await ask(under, token), { status: 400, refusal: "key-unavailable", text: /has no entry/ });
    t.same(await store("claude-2", second.text), { ok: true, made: true });
    await under.daemon.reload();
    await until("SIGHUP has read it again", inForce);
    t.equal((await ask(under, token)).status, 200);
    holdsNone(t, under, [first.text, second.text]);
  });

  await t.test("a long key with special characters is stored unchanged", async (t) => {
    const key = `sk-"\\$'${randomBytes(3_000).toString("base64")}`;
    t.same(await store("long", key), { ok: true, made: true });
    t.ok((await read("long")) === `a key: ${key}`);
  });
});
