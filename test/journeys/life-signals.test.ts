import { existsSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { newHome, saveConfig, startServing } from "../doubles/command.ts";
import { freshToken } from "../doubles/daemon-under-test.ts";
import { longTest } from "../doubles/effort.ts";
import { hello, startSandbox } from "../doubles/sandbox.ts";
import { until } from "../doubles/until.ts";

async function start(t: Test, { level = "info", wordDelay = 0 } = {}) {
  const sandbox = await startSandbox(t, { wordDelay });
  const { key } = sandbox.createKey({ name: "life", group: "default" });
  const { token, hash } = freshToken();
  const home = await newHome(t);
  const text = `listen: localhost:0
gateway: ${sandbox.baseUrl}
tools: { codex: { key: ${key.reveal()}, token: "${hash}" } }
log: { level: ${level} }
`;
  await saveConfig(home, text);
  const running = await startServing(t, home);
  const stream = () =>
    fetch(`${running.url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: JSON.stringify({ ...hello(), stream: true }),
    });
  return { ...running, home, stream, text, token };
}

t.test("SIGHUP reads the file again, SIGUSR2 does nothing, SIGTERM lets a stream finish", async (t) => {
  const { child, ended, url, home, text, logs, stderr, stream } = await start(t, { wordDelay: 60 });
  child.kill("SIGUSR2");
  child.kill("SIGHUP");
  await logs(/configuration loaded/);
  t.equal((await fetch(`${url}/healthz`)).status, 200);
  const response = await stream();
  await saveConfig(home, text.replace("codex:", "renamed:"));
  child.kill("SIGHUP");
  await logs(/tool renamed: added/);
  t.notMatch(stderr(), /"level":"error"/);
  child.kill("SIGTERM");
  await logs(/SIGTERM: stopping/);
  t.match(await response.text(), /data: \[DONE\]\s*$/);
  t.match(await ended, { code: 0, signal: null });
  t.notOk(existsSync(join(home, "run", "control.sock")), "it leaves no socket");
});

t.test("a second signal cuts at once, and still exits 0", async (t) => {
  const { child, ended, logs, stream } = await start(t, { wordDelay: 30_000 });
  const reading = (await stream()).text();
  child.kill("SIGINT");
  await logs(/SIGINT: stopping/);
  child.kill("SIGTERM");
  await t.rejects(reading);
  t.match(await ended, { code: 0, signal: null });
});

longTest(t, "SIGPIPE, and readers of its output that go away, do not end the daemon", async (t) => {
  const { child, url, token, ended } = await start(t, { level: "trace" });
  child.stdout?.destroy();
  child.stderr?.destroy();
  child.kill("SIGPIPE");
  for (let count = 0; count < 50; count += 1) {
    const answer = await fetch(`${url}/v1/models`, { headers: { authorization: `Bearer ${token}` } });
    await answer.arrayBuffer();
    t.equal(answer.status, 200);
  }
  child.kill("SIGTERM");
  t.match(await ended, { code: 0, signal: null });
});

longTest(t, "a reader of the log that stalls does not stop requests", async (t) => {
  const { child, url, stderr, token } = await start(t);
  child.stderr?.pause();
  // 400 lines of over 7,000 characters: more than what may wait, what is being written and what a pipe holds together.
  for (let round = 0; round < 16; round += 1) {
    const statuses = await Promise.all(
      Array.from({ length: 25 }, async () => {
        const answer = await fetch(`${url}/v1/models/${"x".repeat(7000)}`, {
          headers: { authorization: `Bearer ${token}` },
        });
        await answer.arrayBuffer();
        return answer.status;
      }),
    );
    t.same(statuses, Array(25).fill(404));
  }
  child.stderr?.resume();
  const written = () =>
    stderr()
      .split("\n")
      .filter((line) => line.includes('"endpoint"')).length;
  // Reported more than once where the pipe had room for a moment.
  const dropped = () =>
    [...stderr().matchAll(/"lines":(\d+).*log lines were dropped/g)].reduce(
      (sum, [, lines]) => sum + Number(lines),
      0,
    );
  await until("every line is in the log or among the dropped ones", () => written() + dropped() === 400);
  t.ok(dropped() > 0);
});
