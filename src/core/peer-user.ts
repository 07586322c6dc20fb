import { existsSync } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { isIPv6, type Socket } from "node:net";
import { endianness, release } from "node:os";

/** The OS user at the other end of a connection: the one keybearer runs as, another one, or unknown because it was closed. */
type Peer = "ours" | "other-user" | "gone";

const TCP4 = "/proc/net/tcp";
const TCP6 = "/proc/net/tcp6";

/** The kernel's list can miss a connection while others open and close. */
const ATTEMPTS = 3;

export class PeerLookup {
  /** Whether the system shows the user of every connection. Where it does not, every peer counts as ours. */
  readonly supported: boolean;
  readonly #hasTable: boolean;
  readonly #isWsl: boolean;
  readonly #tcp4 = new TableSearch(TCP4);
  readonly #tcp6 = new TableSearch(TCP6);
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
    const user = await this.#findUser(socket);
    // Under WSL a Windows browser arrives through a relay that runs as root, or from outside this Linux.
    if (this.#isWsl && (user === null || user === 0)) return "ours";
    if (user === null) return "gone";
    // In a user namespace every other user appears as the overflow user, which is not ours either.
    return user === process.geteuid?.() ? "ours" : "other-user";
  }

  async #findUser({ remoteAddress, remotePort, localAddress, localPort }: Socket): Promise<number | null> {
    if (!remoteAddress || !remotePort || !localAddress || !localPort) return null;
    const ends = { address: remoteAddress, port: remotePort, toAddress: localAddress, toPort: localPort };
    // An IPv6 socket can call an IPv4 address and is then in the second table. Reading a table takes milliseconds.
    const tables = isIPv6(remoteAddress) ? [this.#tcp6] : [this.#tcp4, this.#tcp6];
    for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
      for (const table of tables) {
        const user = await table.findUser(ends);
        if (user !== null) return user;
      }
    }
    return null;
  }
}

interface Search {
  readonly rows: readonly string[];
  resolve(user: number | null): void;
}

/** The kernel gives one page at a time, however large the buffer is. */
const BUFFER = 8192;

/**
 * Searches a table once for all callers that wait, so that many connections at once do not keep the daemon busy, and only until
 * all are found: beside 2,700 connections, to read the whole table for each took 4 to 9 ms. A call during a search waits for the next
 * one: its connection may be newer than the page that was read last.
 */
class TableSearch {
  readonly #path: string;
  #waiting: Search[] = [];
  #isRunning = false;

  constructor(path: string) {
    this.#path = path;
  }

  /** null: the table does not list the connection. */
  findUser(ends: Ends): Promise<number | null> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ rows: listRowStarts(ends), resolve });
      if (!this.#isRunning) this.#run().catch(reject);
    });
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    while (this.#waiting.length > 0) {
      const searches = this.#waiting;
      this.#waiting = [];
      const file = await open(this.#path).catch(() => null);
      const missed = file === null ? searches : await searchTable(file, searches);
      // Nothing is lost if a table that was only read cannot be closed.
      await file?.close().catch(() => {});
      for (const { resolve } of missed) resolve(null);
    }
    this.#isRunning = false;
  }
}

/** Returns the searches that found nothing. */
async function searchTable(file: FileHandle, searches: readonly Search[]): Promise<readonly Search[]> {
  const buffer = Buffer.allocUnsafe(BUFFER);
  let left = searches;
  let begun = "";
  while (left.length > 0) {
    // A table that cannot be read lists no user.
    const { bytesRead } = await file.read(buffer, 0, BUFFER, null).catch(() => ({ bytesRead: 0 }));
    if (bytesRead === 0) return left;
    const text = begun + buffer.toString("latin1", 0, bytesRead);
    const end = text.lastIndexOf("\n") + 1;
    begun = text.slice(end);
    left = left.filter(({ rows, resolve }) => {
      const user = readUser(text, rows);
      if (user !== null) resolve(user);
      return user === null;
    });
  }
  return left;
}

/** Both ends of a connection as its other side sees them: its own first. */
interface Ends {
  readonly address: string;
  readonly port: number;
  readonly toAddress: string;
  readonly toPort: number;
}

/**
 * The user who holds a connection; null: no user does, or it is not listed.
 * @param table the text of /proc/net/tcp or tcp6
 */
export function findUser(table: string, ends: Ends): number | null {
  return readUser(table, listRowStarts(ends));
}

/** How a row of the connection can begin. */
function listRowStarts({ address, port, toAddress, toPort }: Ends): readonly string[] {
  const rows: string[] = [];
  for (const toHex of [toHexV4, toHexMappedV4, toHexV6]) {
    const from = toHex(address);
    const to = toHex(toAddress);
    if (from !== null && to !== null) rows.push(`: ${from}:${hex(port, 4)} ${to}:${hex(toPort, 4)} `);
  }
  return rows;
}

/** What follows the ends in a row: state, queues, timer, retransmits, user, timeout and inode. */
const REST = /\w\w \w+:\w+ \w+:\w+ \w+ +(\d+) +\d+ +(\d+) /y;

/** Only the row of the connection is parsed: to parse all of them takes 3 ms beside 2,700 connections. */
function readUser(table: string, rows: readonly string[]): number | null {
  for (const ends of rows) {
    for (let row = table.indexOf(ends); row !== -1; row = table.indexOf(ends, row + 1)) {
      const rest = new RegExp(REST);
      rest.lastIndex = row + ends.length;
      const [, user, inode] = rest.exec(table) ?? [];
      // A connection that no process holds now is listed as root's, with inode 0.
      if (inode !== undefined && inode !== "0") return Number(user);
    }
  }
  return null;
}

function toHexV4(address: string): string | null {
  return /^\d+\.\d+\.\d+\.\d+$/.test(address) ? kernelHex(address.split(".").map(Number)) : null;
}

/** ::ffff:127.0.0.1, an IPv4 address called through an IPv6 socket. */
function toHexMappedV4(address: string): string | null {
  const v4 = toHexV4(address);
  return v4 === null ? null : kernelHex([...Array(10).fill(0), 255, 255]) + v4;
}

function toHexV6(address: string): string | null {
  if (!/^[\da-f:]+$/i.test(address)) return null;
  const [head = "", tail = ""] = address.split("::", 2);
  const first = splitGroups(head);
  const last = splitGroups(tail);
  const zeros = Array(Math.max(0, 8 - first.length - last.length)).fill("0");
  const numbers = [...first, ...zeros, ...last].map((group) => Number.parseInt(group, 16));
  return kernelHex(numbers.flatMap((number) => [number >> 8, number & 255]));
}

function splitGroups(text: string): string[] {
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
