import { execFileSync, spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { mkdir, mkdtemp, rm, rmdir } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import type { Test } from "tap";
import { type Ended, startProgram } from "./command.ts";
import { ROOT } from "./paths.ts";
import { until } from "./until.ts";

const MANAGER = "/lib/systemd/systemd";
/** Where the checkout is inside. The real path may be closed to other users, like /root. */
export const PROGRAM = "/opt/keybearer/dist/cli/main.js";

/**
 * A real systemd as the first process of namespaces of its own, on an overlay of this machine's files: users, units and files
 * that are made inside are gone with it.
 */
export interface SystemManager {
  /** Runs a program as a user, with the environment of a login. */
  as(user: string, argv: readonly string[], input?: string): Promise<Ended>;
  /** Runs a shell line as a user. */
  sh(user: string, line: string): Promise<Ended>;
}

/** null, with a skipped test that says why. */
export async function startSystemManager(t: Test): Promise<SystemManager | null> {
  const missing = missingForSystem();
  if (missing !== null) return skipWith(t, missing);
  const folder = await mkdtemp(join(tmpdir(), "kb-system-"));
  t.teardown(() => rm(folder, { recursive: true, force: true }));
  const unified = "/sys/fs/cgroup/unified";
  const cgroup = join(existsSync(unified) ? unified : "/sys/fs/cgroup", `kbtest-${basename(folder)}`);
  try {
    await mkdir(cgroup);
  } catch (error) {
    return skipWith(t, `no cgroup of its own: ${error instanceof Error ? error.message : error}`);
  }
  t.teardown(() => removeCgroup(cgroup));
  const args = ["--pid", "--fork", "--kill-child=SIGKILL", "--mount", "--uts", "--ipc", "--net"];
  const boot = ["unshare", ...args, "--propagation=private", "sh", "-c", BOOT, "boot"];
  // A test that is killed runs no teardown: the kernel ends unshare with it, and --kill-child everything inside.
  const child = spawn("setpriv", ["--pdeathsig", "KILL", ...boot], {
    env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", W: folder, CG: cgroup, PACKAGE: ROOT },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let said = "";
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (data: Buffer) => {
      said += data;
    });
  const ended = new Promise<void>((resolve) => child.once("close", () => resolve()));
  t.teardown(() => {
    child.kill("SIGKILL");
    return ended;
  });
  const inside = async (argv: readonly string[], input?: string) => {
    const first = firstChild(child.pid ?? -1);
    const enter = ["-t", first, "-m", "-p", "-u", "-i", "-n", "-C", "-r", "-w", "env", "-i"];
    const env = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    return startProgram(t, "nsenter", [...enter, env, ...argv], process.env, input ?? "").ended;
  };
  const manager: SystemManager = {
    as: (user, argv, input) =>
      inside(
        user === "root" ? argv : ["runuser", "-u", user, "--", "env", `HOME=/home/${user}`, ...argv],
        input,
      ),
    sh: (user, line) => manager.as(user, ["sh", "-c", line]),
  };
  try {
    await until("systemd answers", async () => {
      if (child.exitCode !== null) throw new Error(`it ended: ${said}`);
      if (firstChild(child.pid ?? -1) === "") return false;
      const state = await manager.as("root", ["systemctl", "is-system-running"]);
      return /^(running|degraded)$/m.test(state.stdout);
    });
  } catch (error) {
    return skipWith(t, `${error instanceof Error ? error.message : error} ${said}`);
  }
  return manager;
}

function skipWith(t: Test, why: string): null {
  t.skip(`no system manager can run here: ${why}`, async () => {});
  return null;
}

function missingForSystem(): string | null {
  if (process.platform !== "linux") return `${process.platform} has no systemd`;
  if (!existsSync(MANAGER)) return `missing: ${MANAGER} (Debian: systemd)`;
  if (process.getuid?.() !== 0) return "only root can make the namespaces";
  try {
    execFileSync("unshare", ["--mount", "--pid", "--net", "--fork", "true"], { stdio: "pipe" });
  } catch (error) {
    return `not permitted: ${error instanceof Error ? error.message : error}`;
  }
  return null;
}

function firstChild(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim();
  } catch {
    return "";
  }
}

/** systemd's own cgroups inside it are empty once its processes are gone. */
async function removeCgroup(cgroup: string): Promise<void> {
  await until("the cgroup is empty", async () => {
    try {
      execFileSync("find", [cgroup, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";"], { stdio: "pipe" });
    } catch {
      await rmdir(cgroup).catch(() => {});
    }
    return !existsSync(cgroup);
  });
}

const BOOT = `
set -e
ip link set lo up
mount -t tmpfs -o mode=0755 tmpfs "$W"
mkdir "$W/up" "$W/work" "$W/root"
mount -t overlay -o "lowerdir=/,upperdir=$W/up,workdir=$W/work" overlay "$W/root"
R="$W/root"
mkdir -p "$R/opt/keybearer"
mount --bind "$PACKAGE" "$R/opt/keybearer"
mount -t proc proc "$R/proc"
mount -t sysfs -o ro sysfs "$R/sys" 2>/dev/null || mount --rbind /sys "$R/sys"
mount -t tmpfs -o mode=0755 tmpfs "$R/run"
mount -t tmpfs -o mode=1777 tmpfs "$R/tmp"
mount -t tmpfs -o mode=0755 tmpfs "$R/dev"
for device in null:3 zero:5 full:7 random:8 urandom:9; do
  mknod -m 666 "$R/dev/\${device%:*}" c 1 "\${device#*:}"
done
mknod -m 666 "$R/dev/tty" c 5 0
mkdir "$R/dev/pts" "$R/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$R/dev/pts"
ln -s pts/ptmx "$R/dev/ptmx"
mount -t tmpfs -o mode=1777 tmpfs "$R/dev/shm"
ln -s /proc/self/fd "$R/dev/fd"
mount -t tmpfs -o mode=0755 tmpfs "$R/sys/fs/cgroup"
echo $$ > "$CG/cgroup.procs"
export R
# Shared mounts: otherwise credentials come up empty.
exec unshare --cgroup sh -c '
  umount "$R/sys/fs/cgroup"
  mount -t cgroup2 cgroup2 "$R/sys/fs/cgroup"
  cd "$R"; mkdir -p old; pivot_root . old; cd /; umount -l old; mount --make-rshared /
  exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin ${MANAGER} --system --unit=basic.target --show-status=no'
`;
