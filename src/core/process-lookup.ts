import { execFile } from "node:child_process";
import { readlink, stat } from "node:fs/promises";
import type { Socket } from "node:net";
import { promisify } from "node:util";
import { advice } from "./advice.ts";
import { errorMessage } from "./errors.ts";
import type { Logger } from "./log.ts";

/*
 * Which process is at the other end of a connection, and which one listens on a port. systeminformation takes 8 MB, so it is
 * loaded on first use.
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
  /** The path of its executable, links resolved. */
  readonly program: string;
}

type Library = typeof import("systeminformation");

export class ProcessLookup {
  readonly #log: Pick<Logger, "error">;
  readonly #found = new WeakMap<Socket, Promise<ConnectionOwner | null>>();
  #library: Promise<Library> | null = null;

  constructor(log: Pick<Logger, "error">) {
    this.#log = log;
  }

  /**
   * Loads the library. The daemon calls this as soon as a configuration needs it, not at the first request: an upgrade may
   * replace the package under a running daemon. Never rejects.
   */
  async prepare(): Promise<void> {
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
      owner = this.#lookUp(socket).catch(() => null);
      this.#found.set(socket, owner);
    }
    return owner;
  }

  #load(): Promise<Library> {
    this.#library ??= import("systeminformation").catch((error) => {
      // The package may be in the middle of an upgrade, so the next call tries again.
      this.#library = null;
      throw error;
    });
    return this.#library;
  }

  async #lookUp({ remotePort, localPort }: Socket): Promise<ConnectionOwner | null> {
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
    const program = process.platform === "linux" ? await programOnLinux(end.pid) : await programByPs(end.pid);
    return program === null ? null : { pid: end.pid, program };
  }
}

async function programOnLinux(pid: number): Promise<string | null> {
  const program = await readlink(`/proc/${pid}/exe`);
  const { uid } = await stat(`/proc/${pid}`);
  // " (deleted)": the file at that path was replaced or removed while the process runs, so it is a different program now.
  return uid === process.getuid?.() && !program.endsWith(" (deleted)") ? program : null;
}

async function programByPs(pid: number): Promise<string | null> {
  const { stdout } = await promisify(execFile)("/bin/ps", ["-p", String(pid), "-o", "uid=", "-o", "comm="]);
  const match = /^\s*(\d+)\s+(\/.*?)\s*$/.exec(stdout);
  return match !== null && Number(match[1]) === process.getuid?.() ? (match[2] ?? null) : null;
}
