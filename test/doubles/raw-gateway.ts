// A gateway on bare TCP: a test sees each request as it came over the wire and answers it with any bytes.
import { createServer, type Socket } from "node:net";
import type { Test } from "tap";
import { listen } from "./listen.ts";

/** One request as it reached the gateway. The test answers it with any bytes. */
export class GatewayCall {
  readonly socket: Socket;
  /** Which of the gateway's connections it came over, from 1. */
  readonly connection: number;
  /** Request line and headers, without the empty line. */
  readonly head: string;
  /** The body came to its end, by its own framing. */
  readonly whole: Promise<void>;
  /** Whether keybearer closed its side of the connection, and a promise of that. */
  isClosed = false;
  readonly closed: Promise<void>;
  /** Set it when the call was answered with 101: what follows on the connection is not a request. */
  isTunnel = false;
  bodyBytes = 0;
  #body: Buffer[] = [];
  /** Resolves `whole`. */
  finish: () => void = () => {};
  #onClosed: () => void = () => {};

  constructor(socket: Socket, connection: number, head: string) {
    this.socket = socket;
    this.connection = connection;
    this.head = head;
    this.whole = new Promise((resolve) => {
      this.finish = resolve;
    });
    this.closed = new Promise((resolve) => {
      this.#onClosed = resolve;
    });
  }

  /** The connection calls this when keybearer closed its side. */
  close(): void {
    this.isClosed = true;
    this.#onClosed();
  }

  get method(): string {
    return this.head.split(" ", 1)[0] ?? "";
  }

  /** The request target, byte for byte. */
  get target(): string {
    return this.head.split(" ")[1] ?? "";
  }

  /** Every value of a header, in the order they came. */
  header(name: string): string[] {
    return this.head
      .split("\r\n")
      .slice(1)
      .filter((line) => line.slice(0, line.indexOf(":")).toLowerCase() === name)
      .map((line) => line.slice(line.indexOf(":") + 1).trim());
  }

  /** The body as it came over the wire, framing included. */
  body(): Buffer {
    return Buffer.concat(this.#body);
  }

  /** Everything of this request, for looking whether something is in it. */
  text(): string {
    return `${this.head}\r\n\r\n${this.body().toString("latin1")}`;
  }

  take(bytes: Buffer, keep: boolean): void {
    this.bodyBytes += bytes.length;
    if (keep) this.#body.push(bytes);
  }

  send(bytes: string | Buffer): void {
    if (this.socket.writable) this.socket.write(bytes);
  }

  /** A small answer with its length. */
  answer(status: string, headers: Record<string, string>, body: string | Buffer): void {
    const bytes = Buffer.from(body);
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    this.send(`HTTP/1.1 ${status}\r\n${lines.join("")}Content-Length: ${bytes.length}\r\n\r\n`);
    this.send(bytes);
  }

  ok(body = "{}"): void {
    this.answer("200 OK", { "Content-Type": "application/json" }, body);
  }
}

export interface RawGateway {
  readonly port: number;
  readonly origin: string;
  /** The origin and /v1. */
  readonly baseUrl: string;
  readonly calls: readonly GatewayCall[];
  /** Connections ever accepted. */
  connections(): number;
  /** Connections open now. */
  open(): number;
  /** Everything that ever came in, whether it was a request or not. */
  received(): string;
}

export interface RawGatewayOptions {
  /** Default: a free one. */
  readonly port?: number;
  /** false: bodies are counted, not kept. */
  readonly keepBodies?: boolean;
  readonly onConnection?: (socket: Socket) => void;
  /** Called when a chunked body has broken framing. The connection is cut. */
  readonly onBroken?: (why: string) => void;
}

/**
 * A gateway on bare TCP. It reads each request by its own framing to the last byte, chunk by chunk, so it sees the same
 * requests as any careful server.
 */
export async function startRawGateway(
  t: Test,
  onCall: (call: GatewayCall) => void | Promise<void>,
  options: RawGatewayOptions = {},
): Promise<RawGateway> {
  const keep = options.keepBodies !== false;
  const calls: GatewayCall[] = [];
  const received: Buffer[] = [];
  let connections = 0;
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    connections += 1;
    const connection = connections;
    const callsHere: GatewayCall[] = [];
    const close = () => {
      for (const call of callsHere) call.close();
    };
    socket.on("end", () => {
      close();
      socket.end();
    });
    socket.on("close", close);
    options.onConnection?.(socket);
    const reader = new RequestReader({
      keep,
      onHead(head) {
        const call = new GatewayCall(socket, connection, head);
        calls.push(call);
        callsHere.push(call);
        return call;
      },
      onCall: (call) => void onCall(call),
      onBroken(why) {
        options.onBroken?.(why);
        socket.destroy();
      },
    });
    socket.on("data", (chunk: Buffer) => {
      if (keep) received.push(chunk);
      reader.read(chunk);
    });
  });
  const { port, origin, sockets } = await listen(t, server, options.port);
  return {
    port,
    origin,
    baseUrl: `${origin}/v1`,
    calls,
    connections: () => connections,
    open: () => sockets.size,
    received: () => Buffer.concat(received).toString("latin1"),
  };
}

interface ReaderDeps {
  readonly keep: boolean;
  onHead(head: string): GatewayCall;
  onCall(call: GatewayCall): void;
  onBroken(why: string): void;
}

/** Splits the bytes of one connection into requests. */
export class RequestReader {
  readonly #deps: ReaderDeps;
  #pending: Buffer = Buffer.alloc(0);
  #state: "head" | "body" | "chunk size" | "chunk" | "chunk end" | "trailers" | "stopped" = "head";
  #call: GatewayCall | null = null;
  /** Bytes of the body or of the chunk that have not come yet. */
  #left = 0;

  constructor(deps: ReaderDeps) {
    this.#deps = deps;
  }

  read(arrived: Buffer): void {
    this.#pending = this.#pending.length === 0 ? arrived : Buffer.concat([this.#pending, arrived]);
    let more = true;
    while (more && this.#pending.length > 0 && this.#state !== "stopped") {
      more = this.#state === "body" || this.#state === "chunk" ? this.#readBytes() : this.#readLine();
    }
  }

  #readBytes(): boolean {
    const bytes = this.#take(Math.min(this.#left, this.#pending.length));
    this.#left -= bytes.length;
    this.#call?.take(bytes, this.#deps.keep);
    if (this.#left > 0) return false;
    if (this.#state === "chunk") this.#state = "chunk end";
    else this.#finish();
    return true;
  }

  #readLine(): boolean {
    const ending = this.#state === "head" ? "\r\n\r\n" : "\r\n";
    const at = this.#pending.indexOf(ending);
    if (at === -1) return false;
    const bytes = this.#take(at + ending.length);
    const line = bytes.toString("latin1", 0, at);
    if (this.#state === "head") {
      this.#readHead(line);
      return true;
    }
    this.#call?.take(bytes, this.#deps.keep);
    if (this.#state === "chunk size") this.#readChunkSize(line);
    else if (this.#state === "chunk end") {
      if (line !== "") this.#break(`after a chunk comes ${JSON.stringify(line)}`);
      else this.#state = "chunk size";
    } else if (line === "") this.#finish();
    return true;
  }

  #readHead(head: string): void {
    const call = this.#deps.onHead(head);
    this.#call = call;
    this.#left = Number(call.header("content-length")[0] ?? 0);
    if (call.header("transfer-encoding").length > 0) this.#state = "chunk size";
    else if (this.#left > 0) this.#state = "body";
    this.#deps.onCall(call);
    if (call.isTunnel) this.#state = "stopped";
    else if (this.#state === "head") this.#finish();
  }

  #readChunkSize(line: string): void {
    if (!/^[0-9a-f]+$/i.test(line)) {
      this.#break(`${JSON.stringify(line)} is no size of a chunk`);
      return;
    }
    this.#left = Number.parseInt(line, 16);
    this.#state = this.#left === 0 ? "trailers" : "chunk";
  }

  #take(length: number): Buffer {
    const bytes = this.#pending.subarray(0, length);
    this.#pending = this.#pending.subarray(length);
    return bytes;
  }

  #finish(): void {
    this.#call?.finish();
    this.#call = null;
    this.#state = "head";
  }

  #break(why: string): void {
    this.#state = "stopped";
    this.#deps.onBroken(why);
  }
}
