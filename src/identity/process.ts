import { execFile } from "node:child_process";
import { readlink, stat } from "node:fs/promises";
import type { Socket } from "node:net";
import { promisify } from "node:util";
import type { Tool } from "../config/shape.ts";
import { errorMessage } from "../core/errors.ts";
import type { Logger } from "../core/log.ts";

/** The program at the other end of a loopback connection. */
export interface Owner {
  readonly pid: number;
  /** Where its executable lies, links resolved. */
  readonly program: string;
}

export interface ProcessLookup {
  /**
   * To be called with every new snapshot's tools that ask for their program, and not with the first request of one: the
   * package may be replaced under a daemon that runs. Never rejects.
   */
  prepare(tools: readonly Tool[]): Promise<void>;
  /** null: it belongs to another user, is gone, or the system does not tell. Asked once for each connection. */
  of(socket: Socket): Promise<Owner | null>;
}

type Library = typeof import("systeminformation");

export function createProcessLookup(log: Pick<Logger, "error">): ProcessLookup {
  const found = new WeakMap<Socket, Promise<Owner | null>>();
  // Most have no such tool, and would hold 8 MB for nothing.
  let library: Promise<Library> | null = null;
  const loaded = () => {
    library ??= import("systeminformation").catch((error) => {
      // The package may just be being replaced: the next one who asks tries again.
      library = null;
      throw error;
    });
    return library;
  };
  return {
    async prepare(tools) {
      if (tools.length === 0) return;
      await loaded().catch((error) =>
        log.error(
          `programs cannot be told apart (${errorMessage(error)}). install keybearer again, then: keybearer service restart`,
        ),
      );
    },
    of(socket) {
      const known = found.get(socket);
      if (known !== undefined) return known;
      const owner = loaded()
        .then((system) => findOwner(system, socket))
        .catch(() => null);
      found.set(socket, owner);
      return owner;
    },
  };
}

async function findOwner(system: Library, { remotePort, localPort }: Socket): Promise<Owner | null> {
  const connections = await system.networkConnections();
  // Seen from the other end: its own port is our remote one. Both ends stand in the list.
  const end = connections.find(
    (connection) =>
      connection.localPort === String(remotePort) &&
      connection.peerPort === String(localPort) &&
      connection.pid > 0,
  );
  if (end === undefined) return null;
  const program = process.platform === "linux" ? await onLinux(end.pid) : await byPs(end.pid);
  return program === null ? null : { pid: end.pid, program };
}

async function onLinux(pid: number): Promise<string | null> {
  const [program, { uid }] = await Promise.all([readlink(`/proc/${pid}/exe`), stat(`/proc/${pid}`)]);
  // A program that was replaced or removed while it runs is not the one that lies there now.
  return uid === process.getuid?.() && !program.endsWith(" (deleted)") ? program : null;
}

async function byPs(pid: number): Promise<string | null> {
  const { stdout } = await promisify(execFile)("/bin/ps", ["-p", String(pid), "-o", "uid=", "-o", "comm="]);
  const match = /^\s*(\d+)\s+(\/.*?)\s*$/.exec(stdout);
  return match !== null && Number(match[1]) === process.getuid?.() ? (match[2] ?? null) : null;
}
