import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { askDaemon } from "../../../control/client.ts";
import type { Status } from "../../../control/status.ts";
import { systemPaths } from "../../../core/paths.ts";
import { packageFolder } from "../../../core/version.ts";
import { commandRunner, type RunCommand } from "../../../service/service.ts";
import type { Program } from "../../../service/system-program.ts";
import { stdio } from "../../ui/stdio.ts";

/* What the commands of the system service run on this machine. */

const QUERY_MS = 15_000;
/** Older versions have no encrypted credentials, and know some of the unit's restrictions not at all. */
const OLDEST_SYSTEMD = 247;

export interface UserOfMachine {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
  readonly home: string;
}

export const ROOT: UserOfMachine = { name: "root", uid: 0, gid: 0, home: "/root" };

export function thisProgram(): Program {
  const main = import.meta.url.endsWith(".ts") ? "src/cli/main.ts" : "dist/cli/main.js";
  return { node: process.execPath, main: fileURLToPath(new URL(main, packageFolder())) };
}

export class Machine {
  readonly run: RunCommand;
  /** The program that runs now. */
  readonly program: Program;

  constructor() {
    this.run = commandRunner({ PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" });
    this.program = thisProgram();
  }

  /** null: there is no such user. */
  async findUser(name: string): Promise<UserOfMachine | null> {
    const { code, stdout } = await this.run(["getent", "passwd", name], { timeoutMs: QUERY_MS });
    const [found, , uid, gid, , home] = stdout.trim().split(":");
    if (code !== 0 || found !== name || home === undefined) return null;
    return { name, uid: Number(uid), gid: Number(gid), home };
  }

  /** What is wrong with systemd; null: nothing. */
  async systemdProblem(): Promise<string | null> {
    const { code, stdout } = await this.run(["systemctl", "--version"], { timeoutMs: QUERY_MS });
    const version = Number(/^systemd (\d+)/.exec(stdout)?.[1] ?? Number.NaN);
    if (code !== 0 || Number.isNaN(version))
      return "there is no systemd here, and the system service needs it";
    if (version < OLDEST_SYSTEMD)
      return `systemd is ${version}, and the system service needs ${OLDEST_SYSTEMD} or newer`;
    return existsSync("/run/systemd/system") ? null : "systemd does not run here as the first process";
  }

  /** Runs systemctl, and throws with its message if it fails. */
  async systemctl(...args: readonly string[]): Promise<void> {
    const result = await this.run(["systemctl", ...args], { timeoutMs: 200_000 });
    if (result.code !== 0) throw new Error(`systemctl ${args.join(" ")} failed: ${result.stderr.trim()}`);
  }

  /** For a unit that may be gone. */
  async systemctlIfThere(...args: readonly string[]): Promise<void> {
    await this.run(["systemctl", ...args], { timeoutMs: 200_000 });
  }

  /** What was written survives a power cut, before its other copy is removed. */
  async syncDisks(): Promise<void> {
    const { code, stderr } = await this.run(["sync"], { timeoutMs: 300_000 });
    if (code !== 0) throw new Error(`sync failed: ${stderr.trim()}`);
  }

  status(timeoutMs?: number) {
    return askDaemon<Status>(systemPaths(0), "GET", "/status", undefined, timeoutMs);
  }

  /**
   * Runs a command of keybearer as a user, with nothing of root's environment.
   * @param folder KEYBEARER_HOME of the installation; null: the user's usual folders
   */
  startAs(user: UserOfMachine, program: Program, args: readonly string[], folder: string | null) {
    const runtime = `/run/user/${user.uid}`;
    const session = existsSync(runtime)
      ? { XDG_RUNTIME_DIR: runtime, DBUS_SESSION_BUS_ADDRESS: `unix:path=${runtime}/bus` }
      : {};
    const own = folder === null ? {} : { KEYBEARER_HOME: folder };
    return spawn(program.node, [program.main, ...args], {
      uid: user.uid,
      gid: user.gid,
      cwd: "/",
      env: {
        HOME: user.home,
        USER: user.name,
        LOGNAME: user.name,
        PATH: "/usr/local/bin:/usr/bin:/bin",
        ...session,
        ...own,
      },
      stdio: ["pipe", "pipe", "inherit"],
    });
  }

  /** The exit code. `input` goes to its stdin, its stdout to ours if `show` says so. */
  runAs(
    user: UserOfMachine,
    program: Program,
    args: readonly string[],
    { folder, input = "", show = false }: { folder: string | null; input?: string; show?: boolean },
  ): Promise<number> {
    const child = this.startAs(user, program, args, folder);
    child.stdin.on("error", () => {});
    child.stdin.end(input);
    child.stdout.on("data", (data: Buffer) => {
      if (show) stdio().stdout.write(data);
    });
    return new Promise((resolve, reject) => {
      child.once("error", reject);
      child.once("close", (code) => resolve(code ?? 1));
    });
  }
}
