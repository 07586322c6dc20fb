import { once } from "node:events";
import { createServer, type Socket } from "node:net";
import type { Test } from "tap";

/** One request as it reached the gateway, and the connection to answer it on with whatever bytes the test likes. */
export class GatewayCall {
  readonly socket: Socket;
  /** Which of the gateway's connections it came over, from 1. */
  readonly connection: number;
  /** Request line and headers, without the empty line. */
  readonly head: string;
  /** The body came to its end, by its own framing. */
  readonly whole: Promise<void>;
  /** Whether keybearer's side of the connection was seen to end, and the promise of it. */
  isClosed = false;
  readonly closed: Promise<void>;
  bodyBytes = 0;
  #body: Buffer[] = [];
  #finish: () => void = () => {};

  constructor(socket: Socket, connection: number, head: string) {
    this.socket = socket;
    this.connection = connection;
    this.head = head;
    this.whole = new Promise((resolve) => {
      this.#finish = resolve;
    });
    this.closed = new Promise((resolve) => {
      const closed = () => {
        this.isClosed = true;
        resolve();
      };
      socket.once("end", closed);
      socket.once("close", closed);
    });
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

  take(chunk: Buffer, ended: boolean, keep: boolean): void {
    this.bodyBytes += chunk.length;
    if (keep && chunk.length > 0) this.#body.push(chunk);
    if (ended) this.#finish();
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
  readonly calls: readonly GatewayCall[];
  /** Connections ever accepted. */
  connections(): number;
  /** Connections open now. */
  open(): number;
  /** Everything that ever came in, whether it was a request or not. */
  received(): string;
}

export interface RawGatewayOptions {
  /** false: bodies are counted, not kept. */
  readonly keepBodies?: boolean;
  readonly onConnection?: (socket: Socket) => void;
}

/** A gateway of bare TCP: it understands as little HTTP as it needs to tell one request from the next. */
export async function startRawGateway(
  t: Test,
  onCall: (call: GatewayCall) => void | Promise<void>,
  options: RawGatewayOptions = {},
): Promise<RawGateway> {
  const calls: GatewayCall[] = [];
  const sockets = new Set<Socket>();
  const received: Buffer[] = [];
  let connections = 0;
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    connections += 1;
    sockets.add(socket);
    // Every request on a kept connection listens for its end.
    socket.setMaxListeners(0);
    socket.on("error", () => {});
    socket.on("close", () => sockets.delete(socket));
    socket.on("end", () => socket.end());
    options.onConnection?.(socket);
    const keep = options.keepBodies !== false;
    if (keep) socket.on("data", (chunk: Buffer) => void received.push(chunk));
    readRequests(socket, connections, keep, (call) => {
      calls.push(call);
      void onCall(call);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  return {
    port,
    origin: `http://127.0.0.1:${port}`,
    calls,
    connections: () => connections,
    open: () => sockets.size,
    received: () => Buffer.concat(received).toString("latin1"),
  };
}

function readRequests(
  socket: Socket,
  connection: number,
  keep: boolean,
  onCall: (call: GatewayCall) => void,
): void {
  let waiting = Buffer.alloc(0);
  let call: GatewayCall | null = null;
  let left = 0;
  let chunked = false;
  let tail = "";
  socket.on("data", (arrived: Buffer) => {
    let data = arrived;
    while (data.length > 0) {
      if (call === null) {
        waiting = Buffer.concat([waiting, data]);
        const at = waiting.indexOf("\r\n\r\n");
        if (at === -1) return;
        call = new GatewayCall(socket, connection, waiting.subarray(0, at).toString("latin1"));
        data = waiting.subarray(at + 4);
        waiting = Buffer.alloc(0);
        chunked = call.header("transfer-encoding").length > 0;
        left = chunked ? Number.POSITIVE_INFINITY : Number(call.header("content-length")[0] ?? 0);
        tail = "";
        const current = call;
        if (left === 0) call = null;
        onCall(current);
        if (left === 0) current.take(Buffer.alloc(0), true, keep);
        continue;
      }
      const part = data.subarray(0, Math.min(left, data.length));
      data = data.subarray(part.length);
      left -= part.length;
      tail = chunked ? (tail + part.subarray(-7).toString("latin1")).slice(-7) : "";
      const ended = left === 0 || tail === "\r\n0\r\n\r\n" || tail === "0\r\n\r\n";
      call.take(part, ended, keep);
      if (ended) call = null;
    }
  });
}
