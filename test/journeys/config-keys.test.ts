import { randomBytes } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import t from "tap";
import { ask, holdsNone, lastKey, messages, toolState } from "../doubles/config-journey.ts";
import { freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { heldClock, newKey, startSandbox } from "../doubles/sandbox.ts";
import { until } from "../doubles/until.ts";

t.test("a reload reads env:, file: and command: keys again, though the text is the same", async (t) => {
  const gateway = await startSandbox(t);
  const keys = Array.from({ length: 6 }, () => newKey(gateway));
  const [e1, e2, f1, f2, c1, c2] = keys;
  if (!e1 || !e2 || !f1 || !f2 || !c1 || !c2) return t.fail("six keys");
  const tokens = { env: freshToken(), file: freshToken(), command: freshToken() };
  const env: NodeJS.ProcessEnv = { CODEX_KEY: e1.text, PATH: "/usr/bin:/bin" };
  const home = t.testdir({ file: f1.text, command: c1.text });
  const under = await startUnderTest(
    t,
    `gateway: ${gateway.baseUrl}
tools:
  env: { key: env:CODEX_KEY, token: ${tokens.env.hash} }
  file: { key: "file:${join(home, "file")}", token: ${tokens.file.hash} }
  command: { key: { command: [/bin/cat, "${join(home, "command")}"] }, token: ${tokens.command.hash} }
`,
    { env },
  );
  const used = async () => {
    const ids: (number | null)[] = [];
    for (const { token } of Object.values(tokens)) {
      t.equal((await ask(under, token)).status, 200);
      ids.push(lastKey(gateway));
    }
    return ids;
  };
  t.same(await used(), [e1.id, f1.id, c1.id]);
  env.CODEX_KEY = e2.text;
  await writeFile(join(home, "file"), `${f2.text}\n`);
  await writeFile(join(home, "command"), c2.text);
  await under.daemon.reload();
  t.same(await used(), [e2.id, f2.id, c2.id]);
  t.ok(messages(under).includes(`tool env: key ${e1.fingerprint} → ${e2.fingerprint}`));
  t.ok(messages(under).includes(`tool command: key ${c1.fingerprint} → ${c2.fingerprint}`));
  holdsNone(
    t,
    under,
    keys.map((key) => key.text),
  );
});

t.test("a file: key that changes is picked up by itself", async (t) => {
  const gateway = await startSandbox(t);
  const [old, fresh] = [newKey(gateway), newKey(gateway)];
  const { token, hash } = freshToken();
  const file = join(t.testdir({ key: old.text }), "key");
  const under = await startUnderTest(
    t,
    `gateway: ${gateway.baseUrl}\ntools: { codex: { key: "file:${file}", token: ${hash} } }\n`,
  );
  t.equal((await ask(under, token)).status, 200);
  t.equal(lastKey(gateway), old.id);
  await writeFile(file, fresh.text);
  await until("the new key is used", async () => {
    await ask(under, token);
    return lastKey(gateway) === fresh.id;
  });
  await writeFile(file, "");
  await until(
    "an emptied file makes it unavailable",
    async () => (await ask(under, token)).refusal === "key-unavailable",
  );
  await writeFile(file, old.text);
  await until("and a filled one serves", async () => (await ask(under, token)).status === 200);
  holdsNone(t, under, [old.text, fresh.text]);
});

t.test("after the gateway's 401 the key is read again, at most once a minute", async (t) => {
  const gateway = await startSandbox(t);
  const [first, second, third] = [newKey(gateway), newKey(gateway), newKey(gateway)];
  for (const { id } of [first, second])
    gateway.order(id, { kind: "refuse", status: 401, body: { error: { message: "invalid api key" } } });
  const { token, hash } = freshToken();
  const env: NodeJS.ProcessEnv = { KEY: first.text };
  const clock = heldClock();
  const under = await startUnderTest(
    t,
    `gateway: ${gateway.baseUrl}\ntools: { codex: { key: env:KEY, token: ${hash} } }\n`,
    { env, clock },
  );
  const refusedWith = async (id: number) => {
    t.equal((await ask(under, token)).status, 401);
    t.equal(lastKey(gateway), id);
  };
  env.KEY = second.text;
  await refusedWith(first.id);
  await until(
    "the second key is in force",
    async () => (await toolState(under, "codex"))?.key === second.fingerprint,
  );
  env.KEY = third.text;
  await refusedWith(second.id);
  clock.pass(59_000);
  await refusedWith(second.id);
  await refusedWith(second.id);
  clock.pass(2_000);
  await refusedWith(second.id);
  await until(
    "the third key is in force",
    async () => (await toolState(under, "codex"))?.key === third.fingerprint,
  );
  t.equal((await ask(under, token)).status, 200);
  t.equal(lastKey(gateway), third.id);
  t.match(await toolState(under, "codex"), { state: "active", refused: null });
  holdsNone(t, under, [first.text, second.text, third.text]);
});

t.test("a key that cannot be read makes only its own tool unavailable, with the reason", async (t) => {
  const gateway = await startSandbox(t);
  const key = newKey(gateway);
  const secret = `half-${randomBytes(12).toString("hex")}`;
  const folder = t.testdir({
    spaced: `${secret} and more`,
    failing: `#!/bin/sh\necho ${secret}\necho no ${secret} today >&2\nexit 3\n`,
  });
  const sources: Record<string, [string, RegExp]> = {
    keychain: [
      "keychain:keybearer/x",
      // Its environment is empty, so there is no bus to ask; a Mac asks its own keychain.
      /there is no session bus here|the keychain has no entry/,
    ],
    absent: ["env:NOT_THERE", /the variable NOT_THERE is not set in keybearer's environment/],
    empty: ["env:EMPTY", /the variable EMPTY is empty in keybearer's environment/],
    nofile: [`"file:${join(folder, "nothing")}"`, /there is no file .*nothing/],
    spaced: [`"file:${join(folder, "spaced")}"`, /incomplete key: the key contains a space \(from file:/],
    failing: [
      `{ command: [/bin/sh, "${join(folder, "failing")}"] }`,
      /\/bin\/sh failed with exit code 3: no \[redacted\] today/,
    ],
    noprogram: ["{ command: [/nowhere/to/be/found] }", /there is no program \/nowhere\/to\/be\/found/],
  };
  const tokens = new Map(Object.keys(sources).map((name) => [name, freshToken()]));
  const good = freshToken();
  const lines = Object.entries(sources).map(
    ([name, [source]]) => `  ${name}: { key: ${source}, token: ${tokens.get(name)?.hash} }`,
  );
  const under = await startUnderTest(
    t,
    `gateway: ${gateway.baseUrl}\ntools:\n  good: { key: ${key.text}, token: ${good.hash} }\n${lines.join("\n")}\n`,
    { env: { EMPTY: "" } },
  );
  for (const [name, [, why]] of Object.entries(sources)) {
    const answer = await ask(under, tokens.get(name)?.token ?? "");
    t.match(answer, { status: 400, refusal: "key-unavailable" }, name);
    t.match(answer.text, why, name);
    t.match(answer.text, `the key of tool ${name} is not available`);
    t.notOk(answer.text.includes(secret), "half a key is not shown either");
    t.match(await toolState(under, name), { state: "key-unavailable", key: null, why });
  }
  t.equal((await ask(under, good.token)).status, 200, "the others serve");
  t.equal(gateway.requests().length, 1);
  holdsNone(t, under, [key.text, secret]);
});
