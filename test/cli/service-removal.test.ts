import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import t, { type Test } from "tap";
import { logs } from "../../src/cli/service/logs/logs.ts";
import { restart } from "../../src/cli/service/restart.ts";
import type { SceneDeps } from "../../src/cli/service/scene.ts";
import { checkCommand, exitInWords } from "../../src/cli/service/status/exit-words.ts";
import { uninstall } from "../../src/cli/service/uninstall/uninstall.ts";
import { findPaths } from "../../src/core/paths.ts";
import { plistText } from "../../src/service/launchd/plist.ts";
import { specOf } from "../../src/service/spec.ts";
import { unitText } from "../../src/service/systemd/unit.ts";
import { template } from "../../src/service/template.ts";
import { newHome } from "../doubles/command.ts";
import { LaunchctlRecorder } from "../doubles/launchctl-recorder.ts";
import { createSystemctl } from "../doubles/systemctl-script.ts";

/** Whose files go, whose stay, and what is said of a service that is in no good state. */

const onLinux = { skip: process.platform === "linux" ? false : "systemd is Linux's" };
const CONFIG =
  "listen: localhost:0\ngateway: http://127.0.0.1:9/v1\ntools: { codex: { key: sk-removal-0123456789 } }\n";

interface Said {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** What a command says when nobody is at a terminal. */
async function heard(work: () => Promise<void>): Promise<Said> {
  const { stdout, stderr, stdin } = process;
  const kept = { out: stdout.write, err: stderr.write, tty: stdin.isTTY };
  const said = { stdout: "", stderr: "" };
  const into = (name: "stdout" | "stderr") => (text: string | Uint8Array) => {
    said[name] += String(text);
    return true;
  };
  Object.assign(stdout, { write: into("stdout") });
  Object.assign(stderr, { write: into("stderr") });
  Object.assign(stdin, { isTTY: false });
  process.exitCode = undefined;
  try {
    await work();
    return { ...said, code: Number(process.exitCode ?? 0) };
  } finally {
    process.exitCode = undefined;
    Object.assign(stdout, { write: kept.out });
    Object.assign(stderr, { write: kept.err });
    Object.assign(stdin, { isTTY: kept.tty });
  }
}

function put(folder: string, ...files: readonly string[]): void {
  for (const file of files) {
    mkdirSync(dirname(join(folder, file)), { recursive: true, mode: 0o700 });
    writeFileSync(join(folder, file), file === "config.yaml" ? CONFIG : "x", { mode: 0o600 });
  }
}

/** A home folder, and the files of an installation of its own below it: h and h/k. */
async function scene(t: Test) {
  const folder = await newHome(t);
  const [home, own] = [join(folder, "h"), join(folder, "h/k")];
  put(own, "config.yaml");
  const systemctl = await createSystemctl(folder);
  const shell = { ...systemctl.env, HOME: home };
  const deps = (env: NodeJS.ProcessEnv = { KEYBEARER_HOME: own }): SceneDeps => ({
    ...{ env: { ...shell, ...env }, home, platform: "linux" },
  });
  const unit = join(home, ".config/systemd/user/keybearer.service");
  /** As the installer of that shell would write it. */
  const installed = (env: NodeJS.ProcessEnv = { KEYBEARER_HOME: own }, config?: string) => {
    const paths = findPaths({ env, home, config });
    const spec = specOf({
      ...{ node: process.execPath, main: process.argv[1] ?? "", paths, env, namespaces: true },
    });
    put(dirname(unit), "keybearer.service");
    writeFileSync(unit, unitText(template("keybearer.service"), spec));
    return { paths, spec };
  };
  return { folder, home, own, systemctl, deps, unit, installed };
}

t.test(
  "a purge goes by the names that keybearer writes, in every folder, and through no link",
  onLinux,
  async (t) => {
    const { own, home, deps, systemctl } = await scene(t);
    const undo = "state/undo/claude-code-2026-11-15T11-25-12-000Z";
    const ours = [
      ...["config.yaml", "keys/codex", "keys/codex-2", "keys/codex.0123456789ab.tmp", "run/control.sock"],
      ...["state/lock.db", "state/index.db", "state/index.db-wal", "state/index.db-shm"],
      ...["state/mirror.db", "state/mirror.db-wal", "state/mirror.db.damaged-20261115T112512Z"],
      ...["state/usage/2026-11-15.jsonl", "state/usage/2026-11-14.jsonl.gz"],
      ...["state/usage/2026-11-14.jsonl.gz.tmp", "state/mirror.db.damaged-20261115T112512Z-wal"],
      // Of versions before the journal.
      ...["state/usage.db", "state/usage.db-slips", "state/usage.db.corrupt-20261115T112512Z-2-shm"],
      ...[
        "state/trust.json",
        "state/trust.json.broken-2026-11-15T11-25-12-000Z",
        `${undo}.json`,
        `${undo}.old`,
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
      ...["state/usage.db.mine", "state/trust.json-copy", "state/undo/1.json", "config.yaml.mine"],
    ];
    put(own, ...ours, ...theirs);
    put(home, "outside/precious");
    symlinkSync(join(home, "outside"), join(own, "state/undo/link"));
    symlinkSync(join(home, "outside"), join(own, "state/log-end.json"));
    symlinkSync("4711", join(own, ".config.yaml.lock"));
    const asked = await heard(() => uninstall({ purge: true }, deps()));
    t.match(asked, { code: 2, stderr: /keybearer service uninstall --purge --yes\nnothing was changed/ });
    const dry = await heard(() => uninstall({ purge: true, dryRun: true }, deps()));
    t.match(dry.stdout, `would remove ${join(own, "keys/codex")}\n`);
    for (const file of [...ours, ...theirs]) t.ok(existsSync(join(own, file)), `${file} is still there`);
    const { code, stdout } = await heard(() => uninstall({ purge: true, yes: true }, deps()));
    t.equal(code, 0);
    for (const file of ours) {
      t.notOk(existsSync(join(own, file)), `${file} is gone`);
      t.match(stdout, `removed ${join(own, file)}\n`);
    }
    for (const file of theirs) t.ok(existsSync(join(own, file)), `${file} stays`);
    for (const file of [...theirs.filter((each) => !each.includes("deep")), "keys/deep"])
      t.match(stdout, `stays: ${join(own, file)}: keybearer did not make it`);
    t.match(stdout, /stays: .*log-end\.json: it is a link/);
    t.match(stdout, /stays: .*undo\/link: it is a link/);
    t.notMatch(stdout, /stays: .*lock/);
    t.ok(existsSync(join(home, "outside/precious")));
    t.same(systemctl.changes(), []);
  },
);

t.test(
  "a purge leaves no empty folder, no home folder is purged, and no link followed",
  onLinux,
  async (t) => {
    const { own, home, deps } = await scene(t);
    put(own, "keys/codex", "state/usage/2026-11-15.jsonl", "state/index.db", "run/control.sock");
    symlinkSync(own, join(home, "link"));
    const yes = { purge: true, yes: true };
    t.match(await heard(() => uninstall(yes, { ...deps({ KEYBEARER_HOME: own }), home: own })), {
      ...{ code: 1, stderr: /is, or holds, your home folder\nnothing was changed/ },
    });
    t.match(await heard(() => uninstall(yes, deps({ KEYBEARER_HOME: join(home, "link") }))), {
      ...{ code: 1, stderr: /is a link, which is not followed/ },
    });
    writeFileSync(join(own, "config.yaml"), "tools: [");
    const dry = await heard(() => uninstall({ purge: true, dryRun: true }, deps()));
    t.match(dry.stdout, /stays: .*keys\/codex: without a config\.yaml that can be read, nobody knows/);
    put(own, "config.yaml");
    t.equal((await heard(() => uninstall(yes, deps()))).code, 0);
    t.notOk(existsSync(own));
  },
);

t.test("what goes is the service's; where this shell has other files, nothing does", onLinux, async (t) => {
  const { own, home, deps, installed, unit, systemctl } = await scene(t);
  installed();
  const usual = join(home, ".config/keybearer");
  put(usual, "config.yaml");
  put(join(home, ".local/state/keybearer"), "usage/2026-11-15.jsonl");
  put(own, "state/usage/2026-11-15.jsonl");
  const [plain, inOwn] = [deps({}), deps()];
  for (const options of [{ yes: true }, { dryRun: true }]) {
    const refused = await heard(() => uninstall({ purge: true, ...options }, plain));
    t.match(refused, { code: 1, stdout: "", stderr: /--purge takes nothing away here/ });
    t.match(
      refused.stderr,
      `the service has ${join(own, "config.yaml")} and ${join(own, "state")}, and this shell`,
    );
    t.match(refused.stderr, `${join(usual, "config.yaml")} and ${join(home, ".local/state/keybearer")}\n`);
    t.match(refused.stderr, `→ KEYBEARER_HOME=${own} keybearer service uninstall --purge`);
  }
  t.same(systemctl.changes(), []);
  t.ok(existsSync(unit));
  const kept = await heard(() => uninstall({}, plain));
  t.match(kept, { code: 0, stdout: `${join(own, "config.yaml")} and the usage log stay` });
  t.notOk(existsSync(unit));
  installed({}, join(home, "named.yaml"));
  const named = await heard(() => uninstall({ purge: true, yes: true }, plain));
  t.match(named, { code: 1, stderr: `the service has ${join(home, "named.yaml")}, and this shell ${usual}` });
  installed();
  t.equal((await heard(() => uninstall({ purge: true, yes: true }, inOwn))).code, 0);
  t.notOk(existsSync(own));
  t.ok(existsSync(join(usual, "config.yaml")), "another installation is not touched");
  t.ok(existsSync(join(home, ".local/state/keybearer/usage/2026-11-15.jsonl")));
});

t.test("under launchd, the log is the service's own, whatever this shell has", async (t) => {
  const { home, own } = await scene(t);
  const launchctl = new LaunchctlRecorder(process.getuid?.() ?? 501);
  const tailed: (string | undefined)[] = [];
  const run: SceneDeps["run"] = async (argv, options) => {
    if (argv[0] !== "tail") return launchctl.run(argv, options);
    tailed.push(argv.at(-1));
    options?.onLine?.("said");
    return { code: 0, stdout: "", stderr: "", missing: false };
  };
  const paths = findPaths({ env: { KEYBEARER_HOME: own }, home });
  const env = { KEYBEARER_HOME: own };
  const spec = specOf({ node: "/n", main: "/m", paths, env, namespaces: false });
  const agents = join(home, "Library/LaunchAgents");
  put(agents, "com.keybearer.plist");
  writeFileSync(join(agents, "com.keybearer.plist"), plistText(template("com.keybearer.plist"), spec));
  const said = await heard(() => logs({ lines: "5" }, { env: {}, home, platform: "darwin", run }));
  t.match(said, { code: 0, stdout: "said\n" });
  t.same(tailed, [join(own, "state/keybearer.log")]);
});

t.test("a file that is not keybearer's is left alone, with what to do", onLinux, async (t) => {
  const { unit, deps, systemctl } = await scene(t);
  put(dirname(unit), "keybearer.service");
  for (const work of [uninstall, restart]) {
    const said = await heard(() => work({}, deps()));
    t.match(said, { code: 1, stderr: /left alone: it was not written by keybearer\n→ move it away \(mv / });
  }
  t.match(await heard(() => uninstall({ dryRun: true }, deps())), {
    code: 1,
    stdout: "",
    stderr: /→ move it away/,
  });
  t.equal(readFileSync(unit, "utf8"), "x");
  t.same(systemctl.changes(), []);
});

t.test("logs --json is JSON in every line, the manager's own lines too", onLinux, async (t) => {
  const { deps, systemctl } = await scene(t);
  systemctl.journal('{"level":"warn","msg":"ours"}\nMain process exited\n{ broken\n');
  const { stdout } = await heard(() => logs({ lines: "5", json: true }, deps()));
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

t.test("restart makes the folders that are gone, and says what the daemon said", onLinux, async (t) => {
  const { deps, installed, own, systemctl } = await scene(t);
  installed();
  const failed = { ActiveState: "failed", SubState: "failed", ExecMainCode: 1, ExecMainStatus: 78 };
  systemctl.failStarts();
  systemctl.state({ ...failed, StatusText: "did not start: cannot make the folder /x: EROFS" });
  const told = await heard(() => restart({}, deps()));
  t.match(told, { code: 78, stderr: /it did not start: cannot make the folder \/x: EROFS \(exit code 78\)/ });
  t.match(told.stderr, /→ keybearer service restart\n$/);
  t.ok(existsSync(join(own, "state")));
  t.ok(existsSync(join(own, "run")));
  rmSync(join(own, "state"), { recursive: true });
  systemctl.state(failed);
  const elsewhere = await heard(() => restart({}, deps({})));
  t.match(elsewhere.stderr, `→ keybearer check ${join(own, "config.yaml")}\n`);
  t.ok(existsSync(join(own, "state")), "the service's, not this shell's");
});

t.test("every way to end has words and what to type", async (t) => {
  const about = { check: "keybearer check /c.yaml", said: null };
  for (const code of [2, 69, 75, 78, 200, 203, 217, 218, 226, 228, 233]) {
    const { what, next } = exitInWords({ code, signal: null }, about);
    t.match(what, new RegExp(`^(?!it ended with).+ \\(exit code ${code}\\)$`));
    t.match(next, /^(keybearer|systemctl) /);
  }
  const words = (code: number, said: string) => exitInWords({ code, signal: null }, { ...about, said });
  t.same(words(78, "did not start: /c.yaml:1:1: no"), {
    ...{ what: "it did not start: /c.yaml:1:1: no (exit code 78)", next: about.check },
  });
  t.same(words(78, "did not start: others can write to /s → chmod 700 /s").next, "chmod 700 /s");
  t.match(
    words(69, "did not start: [::1]:5397 is taken by nginx (pid 7). stop it").what,
    /taken by nginx \(pid 7\)/,
  );
  t.match(
    words(78, "serving http://localhost:5397").what,
    /config\.yaml cannot be used/,
    "an older word says nothing",
  );
  t.match(exitInWords({ code: null, signal: "SIGKILL" }, about), {
    what: /SIGKILL/,
    next: "keybearer service logs",
  });
  t.equal(checkCommand("/c", "/c"), "keybearer check");
});
