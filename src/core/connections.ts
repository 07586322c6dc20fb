import { existsSync } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { isIPv6, type Socket } from "node:net";
import { endianness } from "node:os";

/* The kernel's table of connections: who holds the other end of one on this machine. */

const TCP4 = "/proc/net/tcp";
const TCP6 = "/proc/net/tcp6";

/** Whether the system has such a table. Only Linux does. */
export const HAS_TABLE = process.platform === "linux" && existsSync(TCP4);

/** The kernel's list can miss a connection while others open and close. */
const ATTEMPTS = 3;

/** The row of a connection's other end. */
export interface Connection {
  /** The user who opened it. */
  readonly user: number;
  /** The number of its socket, by which /proc lists it among the files of a process. */
  readonly inode: string;
}

export class Connections {
  readonly #tcp4 = new TableSearch(TCP4);
  readonly #tcp6 = new TableSearch(TCP6);
  readonly #found = new WeakMap<Socket, Promise<Connection | null>>();

  /** Looked up once per connection. null: no process holds its other end, or the table does not list it. */
  of(socket: Socket): Promise<Connection | null> {
    let found = this.#found.get(socket);
    if (found === undefined) {
      found = this.#lookUp(socket);
      this.#found.set(socket, found);
    }
    return found;
  }

  async #lookUp({ remoteAddress, remotePort, localAddress, localPort }: Socket): Promise<Connection | null> {
    if (!HAS_TABLE || !remoteAddress || !remotePort || !localAddress || !localPort) return null;
    const ends = { address: remoteAddress, port: remotePort, toAddress: localAddress, toPort: localPort };
    // An IPv6 socket can call an IPv4 address and is then in the second table. Reading a table takes milliseconds.
    const tables = isIPv6(remoteAddress) ? [this.#tcp6] : [this.#tcp4, this.#tcp6];
    for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
      for (const table of tables) {
        const connection = await table.find(ends);
        if (connection !== null) return connection;
      }
    }
    return null;
  }
}

interface Search {
  readonly rows: readonly string[];
  resolve(connection: Connection | null): void;
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
  find(ends: Ends): Promise<Connection | null> {
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
      const connection = readRow(text, rows);
      if (connection !== null) resolve(connection);
      return connection === null;
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
 * The row of a connection; null: no process holds it, or it is not listed.
 * @param table the text of /proc/net/tcp or tcp6
 */
export function findRow(table: string, ends: Ends): Connection | null {
  return readRow(table, listRowStarts(ends));
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
function readRow(table: string, rows: readonly string[]): Connection | null {
  for (const ends of rows) {
    for (let row = table.indexOf(ends); row !== -1; row = table.indexOf(ends, row + 1)) {
      const rest = new RegExp(REST);
      rest.lastIndex = row + ends.length;
      const [, user, inode] = rest.exec(table) ?? [];
      // A connection that no process holds now is listed as root's, with inode 0.
      if (inode !== undefined && inode !== "0") return { user: Number(user), inode };
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
