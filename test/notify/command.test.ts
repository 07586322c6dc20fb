import { chmodSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { runCommand } from "../../src/notify/command.ts";
import { eventOf, startNotifier } from "../doubles/alerts.ts";
import { until } from "../doubles/until.ts";

function writeScript(t: Test, script: string): { readonly program: string; readonly folder: string } {
  const folder = t.testdir();
  const program = join(folder, "my-alert");
  writeFileSync(program, `#!/bin/sh\n${script}\n`);
  chmodSync(program, 0o755);
  return { program, folder };
}

function run(argv: readonly [string, ...string[]], timeoutMs = 20_000) {
  const { signal } = new AbortController();
  return runCommand(argv, eventOf(), { env: { PATH: process.env.PATH }, timeoutMs, signal });
}

t.test("a program gets the event as JSON, and nothing of it in its arguments or environment", async (t) => {
  const folder = t.testdir();
  const { program } = writeScript(
    t,
    `cat > "${folder}/got"; printf '%s\\n' "$@" > "${folder}/args"; env > "${folder}/env"`,
  );
  const { notifier } = startNotifier(
    t,
    `{ desktop: false, command: [${program}, --loud], webhooks: { mine: { url: env:HOOK } }, events: { leak: command } }`,
    { env: { PATH: process.env.PATH, HOOK: "https://a.example.com/secret-hook" } },
  );
  const event = eventOf({ message: "canary-in-the-message" });
  notifier.notify(event);
  await until("it has run", () => notifier.status().channels[0]?.delivered_at !== null);
  t.same(JSON.parse(readFileSync(join(folder, "got"), "utf8")), event);
  t.equal(readFileSync(join(folder, "args"), "utf8"), "--loud\n");
  const env = readFileSync(join(folder, "env"), "utf8");
  t.notMatch(env, "canary-in-the-message");
  t.notMatch(env, "secret-hook", "a variable with a secret is withheld");
  t.match(env, /^PATH=/m);
});

t.test("its exit code says how it went", async (t) => {
  t.match(await run([writeScript(t, "exit 0").program]), { result: "delivered" }, "also if it reads nothing");
  t.match(await run([writeScript(t, "exit 7").program]), {
    result: "retry",
    problem: "it ended with exit code 7",
  });
  t.match(await run([writeScript(t, "kill -TERM $$").program]), { problem: "it was ended by SIGTERM" });
  t.match(await run(["/nowhere/my-alert"]), { problem: "the program could not be started (ENOENT)" });
});

t.test("one that hangs is ended, with what it started", async (t) => {
  const { program, folder } = writeScript(t, 'sleep 1000 & echo $! > "$(dirname "$0")/pid"; wait');
  t.match(await run([program], 500), {
    result: "retry",
    problem: "it did not end within 0.5 s, and was ended",
  });
  const pid = Number(readFileSync(join(folder, "pid"), "utf8"));
  await until("what it started has ended", () => !isRunning(pid));
});

/** A process that has ended may wait for its parent to take its exit code. */
function isRunning(pid: number): boolean {
  if (!existsSync(`/proc/${pid}/stat`)) return false;
  return !/^\d+ \(.*\) Z/.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
}
