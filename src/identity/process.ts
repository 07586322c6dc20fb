import { execFile } from "node:child_process";
import { readlink, stat } from "node:fs/promises";
import type { Socket } from "node:net";
import { promisify } from "node:util";
import { networkConnections } from "systeminformation";

/** The program at the other end of a loopback connection. */
export interface Owner {
  readonly pid: number;
  /** Where its executable lies, links resolved. */
  readonly program: string;
}

export interface Owners {
  /** null: it belongs to another user, is gone, or the system does not tell. Asked once for each connection. */
  of(socket: Socket): Promise<Owner | null>;
}

export function createOwners(): Owners {
  const found = new WeakMap<Socket, Promise<Owner | null>>();
  return {
    of(socket) {
      const known = found.get(socket);
      if (known !== undefined) return known;
      const owner = findOwner(socket).catch(() => null);
      found.set(socket, owner);
      return owner;
    },
  };
}

async function findOwner({ remotePort, localPort }: Socket): Promise<Owner | null> {
  const connections = await networkConnections();
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
