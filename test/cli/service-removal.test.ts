import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { PassThrough, Readable } from "node:stream";
import t, { type Test } from "tap";
import type { ContextOptions } from "../../src/cli/service/context.ts";
import { logs } from "../../src/cli/service/logs.ts";
import { restart } from "../../src/cli/service/restart.ts";
import { checkCommand, describeExit } from "../../src/cli/service/status.ts";
import { uninstall } from "../../src/cli/service/uninstall.ts";
import { withStdio } from "../../src/cli/ui/stdio.ts";
import { advice } from "../../src/core/advice.ts";
import { findPaths } from "../../src/core/paths.ts";
import { renderPlist } from "../../src/service/plist.ts";
import { createSpec } from "../../src/service/spec.ts";
import { renderUnit } from "../../src/service/unit.ts";
import { advised, command, newHome } from "../doubles/command.ts";
import { LaunchctlRecorder } from "../doubles/launchctl-recorder.ts";
import { ROOT } from "../doubles/paths.ts";
import { createSystemctl } from "../doubles/systemctl-script.ts";

/* Which files are removed, which stay, and what is printed about a service that does not work. */

const onLinux = { skip: process.platform === "linux" ? false : "systemd is Linux's" };
const CONFIG =
  "listen: localhost:0\ngateway: http://127.0.0.1:9/v1\ntools: { codex: { key: sk-removal-0123456789 } }\n";

interface Output {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** What a command prints without a terminal. */
async function printed(work: () => Promise<void>): Promise<Output> {
  const stdout = new PassThrough();
  const stderr = new PassThrough();
  const streams = { stdin: Readable.from([""]), stdout, stderr, env: {}, execArgv: [], exitCode: 0 };
  await withStdio(streams, work);
  return { code: streams.exitCode, stdout: textIn(stdout), stderr: textIn(stderr) };
}

function textIn(stream: PassThrough): string {
  let text = "";
  for (let piece = stream.read(); piece !== null; piece = stream.read()) text += String(piece);
  return text;
}

function put(folder: string, ...files: readonly string[]): void {
  for (const file of files) {
    mkdirSync(dirname(join(folder, file)), { recursive: true, mode: 0o700 });
    writeFileSync(join(folder, file), file === "config.yaml" ? CONFIG : "x", { mode: 0o600 });
  }
}

/** A home folder, and the files of an installation of its own below it: h and h/k. */
async function prepare(t: Test) {
  const folder = await newHome(t);
  const home = join(folder, "h");
  const own = join(home, "k");
  put(own, "config.yaml");
  const systemctl = await createSystemctl(folder);
  const shell = { ...systemctl.env, HOME: home };
  const deps = (env: NodeJS.ProcessEnv = { KEYBEARER_HOME: own }): ContextOptions => ({
    env: { ...shell, ...env },
    home,
    platform: "linux",
  });
  const unit = join(home, ".config/systemd/user/keybearer.service");
  /** As the installer of that shell would write it. */
  const installed = (env: NodeJS.ProcessEnv = { KEYBEARER_HOME: own }, config?: string) => {
    const paths = findPaths({ env, home, config });
    const main = process.argv[1] ?? "";
    const spec = createSpec({ node: process.execPath, main, paths, env, namespaces: true, drainMs: 10_000 });
    put(dirname(unit), "keybearer.service");
    writeFileSync(unit, renderUnit(readFileSync(join(ROOT, "service/keybearer.service"), "utf8"), spec));
  };
  const typed = (args: readonly string[], env: NodeJS.ProcessEnv) =>
    command(t, own, args, { env: { ...shell, ...env } });
  return { folder, home, own, systemctl, deps, unit, installed, typed };
}

t.test(
  "a purge removes exactly the files that keybearer writes, in every folder, and follows no link",
  onLinux,
  async (t) => {
    const { own, home, deps, systemctl } = await prepare(t);
    const undo = "state/undo/claude-code-2026-11-15T11-25-12-000Z";
    const ours = [
      ...["config.yaml", "keys/codex", "keys/codex-2", "keys/codex.0123456789ab.tmp", "run/control.sock"],
      ...["state/keybearer.log", "state/keybearer.log.1", "state/keybearer.log.1.tmp"],
      ...["keys/undo-codex", "keys/undo-codex-2"],
      ...["state/lock.db", "state/index.db", "state/index.db-wal", "state/index.db-shm"],
      ...["state/mirror.db", "state/mirror.db-wal", "state/mirror.db.damaged-20261115T112512Z"],
      ...["state/usage/2026-11-15.jsonl", "state/usage/2026-11-14.jsonl.gz"],
      ...["state/usage/2026-11-14.jsonl.gz.tmp", "state/mirror.db.damaged-20261115T112512Z-wal"],
      ...[
        "state/trust.json",
        "state/trust.json.set-aside-2026-11-15T11-25-12-000Z",
        "state/key-changes.json",
        "state/token-uses.json",
        "state/other-models.json",
        "state/browsers.json",
        "state/events.jsonl",
        "state/.events.jsonl.0123456789abcdef01234567.tmp",
        "state/notify-queue.jsonl",
        "state/notify-queue.jsonl.set-aside-2026-11-15T11-25-12-000Z",
        "run/dashboard-sessions.json",
        "run/.dashboard-sessions.json.0123456789abcdef01234567.tmp",
        "run/open-Ab3_-x9Z.html",
        "state/shared.json.set-aside-2026-11-15T11-25-12-000Z",
        "state/index.db.set-aside-2026-11-15T11-25-12-000Z",
        "state/usage/2099-11-14.jsonl.set-aside-2026-11-15T11-25-12-000Z",
        `${undo}.json`,
      ],
    ];
    const theirs = [
      ...["notes", "keys/id_ed25519", "keys/codex-old", "keys/deep/codex", "run/mine", "state/mine.txt"],
      ...["state/usage/mine.jsonl", "state/usage/2026-11-15.jsonl.bak", "state/usage/2026-11-15.json"],
      ...[
        "state/index.db.mine",
        "state/mirror.db-copy",
        "state/mirror.db.damaged-by-me",
        "state/2026-11-15.jsonl",
      ],
      ...["state/usage.db", "state/trust.json-copy", "state/undo/1.json", "config.yaml.mine"],
      ...["state/keybearer.log.2", "state/mine.jsonl", "run/open-mine.html"],
    ];
    put(own, ...ours, ...theirs);
    put(home, "outside/precious");
    symlinkSync(join(home, "outside"), join(own, "state/undo/link"));
    symlinkSync(join(home, "outside"), join(own, "state/key-calls.json"));
    symlinkSync("4711", join(own, ".config.yaml.lock"));
    const asked = await printed(() => uninstall({ purge: true }, deps()));
    t.match(asked, { code: 2, stderr: /keybearer service uninstall --purge --yes\nnothing was changed/ });
    const dry = await printed(() => uninstall({ purge: true, dryRun: true }, deps()));
    t.match(dry.stdout, `would remove ${join(own, "keys/codex")}\n`);
    for (const file of [...ours, ...theirs]) t.ok(existsSync(join(own, file)), `${file} is still there`);
    const { code, stdout } = await printed(() => uninstall({ purge: true, yes: true }, deps()));
    t.equal(code, 0);
    for (const file of ours) {
      t.notOk(existsSync(join(own, file)), `${file} is gone`);
      t.match(stdout, `removed ${join(own, file)}\n`);
    }
    for (const file of theirs) t.ok(existsSync(join(own, file)), `${file} stays`);
    for (const file of [...theirs.filter((each) => !each.includes("deep")), "keys/deep"])
      t.match(stdout, `stays: ${join(own, file)}: keybearer did not create it`);
    t.match(stdout, /stays: .*key-calls\.json: it is a link/);
    t.match(stdout, /stays: .*undo\/link: it is a link/);
    t.notMatch(stdout, /stays: .*lock/);
    t.ok(existsSync(join(home, "outside/precious")));
    t.same(systemctl.changes(), []);
  },
);

t.test("a purge leaves no empty folder, and refuses a home folder and a link", onLinux, async (t) => {
  const { own, home, deps } = await prepare(t);
  put(own, "keys/codex", "state/usage/2026-11-15.jsonl", "state/index.db", "run/control.sock");
  symlinkSync(own, join(home, "link"));
  const yes = { purge: true, yes: true };
  t.match(await printed(() => uninstall(yes, { ...deps({ KEYBEARER_HOME: own }), home: own })), {
    code: 1,
    stderr: /is, or contains, your home folder\nnothing was changed/,
  });
  t.match(await printed(() => uninstall(yes, deps({ KEYBEARER_HOME: join(home, "link") }))), {
    code: 1,
    stderr: /is a link, which is not followed/,
  });
  writeFileSync(join(own, "config.yaml"), "tools: [");
  const dry = await printed(() => uninstall({ purge: true, dryRun: true }, deps()));
  t.match(dry.stdout, /stays: .*keys\/codex: only a config\.yaml that can be read says/);
  put(own, "config.yaml");
  t.equal((await printed(() => uninstall(yes, deps()))).code, 0);
  t.notOk(existsSync(own));
});

t.test("a purge removes the service's files, and nothing if this shell has others", onLinux, async (t) => {
  const { own, home, deps, installed, unit, systemctl, typed } = await prepare(t);
  installed();
  const usual = join(home, ".config/keybearer");
  put(usual, "config.yaml");
  put(join(home, ".local/state/keybearer"), "usage/2026-11-15.jsonl");
  put(own, "state/usage/2026-11-15.jsonl");
  const plain = deps({});
  for (const options of [{ yes: true }, { dryRun: true }]) {
    const refused = await printed(() => uninstall({ purge: true, ...options }, plain));
    t.match(refused, { code: 1, stdout: "", stderr: /--purge removes nothing here/ });
    t.match(
      refused.stderr,
      `the service has ${join(own, "config.yaml")} and ${join(own, "state")}, and this shell`,
    );
    t.match(refused.stderr, `${join(usual, "config.yaml")} and ${join(home, ".local/state/keybearer")}\n`);
    t.match(refused.stderr, `→ KEYBEARER_HOME=${own} keybearer service uninstall --purge`);
  }
  t.same(systemctl.changes(), []);
  t.ok(existsSync(unit));
  const kept = await printed(() => uninstall({}, plain));
  t.match(kept, { code: 0, stdout: `${join(own, "config.yaml")} and the usage log stay` });
  t.notOk(existsSync(unit));
  installed({}, join(home, "named.yaml"));
  const named = await printed(() => uninstall({ purge: true, yes: true }, plain));
  t.match(named, { code: 1, stderr: `the service has ${join(home, "named.yaml")}, and this shell ${usual}` });
  const plainly = await typed(advised(t, named.stderr, advice.serviceUninstall()), { KEYBEARER_HOME: "" });
  t.equal(plainly.code, 0, plainly.stderr);
  t.notOk(existsSync(unit));
  installed();
  const first = await printed(() => uninstall({ purge: true, yes: true }, plain));
  const asked = await typed(advised(t, first.stderr, advice.servicePurge()), { KEYBEARER_HOME: own });
  const purged = await typed(advised(t, asked.stderr, advice.servicePurgeAnyway()), { KEYBEARER_HOME: own });
  t.equal(purged.code, 0, purged.stderr);
  t.notOk(existsSync(own));
  t.ok(existsSync(join(usual, "config.yaml")), "another installation is not touched");
  t.ok(existsSync(join(home, ".local/state/keybearer/usage/2026-11-15.jsonl")));
});

t.test("under launchd, logs shows the service's log, whatever the shell's variables are", async (t) => {
  const { home, own } = await prepare(t);
  const launchctl = new LaunchctlRecorder(process.getuid?.() ?? 501);
  const tailed: (string | undefined)[] = [];
  const run: ContextOptions["run"] = async (argv, options) => {
    if (argv[0] !== "tail") return launchctl.run(argv, options);
    tailed.push(argv.at(-1));
    options?.onLine?.("a line");
    return { code: 0, stdout: "", stderr: "", missing: false };
  };
  const paths = findPaths({ env: { KEYBEARER_HOME: own }, home });
  const env = { KEYBEARER_HOME: own };
  const spec = createSpec({ node: "/n", main: "/m", paths, env, namespaces: false, drainMs: 10_000 });
  const agents = join(home, "Library/LaunchAgents");
  put(agents, "com.keybearer.plist");
  const template = readFileSync(join(ROOT, "service/com.keybearer.plist"), "utf8");
  writeFileSync(join(agents, "com.keybearer.plist"), renderPlist(template, spec));
  const output = await printed(() => logs({ lines: "5" }, { env: {}, home, platform: "darwin", run }));
  t.match(output, { code: 0, stdout: "a line\n" });
  t.same(tailed, [join(own, "state/keybearer.log")]);
});

t.test("a file that keybearer did not write is left alone, with what to do", onLinux, async (t) => {
  const { unit, deps, systemctl } = await prepare(t);
  put(dirname(unit), "keybearer.service");
  for (const command of [() => uninstall({}, deps()), () => restart(deps())]) {
    const output = await printed(command);
    t.match(output, { code: 1, stderr: /left alone: keybearer did not write it\n→ move it away \(mv / });
  }
  t.match(await printed(() => uninstall({ dryRun: true }, deps())), {
    code: 1,
    stdout: "",
    stderr: /→ move it away/,
  });
  t.equal(readFileSync(unit, "utf8"), "x");
  t.same(systemctl.changes(), []);
});

t.test("logs --json prints JSON in every line, for the manager's own lines too", onLinux, async (t) => {
  const { deps, systemctl } = await prepare(t);
  systemctl.journal('{"level":"warn","msg":"ours"}\nMain process exited\n{ broken\n');
  const { stdout } = await printed(() => logs({ lines: "5", json: true }, deps()));
  t.same(
    stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line)),
    [
      { level: "warn", msg: "ours" },
      { from: "systemd", msg: "Main process exited" },
      { from: "systemd", msg: "{ broken" },
    ],
  );
});

t.test("restart creates missing folders, and prints what the daemon reported", onLinux, async (t) => {
  const { deps, installed, own, systemctl } = await prepare(t);
  installed();
  const failed = { ActiveState: "failed", SubState: "failed", ExecMainCode: 1, ExecMainStatus: 78 };
  systemctl.failStarts();
  systemctl.state({ ...failed, StatusText: "did not start: cannot make the folder /x: EROFS" });
  const failedStart = await printed(() => restart(deps()));
  t.match(failedStart, {
    code: 78,
    stderr: /it did not start: cannot make the folder \/x: EROFS \(exit code 78\)/,
  });
  t.match(failedStart.stderr, /→ keybearer service restart\n$/);
  t.ok(existsSync(join(own, "state")));
  t.ok(existsSync(join(own, "run")));
  rmSync(join(own, "state"), { recursive: true });
  systemctl.state(failed);
  const elsewhere = await printed(() => restart(deps({})));
  t.match(elsewhere.stderr, `→ keybearer check ${join(own, "config.yaml")}\n`);
  t.ok(existsSync(join(own, "state")), "the service's, not this shell's");
});

t.test("every exit code has an explanation and a next step", async (t) => {
  const check = "keybearer check /c.yaml";
  for (const code of [2, 69, 75, 78, 200, 203, 217, 218, 226, 228, 233]) {
    const { what, next } = describeExit({ code, signal: null }, null, check);
    t.match(what, new RegExp(`^(?!it ended with).+ \\(exit code ${code}\\)$`));
    t.match(next, /^(keybearer|systemctl) /);
  }
  const refused = describeExit({ code: 226, signal: null }, null, check).next;
  t.match(refused, /^systemctl --user edit keybearer, .*README\.md'?, then keybearer service restart$/);
  const exit = (code: number, statusText: string) => describeExit({ code, signal: null }, statusText, check);
  t.same(exit(78, "did not start: /c.yaml:1:1: no"), {
    what: "it did not start: /c.yaml:1:1: no (exit code 78)",
    next: check,
  });
  t.same(exit(78, "did not start: other users can write to /s → chmod 700 /s").next, "chmod 700 /s");
  t.match(
    exit(69, "did not start: [::1]:5397 is taken by nginx (pid 7). stop it").what,
    /taken by nginx \(pid 7\)/,
  );
  t.match(
    exit(78, "serving http://localhost:5397").what,
    /config\.yaml cannot be used/,
    "an older status says nothing",
  );
  t.match(describeExit({ code: null, signal: "SIGKILL" }, null, check), {
    what: /SIGKILL/,
    next: "keybearer service logs",
  });
  t.equal(checkCommand("/c", "/c"), "keybearer check");
});
