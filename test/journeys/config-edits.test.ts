import { chmod, mkdir, rename, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import t from "tap";
import { ask, holdsNone, lastKey, messages } from "../doubles/config-journey.ts";
import { freshToken, startUnderTest } from "../doubles/daemon-under-test.ts";
import { longTest } from "../doubles/effort.ts";
import { newKey, startSandbox } from "../doubles/sandbox.ts";
import { until } from "../doubles/until.ts";

// These tests mostly wait, so they run side by side.
t.jobs = 8;

function configOf(baseUrl: string, key: string, hash: string, more = ""): string {
  return `gateway: ${baseUrl}\ntools:\n  codex:\n    key: ${key}\n    token: ${hash}\n${more}`;
}

t.test("an edit takes effect, and a stream that began before it finishes with its old key", async (t) => {
  const gateway = await startSandbox(t, { wordDelay: 60 });
  const [old, fresh] = [newKey(gateway), newKey(gateway)];
  const { token, hash } = freshToken();
  const under = await startUnderTest(t, configOf(gateway.baseUrl, old.text, hash));
  const stream = await fetch(`${under.url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body: JSON.stringify({
      model: "sandbox-small",
      stream: true,
      messages: [{ role: "user", content: "hello" }],
    }),
  });
  t.equal(stream.status, 200);
  const reader = stream.body?.getReader();
  const decoder = new TextDecoder();
  let streamed = decoder.decode((await reader?.read())?.value, { stream: true });

  const before = under.daemon.snapshot().revision;
  await under.save(configOf(gateway.baseUrl, fresh.text, hash));
  await until("the edit is live", () => under.daemon.snapshot().revision > before);
  t.equal((await ask(under, token)).status, 200);
  t.equal(lastKey(gateway), fresh.id, "the next request has the new key");

  for (let part = await reader?.read(); part && !part.done; part = await reader?.read()) {
    streamed += decoder.decode(part.value, { stream: true });
  }
  t.match(streamed, /data: \[DONE\]/, "the stream came to its end");
  t.equal(gateway.requests()[0]?.keyId, old.id);
  t.equal(gateway.requests()[0]?.isAborted, false);
  t.ok(
    messages(under).includes(`tool codex: key ${old.fingerprint} → ${fresh.fingerprint}`),
    "with a message",
  );
  holdsNone(t, under, [old.text, fresh.text, token]);
});

t.test("broken saves fail no request, and the problems are shown until they are fixed", async (t) => {
  const gateway = await startSandbox(t);
  const key = newKey(gateway);
  const { token, hash } = freshToken();
  const good = configOf(gateway.baseUrl, key.text, hash);
  const under = await startUnderTest(t, good);
  const statuses: number[] = [];
  let flowing = true;
  const flow = (async () => {
    while (flowing) {
      statuses.push((await ask(under, token)).status);
      await wait(20);
    }
  })();
  const breaks: readonly (readonly [text: string, message: RegExp, line: number, column: number])[] = [
    [good.replace("    key:", "\tkey:"), /a tab is used as indentation/, 5, 1],
    [good.replace("token:", "tokne:"), /"tokne" is not a setting here/, 6, 5],
    [good.replace(hash, "sha256:12"), /not the hash of a token/, 6, 12],
  ];
  for (const [text, message, line, column] of breaks) {
    await under.save(text);
    await until("the problem shows with its place", async () => {
      const { problems } = await under.daemon.status();
      return problems.some((one) => message.test(one.message) && one.line === line && one.column === column);
    });
    const before = statuses.length;
    await until("requests are answered under it", () => statuses.length > before);
  }
  const { problems } = await under.daemon.status();
  t.match(problems, [{ severity: "error", path: "tools.codex.token", line: 6, column: 12 }]);
  t.notOk(JSON.stringify(problems).includes(key.text));
  await under.save(`${good}    enabled: true\n`);
  await until("mending clears them", async () => (await under.daemon.status()).problems.length === 0);
  flowing = false;
  await flow;
  t.same([...new Set(statuses)], [200], "not one failed");
  t.match(
    messages(under).join("\n"),
    /config\.yaml has 1 problem; keybearer keeps using the last valid version → keybearer check/,
  );
  holdsNone(t, under, [key.text, token]);
});

t.test("an empty, half-written or deleted file changes nothing, and a new one is loaded", async (t) => {
  const gateway = await startSandbox(t);
  const [key, next] = [newKey(gateway), newKey(gateway)];
  const { token, hash } = freshToken();
  const good = configOf(gateway.baseUrl, key.text, hash);
  const under = await startUnderTest(t, good);
  const { revision } = under.daemon.snapshot();
  const shows = (pattern: RegExp) => async () =>
    (await under.daemon.status()).problems.some((problem) => pattern.test(problem.message));

  await writeFile(under.paths.config, "");
  await until("the empty file shows", shows(/the file is empty/));
  t.equal((await ask(under, token)).status, 200);
  const half = `listen: localhost:0\n${good}`;
  await writeFile(under.paths.config, half.slice(0, half.indexOf("tools:") + 6));
  await until("the half-written file shows", shows(/nothing is written after `tools:`/));
  t.equal((await ask(under, token)).status, 200);
  await rm(under.paths.config);
  await until("the vanished file shows", shows(/there is no .*config\.yaml/));
  t.equal((await ask(under, token)).status, 200);
  t.equal(under.daemon.snapshot().revision, revision, "all the while the last good one served");
  t.equal(lastKey(gateway), key.id);

  await under.save(configOf(gateway.baseUrl, next.text, hash));
  await until("the recreated file is live", () => under.daemon.snapshot().revision > revision);
  t.equal((await ask(under, token)).status, 200);
  t.equal(lastKey(gateway), next.id);
  t.same((await under.daemon.status()).problems, []);
});

longTest(t, "of eight saves, in whichever way and however far apart, the last one wins", async (t) => {
  const gateway = await startSandbox(t);
  const key = newKey(gateway);
  const { token, hash } = freshToken();
  const text = (model: string) =>
    `listen: localhost:0\n${configOf(gateway.baseUrl, key.text, hash, `    model: ${model}\n`)}`;
  const under = await startUnderTest(t, text("m-0"));
  for (let round = 1; round <= 8; round += 1) {
    if (round % 2 === 0) await writeFile(under.paths.config, text(`m-${round}`));
    else {
      const beside = `${under.paths.config}.new`;
      await writeFile(beside, text(`m-${round}`), { mode: 0o600 });
      await rename(beside, under.paths.config);
    }
    // The stimulus: some come while the one before is still being taken up, some after it.
    await wait(round * 25);
  }
  await until("the last is live", () => under.daemon.snapshot().config.tools.codex?.model === "m-8");
  t.equal((await ask(under, token)).status, 200);
});

t.test("a linked config.yaml is followed when its target is replaced", async (t) => {
  const gateway = await startSandbox(t);
  const [key, next, third] = [newKey(gateway), newKey(gateway), newKey(gateway)];
  const { token, hash } = freshToken();
  const under = await startUnderTest(t, configOf(gateway.baseUrl, key.text, hash));
  const folder = join(under.home, "dotfiles");
  await mkdir(folder, { mode: 0o700 });
  const target = join(folder, "keybearer.yaml");
  const put = async (text: string) => {
    await writeFile(`${target}.new`, `listen: localhost:0\n${text}`, { mode: 0o600 });
    await rename(`${target}.new`, target);
  };
  await put(configOf(gateway.baseUrl, next.text, hash));
  await symlink(target, `${under.paths.config}.new`);
  await rename(`${under.paths.config}.new`, under.paths.config);
  const uses = (id: number) => async () =>
    (await ask(under, token)).status === 200 && lastKey(gateway) === id;
  await until("the link is followed", uses(next.id));
  await put(configOf(gateway.baseUrl, third.text, hash));
  await until("the replaced target is live", uses(third.id));
});

longTest(
  t,
  "a file with a key in it that becomes readable to others is a problem while the last good one serves",
  async (t) => {
    const gateway = await startSandbox(t);
    const [key, next] = [newKey(gateway), newKey(gateway)];
    const { token, hash } = freshToken();
    const good = configOf(gateway.baseUrl, key.text, hash);
    const under = await startUnderTest(t, good);
    await chmod(under.paths.config, 0o644);
    await until("the problem shows", async () =>
      (await under.daemon.status()).problems.some((one) =>
        one.hint?.includes(`chmod 600 ${under.paths.config}`),
      ),
    );
    await writeFile(under.paths.config, `listen: localhost:0\n${configOf(gateway.baseUrl, next.text, hash)}`);
    await under.daemon.reload();
    t.equal((await ask(under, token)).status, 200);
    t.equal(lastKey(gateway), key.id, "what others may have read is not taken up");
    await chmod(under.paths.config, 0o600);
    await until("it is taken up once it is private", async () => {
      await ask(under, token);
      return lastKey(gateway) === next.id;
    });
    t.same((await under.daemon.status()).problems, []);
    holdsNone(t, under, [key.text, next.text]);
  },
);
