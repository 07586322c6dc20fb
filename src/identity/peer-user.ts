import { readFile } from "node:fs/promises";
import type { Socket } from "node:net";
import { endianness, release } from "node:os";

/** Whether the other end of a loopback connection belongs to the user that keybearer runs as. */
export interface Peers {
  /** Whether the system tells it of every connection. Where it does not, nobody can be turned away for it. */
  readonly tell: boolean;
  isOurs(socket: Socket): Promise<boolean>;
}

/** The two ends as the other one sees them: its own first. */
export interface Ends {
  readonly address: string;
  readonly port: number;
  readonly toAddress: string;
  readonly toPort: number;
}

export function createPeers(platform: string = process.platform): Peers {
  if (platform !== "linux") return { tell: false, isOurs: async () => true };
  const onWindows = /microsoft/i.test(release());
  const known = new WeakMap<Socket, Promise<boolean>>();
  const look = async (socket: Socket) => {
    const user = await userOf(socket);
    // Windows' browser comes through a relay of root's, or from outside of this Linux.
    if (onWindows && (user === null || user === 0)) return true;
    // Seen from a user namespace, every stranger is the overflow user: not us either.
    return user !== null && user === process.getuid?.();
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

/** While other connections come and go, the kernel's list can leave one out. */
const TRIES = 3;

async function userOf({
  remoteAddress,
  remotePort,
  localAddress,
  localPort,
}: Socket): Promise<number | null> {
  if (!remoteAddress || !remotePort || !localAddress || !localPort) return null;
  const ends = { address: remoteAddress, port: remotePort, toAddress: localAddress, toPort: localPort };
  for (let tried = 0; tried < TRIES; tried += 1) {
    for (const table of ["/proc/net/tcp", "/proc/net/tcp6"]) {
      const user = userIn(await readFile(table, "latin1").catch(() => ""), ends);
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
