import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { Listen } from "../config/shape.ts";
import { endSoon } from "./write-refusal.ts";

/** The listeners of one port: 127.0.0.1 and [::1] together, or the one in the configuration. */
export interface Port {
  readonly port: number;
  /** `host:port` of each listener. */
  readonly addresses: readonly string[];
  /** Stops accepting and closes idle connections. Resolves when the last connection is closed. */
  drain(): Promise<void>;
  /** Cuts every connection. */
  cut(): void;
}

export interface PortHandlers {
  /** A connection was accepted. */
  connection?(socket: Socket): void;
  request(req: IncomingMessage, res: ServerResponse): void;
  upgrade(req: IncomingMessage, socket: Duplex, head: Buffer): void;
  /** Node's parser does not accept the bytes as a request. */
  unparsable(error: NodeJS.ErrnoException, socket: Duplex): void;
  /** A connection could not be accepted, such as when there are no file handles left. */
  trouble(error: Error): void;
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
    const servers: Server[] = [];
    const connections: Connections = { upgraded: new Set(), withoutRequest: new Set() };
    let port = listen.port;
    try {
      for (const host of hosts) {
        const server = createDataServer(handlers, connections);
        const bound = await bind(server, host, port, handlers);
        if (bound === null && servers.length > 0) continue;
        if (bound === null) throw new PortTaken(authority(host, port), port);
        servers.push(server);
        port = bound;
      }
      return portOf(servers, port, connections);
    } catch (error) {
      for (const server of servers) server.close();
      // A free port of one address may be taken on the other.
      const mayRetry = listen.port === 0 && error instanceof PortTaken && attempt < MAX_BIND_ATTEMPTS;
      if (!mayRetry) throw error;
    }
  }
}

/** The port that was bound; null: this machine does not have that address family. */
function bind(server: Server, host: string, port: number, handlers: PortHandlers): Promise<number | null> {
  return new Promise((resolve, reject) => {
    const onError = (error: NodeJS.ErrnoException) => {
      if (error.code === "EADDRINUSE") reject(new PortTaken(authority(host, port), port));
      // Without IPv6 no other program can have [::1] either.
      else if (host === "::1" && (error.code === "EADDRNOTAVAIL" || error.code === "EAFNOSUPPORT"))
        resolve(null);
      else reject(error);
    };
    server.once("error", onError);
    server.listen({ host, port, exclusive: true, ipv6Only: host === "::1" }, () => {
      server.off("error", onError);
      server.on("error", handlers.trouble);
      const address = server.address();
      resolve(typeof address === "object" && address !== null ? address.port : port);
    });
  });
}

/** Connections that closeIdleConnections and closeAllConnections do not close. */
interface Connections {
  /** They left the server with their upgrade. */
  readonly upgraded: Set<Duplex>;
  /** Node counts a connection without a request as busy. */
  readonly withoutRequest: Set<Duplex>;
}

const WEBSOCKET = /^\s*websocket\s*$/i;

function createDataServer(handlers: PortHandlers, { upgraded, withoutRequest }: Connections): Server {
  const options = {
    insecureHTTPParser: false,
    // guard.ts checks Host, and refuses in words.
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
    shouldUpgradeCallback: (req: IncomingMessage) => WEBSOCKET.test(req.headers.upgrade ?? ""),
  };
  const server = createServer(options);
  // A maximum here would silently drop headers beyond it, credentials too. guard.ts counts them instead.
  server.maxHeadersCount = 0;
  server.maxConnections = 512;
  server.maxRequestsPerSocket = 0;
  server.timeout = 0;
  server.on("connection", (socket) => {
    // Every pipelined request listens for the end of its connection.
    socket.setMaxListeners(0);
    withoutRequest.add(socket);
    socket.once("close", () => withoutRequest.delete(socket));
    handlers.connection?.(socket);
  });

  /** The responses in flight of each connection. */
  const inFlight = new WeakMap<Duplex, Set<ServerResponse>>();
  const responsesOn = (socket: Duplex) => {
    const known = inFlight.get(socket) ?? new Set();
    inFlight.set(socket, known);
    return known;
  };
  const onRequest = (req: IncomingMessage, res: ServerResponse) => {
    // Where Node ignores an upgrade, it loses what the client sent behind that request: better to end the connection.
    if (req.headers.upgrade !== undefined) res.shouldKeepAlive = false;
    withoutRequest.delete(req.socket);
    const responses = responsesOn(req.socket);
    responses.add(res);
    res.on("close", () => {
      responses.delete(res);
      // Node would keep the connection of a response that ends after the stop for keepAliveTimeout.
      if (!server.listening) setImmediate(() => server.closeIdleConnections());
    });
    handlers.request(req, res);
  };
  server.on("request", onRequest);
  // body.ts sends 100 Continue once the caller is known, so that a refused body is never sent.
  server.on("checkContinue", onRequest);
  // Node would answer any other expectation itself, before the guard.
  server.on("checkExpectation", onRequest);
  server.on("upgrade", (req, socket, head) => {
    upgraded.add(socket);
    withoutRequest.delete(socket);
    socket.once("close", () => upgraded.delete(socket));
    const responses = responsesOn(socket);
    if (responses.size > 0) endAfter(responses, socket);
    else if (WEBSOCKET.test(req.headers.upgrade ?? "")) handlers.upgrade(req, socket, head);
    else servePlain(server, req, socket, head);
  });
  server.on("connect", (_req, socket) => socket.destroy());
  server.on("clientError", (error, socket) => {
    // An error message must not be written into another response, or before one that is still to come.
    const isAnswering = [...responsesOn(socket)].some((res) => res.headersSent || res.req.complete);
    if (isAnswering) socket.destroy();
    else handlers.unparsable(error, socket);
  });
  return server;
}

/**
 * An upgrade behind pipelined requests. Node lets go of the connection at once, so the upgrade would be answered before the
 * requests. No client is known to do this: the requests are answered, and the connection ends.
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
 * An offer of another protocol than WebSocket is ignored (RFC 9110 section 7.8). Java's client offers h2c with every plain
 * request. Node has let go of the connection by now, so the request is put back without the offer, and the connection is
 * given to the server again.
 */
function servePlain(server: Server, req: IncomingMessage, socket: Duplex, head: Buffer): void {
  const lines = [`${req.method} ${req.url} HTTP/${req.httpVersion}`];
  for (let i = 0; i + 1 < req.rawHeaders.length; i += 2) {
    const name = req.rawHeaders[i] ?? "";
    const value = req.rawHeaders[i + 1] ?? "";
    // Other options of Connection stay.
    if (/^connection$/i.test(name)) lines.push(`${name}: ${value.replace(UPGRADE_OPTIONS, "")}`);
    else if (!/^(?:upgrade|http2-settings)$/i.test(name)) lines.push(`${name}: ${value}`);
  }
  socket.unshift(Buffer.concat([Buffer.from(`${lines.join("\r\n")}\r\n\r\n`, "latin1"), head]));
  server.emit("connection", socket);
}

function portOf(servers: readonly Server[], port: number, connections: Connections): Port {
  const { upgraded, withoutRequest } = connections;
  const addresses = servers.map((server) => {
    const address = server.address();
    return authority(typeof address === "object" && address !== null ? address.address : "", port);
  });
  const close = (server: Server) =>
    new Promise<void>((resolve) => {
      server.close(() => resolve());
      server.closeIdleConnections();
      for (const socket of withoutRequest) socket.destroy();
    });
  return {
    port,
    addresses,
    async drain() {
      await Promise.all(servers.map(close));
    },
    cut() {
      for (const server of servers) server.closeAllConnections();
      for (const socket of upgraded) socket.destroy();
    },
  };
}

export function authority(host: string, port: number): string {
  return `${host.includes(":") ? `[${host}]` : host}:${port}`;
}

/** The values of Host that are accepted. Others come from web pages or by mistake. */
export function hostsOf(port: number): string[] {
  return [`localhost:${port}`, `127.0.0.1:${port}`, `[::1]:${port}`];
}
