import { execFile } from "node:child_process";
import { readFile, readlink } from "node:fs/promises";
import type { Socket } from "node:net";
import { promisify } from "node:util";
import { advice } from "./advice.ts";
import { type Connections, HAS_TABLE } from "./connections.ts";
import { errorMessage } from "./errors.ts";
import type { Logger } from "./log.ts";
import { SocketHolders } from "./socket-holders.ts";

/*
 * Which process is at the other end of a connection, and which one listens on a port. Linux shows the first in /proc. The rest
 * is asked of systeminformation, which takes 8 MB and runs other programs, so it is loaded on first use.
 */

interface PortOwner {
  readonly pid: number;
  readonly program: string;
}

/** The process that listens on a port; null where the system does not show it to this user. */
export async function portOwner(port: number): Promise<PortOwner | null> {
  try {
    const { networkConnections } = await import("systeminformation");
    for (const { pid, localPort, state, process } of await networkConnections()) {
      if (state === "LISTEN" && localPort === String(port) && pid > 0) return { pid, program: process };
    }
  } catch {
    // The caller reports that the port is taken, with or without the owner's name.
  }
  return null;
}

/** python3 (pid 4711), or another program */
export async function describePortOwner(port: number): Promise<string> {
  return describeOwner(await portOwner(port));
}

export function describeOwner(owner: PortOwner | null): string {
  return owner === null ? "another program" : `${owner.program} (pid ${owner.pid})`;
}

/** The process at the other end of a loopback connection. */
export interface ConnectionOwner {
  readonly pid: number;
  /** In seconds since 1970; null: the system does not say. With the pid it names one process. */
  readonly startedAt: number | null;
  /** The path of its executable, links resolved; null: the file there is another one now. */
  readonly program: string | null;
}

type Library = typeof import("systeminformation");

export class ProcessLookup {
  readonly #connections: Connections;
  readonly #log: Pick<Logger, "error">;
  readonly #holders = new SocketHolders();
  readonly #found = new WeakMap<Socket, Promise<ConnectionOwner | null>>();
  #library: Promise<Library> | null = null;
  /** In seconds since 1970. Read once: if the clock is set later, running processes keep their start. */
  #bootedAt: Promise<number> | null = null;

  constructor(connections: Connections, log: Pick<Logger, "error">) {
    this.#connections = connections;
    this.#log = log;
  }

  /**
   * Loads the library, where one is needed. The daemon calls this as soon as a configuration needs it, not at the first
   * request: an upgrade may replace the package under a running daemon. Never rejects.
   */
  async prepare(): Promise<void> {
    if (HAS_TABLE) return;
    try {
      await this.#load();
    } catch (error) {
      this.#log.error(
        `keybearer cannot identify programs (${errorMessage(error)}). reinstall it, then: ${advice.serviceRestart()}`,
      );
    }
  }

  /** Looked up once per connection. null: it belongs to another user, it is gone, or the system does not show it. */
  of(socket: Socket): Promise<ConnectionOwner | null> {
    let owner = this.#found.get(socket);
    if (owner === undefined) {
      const found = HAS_TABLE ? this.#lookUpOnLinux(socket) : this.#lookUpElsewhere(socket);
      owner = found.catch(() => null);
      this.#found.set(socket, owner);
    }
    return owner;
  }

  async #lookUpOnLinux(socket: Socket): Promise<ConnectionOwner | null> {
    const connection = await this.#connections.of(socket);
    if (connection === null || connection.user !== process.geteuid?.()) return null;
    const holder = await this.#holders.find(connection.inode);
    if (holder === null) return null;
    const { pid, file, target } = holder;
    const program = await readlink(`/proc/${pid}/exe`);
    const startedAt = await this.#startOnLinux(pid);
    // If it still has the socket, all that was of one process, and not of a later one with its number.
    if ((await readlink(file)) !== target) return null;
    // " (deleted)": the file at that path was replaced or removed while the process runs, so it is a different program now.
    return { pid, startedAt, program: program.endsWith(" (deleted)") ? null : program };
  }

  async #startOnLinux(pid: number): Promise<number | null> {
    this.#bootedAt ??= readBootTime();
    const ticks = startTicks(await readFile(`/proc/${pid}/stat`, "latin1"));
    const seconds = Math.floor((await this.#bootedAt) + ticks / TICKS_PER_SECOND);
    return Number.isNaN(seconds) ? null : seconds;
  }

  #load(): Promise<Library> {
    this.#library ??= import("systeminformation").catch((error) => {
      // The package may be in the middle of an upgrade, so the next call tries again.
      this.#library = null;
      throw error;
    });
    return this.#library;
  }

  /** For macOS, where it was never run. */
  async #lookUpElsewhere({ remotePort, localPort }: Socket): Promise<ConnectionOwner | null> {
    const { networkConnections } = await this.#load();
    const connections = await networkConnections();
    // The list has both ends of a loopback connection. The caller's own port is our remote port.
    const end = connections.find(
      (connection) =>
        connection.localPort === String(remotePort) &&
        connection.peerPort === String(localPort) &&
        connection.pid > 0,
    );
    if (end === undefined) return null;
    const { stdout } = await promisify(execFile)(
      "/bin/ps",
      ["-p", String(end.pid), "-o", "uid=", "-o", "lstart=", "-o", "comm="],
      { env: { LC_ALL: "C" } },
    );
    const found = readPs(stdout);
    return found !== null && found.user === process.getuid?.() ? { pid: end.pid, ...found.process } : null;
  }
}

/** The kernel counts a process's start in these, on every machine that Node runs on. */
const TICKS_PER_SECOND = 100;

/**
 * When a process started, in ticks since the machine did; NaN: the text does not say.
 * @param stat the text of /proc/PID/stat
 */
export function startTicks(stat: string): number {
  // The second field is a name in parentheses, with anything in it. The start is the 22nd.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return Number.parseInt(fields[19] ?? "", 10);
}

/** When the machine started, in seconds since 1970; NaN: the system does not say. */
async function readBootTime(): Promise<number> {
  const text = await readFile("/proc/stat", "latin1").catch(() => "");
  return Number.parseInt(/^btime (\d+)$/m.exec(text)?.[1] ?? "", 10);
}

interface PsRow {
  readonly user: number;
  readonly process: Pick<ConnectionOwner, "startedAt" | "program">;
}

/**
 * What ps says of a process; null: nothing.
 * @param text such as `  501 Tue Nov 17 09:12:44 2026 /opt/homebrew/bin/node`
 */
export function readPs(text: string): PsRow | null {
  const match = /^\s*(\d+)\s+(\w+ +\w+ +\d+ +[\d:]+ +\d+)\s+(\/.*?)\s*$/.exec(text);
  if (match === null) return null;
  const [, user, start = "", program = null] = match;
  const startedAt = Date.parse(start) / 1000;
  return { user: Number(user), process: { startedAt: Number.isNaN(startedAt) ? null : startedAt, program } };
}
