import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import type { Socket } from "node:net";
import { endianness, release } from "node:os";

/** Whether the other end of a loopback connection belongs to the user that keybearer runs as. */
export interface Peers {
  /** Whether the system tells it of every connection. Where it does not, nobody can be turned away for it. */
  readonly tell: boolean;
  /** Looked up once for each connection. A promise only until that is known. */
  isOurs(socket: Socket): boolean | Promise<boolean>;
}

/** The two ends as the other one sees them: its own first. */
export interface Ends {
  readonly address: string;
  readonly port: number;
  readonly toAddress: string;
  readonly toPort: number;
}

export function createPeers(platform: string = process.platform): Peers {
  if (platform !== "linux" || !TABLES.some((table) => existsSync(table)))
    return { tell: false, isOurs: () => true };
  const onWindows = /microsoft/i.test(release());
  const known = new WeakMap<Socket, boolean | Promise<boolean>>();
  const readTables = createTableReader();
  const look = async (socket: Socket) => {
    const user = await userOf(socket, readTables);
    // Windows' browser comes through a relay of root's, or from outside of this Linux.
    const ours = onWindows && (user === null || user === 0) ? true : isOwnUser(user);
    known.set(socket, ours);
    return ours;
  };
  return {
    tell: !onWindows,
    isOurs(socket) {
      const found = known.get(socket) ?? look(socket);
      known.set(socket, found);
      return found;
    },
  };
}

/** A connection nobody is found for is nobody's. Seen from a user namespace, every stranger is the overflow user: not us either. */
function isOwnUser(user: number | null): boolean {
  return user !== null && user === process.geteuid?.();
}

/** The kernel's lists of connections. */
const TABLES = ["/proc/net/tcp", "/proc/net/tcp6"];

/** Connections that come at the same moment are looked up in one reading: many at once would keep the daemon busy. */
function createTableReader(): () => Promise<readonly string[]> {
  let next: Promise<readonly string[]> | null = null;
  const read = async () => {
    await new Promise((resolve) => setImmediate(resolve));
    // Who asks from here on may have connected after the reading began.
    next = null;
    return Promise.all(TABLES.map((table) => readFile(table, "latin1").catch(() => "")));
  };
  return () => {
    next ??= read();
    return next;
  };
}

/** While other connections come and go, the kernel's list can leave one out. */
const TRIES = 3;

/** null: nobody is found to hold it. */
async function userOf(
  { remoteAddress, remotePort, localAddress, localPort }: Socket,
  readTables: () => Promise<readonly string[]>,
): Promise<number | null> {
  if (!remoteAddress || !remotePort || !localAddress || !localPort) return null;
  const ends = { address: remoteAddress, port: remotePort, toAddress: localAddress, toPort: localPort };
  for (let tried = 0; tried < TRIES; tried += 1) {
    for (const table of await readTables()) {
      const user = userIn(table, ends);
      if (user !== null) return user;
    }
  }
  return null;
}

const ROW = /^ \w\w \w+:\w+ \w+:\w+ \w+ +(\d+) +\d+ +(\d+) /;

/** Of the connection with these ends, in a table as /proc/net/tcp and tcp6 are. */
export function userIn(table: string, { address, port, toAddress, toPort }: Ends): number | null {
  for (const inHex of [hexOfV4, hexOfMapped, hexOfV6]) {
    const [from, to] = [inHex(address), inHex(toAddress)];
    if (from === null || to === null) continue;
    const ends = `: ${from}:${hexOf(port, 4)} ${to}:${hexOf(toPort, 4)}`;
    const at = table.indexOf(ends);
    const [, user, inode] = at === -1 ? [] : (ROW.exec(table.slice(at + ends.length, at + 300)) ?? []);
    // One that nobody holds any more is shown as root's, without an inode.
    if (user !== undefined && inode !== "0") return Number(user);
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
