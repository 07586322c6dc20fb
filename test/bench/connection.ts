import { connect, type Socket } from "node:net";

/** Where requests go, and the headers a candidate needs. */
export interface Target {
  readonly port: number;
  /** Before the path of every request; mostly empty. */
  readonly basePath: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** A whole request, ready to be written: a POST, or without a body a GET. */
export function requestBytes(target: Target, path: string, body: Buffer | null): Buffer {
  const method = body === null ? "GET" : "POST";
  const lines = [`${method} ${target.basePath}${path} HTTP/1.1`, `host: 127.0.0.1:${target.port}`];
  for (const [name, value] of Object.entries(target.headers)) lines.push(`${name}: ${value}`);
  if (body !== null) lines.push("content-type: application/json", `content-length: ${body.length}`);
  return Buffer.concat([Buffer.from(`${lines.join("\r\n")}\r\n\r\n`), body ?? Buffer.alloc(0)]);
}

const RESPONSE_TIMEOUT_MS = 60_000;

interface Exchange {
  readonly reader: ResponseReader;
  readonly resolve: (status: number) => void;
  readonly reject: (error: Error) => void;
}

/**
 * A keep-alive connection. It writes whole requests and looks at as little of a response as possible, so that the load
 * process is not what the bench measures.
 */
export class Connection {
  readonly #port: number;
  #socket: Socket | null = null;
  #exchange: Exchange | null = null;

  constructor(port: number) {
    this.#port = port;
  }

  /** Resolves with the status at the end of the response. `onData` gets its bytes as they arrive, framing included. */
  async exchange(request: Buffer, onData: (chunk: Buffer) => void): Promise<number> {
    if (this.#socket === null || this.#socket.destroyed) this.#socket = await this.#connect();
    const socket = this.#socket;
    return await new Promise((resolve, reject) => {
      this.#exchange = { reader: new ResponseReader(onData), resolve, reject };
      socket.write(request);
    });
  }

  /**
   * With a reset. A connection that is closed otherwise stays in the kernel's table for a minute, and keybearer searches that table
   * for each new connection. Thousands of them are the bench's own doing.
   */
  close(): void {
    this.#socket?.resetAndDestroy();
  }

  async #connect(): Promise<Socket> {
    const socket = connect({ host: "127.0.0.1", port: this.#port, noDelay: true });
    socket.setTimeout(RESPONSE_TIMEOUT_MS, () => socket.destroy());
    socket.on("data", (chunk) => this.#read(chunk));
    socket.on("close", () =>
      this.#exchange?.reject(new Error("the connection was closed within a response")),
    );
    await new Promise<void>((resolve, reject) => {
      socket.once("connect", resolve);
      // Stays, so that a later error is not thrown. "close" follows it.
      socket.on("error", reject);
    });
    return socket;
  }

  #read(chunk: Buffer): void {
    const exchange = this.#exchange;
    if (exchange === null || !exchange.reader.push(chunk)) return;
    this.#exchange = null;
    exchange.resolve(exchange.reader.status);
  }
}

const LAST_CHUNK = "0\r\n\r\n";

/** Finds the end of one HTTP/1.1 response: after its content-length, or after its last chunk. */
export class ResponseReader {
  readonly #onData: (chunk: Buffer) => void;
  #head = "";
  /** null for a chunked response. */
  #remaining: number | null = null;
  #tail = "";
  status = 0;

  constructor(onData: (chunk: Buffer) => void) {
    this.#onData = onData;
  }

  /** Returns whether the response is complete. */
  push(chunk: Buffer): boolean {
    if (this.status !== 0) return this.#readBody(chunk);
    this.#head += chunk.toString("latin1");
    const end = this.#head.indexOf("\r\n\r\n");
    if (end === -1) return false;
    const bodyLength = this.#head.length - end - 4;
    const head = this.#head.slice(0, end);
    this.status = Number(head.slice(9, 12));
    const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1];
    this.#remaining = length === undefined ? null : Number(length);
    return this.#readBody(chunk.subarray(chunk.length - bodyLength));
  }

  #readBody(chunk: Buffer): boolean {
    this.#onData(chunk);
    if (this.#remaining !== null) {
      this.#remaining -= chunk.length;
      return this.#remaining <= 0;
    }
    // JSON and event streams of the upstream contain no CRLF, so this is no part of a chunk.
    this.#tail = (this.#tail + chunk.toString("latin1", Math.max(0, chunk.length - LAST_CHUNK.length))).slice(
      -LAST_CHUNK.length,
    );
    return this.#tail === LAST_CHUNK;
  }
}
