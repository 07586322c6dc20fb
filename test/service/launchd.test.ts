import { existsSync, readFileSync } from "node:fs";
import { mkdir, readFile, stat, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import t, { type Test } from "tap";
import { isDisabled, Launchd, readJob } from "../../src/service/launchd.ts";
import { renderPlist } from "../../src/service/plist.ts";
import { commandRunner, type Plan, type Result, type RunCommand } from "../../src/service/service.ts";
import type { ServiceSpec } from "../../src/service/spec.ts";
import { newHome } from "../doubles/command.ts";
import { LaunchctlRecorder } from "../doubles/launchctl-recorder.ts";
import { ROOT } from "../doubles/paths.ts";

/* Against a recorder that answers as launchctl does. No test here runs a real launchd. */

const UID = 501;
const PLIST = readFileSync(join(ROOT, "service/com.keybearer.plist"), "utf8");
const JOB = `gui/${UID}/com.keybearer`;

async function prepare(t: Test, folder?: string) {
  const home = folder ?? (await newHome(t));
  const launchctl = new LaunchctlRecorder(UID);
  const manager = new Launchd({ run: launchctl.run, home, uid: UID, pollMs: 0 });
  const spec: ServiceSpec = {
    node: "/usr/local/bin/node",
    main: "/usr/local/lib/keybearer/dist/cli/main.js",
    config: join(home, "config.yaml"),
    environment: { PATH: "/usr/bin:/bin" },
    writable: [],
    namespaces: false,
    logFile: join(home, "keybearer.log"),
    stopSeconds: 20,
  };
  const bootstrap = `bootstrap gui/${UID} ${manager.file}`;
  return { home, launchctl, manager, spec, bootstrap };
}

async function install(manager: Launchd, spec: ServiceSpec): Promise<Result> {
  const plan = await manager.planInstall(spec);
  return plan.ok ? manager.apply(plan.steps) : plan;
}

async function uninstall(manager: Launchd): Promise<Result> {
  const plan = await manager.planRemoval();
  return plan.ok ? manager.apply(plan.steps) : plan;
}

/** What --dry-run would print, as the recorder writes it. */
function inOrder(plan: Plan): string[] {
  if (!plan.ok) return [plan.problem];
  return plan.steps.map((step) => (step.kind === "run" ? step.argv.slice(1).join(" ") : step.file));
}

t.test("the first installation writes the agent, loads it and starts it", async (t) => {
  const { launchctl, manager, spec, bootstrap } = await prepare(t);
  t.match(await manager.state(), { file: { kind: "none" }, active: "stopped", enabled: false });
  const planned = await manager.planInstall(spec);
  t.match(planned, { before: "none", restarts: false });
  t.same(await install(manager, spec), { ok: true });
  t.same(launchctl.changes(), [`enable ${JOB}`, bootstrap, `kickstart ${JOB}`]);
  t.same(inOrder(planned), [manager.file, ...launchctl.changes()], "as --dry-run says");
  t.equal((await stat(manager.file)).mode & 0o777, 0o600);
  t.match(await manager.state(), { file: { kind: "ours" }, active: "running", enabled: true, pid: 4000 });
});

t.test("a second installation writes nothing and leaves the running one alone", async (t) => {
  const { launchctl, manager, spec } = await prepare(t);
  await install(manager, spec);
  const { pid } = launchctl.job;
  const before = launchctl.changes().length;
  const { mtimeNs } = await stat(manager.file, { bigint: true });
  t.match(await manager.planInstall(spec), { before: "same", restarts: false });
  t.same(await install(manager, spec), { ok: true });
  t.same(launchctl.changes().slice(before), [`enable ${JOB}`, `kickstart ${JOB}`]);
  t.equal(launchctl.job.pid, pid);
  t.equal((await stat(manager.file, { bigint: true })).mtimeNs, mtimeNs);
});

t.test("an agent that was disabled is enabled before it is loaded", async (t) => {
  const { launchctl, manager, spec } = await prepare(t);
  launchctl.job.disabled = true;
  t.match(await install(manager, spec), { ok: true });
  t.equal(launchctl.job.disabled, false);
});

t.test("another text unloads the old job, waits until it is gone, and loads the new one", async (t) => {
  const { launchctl, manager, spec, bootstrap } = await prepare(t);
  await install(manager, spec);
  launchctl.slow = 2;
  const changed = { ...spec, node: "/opt/homebrew/bin/node" };
  const planned = await manager.planInstall(changed);
  t.match(planned, { before: "different", restarts: true });
  t.same(inOrder(planned), [`bootout ${JOB}`, manager.file, `enable ${JOB}`, bootstrap, `kickstart ${JOB}`]);
  const before = launchctl.calls().length;
  t.same(await install(manager, changed), { ok: true });
  const calls = launchctl.calls().slice(before);
  const out = calls.indexOf(`bootout ${JOB}`);
  t.ok(
    calls.slice(out).filter((call) => call === `print ${JOB}`).length >= 3,
    "it waits until the job is gone",
  );
  t.same(
    launchctl.changes().slice(3),
    [`bootout ${JOB}`, `enable ${JOB}`, bootstrap, `kickstart ${JOB}`],
    "bootout may say 36, now in progress",
  );
  t.match(await readFile(manager.file, "utf8"), /\/opt\/homebrew\/bin\/node/);
});

t.test("a job that is still ending is loaded later; one that never ends is reported", async (t) => {
  const { launchctl, manager, spec, bootstrap } = await prepare(t);
  const busy = { code: 37, stderr: "Bootstrap failed: 37: Operation already in progress\n" };
  launchctl.next.set("bootstrap", [busy, busy]);
  t.match(await install(manager, spec), { ok: true });
  t.equal(launchctl.changes().filter((each) => each === bootstrap).length, 3);
  launchctl.slow = 1000;
  t.match(await uninstall(manager), { ok: false, problem: /did not stop in time/ });
  t.ok(existsSync(manager.file), "and its file stays");
});

t.test("error 5 is fine if the job is loaded already, and reported if it is not", async (t) => {
  const { launchctl, manager, spec } = await prepare(t);
  const five = { code: 5, stderr: "Bootstrap failed: 5: Input/output error\nTry re-running as root\n" };
  launchctl.next.set("bootstrap", [five]);
  t.match(await install(manager, spec), {
    ok: false,
    problem: /could not be loaded: Bootstrap failed: 5: Input/,
  });
  // Loaded by another program between the check and the bootstrap.
  launchctl.next.set("print", [{ code: 113, stderr: "Could not find service\n" }]);
  launchctl.job.loaded = true;
  t.match(await install(manager, spec), { ok: true });
});

t.test("a stop sends SIGTERM, waits for the end, and leaves the agent loaded", async (t) => {
  const { launchctl, manager, spec } = await prepare(t);
  await install(manager, spec);
  const before = launchctl.changes().length;
  launchctl.slow = 3;
  t.same(await manager.stop(), { ok: true });
  t.same(launchctl.changes().slice(before), [`kill SIGTERM ${JOB}`]);
  t.match(await manager.state(), { file: { kind: "ours" }, active: "stopped", pid: null, enabled: true });
  t.same(await manager.stop(), { ok: true }, "a stopped one stays stopped");
  t.equal(launchctl.changes().length, before + 1);
  await manager.restart();
  launchctl.next.set("kill", [{ code: 1, stderr: "Not privileged to signal service.\n" }]);
  t.match(await manager.stop(), { ok: false, problem: /could not be stopped: Not privileged/ });
});

t.test(
  "a restart drains with SIGTERM, waits for the end and starts the job again, never with -k",
  async (t) => {
    const { launchctl, manager, spec, bootstrap } = await prepare(t);
    await install(manager, spec);
    launchctl.slow = 3;
    const { pid } = launchctl.job;
    t.same(await manager.restart(), { ok: true });
    t.same(launchctl.changes().slice(3), [`kill SIGTERM ${JOB}`, `kickstart ${JOB}`]);
    t.not(launchctl.job.pid, pid);
    t.notMatch(launchctl.changes().join("\n"), / -k\b/, "a folder may have -k in its name");
    launchctl.job.pid = null;
    t.same(await manager.restart(), { ok: true });
    t.equal(launchctl.changes().at(-1), `kickstart ${JOB}`);
    t.equal(
      launchctl.changes().filter((each) => each.startsWith("kill")).length,
      1,
      "there was none to drain",
    );
    Object.assign(launchctl.job, { loaded: false, pid: null });
    t.same(await manager.restart(), { ok: true });
    t.same(launchctl.changes().slice(-2), [bootstrap, `kickstart ${JOB}`]);
  },
);

t.test("a process that ends before the signal is fine; one that stays is reported", async (t) => {
  const { launchctl, manager, spec } = await prepare(t);
  await install(manager, spec);
  launchctl.next.set("kill", [{ code: 3, stderr: "No process to signal.\n" }]);
  launchctl.slow = 0;
  const looking = manager.restart();
  launchctl.job.pid = null;
  t.same(await looking, { ok: true });
  launchctl.slow = 1000;
  t.match(await manager.restart(), { ok: false, problem: /did not stop in time/ });
});

t.test("an uninstallation removes job and file, and accepts that they are gone already", async (t) => {
  const { launchctl, manager, spec } = await prepare(t);
  await install(manager, spec);
  launchctl.slow = 2;
  t.same(await uninstall(manager), { ok: true });
  t.equal(launchctl.changes().at(-1), `bootout ${JOB}`);
  t.notOk(existsSync(manager.file));
  t.equal(launchctl.job.loaded, false);
  t.same(await uninstall(manager), { ok: true });
  for (const answer of [
    { code: 3, stderr: "Boot-out failed: 3: No such process\n" },
    { code: 113, stderr: "Boot-out failed: 113: Could not find specified service\n" },
  ]) {
    await install(manager, spec);
    const plan = await manager.planRemoval();
    launchctl.job.loaded = false;
    launchctl.next.set("bootout", [answer]);
    t.same(plan.ok && (await manager.apply(plan.steps)), { ok: true }, "it is gone already");
  }
  await install(manager, spec);
  launchctl.next.set("bootout", [
    { code: 125, stderr: "Boot-out failed: 125: Domain does not support specified action\n" },
  ]);
  t.match(await uninstall(manager), { ok: false, problem: /could not be stopped: Boot-out failed: 125/ });
});

t.test("a file that keybearer did not write is neither replaced nor removed", async (t) => {
  const { home, launchctl, manager, spec } = await prepare(t);
  await mkdir(dirname(manager.file), { recursive: true });
  await writeFile(manager.file, '<?xml version="1.0"?><plist version="1.0"><dict/></plist>\n');
  t.match(await install(manager, spec), {
    ok: false,
    problem: /left alone: keybearer did not write it/,
    next: /^move it/,
  });
  t.match(await uninstall(manager), { ok: false });
  t.match(await readFile(manager.file, "utf8"), /<dict\/>/);
  const linked = await prepare(t);
  await mkdir(dirname(linked.manager.file), { recursive: true });
  await symlink(join(home, "elsewhere.plist"), linked.manager.file);
  t.match(await install(linked.manager, spec), { ok: false, problem: /it is a link/ });
  t.same(
    [launchctl, linked.launchctl].flatMap((each) => each.changes()),
    [],
  );
});

t.test("without a session of the user, install says why and names another way", async (t) => {
  const { launchctl, manager } = await prepare(t);
  t.same(await manager.available(), { ok: true });
  launchctl.next.set("print", [
    { code: 112, stderr: "Could not print domain: 112: Could not find specified domain\n" },
  ]);
  t.match(await manager.available(), {
    ok: false,
    problem: /Could not find specified domain/,
    next: /keybearer start/,
  });
  launchctl.next.set("print", [{ code: null, missing: true }]);
  t.match(await manager.available(), { ok: false, problem: /no launchctl/ });
});

t.test("what launchctl prints of a job is read, and what it does not print is unknown", async (t) => {
  const job = (...lines: string[]) => readJob(`gui/501/com.keybearer = {\n\t${lines.join("\n\t")}\n}\n`);
  t.match(job("state = running", "pid = 812", "runs = 3", "last exit code = (never exited)"), {
    active: "running",
    pid: 812,
    restarts: 3,
    lastExit: null,
  });
  t.match(job("state = not running", "last exit code = 78: EX_CONFIG"), {
    active: "failed",
    pid: null,
    lastExit: { code: 78, signal: null },
  });
  t.match(job("state = spawn scheduled", "last exit code = 1"), { active: "failed" });
  t.match(job("state = spawn scheduled", "last exit code = (never exited)"), { active: "starting" });
  t.match(job("state = not running", "last terminating signal = Killed: 9"), {
    active: "failed",
    lastExit: { code: null, signal: "Killed: 9" },
  });
  t.match(job("state = not running", "last exit code = 0"), { active: "stopped" });
  t.match(job("\tstate = running", "\tpid = 1"), { active: "stopped", pid: null }, "of something inside it");
  t.match(readJob(""), { active: "stopped", pid: null, restarts: null, lastExit: null });
  for (const word of ["disabled", "true"]) t.ok(isDisabled(`\t"com.keybearer" => ${word}\n`));
  for (const word of ["enabled", "false"])
    t.notOk(isDisabled(`\t"com.keybearer" => ${word}\n\t"com.other" => true\n`));
});

t.test("the log is the agent's file, its last lines first", async (t) => {
  const { home, launchctl, manager: recorded, spec } = await prepare(t);
  const real = commandRunner({ PATH: process.env.PATH });
  const run: RunCommand = (argv, options) =>
    argv[0] === "tail" ? real(argv, options) : launchctl.run(argv, options);
  const manager = new Launchd({ run, home, uid: UID });
  const lines: string[] = [];
  const onLine = (line: string) => void lines.push(line);
  t.match(await manager.logs({ follow: false, lines: 2, onLine }), { ok: false, problem: /not installed/ });
  await install(recorded, spec);
  t.match(await manager.logs({ follow: false, lines: 2, onLine }), { ok: false, problem: /keybearer\.log/ });
  await writeFile(spec.logFile, "one\ntwo\nthree\n");
  t.same(await manager.logs({ follow: false, lines: 2, onLine }), { ok: true });
  t.same(lines, ["two", "three"]);
  const stop = new AbortController();
  const more: string[] = [];
  const following = manager.logs({
    follow: true,
    lines: 1,
    signal: stop.signal,
    onLine: (line) => {
      more.push(line);
      if (line === "three") void writeFile(spec.logFile, "four\n", { flag: "a" });
      if (line === "four") stop.abort();
    },
  });
  t.same(await following, { ok: true });
  t.same(more, ["three", "four"]);
});

t.test("an installation that is interrupted anywhere is repaired by the next one", async (t) => {
  for (const interrupted of ["bootout", "enable", "bootstrap", "kickstart"]) {
    const { home, launchctl, manager, spec } = await prepare(t);
    await install(manager, spec);
    let killed = true;
    let loaded = "";
    const run: RunCommand = async (argv) => {
      if (killed && argv[1] === interrupted) throw new Error("killed");
      const result = await launchctl.run(argv);
      if (argv[1] === "bootstrap" && result.code === 0) loaded = await readFile(manager.file, "utf8");
      return result;
    };
    const again = new Launchd({ run, home, uid: UID, pollMs: 0 });
    const changed = { ...spec, node: "/opt/homebrew/bin/node" };
    await t.rejects(install(again, changed), /killed/);
    killed = false;
    t.match(await install(again, changed), { ok: true });
    t.match(loaded, "/opt/homebrew/bin/node", `after ${interrupted}, the job is the one in the file`);
    t.ok(launchctl.job.pid);
  }
});

t.test("a file that cannot be written leaves the running one as it is", async (t) => {
  // The path of the agent fits into PATH_MAX, and that of the temporary file beside it does not.
  const max = process.platform === "darwin" ? 1023 : 4095;
  let home = await newHome(t);
  const length = max - "/Library/LaunchAgents/com.keybearer.plist".length;
  while (length - home.length > 220) home = join(home, "f".repeat(200));
  home = join(home, "f".repeat(length - home.length - 1));
  const { launchctl, manager, spec, bootstrap } = await prepare(t, home);
  await mkdir(dirname(manager.file), { recursive: true });
  await writeFile(manager.file, renderPlist(PLIST, spec));
  await launchctl.run(["launchctl", ...bootstrap.split(" ")]);
  const before = { changes: launchctl.changes().length, pid: launchctl.job.pid };
  const result = await install(manager, { ...spec, node: "/opt/homebrew/bin/node" });
  t.match(result, {
    ok: false,
    problem: /cannot be written: ENAMETOOLONG/,
    next: /keybearer service install/,
  });
  t.same({ changes: launchctl.changes().length, pid: launchctl.job.pid }, before);
});
