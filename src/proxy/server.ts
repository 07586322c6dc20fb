import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { Listen } from "../config/schema.ts";
import { background } from "../core/background.ts";
import { EXIT, hasCode, StartError } from "../core/errors.ts";
import type { Logger } from "../core/log.ts";
import { describePortOwner } from "../core/process-lookup.ts";
import { forEachHeader } from "./headers.ts";
import { endSoon, refuseSocket } from "./write-refusal.ts";

interface PortHandlers {
  /** A connection was accepted. */
  connection?(socket: Socket): void;
  request(req: IncomingMessage, res: ServerResponse): void;
  upgrade(req: IncomingMessage, socket: Duplex, head: Buffer): void;
  /** Node's parser does not accept the bytes as a request. */
  clientError(error: NodeJS.ErrnoException, socket: Duplex): void;
  /** A connection could not be accepted, such as when there are no file descriptors left. */
  onError(error: Error): void;
}

export class PortTaken extends Error {
  readonly address: string;
  readonly port: number;
  constructor(address: string, port: number) {
    super(`${address} is taken`);
    this.address = address;
    this.port = port;
  }
}

const MAX_BIND_ATTEMPTS = 20;

/**
 * Binds every address or none. If another program had [::1] while we have 127.0.0.1, half of the clients would send it
 * their tokens, because both are "localhost".
 */
export async function openPort(listen: Listen, handlers: PortHandlers): Promise<Port> {
  const hosts = listen.host === "localhost" ? ["127.0.0.1", "::1"] : [listen.host];
  for (let attempt = 1; ; attempt += 1) {
    const port = new Port(listen.port, handlers);
    try {
      for (const host of hosts) await port.bind(host);
      if (port.addresses.length > 0) return port;
      throw new StartError(EXIT.badConfig, { problem: "this machine has no IPv6", next: "write 127.0.0.1" });
    } catch (error) {
      port.cut();
      await port.drain();
      // A port that is free on one address may be taken on the other.
      const mayRetry = listen.port === 0 && error instanceof PortTaken && attempt < MAX_BIND_ATTEMPTS;
      if (!mayRetry) throw error;
    }
  }
}

const NO_REQUEST = { status: 400, headers: { "content-length": "0" }, body: "" };

/** A port beside that of the tools, without WebSockets. Throws an error with a message for people. */
export async function openSidePort(
  name: "dashboard" | "metrics",
  listen: Listen,
  log: Logger,
  serve: (req: IncomingMessage, res: ServerResponse) => Promise<void>,
): Promise<Port> {
  try {
    return await openPort(listen, {
      request: (req, res) => background(serve(req, res), log, `a request to the ${name}`),
      clientError: (_error, socket) => refuseSocket(socket, NO_REQUEST),
      upgrade: (_req, socket) => refuseSocket(socket, NO_REQUEST),
      onError: (error) => log.error(`the ${name} could not accept a connection: ${error.message}`),
    });
  } catch (error) {
    if (!(error instanceof PortTaken)) throw error;
    const by = await describePortOwner(error.port);
    throw new Error(
      `${error.address}, the address of the ${name}, is taken by ${by}. stop it, or change ${name}.listen in config.yaml`,
    );
  }
}

/** Tries again to open such a port, and logs each problem once. */
export class SidePortRetry {
  readonly #what: string;
  readonly #log: Logger;
  readonly #open: () => Promise<void>;
  readonly #everyMs: number;
  #timer: NodeJS.Timeout | undefined;
  #problem: string | null = null;

  /** @param what "the dashboard", in the log */
  constructor(what: string, log: Logger, open: () => Promise<void>, everyMs: number) {
    this.#what = what;
    this.#log = log;
    this.#open = open;
    this.#everyMs = everyMs;
  }

  /** Why the port is not open although it should be. */
  get problem(): string | null {
    return this.#problem;
  }

  later(problem: string): void {
    if (problem !== this.#problem) this.#log.error(`could not open ${this.#what}: ${problem}`);
    this.#problem = problem;
    clearTimeout(this.#timer);
    const retry = () => background(this.#open(), this.#log, `opening ${this.#what}`);
    this.#timer = setTimeout(retry, this.#everyMs).unref();
  }

  /** The port is open, or not wanted any more. */
  end(): void {
    this.#problem = null;
    clearTimeout(this.#timer);
  }
}

const OPTIONS = {
  insecureHTTPParser: false,
  // guard.ts checks Host, and its refusal has a message.
  requireHostHeader: false,
  maxHeaderSize: 16_384,
  headersTimeout: 10_000,
  connectionsCheckingInterval: 1000,
  // Uploads may be slow and responses long: the gateway's timeouts bound both.
  requestTimeout: 0,
  keepAliveTimeout: 5000,
  noDelay: true,
  joinDuplicateHeaders: false,
  // Node 24.9 asks which upgrades to accept. Older versions accept all, see servePlain.
  shouldUpgradeCallback: isForWebSocket,
};

/** The listeners of one port: 127.0.0.1 and [::1] together, or the one in the configuration. */
export class Port {
  /** `host:port` of each listener. */
  readonly addresses: string[] = [];
  readonly #handlers: PortHandlers;
  readonly #servers: Server[] = [];
  /** The server no longer knows upgraded connections, so closeAllConnections leaves them open. */
  readonly #upgraded = new Set<Duplex>();
  /** Node counts a connection without a request as busy, so closeIdleConnections leaves it open. */
  readonly #withoutRequest = new Set<Duplex>();
  /** The responses in flight of each connection. */
  readonly #responses = new WeakMap<Duplex, Set<ServerResponse>>();
  #port: number;

  /** @param port 0: the first listener takes a free one, and the second the same. */
  constructor(port: number, handlers: PortHandlers) {
    this.#port = port;
    this.#handlers = handlers;
  }

  get port(): number {
    return this.#port;
  }

  /** Does nothing for ::1 on a machine without IPv6, where no other program can have it either. */
  async bind(host: string): Promise<void> {
    const server = this.#createServer();
    try {
      server.listen({ host, port: this.#port, exclusive: true, ipv6Only: host === "::1" });
      await once(server, "listening");
    } catch (error) {
      if (hasCode(error, "EADDRINUSE")) throw new PortTaken(authority(host, this.#port), this.#port);
      if (host === "::1" && hasCode(error, "EADDRNOTAVAIL", "EAFNOSUPPORT")) return;
      throw error;
    }
    server.on("error", this.#handlers.onError);
    const address = server.address();
    if (typeof address === "object" && address !== null) this.#port = address.port;
    this.#servers.push(server);
    this.addresses.push(authority(host, this.#port));
  }

  /** Stops accepting and closes idle connections. Resolves when the last connection is closed. */
  async drain(): Promise<void> {
    const closed = this.#servers.map((server) => new Promise((resolve) => server.close(resolve)));
    for (const server of this.#servers) server.closeIdleConnections();
    for (const socket of this.#withoutRequest) socket.destroy();
    await Promise.all(closed);
  }

  /** Stops at once. */
  async close(): Promise<void> {
    const drained = this.drain();
    this.cut();
    await drained;
  }

  /** Closes every connection. */
  cut(): void {
    for (const server of this.#servers) server.closeAllConnections();
    for (const socket of this.#upgraded) socket.destroy();
  }

  #createServer(): Server {
    const server = createServer(OPTIONS);
    // A maximum here would silently drop headers beyond it, credentials too. guard.ts counts them instead.
    server.maxHeadersCount = 0;
    server.maxConnections = 512;
    server.maxRequestsPerSocket = 0;
    server.timeout = 0;
    server.on("connection", (socket) => this.#onConnection(socket));
    const onRequest = (req: IncomingMessage, res: ServerResponse) => this.#onRequest(server, req, res);
    server.on("request", onRequest);
    // body.ts sends 100 Continue once the caller is known, so that a refused body is never sent.
    server.on("checkContinue", onRequest);
    // Node would answer any other expectation itself, before the guard.
    server.on("checkExpectation", onRequest);
    server.on("upgrade", (req, socket, head) => this.#onUpgrade(server, req, socket, head));
    server.on("connect", (_req, socket) => socket.destroy());
    server.on("clientError", (error, socket) => this.#onClientError(error, socket));
    return server;
  }

  #onConnection(socket: Socket): void {
    // Every pipelined request listens for the end of its connection.
    socket.setMaxListeners(0);
    this.#withoutRequest.add(socket);
    socket.once("close", () => this.#withoutRequest.delete(socket));
    this.#handlers.connection?.(socket);
  }

  #onRequest(server: Server, req: IncomingMessage, res: ServerResponse): void {
    // Where Node ignores an upgrade, it loses what the client sent behind that request. So the connection must end.
    if (req.headers.upgrade !== undefined) res.shouldKeepAlive = false;
    this.#withoutRequest.delete(req.socket);
    const responses = this.#responsesOn(req.socket);
    responses.add(res);
    res.on("close", () => {
      responses.delete(res);
      // Node would keep the connection of a response that ends after the stop for keepAliveTimeout.
      if (!server.listening) setImmediate(() => server.closeIdleConnections());
    });
    this.#handlers.request(req, res);
  }

  #onUpgrade(server: Server, req: IncomingMessage, socket: Duplex, head: Buffer): void {
    this.#upgraded.add(socket);
    this.#withoutRequest.delete(socket);
    socket.once("close", () => this.#upgraded.delete(socket));
    const responses = this.#responsesOn(socket);
    if (responses.size > 0) endAfter(responses, socket);
    else if (isForWebSocket(req)) this.#handlers.upgrade(req, socket, head);
    else servePlain(server, req, socket, head);
  }

  #onClientError(error: NodeJS.ErrnoException, socket: Duplex): void {
    // An error message must not be written into another response, or before one that is still to come.
    const isAnswering = [...this.#responsesOn(socket)].some((res) => res.headersSent || res.req.complete);
    if (isAnswering) socket.destroy();
    else this.#handlers.clientError(error, socket);
  }

  #responsesOn(socket: Duplex): Set<ServerResponse> {
    const known = this.#responses.get(socket) ?? new Set();
    this.#responses.set(socket, known);
    return known;
  }
}

function isForWebSocket(req: IncomingMessage): boolean {
  return /^\s*websocket\s*$/i.test(req.headers.upgrade ?? "");
}

/**
 * Ends a connection with an upgrade behind pipelined requests, once those are answered. Node lets go of the connection at
 * once, so the upgrade would be answered before them. No client is known to send this.
 */
function endAfter(responses: Set<ServerResponse>, socket: Duplex): void {
  socket.on("error", () => socket.destroy());
  socket.once("end", () => socket.destroy());
  socket.resume();
  for (const res of responses) {
    res.once("close", () => {
      if (responses.size === 0) endSoon(socket);
    });
  }
}

const UPGRADE_OPTIONS = /\b(?:upgrade|http2-settings)\b/gi;

/**
 * Serves a request without its upgrade. An offer of another protocol than WebSocket is ignored (RFC 9110 section 7.8): Java's
 * client offers h2c with every plain request. By now Node has let go of the connection. So the request is put back without
 * the offer, and the server gets the connection again. Node documents `server.emit("connection")` for that.
 */
function servePlain(server: Server, req: IncomingMessage, socket: Duplex, head: Buffer): void {
  const lines = [`${req.method} ${req.url} HTTP/${req.httpVersion}`];
  forEachHeader(req.rawHeaders, (name, value) => {
    // Other options of Connection stay.
    if (/^connection$/i.test(name)) lines.push(`${name}: ${value.replace(UPGRADE_OPTIONS, "")}`);
    else if (!/^(?:upgrade|http2-settings)$/i.test(name)) lines.push(`${name}: ${value}`);
  });
  socket.unshift(Buffer.concat([Buffer.from(`${lines.join("\r\n")}\r\n\r\n`, "latin1"), head]));
  server.emit("connection", socket);
}

export function authority(host: string, port: number): string {
  return `${host.includes(":") ? `[${host}]` : host}:${port}`;
}

/** The values of Host that are accepted. Others come from web pages or by mistake. */
export function hostsOf(port: number): string[] {
  return [`localhost:${port}`, `127.0.0.1:${port}`, `[::1]:${port}`];
}
