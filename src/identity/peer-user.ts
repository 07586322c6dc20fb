import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { isIPv6, type Socket } from "node:net";
import { endianness, release } from "node:os";

/** Whose program holds the other end of a connection: the user's that keybearer runs as, another's, or it has closed it. */
export type Peer = "ours" | "other-user" | "gone";

export interface Peers {
  /** Whether the system tells it of every connection. Where it does not, nobody can be turned away for it. */
  readonly tell: boolean;
  /** Looked up once for each connection. */
  of(socket: Socket): Promise<Peer>;
}

/** The two ends as the other one sees them: its own first. */
export interface Ends {
  readonly address: string;
  readonly port: number;
  readonly toAddress: string;
  readonly toPort: number;
}

export function createPeers(platform: string = process.platform): Peers {
  if (platform !== "linux" || !existsSync(TCP4)) return { tell: false, of: async () => "ours" };
  const onWindows = /microsoft/i.test(release());
  const known = new WeakMap<Socket, Promise<Peer>>();
  const [readTcp4, readTcp6] = [createTableReader(TCP4), createTableReader(TCP6)];
  const lookUp = async (socket: Socket) => peerOf(await userOf(socket, readTcp4, readTcp6), onWindows);
  return {
    tell: !onWindows,
    of(socket) {
      const found = known.get(socket) ?? lookUp(socket);
      known.set(socket, found);
      return found;
    },
  };
}

function peerOf(user: number | null, onWindows: boolean): Peer {
  // Windows' browser comes through a relay of root's, or from outside of this Linux.
  if (onWindows && (user === null || user === 0)) return "ours";
  if (user === null) return "gone";
  // Seen from a user namespace, every other user is the overflow user.
  return user === process.geteuid?.() ? "ours" : "other-user";
}

/** The kernel's lists of connections. */
const TCP4 = "/proc/net/tcp";
const TCP6 = "/proc/net/tcp6";

/** Users by the two ends of their connections, as the kernel writes them. */
type Users = ReadonlyMap<string, number>;
type ReadUsers = () => Promise<Users>;

/**
 * Reads one at a time, for all who ask meanwhile: many connections at once must not keep the daemon busy. Who asks during
 * a reading waits for the next one, since its connection may be younger than what is being read.
 */
function createTableReader(table: string): ReadUsers {
  let last: Promise<unknown> = Promise.resolve();
  let next: Promise<Users> | null = null;
  const read = async () => {
    next = null;
    return usersIn(await readFile(table, "latin1").catch(() => ""));
  };
  return () => {
    if (next === null) {
      next = last.then(read);
      last = next;
    }
    return next;
  };
}

/** While other connections come and go, the kernel's list can leave one out. */
const TRIES = 3;

/** null: nobody is found to hold it. */
async function userOf(
  { remoteAddress, remotePort, localAddress, localPort }: Socket,
  readTcp4: ReadUsers,
  readTcp6: ReadUsers,
): Promise<number | null> {
  if (!remoteAddress || !remotePort || !localAddress || !localPort) return null;
  const ends = { address: remoteAddress, port: remotePort, toAddress: localAddress, toPort: localPort };
  // To read one takes milliseconds. The second is for sockets for IPv6 that call an IPv4 address.
  const tables = isIPv6(remoteAddress) ? [readTcp6] : [readTcp4, readTcp6];
  for (let tried = 0; tried < TRIES; tried += 1) {
    for (const read of tables) {
      const user = userAt(await read(), ends);
      if (user !== null) return user;
    }
  }
  return null;
}

const ROW = /: (\w+:\w+ \w+:\w+) \w\w \w+:\w+ \w+:\w+ \w+ +(\d+) +\d+ +(\d+) /g;

/** In a table as /proc/net/tcp and tcp6 are. A connection that nobody holds any more is shown as root's, without an inode. */
export function usersIn(table: string): Users {
  const users = new Map<string, number>();
  for (const [, ends = "", user, inode] of table.matchAll(ROW)) {
    if (inode !== "0") users.set(ends, Number(user));
  }
  return users;
}

/** Of the connection with these ends. */
export function userAt(users: Users, { address, port, toAddress, toPort }: Ends): number | null {
  for (const inHex of [hexOfV4, hexOfMapped, hexOfV6]) {
    const [from, to] = [inHex(address), inHex(toAddress)];
    if (from === null || to === null) continue;
    const user = users.get(`${from}:${hexOf(port, 4)} ${to}:${hexOf(toPort, 4)}`);
    if (user !== undefined) return user;
  }
  return null;
}

function hexOfV4(address: string): string | null {
  const bytes = /^\d+\.\d+\.\d+\.\d+$/.test(address) ? address.split(".").map(Number) : null;
  return bytes === null ? null : inWords(bytes);
}

/** A client may call an IPv4 address through a socket for IPv6. */
function hexOfMapped(address: string): string | null {
  const inner = hexOfV4(address);
  return inner === null ? null : inWords([...Array(10).fill(0), 255, 255]) + inner;
}

function hexOfV6(address: string): string | null {
  if (!/^[\da-f:]+$/i.test(address)) return null;
  const [head = "", tail] = address.split("::", 2);
  const groups = (text: string) => text.split(":").filter((group) => group !== "");
  const [first, last] = [groups(head), groups(tail ?? "")];
  const zeros = Array(Math.max(0, 8 - first.length - last.length)).fill("0");
  const numbers = [...first, ...zeros, ...last].map((group) => Number.parseInt(group, 16));
  return inWords(numbers.flatMap((number) => [number >> 8, number & 255]));
}

/** The kernel prints an address by words of 32 bits, each in the machine's own order. */
function inWords(bytes: readonly number[]): string {
  const words: string[] = [];
  for (let at = 0; at < bytes.length; at += 4) {
    const word = bytes.slice(at, at + 4).map((byte) => hexOf(byte, 2));
    words.push((endianness() === "LE" ? word.reverse() : word).join(""));
  }
  return words.join("");
}

function hexOf(number: number, digits: number): string {
  return number.toString(16).toUpperCase().padStart(digits, "0");
}
