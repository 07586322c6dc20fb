import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import t, { type Test } from "tap";
import { advice } from "../../src/core/advice.ts";
import { advised, command, flat, newHome, saveConfig } from "../doubles/command.ts";
import { serveIn, startUnderTest } from "../doubles/daemon-under-test.ts";
import { longTest } from "../doubles/effort.ts";
import { createSystemctl } from "../doubles/systemctl-script.ts";

/* What the commands print, ask and refuse. test/service shows what a real manager does with it. */

// The times of log lines are shown as the clock on the wall shows them.
process.env.TZ = "UTC";
const onLinux = { skip: process.platform === "linux" ? false : "systemd is Linux's" };
const CANARY = "sk-canary-service-0123456789abcdef";
const TOOLS = `tools: { codex: { key: ${CANARY} } }\n`;
const CONFIG = `listen: localhost:0\ngateway: http://127.0.0.1:9/v1\n${TOOLS}`;
const RUNNING = { ActiveState: "active", SubState: "running", UnitFileState: "enabled" };
const STARTED = ["systemctl --user daemon-reload", "systemctl --user enable --now keybearer.service"];

async function prepare(t: Test, config: string | null = CONFIG) {
  const folder = await newHome(t);
  const [home, keybearer] = [join(folder, "h"), join(folder, "k")];
  for (const each of [home, keybearer]) await mkdir(each, { mode: 0o700 });
  if (config !== null) await saveConfig(keybearer, config);
  const systemctl = await createSystemctl(folder);
  const unit = join(home, ".config/systemd/user/keybearer.service");
  const typed = (args: readonly string[], env: NodeJS.ProcessEnv = {}) =>
    command(t, keybearer, args, { env: { ...systemctl.env, HOME: home, ...env } });
  const service = async (line: string, env: NodeJS.ProcessEnv = {}) => {
    const output = await typed(["service", ...line.split(" ")], env);
    t.notMatch(output.stdout + output.stderr, CANARY, "no key is shown");
    return output;
  };
  const putUnit = (text: string) => {
    mkdirSync(dirname(unit), { recursive: true });
    writeFileSync(unit, text);
  };
  return { home, keybearer, systemctl, unit, typed, service, putUnit };
}

t.test(
  "without a user manager, install says why, names another way and writes nothing",
  onLinux,
  async (t) => {
    const { systemctl, unit, service, keybearer, typed } = await prepare(t);
    const yourself = (next: string) => `not installed: you have to start keybearer yourself (${next})`;
    t.match(flat((await typed(["doctor"])).stdout), yourself(advice.serviceInstall()));
    systemctl.silence();
    t.match(flat((await typed(["doctor"])).stdout), yourself(advice.start()));
    const [install, dry, status, gone] = await Promise.all(
      ["install", "install --dry-run", "status", "uninstall"].map((line) => service(line)),
    );
    t.match(install, { code: 1, stderr: /does not answer here: Failed to connect to bus: No medium found/ });
    t.match(install?.stderr, `without it, ${advice.start()} runs keybearer in the background`);
    t.match(status, { code: 1, stderr: /does not answer/ });
    t.match(dry, { code: 0, stderr: /could not be installed now: / });
    t.match(dry?.stdout, `would write ${unit}:\n\n[Unit]\nDescription=`);
    t.notMatch(dry?.stdout, /^#/m, "without comments");
    t.match(dry?.stdout, join(keybearer, "config.yaml"));
    t.match(dry?.stdout, STARTED.map((line) => `would run ${line}`).join("\n"));
    t.match(gone, { code: 0, stdout: /is not installed/ });
    t.notOk(existsSync(unit));
    t.same(systemctl.changes(), []);
  },
);

t.test("a move to the system service and back is refused, not made, with --dry-run", onLinux, async (t) => {
  const { service } = await prepare(t);
  // With an owner who does not exist, because root may run the tests.
  for (const verb of ["install", "uninstall"])
    t.match(await service(`${verb} --system --dry-run --owner no-such-user`), {
      code: 2,
      stdout: "",
      stderr: /no --dry-run\. nothing was changed/,
    });
});

t.test(
  "a config.yaml that is missing or broken, and a port that is taken, are refused",
  onLinux,
  async (t) => {
    const taken = createServer().listen(0, "127.0.0.1");
    t.teardown(() => taken.close());
    await new Promise((resolve) => taken.once("listening", resolve));
    const address = taken.address();
    const port = typeof address === "object" ? address?.port : 0;
    const homes = await Promise.all([
      prepare(t, null),
      prepare(t, `${CONFIG}limits: {}\n`),
      prepare(t, CONFIG.replace("localhost:0", `localhost:${port}`)),
      prepare(t),
    ]);
    const [missing, broken, busy, foreign] = homes;
    foreign.putUnit("[Service]\nExecStart=/bin/true\n");
    const ended = await Promise.all(homes.map(({ service }) => service("install")));
    t.match(ended[0], { code: 78, stderr: /there is no .*config\.yaml → keybearer init/ });
    t.match(ended[1], { code: 78, stderr: /config\.yaml:4:1: limits: [\s\S]*nothing was changed/ });
    t.match(ended[2], {
      code: 69,
      stderr: new RegExp(`port ${port} is taken by .* → stop it, or change listen`),
    });
    t.match(ended[3], { code: 1, stderr: /left alone: keybearer did not write it\n→ move it away/ });
    for (const { unit } of [missing, broken, busy]) t.notOk(existsSync(unit));
    t.equal(readFileSync(foreign.unit, "utf8"), "[Service]\nExecStart=/bin/true\n");
    for (const { systemctl } of homes) t.same(systemctl.changes(), []);
  },
);

t.test(
  "a daemon that runs by hand is not taken over; the service is installed, updated and restarted",
  onLinux,
  async (t) => {
    const { systemctl, unit, typed, service, keybearer, putUnit } = await prepare(t);
    await startUnderTest(t, CONFIG, { home: keybearer });
    const byHand = await service("install");
    t.match(byHand, {
      code: 75,
      stderr: new RegExp(`already running here, as pid ${process.pid}, and not as the service`),
    });
    t.notOk(existsSync(unit));
    // From now on the manager says that this very process is its own.
    systemctl.state({
      ...RUNNING,
      MainPID: process.pid,
      ActiveEnterTimestamp: "Sun 2026-11-15 11:25:12 UTC",
    });
    const first = await service("install");
    t.match(first, {
      code: 0,
      stdout: `installed ${unit}\nit runs as pid ${process.pid}, and answers on 127.0.0.1:`,
    });
    t.match(first.stdout, /loginctl enable-linger/);
    t.same(systemctl.changes(), [...STARTED, "systemctl --user restart keybearer.service"]);
    const text = readFileSync(unit, "utf8");
    t.match(text, `run --config "${join(keybearer, "config.yaml")}"`);
    t.notMatch(text, CANARY);
    const again = await service("install");
    t.match(again, { code: 0, stdout: /is up to date; nothing was written\nit runs as pid/ });
    t.same(systemctl.changes(), [STARTED[1]], "it only makes sure that the service runs");
    const stopTimeout = async () => {
      const { findings } = JSON.parse((await typed(["doctor", "--json"])).stdout);
      return findings.find(({ id }: { id: string }) => id === "service-stop-timeout");
    };
    const next = "keybearer service install";
    putUnit(text.replace("TimeoutStopSec=20s", "TimeoutStopSec=5s"));
    t.match(await stopTimeout(), { level: "warning", what: /killed 5 s after a stop/, next });
    putUnit(text);
    t.equal(await stopTimeout(), undefined);
    await saveConfig(keybearer, `${CONFIG}drain: 1m\n`);
    t.match(await stopTimeout(), { what: /killed 20 s after a stop, but requests may take 60 s/, next });
    t.match(await service("install --dry-run"), { code: 0, stdout: /TimeoutStopSec=70s/ });
    await saveConfig(keybearer, CONFIG);
    putUnit(text.replace("# keybearer unit 1", "# keybearer unit 0"));
    const [older, json] = await Promise.all([service("status"), service("status --json")]);
    t.match(older, {
      code: 0,
      stdout: /an older keybearer wrote its file[\s\S]*→ keybearer service install/,
    });
    t.match(JSON.parse(json.stdout), {
      ...{
        installed: true,
        serving: true,
        active: "running",
        pid: process.pid,
        enabled: true,
        answers: true,
      },
      ...{
        since: Date.UTC(2026, 10, 15, 11, 25, 12),
        notes: [{ id: "older", next: "keybearer service install" }],
      },
    });
    t.match(await service("install"), {
      code: 0,
      stdout: /updated .*; the running service was restarted after its requests finished/,
    });
    t.equal(readFileSync(unit, "utf8"), text);
    t.equal(systemctl.changes().at(-1), "systemctl --user restart keybearer.service");
    t.match(await service("restart"), { code: 0, stdout: new RegExp(`runs as pid ${process.pid}`) });
    t.same(systemctl.changes(), ["systemctl --user restart keybearer.service"]);
    await saveConfig(keybearer, `${CONFIG}limits: {}\n`);
    t.match(await service("restart"), {
      code: 78,
      stderr: /limits: [\s\S]*was not restarted and still runs/,
    });
    t.same(systemctl.changes(), [], "a typing mistake does not stop what works");
    systemctl.state({ ActiveState: "inactive", SubState: "dead" });
    const purge = await service("uninstall --purge --yes");
    t.match(purge, { code: 75, stderr: /still runs here/ });
    t.ok(existsSync(join(keybearer, "config.yaml")));
  },
);

t.test("install says of each tool without a key why, and what to type", onLinux, async (t) => {
  const missing = join(await newHome(t), "gone");
  const { systemctl, service, keybearer } = await prepare(
    t,
    CONFIG.replace(" } }", ` }, other: { key: "file:${missing}" } }`),
  );
  await serveIn(t, keybearer);
  systemctl.state({ ...RUNNING, MainPID: process.pid });
  const { code, stderr } = await service("install");
  t.equal(code, 0, stderr);
  t.match(stderr, new RegExp(`^tool other: .*${missing}.* → `, "m"));
  t.notMatch(stderr, /tool codex|no tool/);
});

t.test("the advised mv works with any path", onLinux, async (t) => {
  const { home, service } = await prepare(t);
  const unit = join(home, "my files/.config/systemd/user/keybearer.service");
  mkdirSync(dirname(unit), { recursive: true });
  writeFileSync(unit, "[Service]\nExecStart=/bin/true\n");
  const { stderr } = await service("install", { HOME: join(home, "my files") });
  t.match(stderr, `(mv '${unit}' '${unit}.mine'), then`);
});

t.test("stop asks the manager if the daemon is the process of the service", onLinux, async (t) => {
  const { systemctl, typed, keybearer } = await prepare(t);
  t.match(await typed(["stop"]), { code: 1, stderr: /not running/ });
  await serveIn(t, keybearer);
  // The daemon under test is this process.
  systemctl.state({ ...RUNNING, MainPID: process.pid });
  const refused = await typed(["stop"]);
  t.same(systemctl.changes(), ["systemctl --user stop keybearer.service"]);
  t.match(refused, { code: 1, stderr: /the service could not be stopped/ }, "this manager stops nothing");
});

t.test(
  "a service that does not start is reported with its exit code and its last log lines",
  onLinux,
  async (t) => {
    const { systemctl, typed, service, unit } = await prepare(t);
    t.match(await service("restart"), { code: 1, stderr: /not installed → keybearer service install/ });
    systemctl.failStarts();
    systemctl.state({ ActiveState: "failed", SubState: "failed", ExecMainCode: 1, ExecMainStatus: 69 });
    systemctl.journal(
      '{"level":"warn","time":"2026-11-15T11:25:12.000Z","msg":"last line"}\nMain process exited\n',
    );
    const failed = await service("install");
    t.match(failed, { code: 69, stderr: /its port is taken by another program \(exit code 69\)/ });
    t.match(failed.stderr, /\n {2}11:25:12 warn: last line\n {2}Main process exited\n→ keybearer doctor\n/);
    const lines = await Promise.all([service("logs"), service("logs --json -n 5"), service("logs -n x")]);
    t.match(lines[0], { code: 0, stdout: "11:25:12 warn: last line\nMain process exited\n" });
    t.match(lines[1]?.stdout, /^\{"level":"warn"/);
    t.equal(lines[2]?.code, 2);
    systemctl.journal("");
    t.match(await service("logs"), { code: 1, stderr: /the journal has nothing/ });
    writeFileSync(
      unit,
      readFileSync(unit, "utf8").replace(/ExecStart=:"[^"]+"/, 'ExecStart=:"/gone/bin/node"'),
    );
    systemctl.state({ ActiveState: "failed", SubState: "failed", ExecMainCode: 1, ExecMainStatus: 203 });
    const [moved, restart, doctor] = await Promise.all([
      service("status"),
      service("restart"),
      typed(["doctor", "--json"]),
    ]);
    t.match(moved, {
      code: 1,
      stdout: /node is no longer at \/gone\/bin\/node\s+→ keybearer service install/,
    });
    t.match(restart, { code: 1, stderr: /\/gone\/bin\/node no longer exists → keybearer service install/ });
    const { findings } = JSON.parse(doctor.stdout);
    const found = findings.filter(({ about }: { about: string }) => about === "the service");
    t.match(found[0], { id: "service-node", level: "problem", next: "keybearer service install" });
    t.match(
      findings.find(({ id }: { id: string }) => id === "daemon"),
      { next: "keybearer service restart" },
    );
  },
);

t.test(
  "keys that a service cannot read are reported; without any key, install asks first",
  onLinux,
  async (t) => {
    const env = CONFIG.replace(CANARY, "env:CODEX_KEY");
    const [none, given] = await Promise.all([prepare(t, env), prepare(t, env)]);
    given.systemctl.variables([`CODEX_KEY=${CANARY}`]);
    const [refused, dry] = await Promise.all([
      none.service("install", { CODEX_KEY: CANARY }),
      none.service("uninstall --dry-run"),
    ]);
    t.match(refused, { code: 2, stderr: /env:CODEX_KEY is set in this shell, which a service does not see/ });
    t.match(refused.stderr, "→ printenv CODEX_KEY | keybearer tools rotate codex --key-stdin");
    t.match(refused.stderr, /no tool would have a key\. .*install --yes\nnothing was changed/);
    t.notOk(existsSync(none.unit));
    t.match(dry, { code: 0, stdout: /not installed/ });
    for (const { systemctl } of [none, given]) {
      systemctl.failStarts();
      systemctl.state({ ActiveState: "failed", SubState: "failed", ExecMainCode: 1, ExecMainStatus: 1 });
    }
    const anyway = advised(t, refused.stderr, advice.serviceInstallAnyway());
    const [yes, visible] = await Promise.all([none.typed(anyway), given.service("install")]);
    t.match(yes.stderr, /env:CODEX_KEY is not set for a service → keybearer tools rotate codex/);
    t.ok(existsSync(none.unit), "with --yes it goes on");
    t.match(visible.stderr, /is set in the user manager now, and may be gone after the next login/);
    t.ok(existsSync(given.unit));
  },
);

t.test("each command that the service commands advise works where it is printed", onLinux, async (t) => {
  const { systemctl, typed, service, unit, keybearer } = await prepare(t);
  // The daemon under test, which is this process, plays the one that the manager starts.
  const { daemon } = await startUnderTest(t, CONFIG, { home: keybearer });
  const running = { ...RUNNING, MainPID: process.pid };
  systemctl.state(running);
  const missing = await service("restart");
  const installed = await typed(advised(t, missing.stderr, advice.serviceInstall()));
  t.equal(installed.code, 0, installed.stderr);
  t.ok(existsSync(unit));

  systemctl.state({ ActiveState: "inactive", SubState: "dead", UnitFileState: "enabled" });
  const stopped = await service("status");
  systemctl.state(running);
  systemctl.changes();
  t.match(await typed(advised(t, stopped.stdout, advice.serviceRestart())), {
    code: 0,
    stdout: /runs as pid/,
  });
  t.same(systemctl.changes(), ["systemctl --user restart keybearer.service"]);

  systemctl.state({ ...running, ActiveState: "activating", SubState: "start" });
  const starting = await service("status");
  systemctl.state(running);
  t.match(await typed(advised(t, starting.stdout, advice.serviceStatus())), { code: 0, stdout: /running/ });

  await daemon.stop(0);
  systemctl.state({ ActiveState: "failed", SubState: "failed", ExecMainCode: 2, ExecMainStatus: 9 });
  systemctl.journal("Main process exited, status=9/KILL\n");
  const killed = await service("status");
  t.match(await typed(advised(t, killed.stdout, advice.serviceLogs())), {
    code: 0,
    stdout: /status=9\/KILL/,
  });
});

const FAILED = { ActiveState: "failed", SubState: "failed", ExecMainCode: 1, ExecMainStatus: 1 };

/** Installed, and failed: the installation ends at once, and the test reads its unit. */
async function prepareInstalled(t: Test) {
  const here = await prepare(t);
  here.systemctl.failStarts();
  here.systemctl.state(FAILED);
  await here.service("install");
  here.systemctl.changes();
  return { ...here, text: () => readFileSync(here.unit, "utf8") };
}

longTest(t, "a service keeps its own files when it is repaired from any other shell", onLinux, async (t) => {
  const { home, keybearer, service, unit, text, putUnit } = await prepareInstalled(t);
  const [plain, first] = [{ KEYBEARER_HOME: "" }, text()];
  const gone = first.replace(/ExecStart=:"[^"]+"/, 'ExecStart=:"/gone/bin/node"');
  for (const own of [false, true]) {
    if (own) {
      mkdirSync(join(home, ".config/keybearer"), { recursive: true, mode: 0o700 });
      writeFileSync(join(home, ".config/keybearer/config.yaml"), CONFIG, { mode: 0o600 });
    }
    putUnit(gone);
    const { notes } = JSON.parse((await service("status --json", plain)).stdout);
    t.same(
      notes.map(({ id }: { id: string }) => id),
      ["node", "disabled", "failed"],
      "what the installation named needs no note",
    );
    t.equal(notes[0].next, "keybearer service install");
    const repaired = await service("install", plain);
    t.match(repaired.stderr, `the service keeps its ${join(keybearer, "config.yaml")}`);
    t.equal(
      readFileSync(unit, "utf8"),
      first,
      `${own ? "with" : "without"} a config.yaml at the usual place`,
    );
  }
  const usual = join(home, ".config/keybearer/config.yaml");
  rmSync(join(keybearer, "config.yaml"));
  t.match(await service("install", plain), {
    ...{
      code: 78,
      stderr: `or name another: keybearer service install --config ${usual}\nnothing was changed`,
    },
  });
  await service(`install --config ${usual}`, plain);
  t.match(text(), `run --config "${usual}"`);
  t.match(text(), `KEYBEARER_HOME=${keybearer}`, "because no other folder was named");
});

longTest(
  t,
  "with process: or usage.project the unit has no user namespaces, and a unit that does not fit config.yaml is reported",
  onLinux,
  async (t) => {
    const { typed, service, text, keybearer, systemctl } = await prepareInstalled(t);
    const next = "keybearer service install";
    const mismatch = async (id: string) => {
      const { findings } = JSON.parse((await typed(["doctor", "--json"])).stdout);
      return findings.find((finding: { id: string }) => finding.id === id);
    };
    t.match(text(), /^PrivateUsers=yes$/m);

    await saveConfig(keybearer, CONFIG.replace("key:", "process: /usr/bin/codex, key:"));
    t.match((await service("status")).stdout, /tool codex has process:[\s\S]*→ keybearer service install/);
    t.match(await mismatch("service-process"), { level: "problem", next });
    const without = await service("install");
    t.match(without.stderr, /tool codex has process:, so the unit is written without user namespaces\./);
    t.match(without.stderr, /can change all your files/);
    t.notMatch(text(), /^PrivateUsers/m);
    t.match((await service("status")).stdout, /without user namespaces/);
    t.match(JSON.parse((await service("status --json")).stdout), { namespaces: false });
    t.equal(await mismatch("service-process"), undefined);

    await saveConfig(keybearer, CONFIG);
    await service("install");
    await saveConfig(keybearer, `${CONFIG}usage: { project: name }\n`);
    const project = {
      level: "warning",
      what: /usage\.project is name, [\s\S]*: from its namespaces no project is found/,
    };
    t.match(await mismatch("service-process"), { ...project, next });
    const withProject = await service("install");
    t.match(
      withProject.stderr,
      /usage\.project is name, so the unit is written without user namespaces\. without them/,
    );
    t.notMatch(text(), /^PrivateUsers/m);
    t.equal(await mismatch("service-process"), undefined);

    await saveConfig(keybearer, CONFIG);
    // The unit may have been written so because the system would not start it with namespaces: the drop-in comes first then.
    const first =
      /^keybearer service install\. if your system does not let users .*: systemctl --user edit keybearer, /;
    t.match(await mismatch("service-namespaces"), {
      level: "warning",
      what: /config\.yaml has no process: and no usage\.project /,
      next: first,
    });
    t.equal((await service("install")).stderr.includes("namespaces"), false);
    t.match(text(), /^PrivateUsers=yes$/m);
    t.equal(await mismatch("service-namespaces"), undefined);

    systemctl.state({ ...RUNNING, LoadState: "loaded", PrivateUsers: "no" });
    t.match(JSON.parse((await service("status --json")).stdout), { namespaces: false });
    t.equal(await mismatch("service-namespaces"), undefined, "a drop-in turned them off");
  },
);

t.test(
  "--dry-run prints what would be done now, also while a daemon runs, and refuses to touch a foreign file",
  onLinux,
  async (t) => {
    const { service, unit, systemctl, putUnit, text, keybearer } = await prepareInstalled(t);
    const same = await service("install --dry-run");
    t.match(same, { code: 0, stderr: /is up to date/ });
    t.notMatch(same.stdout, /would write/);
    t.match(same.stdout, "would run systemctl --user reset-failed keybearer.service");
    const first = text();
    putUnit(`${first}# mine\n`);
    systemctl.state({ ...RUNNING, MainPID: 1 });
    const { stdout } = await service("install --dry-run --verbose");
    const runs = [...STARTED, "systemctl --user restart keybearer.service"].map(
      (line) => `would run ${line}\n`,
    );
    t.match(stdout, `would write ${unit}:\n\n${first}`);
    t.ok(stdout.endsWith(runs.join("")), "the restart is part of it");
    t.match((await service("uninstall --dry-run")).stdout, `would remove ${unit}`);

    putUnit("[Service]\nExecStart=/bin/true\n");
    const [install, uninstall, status, restart] = await Promise.all(
      ["install --dry-run", "uninstall --dry-run", "status", "restart"].map((line) => service(line)),
    );
    t.match(install, {
      code: 1,
      stdout: "",
      stderr: /left alone: keybearer did not write it\n→ move it/,
    });
    t.match(uninstall, { code: 1, stderr: /left alone[\s\S]*move it away/ });
    t.notMatch(uninstall?.stdout, /would/);
    t.match(status?.stdout, /→ move it away \(mv .*\), then keybearer service install/);
    t.match(restart, { code: 1, stderr: /move it away/ });

    rmSync(unit);
    systemctl.state({});
    await startUnderTest(t, CONFIG, { home: keybearer });
    const byHand = await service("install --dry-run");
    t.match(byHand, {
      code: 0,
      stderr: /could not be started now: keybearer is already running here, as pid/,
    });
    t.match(byHand.stdout, `would write ${unit}:`);
    t.same(systemctl.changes(), []);
  },
);

t.test(
  "a manager that looks elsewhere for units, and one that does not answer, are reported",
  onLinux,
  async (t) => {
    const { home, service, systemctl, unit } = await prepare(t);
    systemctl.state({ UnitPath: "/home/other/.config/systemd/user /etc/systemd/user" });
    const refused = await service("install");
    t.match(refused, {
      code: 1,
      stderr: `HOME is ${home} here, but the user manager looks for units below /home/other,`,
    });
    t.notOk(existsSync(dirname(unit)));
    systemctl.state({ UnitPath: `${dirname(unit)} /etc/systemd/user`, ...FAILED });
    systemctl.failStarts();
    await service("install");
    t.ok(existsSync(unit));
    systemctl.state({ ActiveState: "activating", SubState: "start", NRestarts: 2 });
    t.match(await service("status"), {
      ...{ code: 1, stdout: /does not come up: it failed 2 times already\s+→ keybearer service logs/ },
    });
    systemctl.silence();
    const { code, stdout } = await service("status --json");
    t.equal(code, 1);
    t.match(JSON.parse(stdout), {
      available: false,
      installed: true,
      serving: false,
      why: /No medium found/,
    });
  },
);

t.test("a path with a line break is refused before anything is written", onLinux, async (t) => {
  const { keybearer, service, unit, systemctl } = await prepare(t);
  const folder = join(keybearer, "a\nExecStartPre=");
  mkdirSync(folder, { mode: 0o700 });
  await saveConfig(folder, CONFIG);
  const refused = await service("install", { KEYBEARER_HOME: folder });
  t.match(refused, { code: 1, stderr: /line break or control character[\s\S]*nothing was changed/ });
  t.notOk(existsSync(unit));
  t.notOk(existsSync(join(folder, "state")));
  t.same(systemctl.changes(), []);
});
