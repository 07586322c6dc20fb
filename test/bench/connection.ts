import { connect, type Socket } from "node:net";

/** Where requests go, and the headers a candidate needs. */
export interface Target {
  readonly port: number;
  /** Before the path of every request; mostly empty. */
  readonly basePath: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** A whole request, ready to be written. */
export function requestBytes(target: Target, method: string, path: string, body: Buffer): Buffer {
  const lines = [
    `${method} ${target.basePath}${path} HTTP/1.1`,
    `host: 127.0.0.1:${target.port}`,
    "accept: */*",
  ];
  for (const [name, value] of Object.entries(target.headers)) lines.push(`${name}: ${value}`);
  if (body.length > 0) lines.push("content-type: application/json", `content-length: ${body.length}`);
  return Buffer.concat([Buffer.from(`${lines.join("\r\n")}\r\n\r\n`), body]);
}

/**
 * One keep-alive connection for the load process. It writes prebuilt requests and reads HTTP/1.1 responses with as little
 * work as possible, so that the load process is not what the bench measures.
 */
export class Connection {
  readonly #port: number;
  #socket: Socket | null = null;
  #exchange: Exchange | null = null;

  constructor(port: number) {
    this.#port = port;
  }

  /** Resolves with the status once the response is complete. `onBody` gets the body without its chunk framing. */
  async exchange(request: Buffer, onBody: (chunk: Buffer) => void): Promise<number> {
    // A server may close an idle connection.
    if (this.#socket === null || this.#socket.destroyed) this.#socket = await this.#connect();
    const socket = this.#socket;
    return await new Promise((resolve, reject) => {
      this.#exchange = { reader: new ResponseReader(onBody), resolve, reject };
      socket.write(request);
    });
  }

  close(): void {
    this.#socket?.destroy();
  }

  async #connect(): Promise<Socket> {
    const socket = connect({ host: "127.0.0.1", port: this.#port, noDelay: true });
    socket.setTimeout(RESPONSE_TIMEOUT_MS, () => socket.destroy(new Error("no byte for a minute")));
    socket.on("data", (chunk) => this.#read(chunk));
    socket.on("close", () => {
      const exchange = this.#exchange;
      this.#exchange = null;
      if (exchange === null) return;
      if (exchange.reader.endsWithConnection) exchange.resolve(exchange.reader.status);
      else exchange.reject(new Error("the connection was closed within a response"));
    });
    await new Promise<void>((resolve, reject) => {
      socket.once("connect", resolve);
      // "close" follows and reports the failure of a running exchange.
      socket.on("error", reject);
    });
    return socket;
  }

  #read(chunk: Buffer): void {
    const exchange = this.#exchange;
    if (exchange === null) return;
    exchange.reader.push(chunk);
    if (!exchange.reader.isComplete) return;
    this.#exchange = null;
    if (exchange.reader.closesConnection) this.#socket?.destroy();
    exchange.resolve(exchange.reader.status);
  }
}

const RESPONSE_TIMEOUT_MS = 60_000;

interface Exchange {
  readonly reader: ResponseReader;
  readonly resolve: (status: number) => void;
  readonly reject: (error: Error) => void;
}

type State =
  | "head"
  | "length"
  | "chunk-size"
  | "chunk"
  | "chunk-end"
  | "trailer"
  | "until-close"
  | "complete";

/** Reads one response (RFC 9112, sections 6 and 7.1): a body with a length, a chunked body, or one that ends with the connection. */
export class ResponseReader {
  readonly #onBody: (chunk: Buffer) => void;
  #state: State = "head";
  #unread: Buffer = Buffer.alloc(0);
  #remaining = 0;
  status = 0;
  closesConnection = false;

  constructor(onBody: (chunk: Buffer) => void) {
    this.#onBody = onBody;
  }

  get isComplete(): boolean {
    return this.#state === "complete";
  }

  get endsWithConnection(): boolean {
    return this.#state === "until-close";
  }

  push(chunk: Buffer): void {
    this.#unread = this.#unread.length === 0 ? chunk : Buffer.concat([this.#unread, chunk]);
    while (this.#state !== "complete" && this.#step());
  }

  /** False when more bytes are needed. */
  #step(): boolean {
    switch (this.#state) {
      case "head":
        return this.#readHead();
      case "length":
      case "chunk":
        return this.#readBody();
      case "until-close":
        return this.#readAll();
      default:
        return this.#readLine();
    }
  }

  #readHead(): boolean {
    const end = this.#unread.indexOf("\r\n\r\n");
    if (end === -1) return false;
    const head = this.#unread.toString("latin1", 0, end).toLowerCase();
    this.#unread = this.#unread.subarray(end + 4);
    this.status = Number(head.slice(9, 12));
    // 1xx responses are informational; the response follows.
    if (this.status < 200) return true;
    this.closesConnection = /\r\nconnection: *close/.test(head);
    const length = /\r\ncontent-length: *(\d+)/.exec(head);
    if (/\r\ntransfer-encoding: *chunked/.test(head)) this.#state = "chunk-size";
    else if (length === null) this.#state = "until-close";
    else {
      this.#remaining = Number(length[1]);
      this.#state = this.#remaining === 0 ? "complete" : "length";
    }
    return true;
  }

  #readBody(): boolean {
    if (this.#unread.length === 0) return false;
    const part = this.#unread.subarray(0, this.#remaining);
    this.#unread = this.#unread.subarray(part.length);
    this.#remaining -= part.length;
    this.#onBody(part);
    if (this.#remaining === 0) this.#state = this.#state === "length" ? "complete" : "chunk-end";
    return true;
  }

  #readAll(): boolean {
    if (this.#unread.length > 0) this.#onBody(this.#unread);
    this.#unread = Buffer.alloc(0);
    return false;
  }

  /** A chunk's size, the empty line after a chunk, or a trailer. */
  #readLine(): boolean {
    const end = this.#unread.indexOf("\r\n");
    if (end === -1) return false;
    const line = this.#unread.toString("latin1", 0, end);
    this.#unread = this.#unread.subarray(end + 2);
    if (this.#state === "chunk-end") this.#state = "chunk-size";
    else if (this.#state === "trailer") this.#state = line === "" ? "complete" : "trailer";
    else {
      this.#remaining = Number.parseInt(line, 16);
      this.#state = this.#remaining === 0 ? "trailer" : "chunk";
    }
    return true;
  }
}
