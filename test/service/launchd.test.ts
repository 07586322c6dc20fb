import { existsSync } from "node:fs";
import { mkdir, readdir, readFile, stat, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import t, { type Test } from "tap";
import { createRunner, type RunCommand } from "../../src/service/command-runner.ts";
import { createLaunchd } from "../../src/service/launchd/launchd.ts";
import { isDisabled, jobIn } from "../../src/service/launchd/launchd-answers.ts";
import type { Plan } from "../../src/service/manager.ts";
import { createServiceFiles } from "../../src/service/service-file.ts";
import type { ServiceSpec } from "../../src/service/spec.ts";
import { template } from "../../src/service/template.ts";
import { newHome } from "../doubles/command.ts";
import { LaunchctlRecorder } from "../doubles/launchctl-recorder.ts";

/** Against a recorder that answers as launchctl does: nothing here has seen a real launchd. */

const UID = 501;
const JOB = `gui/${UID}/com.keybearer`;

async function scene(t: Test) {
  const home = await newHome(t);
  const logFile = join(home, "state", "keybearer.log");
  const launchctl = new LaunchctlRecorder(UID);
  const manager = createLaunchd({
    ...{ run: launchctl.run, files: createServiceFiles(), home, uid: UID, logFile },
    ...{ template: template("com.keybearer.plist"), looks: 5, betweenMs: 1 },
  });
  const spec: ServiceSpec = {
    ...{ node: "/usr/local/bin/node", main: "/usr/local/lib/keybearer/dist/cli/main.js", home: null },
    ...{ config: join(home, "config.yaml"), environment: {}, writable: [], namespaces: false },
    ...{ path: "/usr/bin:/bin", logFile },
  };
  const bootstrap = `bootstrap gui/${UID} ${manager.file}`;
  return { home, launchctl, manager, spec, bootstrap };
}

/** What --dry-run would print, in the recorder's words. */
function inOrder(plan: Plan): string[] {
  if (!plan.ok) return [plan.why];
  return plan.steps.map((step) => {
    if (step.kind === "run") return step.argv.slice(1).join(" ");
    return step.kind === "make" ? step.folder : step.file;
  });
}

t.test("the first installation writes the agent, loads it and starts it", async (t) => {
  const { launchctl, manager, spec, bootstrap } = await scene(t);
  t.match(await manager.state(), { file: { kind: "none" }, active: "stopped", enabled: false });
  const planned = await manager.plan(spec);
  t.same(await manager.install(spec), { ok: true, before: "none", restarted: false });
  t.same(launchctl.changes(), [`enable ${JOB}`, bootstrap, `kickstart ${JOB}`]);
  t.same(inOrder(planned), [manager.file, ...launchctl.changes()], "as --dry-run says");
  t.equal((await stat(manager.file)).mode & 0o777, 0o600);
  t.ok(existsSync(dirname(spec.logFile)), "launchd makes no folder for the log");
  t.match(await manager.state(), { file: { kind: "ours" }, active: "running", enabled: true, pid: 4000 });
});

t.test("a second installation writes nothing and leaves the running one alone", async (t) => {
  const { launchctl, manager, spec } = await scene(t);
  await manager.install(spec);
  const { pid } = launchctl.job;
  const before = launchctl.changes().length;
  const { mtimeNs } = await stat(manager.file, { bigint: true });
  t.same(await manager.install(spec), { ok: true, before: "same", restarted: false });
  t.same(launchctl.changes().slice(before), [`enable ${JOB}`, `kickstart ${JOB}`]);
  t.equal(launchctl.job.pid, pid);
  t.equal((await stat(manager.file, { bigint: true })).mtimeNs, mtimeNs);
});

t.test("an agent that was disabled is enabled before it is loaded", async (t) => {
  const { launchctl, manager, spec } = await scene(t);
  launchctl.job.disabled = true;
  t.match(await manager.install(spec), { ok: true });
  t.equal(launchctl.job.disabled, false);
});

t.test("another text takes the old job out, waits until it is gone, and loads the new one", async (t) => {
  const { launchctl, manager, spec, bootstrap } = await scene(t);
  await manager.install(spec);
  launchctl.slow = 2;
  const changed = { ...spec, node: "/opt/homebrew/bin/node" };
  const planned = inOrder(await manager.plan(changed));
  t.same(planned, [`bootout ${JOB}`, manager.file, `enable ${JOB}`, bootstrap, `kickstart ${JOB}`]);
  const before = launchctl.asked().length;
  t.same(await manager.install(changed), { ok: true, before: "different", restarted: true });
  const asked = launchctl.asked().slice(before);
  const out = asked.indexOf(`bootout ${JOB}`);
  t.ok(asked.slice(out).filter((each) => each === `print ${JOB}`).length >= 3, "it looked until it was gone");
  t.same(
    launchctl.changes().slice(3),
    [`bootout ${JOB}`, `enable ${JOB}`, bootstrap, `kickstart ${JOB}`],
    "bootout may say 36, now in progress",
  );
  t.match(await readFile(manager.file, "utf8"), /\/opt\/homebrew\/bin\/node/);
});

t.test("a job that is still on its way out is asked for again; one that never goes is said", async (t) => {
  const { launchctl, manager, spec, bootstrap } = await scene(t);
  const busy = { code: 37, stderr: "Bootstrap failed: 37: Operation already in progress\n" };
  launchctl.next.set("bootstrap", [busy, busy]);
  t.match(await manager.install(spec), { ok: true });
  t.equal(launchctl.changes().filter((each) => each === bootstrap).length, 3);
  launchctl.slow = 50;
  t.match(await manager.uninstall(), { ok: false, why: /did not stop in time/ });
  t.ok(existsSync(manager.file), "and its file stays");
});

t.test("error 5 is fine where the job is loaded already, and told where it is not", async (t) => {
  const { launchctl, manager, spec } = await scene(t);
  const five = { code: 5, stderr: "Bootstrap failed: 5: Input/output error\nTry re-running as root\n" };
  launchctl.next.set("bootstrap", [five]);
  t.match(await manager.install(spec), { ok: false, why: /could not be loaded: Bootstrap failed: 5: Input/ });
  // Loaded by somebody else between the look and the bootstrap.
  launchctl.next.set("print", [{ code: 113, stderr: "Could not find service\n" }]);
  launchctl.job.loaded = true;
  t.match(await manager.install(spec), { ok: true });
});

t.test("a restart drains by SIGTERM, waits for the end and starts it anew, never by -k", async (t) => {
  const { launchctl, manager, spec, bootstrap } = await scene(t);
  await manager.install(spec);
  launchctl.slow = 3;
  const { pid } = launchctl.job;
  t.same(await manager.restart(), { ok: true });
  t.same(launchctl.changes().slice(3), [`kill SIGTERM ${JOB}`, `kickstart ${JOB}`]);
  t.not(launchctl.job.pid, pid);
  t.notMatch(launchctl.changes().join("\n"), / -k\b/, "a folder may have -k in its name");
  launchctl.job.pid = null;
  t.same(await manager.restart(), { ok: true });
  t.equal(launchctl.changes().at(-1), `kickstart ${JOB}`);
  t.equal(launchctl.changes().filter((each) => each.startsWith("kill")).length, 1, "there was none to drain");
  Object.assign(launchctl.job, { loaded: false, pid: null });
  t.same(await manager.restart(), { ok: true });
  t.same(launchctl.changes().slice(-2), [bootstrap, `kickstart ${JOB}`]);
});

t.test("a process that has gone before the signal comes is no mistake; one that stays is", async (t) => {
  const { launchctl, manager, spec } = await scene(t);
  await manager.install(spec);
  launchctl.next.set("kill", [{ code: 3, stderr: "No process to signal.\n" }]);
  launchctl.slow = 0;
  const looking = manager.restart();
  launchctl.job.pid = null;
  t.same(await looking, { ok: true });
  launchctl.slow = 50;
  t.match(await manager.restart(), { ok: false, why: /did not stop in time/ });
});

t.test("an uninstallation takes job and file away, and what is not there is as good as gone", async (t) => {
  const { launchctl, manager, spec } = await scene(t);
  await manager.install(spec);
  launchctl.slow = 2;
  t.same(await manager.uninstall(), { ok: true });
  t.equal(launchctl.changes().at(-1), `bootout ${JOB}`);
  t.notOk(existsSync(manager.file));
  t.equal(launchctl.job.loaded, false);
  t.same(await manager.uninstall(), { ok: true }, "3: No such process");
  launchctl.next.set("bootout", [
    { code: 113, stderr: "Boot-out failed: 113: Could not find specified service\n" },
  ]);
  t.same(await manager.uninstall(), { ok: true });
  launchctl.next.set("bootout", [
    { code: 125, stderr: "Boot-out failed: 125: Domain does not support specified action\n" },
  ]);
  t.match(await manager.uninstall(), { ok: false, why: /could not be stopped: Boot-out failed: 125/ });
});

t.test("a file of somebody else is neither replaced nor removed", async (t) => {
  const { home, launchctl, manager, spec } = await scene(t);
  await mkdir(dirname(manager.file), { recursive: true });
  await writeFile(manager.file, '<?xml version="1.0"?><plist version="1.0"><dict/></plist>\n');
  t.match(await manager.install(spec), {
    ok: false,
    why: /left alone: it was not written by keybearer/,
    next: /^move it/,
  });
  t.match(await manager.uninstall(), { ok: false });
  t.match(await readFile(manager.file, "utf8"), /<dict\/>/);
  const linked = await scene(t);
  await mkdir(dirname(linked.manager.file), { recursive: true });
  await symlink(join(home, "elsewhere.plist"), linked.manager.file);
  t.match(await linked.manager.install(spec), { ok: false, why: /it is a link/ });
  t.same([...launchctl.changes(), ...linked.launchctl.changes()], []);
});

t.test("without a session of the person there is a reason and another way", async (t) => {
  const { launchctl, manager } = await scene(t);
  t.same(await manager.available(), { ok: true });
  launchctl.next.set("print", [
    { code: 112, stderr: "Could not print domain: 112: Could not find specified domain\n" },
  ]);
  t.match(await manager.available(), {
    ok: false,
    why: /Could not find specified domain/,
    byHand: /keybearer run/,
  });
  launchctl.next.set("print", [{ code: null, missing: true }]);
  t.match(await manager.available(), { ok: false, why: /no launchctl/ });
});

t.test("what launchctl prints of a job is read, and what it does not print is not known", async (t) => {
  const job = (...lines: string[]) => jobIn(`gui/501/com.keybearer = {\n\t${lines.join("\n\t")}\n}\n`);
  t.match(job("state = running", "pid = 812", "runs = 3", "last exit code = (never exited)"), {
    ...{ active: "running", pid: 812, restarts: 3, lastExit: null },
  });
  t.match(job("state = not running", "last exit code = 78: EX_CONFIG"), {
    ...{ active: "failed", pid: null, lastExit: { code: 78, signal: null } },
  });
  t.match(job("state = spawn scheduled", "last exit code = 1"), { active: "failed" });
  t.match(job("state = spawn scheduled", "last exit code = (never exited)"), { active: "starting" });
  t.match(job("state = not running", "last terminating signal = Killed: 9"), {
    ...{ active: "failed", lastExit: { code: null, signal: "Killed: 9" } },
  });
  t.match(job("state = not running", "last exit code = 0"), { active: "stopped" });
  t.match(job("\tstate = running", "\tpid = 1"), { active: "stopped", pid: null }, "of something inside it");
  t.match(jobIn(""), { active: "stopped", pid: null, restarts: null, lastExit: null });
  for (const word of ["disabled", "true"])
    t.ok(isDisabled(`\t"com.keybearer" => ${word}\n`, "com.keybearer"));
  for (const word of ["enabled", "false"])
    t.notOk(isDisabled(`\t"com.keybearer" => ${word}\n\t"com.other" => true\n`, "com.keybearer"));
});

t.test("the log is the agent's file, its last lines first", async (t) => {
  const { home } = await scene(t);
  const logFile = join(home, "keybearer.log");
  const manager = createLaunchd({
    ...{ run: createRunner(process.env), files: createServiceFiles(), home, uid: UID, logFile, template: "" },
  });
  const lines: string[] = [];
  const onLine = (line: string) => void lines.push(line);
  t.match(await manager.logs({ follow: false, lines: 2, onLine }), { ok: false, why: /keybearer\.log/ });
  await writeFile(logFile, "one\ntwo\nthree\n");
  t.same(await manager.logs({ follow: false, lines: 2, onLine }), { ok: true });
  t.same(lines, ["two", "three"]);
  const stop = new AbortController();
  const more: string[] = [];
  const following = manager.logs({
    ...{ follow: true, lines: 1, signal: stop.signal },
    onLine: (line) => {
      more.push(line);
      if (line === "three") void writeFile(logFile, "four\n", { flag: "a" });
      if (line === "four") stop.abort();
    },
  });
  t.same(await following, { ok: true });
  t.same(more, ["three", "four"]);
});

t.test("an installation that is cut off anywhere is made good by the next one", async (t) => {
  for (const cut of ["bootout", "enable", "bootstrap", "kickstart"]) {
    const { home, launchctl, manager, spec } = await scene(t);
    await manager.install(spec);
    let [cutting, loaded] = [true, ""];
    const run: RunCommand = async (argv) => {
      if (cutting && argv[1] === cut) throw new Error("killed");
      const ran = await launchctl.run(argv);
      if (argv[1] === "bootstrap" && ran.code === 0) loaded = await readFile(manager.file, "utf8");
      return ran;
    };
    const again = createLaunchd({
      ...{ run, files: createServiceFiles(), home, uid: UID, logFile: spec.logFile },
      ...{ template: template("com.keybearer.plist"), looks: 5, betweenMs: 1 },
    });
    const changed = { ...spec, node: "/opt/homebrew/bin/node" };
    await t.rejects(again.install(changed), /killed/);
    cutting = false;
    t.match(await again.install(changed), { ok: true });
    t.match(loaded, "/opt/homebrew/bin/node", `after ${cut}, the job is the one that the file describes`);
    t.ok(launchctl.job.pid);
  }
});

t.test("a file that cannot be written leaves the running one as it is", async (t) => {
  const { home, launchctl, manager, spec } = await scene(t);
  await manager.install(spec);
  const before = { changes: launchctl.changes().length, pid: launchctl.job.pid };
  const full = () => Promise.reject(new Error("no space left on device"));
  const failing = createLaunchd({
    ...{ run: launchctl.run, files: { ...createServiceFiles(), stage: full }, home, uid: UID },
    ...{ logFile: spec.logFile, template: template("com.keybearer.plist") },
  });
  const done = await failing.install({ ...spec, node: "/opt/homebrew/bin/node" });
  t.match(done, { ok: false, why: /cannot be written: no space left/, next: /keybearer service install/ });
  t.same({ changes: launchctl.changes().length, pid: launchctl.job.pid }, before);
});

t.test("a text is put in its place whole, and none that failed lies beside it", async (t) => {
  const home = await newHome(t);
  const files = createServiceFiles();
  const file = join(home, "a", "keybearer.service");
  await files.write(file, "one\n");
  await (await files.stage(file, "two\n")).drop();
  t.equal(await readFile(file, "utf8"), "one\n");
  await mkdir(join(home, "b", "keybearer.service", "full"), { recursive: true });
  await t.rejects(files.write(join(home, "b", "keybearer.service"), "three\n"));
  for (const folder of ["a", "b"]) t.same(await readdir(join(home, folder)), ["keybearer.service"]);
});
