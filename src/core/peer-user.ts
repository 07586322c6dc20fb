import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { isIPv6, type Socket } from "node:net";
import { endianness, release } from "node:os";

/** The OS user at the other end of a connection: the one keybearer runs as, another one, or unknown because it was closed. */
export type Peer = "ours" | "other-user" | "gone";

const TCP4 = "/proc/net/tcp";
const TCP6 = "/proc/net/tcp6";

/** The kernel's list can miss a connection while others open and close. */
const ATTEMPTS = 3;

export class PeerLookup {
  /** Whether the system shows the user of every connection. Where it does not, every peer counts as ours. */
  readonly supported: boolean;
  readonly #hasTable: boolean;
  readonly #isWsl: boolean;
  readonly #tcp4 = new TableReader(TCP4);
  readonly #tcp6 = new TableReader(TCP6);
  readonly #known = new WeakMap<Socket, Promise<Peer>>();

  constructor() {
    this.#hasTable = process.platform === "linux" && existsSync(TCP4);
    this.#isWsl = /microsoft/i.test(release());
    this.supported = this.#hasTable && !this.#isWsl;
  }

  /** Looked up once per connection. */
  of(socket: Socket): Promise<Peer> {
    let peer = this.#known.get(socket);
    if (peer === undefined) {
      peer = this.#lookUp(socket);
      this.#known.set(socket, peer);
    }
    return peer;
  }

  async #lookUp(socket: Socket): Promise<Peer> {
    if (!this.#hasTable) return "ours";
    const user = await this.#userOf(socket);
    // Under WSL a Windows browser arrives through a relay that runs as root, or from outside this Linux.
    if (this.#isWsl && (user === null || user === 0)) return "ours";
    if (user === null) return "gone";
    // In a user namespace every other user appears as the overflow user, which is not ours either.
    return user === process.geteuid?.() ? "ours" : "other-user";
  }

  async #userOf({ remoteAddress, remotePort, localAddress, localPort }: Socket): Promise<number | null> {
    if (!remoteAddress || !remotePort || !localAddress || !localPort) return null;
    const ends = { address: remoteAddress, port: remotePort, toAddress: localAddress, toPort: localPort };
    // An IPv6 socket can call an IPv4 address and is then in the second table. Reading a table takes milliseconds.
    const tables = isIPv6(remoteAddress) ? [this.#tcp6] : [this.#tcp4, this.#tcp6];
    for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
      for (const table of tables) {
        const user = userAt(await table.read(), ends);
        if (user !== null) return user;
      }
    }
    return null;
  }
}

/**
 * Reads a table once for all callers that wait for it, so that many connections at once do not keep the daemon busy. A call
 * during a read waits for the next read: its connection may be newer than the table being read.
 */
class TableReader {
  readonly #path: string;
  #last: Promise<unknown> = Promise.resolve();
  #next: Promise<string> | null = null;

  constructor(path: string) {
    this.#path = path;
  }

  read(): Promise<string> {
    if (this.#next === null) {
      this.#next = this.#last.then(() => this.#readNow());
      this.#last = this.#next;
    }
    return this.#next;
  }

  async #readNow(): Promise<string> {
    this.#next = null;
    return await readFile(this.#path, "latin1").catch(() => "");
  }
}

/** Both ends of a connection as its other side sees them: its own first. */
export interface Ends {
  readonly address: string;
  readonly port: number;
  readonly toAddress: string;
  readonly toPort: number;
}

/**
 * The user who holds a connection; null: nobody does, or it is not listed.
 * @param table the text of /proc/net/tcp or tcp6
 */
export function userAt(table: string, { address, port, toAddress, toPort }: Ends): number | null {
  for (const toHex of [hexOfV4, hexOfMappedV4, hexOfV6]) {
    const from = toHex(address);
    const to = toHex(toAddress);
    if (from === null || to === null) continue;
    const user = userIn(table, `: ${from}:${hex(port, 4)} ${to}:${hex(toPort, 4)} `);
    if (user !== null) return user;
  }
  return null;
}

/** What follows the ends in a row: state, queues, timer, retransmits, user, timeout and inode. */
const REST = /\w\w \w+:\w+ \w+:\w+ \w+ +(\d+) +\d+ +(\d+) /y;

/** Only the row of the connection is parsed: to parse all of them takes 3 ms beside 2,700 connections. */
function userIn(table: string, ends: string): number | null {
  for (let row = table.indexOf(ends); row !== -1; row = table.indexOf(ends, row + 1)) {
    const rest = new RegExp(REST);
    rest.lastIndex = row + ends.length;
    const [, user, inode] = rest.exec(table) ?? [];
    // A connection that no process holds now is listed as root's, with inode 0.
    if (inode !== undefined && inode !== "0") return Number(user);
  }
  return null;
}

function hexOfV4(address: string): string | null {
  return /^\d+\.\d+\.\d+\.\d+$/.test(address) ? kernelHex(address.split(".").map(Number)) : null;
}

/** ::ffff:127.0.0.1, an IPv4 address called through an IPv6 socket. */
function hexOfMappedV4(address: string): string | null {
  const v4 = hexOfV4(address);
  return v4 === null ? null : kernelHex([...Array(10).fill(0), 255, 255]) + v4;
}

function hexOfV6(address: string): string | null {
  if (!/^[\da-f:]+$/i.test(address)) return null;
  const [head = "", tail = ""] = address.split("::", 2);
  const first = groupsOf(head);
  const last = groupsOf(tail);
  const zeros = Array(Math.max(0, 8 - first.length - last.length)).fill("0");
  const numbers = [...first, ...zeros, ...last].map((group) => Number.parseInt(group, 16));
  return kernelHex(numbers.flatMap((number) => [number >> 8, number & 255]));
}

function groupsOf(text: string): string[] {
  return text.split(":").filter((group) => group !== "");
}

/** The kernel prints an address in 32-bit words, each in the machine's byte order. */
function kernelHex(bytes: readonly number[]): string {
  let text = "";
  for (let at = 0; at < bytes.length; at += 4) {
    const word = bytes.slice(at, at + 4).map((byte) => hex(byte, 2));
    text += (endianness() === "LE" ? word.reverse() : word).join("");
  }
  return text;
}

function hex(number: number, digits: number): string {
  return number.toString(16).toUpperCase().padStart(digits, "0");
}
