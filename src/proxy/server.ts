import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { Listen } from "../config/shape.ts";
import { UnderWay } from "../under-way.ts";
import { sayGoodbye } from "./answer.ts";
import { checkHeadsWhileConnected, HEAD_CHECK_MS } from "./head-check.ts";

/** The listeners of one port: 127.0.0.1 and [::1] together, or the one the person chose. */
export interface Port {
  readonly port: number;
  /** `host:port`, one for each address that accepts. */
  readonly addresses: readonly string[];
  /** Stops accepting and closes what is idle; resolves when the last connection is gone. */
  drain(): Promise<void>;
  /** Cuts every connection. */
  cut(): void;
}

export interface PortHandlers {
  /** A connection was made; nothing has come on it yet. */
  connection?(socket: Socket): void;
  request(req: IncomingMessage, res: ServerResponse): void;
  upgrade(req: IncomingMessage, socket: Duplex, head: Buffer): void;
  /** What Node's parser refuses never becomes a request. */
  unparsable(error: NodeJS.ErrnoException, socket: Duplex): void;
  /** A connection could not be accepted, as when the process has no file handles left. Those there are go on. */
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

const TRIES_FOR_A_FREE_PORT = 20;

/**
 * Binds every address or none: whoever holds [::1] while we hold 127.0.0.1 is called "localhost" by half of the
 * clients, and would be handed their tokens.
 */
export async function openPort(listen: Listen, handlers: PortHandlers): Promise<Port> {
  const hosts = listen.host === "localhost" ? ["127.0.0.1", "::1"] : [listen.host];
  for (let attempt = 1; ; attempt += 1) {
    const servers: Server[] = [];
    const connections: Connections = { upgraded: new Set(), silent: new UnderWay() };
    let port = listen.port;
    try {
      for (const host of hosts) {
        const server = createDataServer(handlers, connections);
        const bound = await bind(server, host, port, handlers);
        if (bound === null && servers.length > 0) continue;
        if (bound === null) throw new PortTaken(authority(host, port), port);
        servers.push(server);
        checkHeadsWhileConnected(server);
        port = bound;
      }
      return portOf(servers, port, connections);
    } catch (error) {
      for (const server of servers) server.close();
      const another = listen.port === 0 && error instanceof PortTaken && attempt < TRIES_FOR_A_FREE_PORT;
      if (!another) throw error;
    }
  }
}

/** The port that was bound, or null on a machine without that address family. */
function bind(server: Server, host: string, port: number, handlers: PortHandlers): Promise<number | null> {
  return new Promise((resolve, reject) => {
    const onError = (error: NodeJS.ErrnoException) => {
      if (error.code === "EADDRINUSE") reject(new PortTaken(authority(host, port), port));
      // No IPv6 on this machine: then nobody can take [::1] from us either.
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

/** Those that Node's server does not count among its own when it closes them. */
interface Connections {
  readonly upgraded: Set<Duplex>;
  /** No request has come on them yet. */
  readonly silent: UnderWay<Duplex>;
}

const WEBSOCKET = /^\s*websocket\s*$/i;

/** Newer versions of Node can be told which offers to take up; the others give every one away. See withoutOffer. */
function upgradesOnlyTo(protocol: RegExp): object {
  return { shouldUpgradeCallback: (req: IncomingMessage) => protocol.test(req.headers.upgrade ?? "") };
}

function createDataServer(handlers: PortHandlers, { upgraded, silent }: Connections): Server {
  const server = createServer({
    insecureHTTPParser: false,
    requireHostHeader: false, // guard.ts says it in words, and counts them
    maxHeaderSize: 16_384,
    headersTimeout: 10_000,
    // Uploads may be slow and answers long: the gateway's own timeouts bound both.
    requestTimeout: 0,
    connectionsCheckingInterval: HEAD_CHECK_MS,
    keepAliveTimeout: 5000,
    noDelay: true,
    joinDuplicateHeaders: false,
    ...upgradesOnlyTo(WEBSOCKET),
  });
  // A cap here drops the headers beyond it in silence, credentials too; guard.ts counts them instead.
  server.maxHeadersCount = 0;
  server.maxConnections = 512;
  server.maxRequestsPerSocket = 0;
  server.timeout = 0;
  // Every pipelined request listens for the end of its connection.
  server.on("connection", (socket) => {
    socket.setMaxListeners(0);
    // Node counts a connection without a request as busy: closeIdleConnections() does not close it.
    silent.add(socket);
    handlers.connection?.(socket);
    socket.once("close", () => silent.delete(socket));
  });
  const answers = new WeakMap<Duplex, UnderWay<ServerResponse>>();
  const answersOn = (socket: Duplex) => {
    let underWay = answers.get(socket);
    if (underWay === undefined) {
      underWay = new UnderWay();
      answers.set(socket, underWay);
    }
    return underWay;
  };
  const answer = (req: IncomingMessage, res: ServerResponse) => {
    // Where Node itself passes over an offer, it loses what was sent behind that request: better an end than silence.
    if (req.headers.upgrade !== undefined) res.shouldKeepAlive = false;
    silent.delete(req.socket);
    // A request that is sent once more is listened to once more.
    res.setMaxListeners(0);
    const underWay = answersOn(req.socket);
    underWay.add(res);
    res.on("close", () => {
      underWay.delete(res);
      // Of an answer that ends after the stop, Node would keep the connection for keepAliveTimeout.
      if (!server.listening) setImmediate(() => server.closeIdleConnections());
    });
    handlers.request(req, res);
  };
  server.on("request", answer);
  // 100 is answered only once the request is let in (handle.ts), so that a refused upload is never sent.
  server.on("checkContinue", answer);
  // Any other expectation Node would refuse itself, before the guard and without its words.
  server.on("checkExpectation", answer);
  server.on("upgrade", (req, socket, head) => {
    // An upgraded connection leaves the server's own book, so cut() would not find it.
    upgraded.add(socket);
    silent.delete(socket);
    socket.once("close", () => upgraded.delete(socket));
    const underWay = answersOn(socket);
    if (underWay.size > 0) endBehind(underWay, socket);
    else if (WEBSOCKET.test(req.headers.upgrade ?? "")) handlers.upgrade(req, socket, head);
    else withoutOffer(server, req, socket, head);
  });
  server.on("connect", (_req, socket) => socket.destroy());
  server.on("clientError", (error, socket) => {
    // Words in the middle of an answer, or in front of one that is still to come, would be taken for its own.
    const taken = answersOn(socket)
      .list()
      .some((res) => res.headersSent || res.req.complete);
    if (taken) socket.destroy();
    else handlers.unparsable(error, socket);
  });
  return server;
}

/**
 * An upgrade that is pipelined behind requests would be answered in front of them: Node lets go of the connection at
 * once. No client is known to do that. What is under way is answered, and the connection ends.
 */
function endBehind(underWay: UnderWay<ServerResponse>, socket: Duplex): void {
  // Nobody else listens on it any more: neither to its failures nor to the client's leaving.
  socket.on("error", () => socket.destroy());
  socket.once("end", () => socket.destroy());
  socket.resume();
  for (const res of underWay.list()) {
    res.once("close", () => {
      if (underWay.size === 0) sayGoodbye(socket);
    });
  }
}

const OFFER = /\b(?:upgrade|http2-settings)\b/gi;

/**
 * A client that offers another protocol than WebSocket (Java's offers h2c on every plain request) is answered as if it
 * had not, as RFC 9110 section 7.8 allows. Node has let go of the connection by now, so the request is put back in
 * front of it without its offer, and the connection is taken in anew.
 */
function withoutOffer(server: Server, req: IncomingMessage, socket: Duplex, head: Buffer): void {
  const lines = [`${req.method} ${req.url} HTTP/${req.httpVersion}`];
  for (let i = 0; i + 1 < req.rawHeaders.length; i += 2) {
    const name = req.rawHeaders[i] ?? "";
    const value = req.rawHeaders[i + 1] ?? "";
    // What else Connection nominates must stay nominated.
    if (/^connection$/i.test(name)) lines.push(`${name}: ${value.replace(OFFER, "")}`);
    else if (!/^(?:upgrade|http2-settings)$/i.test(name)) lines.push(`${name}: ${value}`);
  }
  socket.unshift(Buffer.concat([Buffer.from(`${lines.join("\r\n")}\r\n\r\n`, "latin1"), head]));
  server.emit("connection", socket);
}

function portOf(servers: readonly Server[], port: number, { upgraded, silent }: Connections): Port {
  const addresses = servers.map((server) => {
    const address = server.address();
    return authority(typeof address === "object" && address !== null ? address.address : "", port);
  });
  return {
    port,
    addresses,
    async drain() {
      await Promise.all(
        servers.map(
          (server) =>
            new Promise<void>((resolve) => {
              server.close(() => resolve());
              server.closeIdleConnections();
              for (const socket of silent.list()) socket.destroy();
            }),
        ),
      );
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

/** The names under which this port may be called. Anything else in Host is a web page's trick, or a mistake. */
export function hostsOf(port: number): string[] {
  return [`localhost:${port}`, `127.0.0.1:${port}`, `[::1]:${port}`];
}
