import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { chown, mkdir, mkdtemp, readdir, rm, rmdir, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { Test } from "tap";
import { type Ended, startProgram } from "./command.ts";
import { ROOT } from "./paths.ts";
import { until } from "./until.ts";

const MANAGER = "/lib/systemd/systemd";
const JOURNAL = "/lib/systemd/systemd-journald";
/** No system uses this id: it is above those of people and below those that systemd assigns. */
const UID = 59_397;
const PERSON = "kbtest";
/** Where the user finds the checkout. The real path may be closed to other users, like /root. */
export const PACKAGE = "/opt/keybearer";

/**
 * A real systemd user manager with a journal, for a user without privileges, in namespaces of its own. Nothing of it is
 * visible outside, and everything in it ends with its first process.
 */
export interface UserManager {
  readonly uid: number;
  /** The user's home folder, as seen inside. */
  readonly home: string;
  /** The same folder, as this process sees it. */
  readonly homeOutside: string;
  /** Runs a program as the user. */
  run(argv: readonly string[], env?: NodeJS.ProcessEnv): Promise<Ended>;
  /** `systemctl --user …`; what it printed. */
  systemctl(...args: readonly string[]): Promise<Ended>;
  /** The properties of a unit. */
  show(unit: string, ...names: readonly string[]): Promise<Record<string, string>>;
  /** The journal of a unit, read by root. */
  journal(unit: string): Promise<string>;
  /** Writes a private file below the home folder. */
  write(path: string, text: string): Promise<void>;
}

/** null, with a skipped test: it needs root, systemd and writable cgroups. */
export async function startUserManager(t: Test): Promise<UserManager | null> {
  const missing = missingForManager();
  if (missing !== null) return skipWith(t, missing);
  const folder = await mkdtemp(join(tmpdir(), "kb-"));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  const cgroups = cgroupRoots().map((root) => join(root, `kbtest${process.pid}.slice`));
  t.teardown(() => removeCgroups(cgroups));
  try {
    await prepare(folder, cgroups);
  } catch (error) {
    return skipWith(t, `no cgroup of its own: ${error instanceof Error ? error.message : error}`);
  }
  const world = startWorld(t, folder, cgroups);
  const manager = createManager(t, folder, world);
  try {
    await until("the user manager answers", async () => {
      if (world.child.exitCode !== null) throw new Error(`it ended: ${world.said()}`);
      return /^(running|degraded)$/m.test((await manager.systemctl("is-system-running")).stdout);
    });
  } catch (error) {
    return skipWith(t, `${error instanceof Error ? error.message : error} ${world.said()}`);
  }
  return manager;
}

function skipWith(t: Test, why: string): null {
  t.skip(`no systemd user manager can run here: ${why}`, async () => {});
  return null;
}

function missingForManager(): string | null {
  if (process.platform !== "linux") return `${process.platform} has no systemd`;
  const needed = [MANAGER, JOURNAL, "/usr/bin/dbus-daemon", "/usr/lib/systemd/user/dbus.socket"];
  const missing = needed.filter((path) => !existsSync(path));
  if (missing.length > 0) return `missing: ${missing.join(", ")} (Debian: systemd, dbus-user-session)`;
  if (process.getuid?.() !== 0) return "only root can make the namespaces and the user";
  try {
    execFileSync("unshare", ["--mount", "--pid", "--fork", "true"], { stdio: "pipe" });
    execFileSync("setpriv", [...AS_PERSON, "test", "-x", process.execPath], { stdio: "pipe" });
  } catch (error) {
    return `not permitted: ${error instanceof Error ? error.message : error}`;
  }
  return null;
}

const AS_PERSON = [`--reuid=${UID}`, `--regid=${UID}`, "--clear-groups", "--inh-caps=-all"];

/** The trees that systemd keeps its units in: one, or two if both versions of cgroups are mounted. */
function cgroupRoots(): string[] {
  const named = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd"].filter((root) => existsSync(root));
  return named.length > 0 ? named : ["/sys/fs/cgroup"];
}

/** The journal knows a user's units by this name. */
const ownIn = (cgroup: string) => join(cgroup, `user@${UID}.service`);

/** systemd moves every process of its cgroup, so it must not start in ours. */
async function prepare(folder: string, cgroups: readonly string[]): Promise<void> {
  for (const own of cgroups.map(ownIn)) {
    await mkdir(own, { recursive: true });
    for (const name of ["", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads", "tasks"]) {
      if (existsSync(join(own, name))) await chown(join(own, name), UID, UID);
    }
  }
  await mkdir(join(folder, "home"), { mode: 0o700 });
  await chown(join(folder, "home"), UID, UID);
  const person = `${PERSON}:x:${UID}:${UID}::/home/${PERSON}:/bin/sh\n`;
  await writeFile(join(folder, "passwd"), readFileSync("/etc/passwd", "utf8") + person);
}

/** From the bottom up, because only an empty one can be removed. */
async function removeCgroups(cgroups: readonly string[]): Promise<void> {
  for (const tree of cgroups.filter((cgroup) => existsSync(cgroup))) {
    const below = await readdir(tree, { withFileTypes: true, recursive: true });
    const folders = below
      .filter((entry) => entry.isDirectory())
      .map((entry) => join(entry.parentPath, entry.name));
    for (const each of [...folders.sort().reverse(), tree]) {
      const gone = () =>
        rmdir(each).then(
          () => true,
          () => !existsSync(each),
        );
      // Its last process has ended, but the kernel may not have removed it yet.
      await until(`${each} is empty`, gone);
    }
  }
}

/**
 * Its own /run, so that systemd takes the system for booted and the journal's sockets are its own. The home is below /home,
 * because a unit may hide /tmp. The journal is split by user, as on a real machine.
 */
const WORLD = `
set -e
umask 022
folder=$1 project=$2 cgroups=$3
shift 3
mount -t tmpfs -o mode=0755 tmpfs /run
mount -t tmpfs -o mode=0755 tmpfs /home
mount -t tmpfs -o mode=0755 tmpfs /opt
mkdir -p /var/log/journal
mount -t tmpfs -o mode=0755 tmpfs /var/log/journal
mount --bind "$folder/passwd" /etc/passwd
mkdir -p /run/systemd/system /run/systemd/journal /run/systemd/unit-root /run/user /home/${PERSON} ${PACKAGE}
install -d -m 0700 -o ${UID} -g ${UID} /run/user/${UID}
mount --bind "$folder/home" /home/${PERSON}
mount --bind "$project" ${PACKAGE}
touch /run/systemd/journal/flushed
${JOURNAL} >/dev/null 2>&1 &
while ! [ -S /run/systemd/journal/stdout ]; do sleep 0.02; done
for cgroup in $cgroups; do echo $$ > "$cgroup/cgroup.procs"; done
cd /home/${PERSON}
setpriv ${AS_PERSON.join(" ")} env -i "$@" >&2 &
wait $!
`;

interface World {
  readonly child: ChildProcess;
  /** What the manager wrote to stderr. */
  said(): string;
  /** The pid of the first process inside, as seen from here. */
  inside(): string;
}

function startWorld(t: Test, folder: string, cgroups: readonly string[]): World {
  // As on a real machine, where the manager is a service with a journal.
  const env = Object.entries({ ...ENV, SYSTEMD_LOG_TARGET: "journal" }).map(
    ([name, value]) => `${name}=${value}`,
  );
  const manager = [...env, MANAGER, "--user", "--unit=basic.target"];
  const own = ["--mount", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc", "--propagation=private"];
  // A killed test run has no teardown. Then the kernel ends this process, and with it everything inside.
  const withUs = ["--pdeathsig", "KILL", "unshare"];
  const child = spawn(
    "setpriv",
    [...withUs, ...own, "sh", "-c", WORLD, "world", folder, ROOT, cgroups.map(ownIn).join(" "), ...manager],
    {
      env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin" },
      stdio: ["ignore", "ignore", "pipe"],
    },
  );
  let said = "";
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    said = `${said}${text}`.slice(-4000);
  });
  t.teardown(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const exit = once(child, "exit");
    child.kill("SIGKILL");
    await exit;
  });
  const inside = () => readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, "utf8").trim();
  return { child, said: () => said, inside };
}

const ENV = {
  PATH: `${dirname(process.execPath)}:/usr/local/bin:/usr/bin:/bin`,
  HOME: `/home/${PERSON}`,
  USER: PERSON,
  LOGNAME: PERSON,
  XDG_RUNTIME_DIR: `/run/user/${UID}`,
  DBUS_SESSION_BUS_ADDRESS: `unix:path=/run/user/${UID}/bus`,
};

function createManager(t: Test, folder: string, world: World): UserManager {
  const homeOutside = join(folder, "home");
  const enter = () => ["--target", world.inside(), "--mount", "--pid", "env", `--chdir=/home/${PERSON}`];
  const run = (argv: readonly string[], env: NodeJS.ProcessEnv = {}) =>
    startProgram(t, "nsenter", [...enter(), "setpriv", ...AS_PERSON, ...argv], { ...ENV, ...env }).ended;
  const systemctl = (...args: readonly string[]) => run(["systemctl", "--user", "--no-pager", ...args]);
  return {
    uid: UID,
    home: ENV.HOME,
    homeOutside,
    run,
    systemctl,
    async show(unit, ...names) {
      const { stdout } = await systemctl("show", unit, ...names.map((name) => `--property=${name}`));
      const pairs = stdout
        .trim()
        .split("\n")
        .map((line) => line.split(/=(.*)/s, 2));
      return Object.fromEntries(pairs.map(([name = "", value = ""]) => [name, value]));
    },
    async journal(unit) {
      const words = `journalctl --quiet _UID=${UID} _SYSTEMD_USER_UNIT=${unit} + USER_UNIT=${unit} -o cat`;
      const args = [...enter(), ...words.split(" ")];
      return (await startProgram(t, "nsenter", args, { PATH: ENV.PATH }).ended).stdout;
    },
    async write(path, text) {
      const file = join(homeOutside, path);
      await mkdir(dirname(file), { recursive: true, mode: 0o700 });
      await writeFile(file, text, { mode: 0o600 });
      // What root created belongs to root.
      for (let at = file; at !== homeOutside; at = dirname(at)) await chown(at, UID, UID);
    },
  };
}
