import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { newHome, saveConfig, start } from "../doubles/command.ts";
import { until } from "../doubles/until.ts";

/** A program in the middle of its start: the command that gives the key waits until the test goes on. */
async function startHalfway(t: Test) {
  const home = await newHome(t);
  const go = join(home, "go");
  const script = `until [ -e '${go}' ]; do sleep 0.05; done; echo sk-0123456789`;
  await saveConfig(
    home,
    `listen: localhost:0
gateway: http://127.0.0.1:9/v1
tools: { codex: { key: { command: [/bin/sh, -c, "${script}"] } } }
`,
  );
  const running = start(t, home, ["run"]);
  const socket = join(home, "run", "control.sock");
  await until("it has claimed its home", () => existsSync(socket));
  t.equal(running.stdout(), "", "it does not serve yet");
  return { ...running, socket, goOn: () => writeFileSync(go, "") };
}

t.test("SIGHUP during the start does not end the daemon", async (t) => {
  const { child, says, ended, goOn } = await startHalfway(t);
  child.kill("SIGHUP");
  goOn();
  await says(/serves http/);
  child.kill("SIGTERM");
  t.match(await ended, { code: 0, signal: null });
});

t.test("SIGTERM or SIGINT during the start exits 0 and leaves no socket", async (t) => {
  for (const signal of ["SIGTERM", "SIGINT"] as const) {
    const { child, ended, socket, goOn } = await startHalfway(t);
    child.kill(signal);
    goOn();
    t.match(await ended, { code: 0, signal: null }, signal);
    t.notOk(existsSync(socket));
  }
});
