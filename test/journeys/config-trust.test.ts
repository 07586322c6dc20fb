import { mkdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import t from "tap";
import { askDaemon } from "../../src/control/client.ts";
import type { HeldTool } from "../../src/control/routes.ts";
import { advice } from "../../src/core/advice.ts";
import { advised, command, newHome } from "../doubles/command.ts";
import { ask, holdsNone, lastKey, messages, toolState } from "../doubles/config-journey.ts";
import { type DaemonUnderTest, freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { longTest } from "../doubles/effort.ts";
import { newKey, startSandbox } from "../doubles/sandbox.ts";
import { atScreen } from "../doubles/screen.ts";
import { until } from "../doubles/until.ts";

// These tests mostly wait, so they run side by side.
t.jobs = 8;

function configOf(baseUrl: string, key: string, hash: string): string {
  return `gateway: ${baseUrl}\ntools:\n  codex:\n    key: ${key}\n    token: ${hash}\n`;
}

t.test(
  "a known key that an edit pairs with another origin is held, over a restart too, and nothing reaches either",
  async (t) => {
    const [home, elsewhere] = [await startSandbox(t), await startSandbox(t)];
    const key = newKey(home);
    const { token, hash } = freshToken();
    const under = await startUnderTest(t, configOf(home.baseUrl, key.text, hash));
    t.equal((await ask(under, token)).status, 200);
    home.clearRequests();

    await under.save(configOf(elsewhere.baseUrl, key.text, hash));
    await until("it is held", async () => (await toolState(under, "codex"))?.state === "needs-trust");
    const answer = await ask(under, token);
    t.match(answer, { status: 400, refusal: "needs-trust" });
    t.match(answer.text, /keybearer trust codex/);
    t.match(answer.text, new RegExp(`from ${home.origin} to ${elsewhere.origin}`));
    const state = await toolState(under, "codex");
    t.match(state, { key: null, next: "keybearer trust codex" });
    t.match(state?.why, `${home.origin} → ${elsewhere.origin}`);
    t.match(messages(under).join("\n"), new RegExp(`tool codex: key ${key.fingerprint} → held \\(`));
    await under.daemon.reload();
    t.equal((await ask(under, token)).refusal, "needs-trust", "reading everything again is no way around");
    await under.daemon.stop(0);

    const again = await startUnderTest(t, null, { home: under.home });
    t.match(await ask(again, token), { status: 400, refusal: "needs-trust" });
    t.match(await toolState(again, "codex"), { state: "needs-trust", next: "keybearer trust codex" });
    t.same([home.requests().length, elsewhere.requests().length], [0, 0], "nothing reached either gateway");

    await again.save(configOf(home.baseUrl, key.text, hash));
    await until("moved back it serves", async () => (await ask(again, token)).status === 200);
    t.equal(lastKey(home), key.id);
    for (const daemon of [under, again]) holdsNone(t, daemon, [key.text, token]);
  },
);

t.test("rotating a key by an edit is not held, and the old one is still known", async (t) => {
  const [home, elsewhere] = [await startSandbox(t), await startSandbox(t)];
  const [old, fresh] = [newKey(home), newKey(home)];
  const { token, hash } = freshToken();
  const under = await startUnderTest(t, configOf(home.baseUrl, old.text, hash));
  await under.save(configOf(home.baseUrl, fresh.text, hash));
  await until("the new key is live", async () => {
    t.equal((await ask(under, token)).status, 200, "never refused on the way");
    return lastKey(home) === fresh.id;
  });
  await under.save(configOf(elsewhere.baseUrl, old.text, hash));
  await until(
    "the old key elsewhere is held",
    async () => (await ask(under, token)).refusal === "needs-trust",
  );
  t.equal(elsewhere.requests().length, 0);
});

t.test("moving only the messages address holds the key as well", async (t) => {
  const [home, elsewhere] = [await startSandbox(t), await startSandbox(t)];
  const key = newKey(home);
  const { token, hash } = freshToken();
  const text = (messages: string) =>
    `gateways: { main: { base_url: "${home.baseUrl}", messages_url: "${messages}" } }\ntools: { codex: { key: ${key.text}, token: ${hash} } }\n`;
  const under = await startUnderTest(t, text(home.origin));
  t.equal((await ask(under, token)).status, 200);
  await under.save(text(elsewhere.origin));
  await until("it is held", async () => (await ask(under, token)).refusal === "needs-trust");
  t.equal(elsewhere.requests().length, 0);
});

t.test(
  "a command, a variable or a file outside keybearer's home that an edit brings is held and not read",
  async (t) => {
    const home = await startSandbox(t);
    const key = newKey(home);
    const { token, hash } = freshToken();
    const env = { OP_SERVICE_ACCOUNT_TOKEN: "correct-horse-battery" };
    const under = await startUnderTest(t, configOf(home.baseUrl, key.text, hash), { env });
    const sources = [
      ["{ command: [/bin/echo, correct-horse-battery] }", "/bin/echo"],
      ["env:OP_SERVICE_ACCOUNT_TOKEN", "env:OP_SERVICE_ACCOUNT_TOKEN"],
      ["file:/etc/hostname", "/etc/hostname"],
    ] as const;
    for (const [source, words] of sources) {
      await under.save(configOf(home.baseUrl, source, hash));
      await until(`${source} is held`, async () => {
        const state = await toolState(under, "codex");
        return state?.state === "needs-trust" && state.why?.includes(words);
      });
      t.match(await ask(under, token), { status: 400, refusal: "needs-trust" });
    }
    t.same(home.requests(), []);
  },
);

t.test("a tool that borrows another tool's known key for its own gateway is held", async (t) => {
  const [home, elsewhere] = [await startSandbox(t), await startSandbox(t)];
  const key = newKey(home);
  const [mine, thief] = [freshToken(), freshToken()];
  const base = `gateways: { home: { base_url: "${home.baseUrl}" }, elsewhere: { base_url: "${elsewhere.baseUrl}" } }\ntools:\n  codex: { gateway: home, key: env:KEY, token: ${mine.hash} }\n`;
  const under = await startUnderTest(t, base, { env: { KEY: key.text } });
  t.equal((await ask(under, mine.token)).status, 200);
  await under.save(`${base}  thief: { gateway: elsewhere, key: env:KEY, token: ${thief.hash} }\n`);
  await until("the thief is held", async () => (await ask(under, thief.token)).refusal === "needs-trust");
  t.equal((await ask(under, mine.token)).status, 200, "the owner is not");
  t.equal(elsewhere.requests().length, 0);
});

t.test("a rotation does not release a tool that is held", async (t) => {
  const [home, elsewhere] = [await startSandbox(t), await startSandbox(t)];
  const [old, fresh] = [newKey(home), newKey(home)];
  const { token, hash } = freshToken();
  const under = await startUnderTest(t, configOf(home.baseUrl, old.text, hash));
  await under.save(configOf(elsewhere.baseUrl, old.text, hash));
  await until("it is held", async () => (await toolState(under, "codex"))?.state === "needs-trust");
  await under.save(configOf(elsewhere.baseUrl, fresh.text, hash));
  await until("the new key was judged", () => messages(under).join("\n").includes(fresh.fingerprint));
  t.match(await ask(under, token), { status: 400, refusal: "needs-trust" });
  t.equal(elsewhere.requests().length, 0);
  await under.save(configOf(home.baseUrl, fresh.text, hash));
  await until("back where it belongs, it serves", async () => (await ask(under, token)).status === 200);
  t.equal(lastKey(home), fresh.id);
});

t.test("a trust.json that is a link is set aside, and every key is held", async (t) => {
  const gateway = await startSandbox(t);
  const key = newKey(gateway);
  const { token, hash } = freshToken();
  const home = await newHome(t);
  const elsewhere = join(home, "elsewhere.json");
  await writeFile(elsewhere, "mine");
  await mkdir(join(home, "state"), { recursive: true, mode: 0o700 });
  await symlink(elsewhere, join(home, "state", "trust.json"));
  const under = await startUnderTest(t, configOf(gateway.baseUrl, key.text, hash), { home });
  t.match(await ask(under, token), { status: 400, refusal: "needs-trust" });
  t.strictSame(gateway.requests(), []);
  t.equal(await readFile(elsewhere, "utf8"), "mine", "what it leads to is not touched");
  t.match(
    (await under.daemon.status()).problems.map(({ message }) => message).join("\n"),
    /trust\.json is a link: it was set aside as .*trust\.json\.set-aside-/,
  );
});

t.test(
  "without trust.json beside other state every key is held until trust --all, over restarts",
  async (t) => {
    const gateway = await startSandbox(t);
    const key = newKey(gateway);
    const { token, hash } = freshToken();
    const under = await startUnderTest(t, configOf(gateway.baseUrl, key.text, hash));
    t.strictSame((await under.daemon.status()).problems, [], "a first start is no reason to warn");
    t.equal((await ask(under, token)).status, 200);
    const before = gateway.requests().length;
    await under.daemon.stop(0);
    await rm(under.paths.trust);
    for (const turn of ["the first start after it", "the second"]) {
      const again = await startUnderTest(t, null, { home: under.home });
      t.match(await ask(again, token), { status: 400, refusal: "needs-trust" }, turn);
      t.match(await warnings(again), /the list of trusted addresses is lost .* keybearer trust --all/, turn);
      await again.daemon.reload();
      t.match(await warnings(again), /is lost/, `${turn}, after a reload`);
      await again.daemon.stop(0);
    }
    t.equal(gateway.requests().length, before, "no key was sent");

    const last = await startUnderTest(t, null, { home: under.home });
    const held = await askDaemon<HeldTool[]>(last.paths, "GET", "/held");
    if (!held.ok) return t.fail(held.problem);
    t.match(held.value, [{ tool: "codex", from: /is lost/, to: gateway.origin }]);
    const other = [{ ...held.value[0], to: "https://evil.example" }];
    t.match(await askDaemon(last.paths, "POST", "/trust", other), { ok: false }, "only what was shown");
    const person = atScreen(t, under.home, advised(t, await warnings(last), advice.trustAll()));
    await person.says(/trust this\? \[y\/N\]/);
    person.type("y\r");
    t.equal((await person.ended).code, 0);
    t.equal((await ask(last, token)).status, 200, "the key is used again");
    t.notMatch(await warnings(last), /is lost/);
    await last.daemon.stop(0);
    const next = await startUnderTest(t, null, { home: under.home });
    t.equal((await ask(next, token)).status, 200, "and after a restart");
  },
);

longTest(
  t,
  "what the sandbox leaves, a rotated key too, holds no key of the first config.yaml",
  async (t) => {
    const first = await startUnderTest(t, null);
    const rotated = await command(t, first.home, ["tools", "rotate", "try-me", "--yes"]);
    t.equal(rotated.code, 0, rotated.stderr);
    await first.daemon.stop(0);
    const gateway = await startSandbox(t);
    const key = newKey(gateway);
    const { token, hash } = freshToken();
    const config = configOf(gateway.baseUrl, key.text, hash);
    const under = await startUnderTest(t, config, { home: first.home });
    t.equal(await warnings(under), "");
    t.equal((await ask(under, token)).status, 200);
  },
);

async function warnings(under: DaemonUnderTest): Promise<string> {
  return (await under.daemon.status()).problems.map(({ message }) => message).join("\n");
}

t.test("a file in keys/ that no tool used gives nobody its key before it is trusted", async (t) => {
  const [home, elsewhere] = [await startSandbox(t), await startSandbox(t)];
  const [key, spare] = [newKey(home), newKey(elsewhere)];
  const [mine, thief] = [freshToken(), freshToken()];
  const base = `gateways: { home: { base_url: "${home.baseUrl}" }, elsewhere: { base_url: "${elsewhere.baseUrl}" } }
tools:
  codex: { gateway: home, key: ${key.text}, token: ${mine.hash} }\n`;
  const under = await startUnderTest(t, base);
  const file = join(under.home, "keys", "spare");
  await mkdir(join(under.home, "keys"), { mode: 0o700 });
  await writeFile(file, spare.text, { mode: 0o600 });

  await under.save(
    `${base}  spare: { gateway: elsewhere, key: "file:~/keys/spare", token: ${thief.hash} }\n`,
  );
  await until("it is held", async () => (await ask(under, thief.token)).refusal === "needs-trust");
  t.match((await toolState(under, "spare"))?.why, `no file → ${file}, for ${elsewhere.origin}`);
  t.equal((await ask(under, mine.token)).status, 200);
  t.strictSame(elsewhere.requests(), []);

  const held = await askDaemon<HeldTool[]>(under.paths, "GET", "/held/spare");
  t.match(await askDaemon(under.paths, "POST", "/trust/spare", held.ok && held.value), { ok: true });
  t.equal((await ask(under, thief.token)).status, 200);
  const rotated = newKey(elsewhere);
  await writeFile(file, rotated.text);
  await until("a rotation in the file is in force", async () => {
    t.equal((await ask(under, thief.token)).status, 200, "never refused on the way");
    return lastKey(elsewhere) === rotated.id;
  });
});

t.test("a key that keybearer stores is used at once, and only where it was stored for", async (t) => {
  const [home, elsewhere] = [await startSandbox(t), await startSandbox(t)];
  const [first, mine, thief] = [newKey(home), freshToken(), freshToken()];
  const base = `listen: localhost:0
gateways: { home: { base_url: "${home.baseUrl}" }, elsewhere: { base_url: "${elsewhere.baseUrl}" } }
tools:
  codex: { gateway: home, key: ${first.text}, token: ${mine.hash} }\n`;
  const folder = await newHome(t);
  const under = await startUnderTest(t, base, { home: folder });
  const add = async (tool: string) => {
    const args = ["tools", "add", tool, "--gateway", "home", "--key-stdin", "--store", "file"];
    const added = await command(t, folder, args, { input: newKey(home).text });
    t.equal(added.code, 0, added.stderr);
    return added.stdout.trim();
  };
  const running = await add("running");
  t.equal((await ask(under, running)).status, 200, "beside a daemon");
  await under.daemon.stop(0);

  const stopped = await add("stopped");
  const again = await startUnderTest(t, null, { home: folder });
  t.equal((await ask(again, stopped)).status, 200, "and without one");
  const config = await readFile(again.paths.config, "utf8");
  await again.save(
    `${config}  thief: { gateway: elsewhere, key: "file:~/keys/stopped", token: ${thief.hash} }\n`,
  );
  await until("the thief is held", async () => (await ask(again, thief.token)).refusal === "needs-trust");
  await writeFile(join(folder, "keys", "stopped"), newKey(home).text);
  await again.daemon.reload();
  t.equal((await ask(again, thief.token)).refusal, "needs-trust", "with a key that nobody knows, too");
  t.strictSame(elsewhere.requests(), []);
});

t.test("after an update, the keys in keybearer's files are used as before", async (t) => {
  const gateway = await startSandbox(t);
  const [key, rotated] = [newKey(gateway), newKey(gateway)];
  const { token, hash } = freshToken();
  const home = await newHome(t);
  await mkdir(join(home, "keys"), { mode: 0o700 });
  await writeFile(join(home, "keys", "codex"), key.text, { mode: 0o600 });
  const under = await startUnderTest(t, configOf(gateway.baseUrl, '"file:~/keys/codex"', hash), { home });
  t.equal((await ask(under, token)).status, 200);
  await under.daemon.stop(0);
  // Earlier versions knew the key, but not always its file.
  const pins = JSON.parse(await readFile(under.paths.trust, "utf8"));
  await writeFile(under.paths.trust, JSON.stringify({ ...pins, uses: [] }));
  const again = await startUnderTest(t, null, { home });
  t.equal((await ask(again, token)).status, 200);
  await writeFile(join(home, "keys", "codex"), rotated.text);
  await until("and after a rotation", async () => {
    t.equal((await ask(again, token)).status, 200);
    return lastKey(gateway) === rotated.id;
  });
});
