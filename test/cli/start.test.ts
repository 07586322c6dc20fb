import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import t, { type Test } from "tap";
import { advice } from "../../src/core/advice.ts";
import { advised, command, newHome, saveConfig } from "../doubles/command.ts";
import { serveIn } from "../doubles/daemon-under-test.ts";
import { longTest } from "../doubles/effort.ts";
import { freePort, listen } from "../doubles/listen.ts";
import { createSystemctl } from "../doubles/systemctl-script.ts";
import { atTerminal, hasTerminal } from "../doubles/terminal.ts";
import { until } from "../doubles/until.ts";

const onLinux = { skip: process.platform === "linux" ? false : "systemd is Linux's" };
const KEY = "sk-canary-start-0123456789abcdef";

async function prepare(t: Test, port: number) {
  const home = await newHome(t);
  const config = `listen: localhost:${port}\ngateway: http://127.0.0.1:9/v1\ntools: { codex: { key: ${KEY} } }\n`;
  await saveConfig(home, config);
  const typed = (...args: string[]) => command(t, home, args);
  // What was started in the background is not a child of this process.
  t.teardown(() => typed("stop"));
  return { home, typed, config };
}

function daemonsOf(home: string): readonly number[] {
  const pids = readdirSync("/proc").map(Number).filter(Number.isInteger);
  return pids.filter((pid) => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(`\0run\0--config\0${home}/`);
    } catch {
      // It has just ended.
      return false;
    }
  });
}

function pidIn(text: string): number {
  return Number(/as pid (\d+)/.exec(text)?.[1]);
}

t.test("start runs it in the background; status, logs and stop work for it", async (t) => {
  const { home, typed, config } = await prepare(t, 0);
  const log = join(home, "state", "keybearer.log");
  await mkdir(join(home, "state"), { mode: 0o700 });
  writeFileSync(log, `${"x".repeat(99)}\n`.repeat(110_000), { mode: 0o600 });
  const stopped = await typed("status");
  const started = await typed(...advised(t, stopped.stderr, advice.start()));
  t.match(started, { code: 0, stdout: /^keybearer runs in the background as pid \d+, and answers on 127/ });
  t.match(started.stdout, `its log is ${log} → keybearer logs\n`);
  t.match(started.stdout, "it will not come back after a crash or a reboot → keybearer start\n");
  t.ok(statSync(log).size < 1_000_000 && statSync(`${log}.1`).size > 10_000_000, "its log is bounded");
  t.equal(statSync(log).mode & 0o777, 0o600);

  const pid = pidIn(started.stdout);
  if (process.platform === "linux") {
    const argv = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").slice(2, -1);
    t.same(argv, ["run", "--config", join(home, "config.yaml")]);
    t.notMatch(readFileSync(`/proc/${pid}/environ`, "utf8"), KEY);
    const [, , , group, session] = readFileSync(`/proc/${pid}/stat`, "utf8")
      .replace(/^.*\) /, "x ")
      .split(" ");
    t.same([group, session], [String(pid), String(pid)], "in a session of its own");
  }
  await until("it reads its file again", () => {
    // While it starts, the signal has no effect: the file is read anyway.
    process.kill(pid, "SIGHUP");
    return /configuration loaded/.test(readFileSync(log, "utf8"));
  });
  t.match(await typed("start"), {
    code: 0,
    stdout: new RegExp(`^keybearer runs already, as pid ${pid}, and`),
  });
  writeFileSync(join(home, "other.yaml"), config, { mode: 0o600 });
  const other = await typed("start", "--config", join(home, "other.yaml"));
  t.match(other, { code: 75, stderr: `pid ${pid}, with ${join(home, "config.yaml")} → keybearer stop` });
  t.match(await typed("status"), { code: 0, stdout: new RegExp(`pid ${pid}, `) });
  const logs = await typed(...advised(t, started.stdout, advice.logs()));
  t.match(logs, { code: 0, stdout: /serves http:[\s\S]*configuration loaded/ });
  const lines = (await typed("logs", "--json", "-n", "200")).stdout.trim().split("\n");
  t.ok(lines.map((line) => JSON.parse(line)).some(({ from }) => from === "keybearer"));
  const ended = await typed(...advised(t, other.stderr, advice.stop()));
  t.match(ended, { code: 0, stdout: `keybearer is stopped, it was pid ${pid}` });
  t.match(await typed("status"), { code: 1 });
});

longTest(t, "a start that fails has the exit code and the sentence of run", async (t) => {
  const { port } = await listen(t, createServer());
  const { home, typed } = await prepare(t, port);
  t.match(await typed("logs"), { code: 1, stderr: /there is no log: .*keybearer start writes it/ });
  t.match(await typed("start"), { code: 69, stdout: "", stderr: new RegExp(`:${port} is taken by`) });
  await saveConfig(home, "gateway: nonsense\n");
  t.match(await typed("start"), { code: 78, stderr: /nonsense[\s\S]*is not an address/ });
  const debug = await command(t, home, ["start"], { env: { NODE_DEBUG: "http" } });
  t.match(debug, { code: 78, stderr: /NODE_DEBUG/ });
  rmSync(join(home, "config.yaml"));
  t.match(await typed("start"), { code: 78, stderr: /there is no .*config\.yaml → keybearer init/ });
  await saveConfig(home, `listen: localhost:0\ngateway: http://127.0.0.1:9/v1\n`);
  rmSync(join(home, "state", "keybearer.log"));
  symlinkSync(join(home, "config.yaml"), join(home, "state", "keybearer.log"));
  t.match(await typed("start"), { code: 1, stderr: /keybearer\.log is a link/ });
});

t.test("logs opens only a log that keybearer wrote", async (t) => {
  const { home, typed } = await prepare(t, 0);
  const log = join(home, "state", "keybearer.log");
  await mkdir(join(home, "state"), { mode: 0o700 });
  const places: Readonly<Record<string, () => void>> = {
    "is a link": () => symlinkSync(join(home, "config.yaml"), log),
    "is a link ": () => symlinkSync(join(home, "nowhere"), log),
    "is not a regular file": () => void execFileSync("mkfifo", [log]),
  };
  for (const [problem, put] of Object.entries(places)) {
    put();
    const shown = await typed("logs");
    t.match(shown, { code: 1, stdout: "", stderr: `the log cannot be read: ${log} ${problem.trim()}\n` });
    t.equal((await typed("logs", "--follow")).stderr, shown.stderr, "before it waits for more");
    execFileSync("sh", ["-c", /mv .*$/m.exec(shown.stderr)?.[0] ?? "false"]);
    t.notOk(existsSync(log));
  }
});

t.test("two starts at once start one, which outlives the terminal", async (t) => {
  const { home, typed } = await prepare(t, await freePort());
  const both = hasTerminal(t)
    ? [atTerminal(t, home, "start").ended, atTerminal(t, home, "start").ended]
    : [typed("start"), typed("start")];
  const ended = await Promise.all(both);
  const pids = new Set(ended.map(({ stdout }) => pidIn(stdout)));
  t.same(
    ended.map(({ code }) => code),
    [0, 0],
    ended.map(({ stdout }) => stdout).join("\n"),
  );
  t.equal(pids.size, 1);
  t.match(await typed("status"), { code: 0, stdout: `pid ${[...pids][0]}, ` });
  if (process.platform === "linux") t.same(daemonsOf(home), [...pids], "the other has ended");
});

longTest(t, "an installed service is started, unless it is for other files", onLinux, async (t) => {
  const { home, config } = await prepare(t, 0);
  const systemctl = await createSystemctl(home);
  const typed = (args: readonly string[], env: NodeJS.ProcessEnv = {}) =>
    command(t, home, args, { env: { ...systemctl.env, ...env } });
  // The daemon under test, which is this process, plays the one that the manager starts.
  const playService = async () => {
    await until("the manager is asked", () => systemctl.changes().some((line) => /restart|--now/.test(line)));
    const { daemon } = await serveIn(t, home);
    systemctl.state({ ActiveState: "active", SubState: "running", MainPID: process.pid });
    return daemon;
  };
  const [daemon, installed] = await Promise.all([playService(), typed(["service", "install"])]);
  t.equal(installed.code, 0, installed.stderr);
  await daemon.stop();
  systemctl.state({ ActiveState: "inactive", SubState: "dead" });
  const [again, started] = await Promise.all([playService(), typed(["start"])]);
  t.match(started, { code: 0, stdout: new RegExp(`^it runs as pid ${process.pid}, `) });
  t.match(await typed(["start"]), { code: 0, stdout: /runs already/ });
  t.same(systemctl.changes(), []);
  await again.stop();

  const other = await newHome(t);
  await saveConfig(other, config);
  t.teardown(() => typed(["stop"], { KEYBEARER_HOME: other }));
  const elsewhere = await typed(["start"], { KEYBEARER_HOME: other });
  t.match(elsewhere, { code: 0, stdout: /in the background[\s\S]*a reboot → keybearer service install/ });
  await until("its log is shown", async () => {
    const { stdout } = await typed(["logs"], { KEYBEARER_HOME: other });
    return /serves http/.test(stdout);
  });
  t.same(systemctl.changes(), []);
});
