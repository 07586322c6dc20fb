import { once } from "node:events";
import { connect, type Socket } from "node:net";
import type { Test } from "tap";
import { until } from "./until.ts";

/** A client of bare TCP, for what no HTTP library would send and for seeing each byte that comes back. */
export interface RawClient {
  readonly socket: Socket;
  send(bytes: string | Buffer): void;
  /** Everything that came back so far. */
  text(): string;
  bytes(): Buffer;
  /** How many bytes came, without putting them together. */
  size(): number;
  /** Waits until this stands in what came back. */
  until(what: string | RegExp): Promise<void>;
  /** Waits until the other side has ended or cut the connection. */
  closed(): Promise<void>;
  isClosed(): boolean;
  /** The status of the n-th answer, from 0. */
  status(n?: number): number;
}

export async function openRaw(t: Test, port: number): Promise<RawClient> {
  const socket = connect({ port, host: "127.0.0.1", noDelay: true });
  t.teardown(() => socket.destroy());
  const parts: Buffer[] = [];
  let closed = false;
  let size = 0;
  socket.on("data", (chunk: Buffer) => {
    parts.push(chunk);
    size += chunk.length;
  });
  socket.on("error", () => {});
  socket.on("end", () => {
    closed = true;
  });
  socket.on("close", () => {
    closed = true;
  });
  await once(socket, "connect");
  const text = () => Buffer.concat(parts).toString("latin1");
  return {
    socket,
    send: (bytes) => void socket.write(bytes),
    text,
    bytes: () => Buffer.concat(parts),
    size: () => size,
    until: (what) =>
      until(`the client gets ${what}, but has ${JSON.stringify(text().slice(-400))}`, () =>
        typeof what === "string" ? text().includes(what) : what.test(text()),
      ),
    closed: () => until("the connection ends", () => closed),
    isClosed: () => closed,
    status: (n = 0) => Number([...text().matchAll(/HTTP\/1\.[01] (\d{3})/g)][n]?.[1] ?? 0),
  };
}

/** Name, value lines of a request, ready to send. */
export function head(line: string, headers: Readonly<Record<string, string>>): string {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return `${line} HTTP/1.1\r\n${lines.join("")}\r\n`;
}

/** Splits the first answer into its status line and headers, lower-cased names, and what follows. */
export function parsed(text: string): {
  readonly status: number;
  readonly reason: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly names: readonly string[];
  readonly body: string;
} {
  const at = text.indexOf("\r\n\r\n");
  const [line = "", ...lines] = text.slice(0, at).split("\r\n");
  const pairs = lines.map((one): [string, string] => [
    one.slice(0, one.indexOf(":")).toLowerCase(),
    one.slice(one.indexOf(":") + 1).trim(),
  ]);
  return {
    status: Number(line.split(" ")[1]),
    reason: line.split(" ").slice(2).join(" "),
    headers: Object.fromEntries(pairs),
    names: pairs.map(([name]) => name),
    body: text.slice(at + 4),
  };
}
