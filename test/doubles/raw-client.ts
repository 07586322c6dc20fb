import { once } from "node:events";
import { connect, type Socket } from "node:net";
import type { Test } from "tap";
import { HANG_MS } from "./until.ts";

/** A client on bare TCP: it can send what no HTTP library sends, and sees each byte that comes back. */
export interface RawClient {
  readonly socket: Socket;
  send(bytes: string | Buffer): void;
  /** Everything that came back so far. */
  text(): string;
  bytes(): Buffer;
  /** How many bytes came, without putting them together. */
  size(): number;
  /** Waits until this is in what came back, or until this is true. Checked whenever something comes. */
  until(what: string | RegExp | (() => boolean)): Promise<void>;
  /** Waits until the other side has ended or cut the connection. */
  closed(): Promise<void>;
  isClosed(): boolean;
  /** The status of the n-th answer, from 0. */
  status(n?: number): number;
}

export async function openRaw(t: Test, port: number): Promise<RawClient> {
  const socket = connect({ port, host: "127.0.0.1", noDelay: true });
  t.teardown(() => socket.destroy());
  let parts: Buffer[] = [];
  let closed = false;
  let size = 0;
  const waiting = new Set<() => void>();
  const changed = () => {
    for (const check of waiting) check();
  };
  const close = () => {
    closed = true;
    changed();
  };
  socket.on("data", (chunk: Buffer) => {
    parts.push(chunk);
    size += chunk.length;
    changed();
  });
  socket.on("error", () => {});
  socket.on("end", close);
  socket.on("close", close);
  await once(socket, "connect");
  const bytes = () => {
    if (parts.length > 1) parts = [Buffer.concat(parts)];
    return parts[0] ?? Buffer.alloc(0);
  };
  const text = () => bytes().toString("latin1");
  const waitFor = (what: () => string, holds: () => boolean) =>
    new Promise<void>((resolve, reject) => {
      const end = (error?: Error) => {
        clearTimeout(timer);
        waiting.delete(check);
        if (error === undefined) resolve();
        else reject(error);
      };
      const check = () => {
        if (holds()) end();
      };
      const hang = () => end(new Error(`this did not come within ${HANG_MS} ms: ${what()}`));
      const timer = setTimeout(hang, HANG_MS);
      waiting.add(check);
      check();
    });
  return {
    socket,
    send: (bytes) => void socket.write(bytes),
    text,
    bytes,
    size: () => size,
    until: (what) =>
      waitFor(
        () => `the client gets ${what}, but has ${JSON.stringify(text().slice(-400))}`,
        () =>
          typeof what === "function"
            ? what()
            : typeof what === "string"
              ? text().includes(what)
              : what.test(text()),
      ),
    closed: () =>
      waitFor(
        () => "the connection ends",
        () => closed,
      ),
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
