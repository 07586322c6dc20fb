import {
  type AgentOptions,
  type ClientRequest,
  type ClientRequestArgs,
  Agent as HttpAgent,
  request,
} from "node:http";
import { Agent as HttpsAgent } from "node:https";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import {
  createSecureContext,
  rootCertificates,
  type SecureContext,
  TLSSocket,
  connect as tlsConnect,
} from "node:tls";
import type { Gateway, Timeouts } from "../config/schema.ts";
import type { Clock } from "../core/clock.ts";
import { SleepDetector } from "../core/sleep-detector.ts";

/** How a server is reached. */
export type Route = Pick<Gateway, "proxy" | "authority"> & { readonly timeouts: Pick<Timeouts, "connect"> };

/** For a server that is called rarely: no connection is kept. Otherwise it is reached as a gateway. */
export function createSingleUseAgent(route: Route, isSecure: boolean): HttpAgent {
  if (!isSecure) return new PlainAgent({ keepAlive: false }, route, null);
  const tls = { rejectUnauthorized: true, secureContext: secureContextFor(route) } as const;
  return new SecureAgent({ keepAlive: false, ...tls }, route, tls);
}

/**
 * Certificates are checked against Node's own authorities and the route's. Variables in the environment change nothing:
 * NODE_EXTRA_CA_CERTS, SSL_CERT_FILE, NODE_TLS_REJECT_UNAUTHORIZED.
 */
function secureContextFor({ authority }: Route): SecureContext {
  const pem = authority?.pem ?? "";
  return createSecureContext({ ca: pem === "" ? [...rootCertificates] : [...rootCertificates, pem] });
}

const OPTIONS = {
  keepAlive: true,
  scheduling: "lifo",
  maxFreeSockets: 256,
  // Most servers close an idle connection after 5 s or more. Where one announces less, Node obeys, less a second.
  timeout: 4000,
} as const;

/** Less is a clock that was adjusted. */
const SLEEP_MS = 2000;

interface AgentEntry {
  readonly gateway: Gateway;
  readonly isSecure: boolean;
  readonly tool: string;
  readonly agent: HttpAgent;
}

/**
 * The keep-alive agents, one for each gateway, scheme and tool. Tools do not share connections: a response that a gateway
 * sends too late would reach the next tool.
 */
export class Agents {
  readonly #sleepDetector: SleepDetector;
  #entries: AgentEntry[] = [];
  /** By the PEM text of the gateway's own certificate authority. Node takes milliseconds to read its root certificates. */
  readonly #secureContexts = new Map<string, SecureContext>();

  constructor(clock: Clock) {
    this.#sleepDetector = new SleepDetector(clock);
  }

  /** @param tool its name; empty: keybearer itself calls, such as `doctor`. */
  readonly agentFor = (gateway: Gateway, origin: string, tool = ""): HttpAgent => {
    // After a sleep the kept connections are dead, and no event says so: a request over one would wait for its timeout.
    if (this.#sleepDetector.sleptMs() >= SLEEP_MS) {
      for (const entry of this.#entries) closeIdle(entry.agent);
    }
    const isSecure = origin.startsWith("https:");
    const known = this.#entries.find(
      (entry) => entry.gateway === gateway && entry.isSecure === isSecure && entry.tool === tool,
    );
    if (known !== undefined) return known.agent;
    const agent = isSecure ? this.#secureAgent(gateway) : new PlainAgent(OPTIONS, gateway, null);
    this.#entries.push({ gateway, isSecure, tool, agent });
    return agent;
  };

  /**
   * Forgets gateways that are no longer configured, or are connected to in another way. Their requests in flight finish. The
   * others keep their connections, although every save of config.yaml makes new objects for them.
   */
  keepOnly(gateways: readonly Gateway[]): void {
    const kept: AgentEntry[] = [];
    for (const entry of this.#entries) {
      const gateway = gateways.find((one) => isConnectedAlike(one, entry.gateway));
      if (gateway === undefined) closeIdle(entry.agent);
      else kept.push({ ...entry, gateway });
    }
    this.#entries = kept;
  }

  close(): void {
    for (const { agent } of this.#entries) agent.destroy();
    this.#entries = [];
  }

  #secureAgent(gateway: Gateway): HttpAgent {
    const pem = gateway.authority?.pem ?? "";
    let secureContext = this.#secureContexts.get(pem);
    if (secureContext === undefined) {
      secureContext = secureContextFor(gateway);
      this.#secureContexts.set(pem, secureContext);
    }
    const tls: TlsOptions = { rejectUnauthorized: true, secureContext };
    return new SecureAgent({ ...OPTIONS, ...tls }, gateway, tls);
  }
}

function isConnectedAlike(one: Gateway, other: Gateway): boolean {
  return (
    one.name === other.name &&
    one.baseUrl === other.baseUrl &&
    one.messagesUrl === other.messagesUrl &&
    one.proxy === other.proxy &&
    one.authority?.pem === other.authority?.pem &&
    one.timeouts.connect === other.timeouts.connect
  );
}

/** Closes the connections that no request uses. */
export function closeIdle(agent: HttpAgent): void {
  for (const sockets of Object.values(agent.freeSockets)) {
    for (const socket of sockets ?? []) socket.destroy();
  }
}

/** Calls back once the request's socket is connected, which a reused one is already. */
export function whenConnected(request: ClientRequest, socket: Socket, then: () => void): void {
  const isSecure = socket instanceof TLSSocket;
  const isConnected = !socket.connecting && (!isSecure || socket.getProtocol() !== null);
  if (request.reusedSocket || isConnected) then();
  else socket.once(isSecure ? "secureConnect" : "connect", then);
}

interface TlsOptions {
  readonly rejectUnauthorized: true;
  readonly secureContext: SecureContext;
}

/** As Node's types have it. They require a stream even with an error. */
type OnConnection = (error: Error | null, stream: Duplex) => void;

const PlainAgent = agentClass(HttpAgent);
const SecureAgent = agentClass(HttpsAgent);

/** Node has one agent class for each scheme, and keybearer changes both in the same way. */
function agentClass(Base: typeof HttpAgent) {
  return class extends Base {
    readonly #route: Route;
    readonly #tls: TlsOptions | null;
    /** How much each connection had received when it became idle. */
    readonly #received = new WeakMap<Duplex, number>();

    /** @param tls null: the server is called by http. */
    constructor(options: AgentOptions, route: Route, tls: TlsOptions | null) {
      super(options);
      this.#route = route;
      this.#tls = tls;
    }

    override createConnection(options: ClientRequestArgs, done?: OnConnection): Duplex | null | undefined {
      const { proxy, timeouts } = this.#route;
      if (proxy !== null) {
        connectThrough(proxy, options, this.#tls, timeouts.connect, done as OnTunnel);
        return undefined;
      }
      // A socket keeps its options, and would show the key when it is printed.
      return super.createConnection({ ...options, headers: undefined }, done);
    }

    override keepSocketAlive(socket: Duplex): boolean {
      this.#received.set(socket, (socket as Socket).bytesRead);
      // Node's documentation says that this is a boolean. Its type does not.
      return Boolean(super.keepSocketAlive(socket));
    }

    override reuseSocket(socket: Duplex, request: ClientRequest): void {
      // Bytes between two requests belong to neither. This request would take them for its response.
      if ((socket as Socket).bytesRead !== this.#received.get(socket)) socket.destroy();
      super.reuseSocket(socket, request);
    }
  };
}

/** The outbound proxy failed, not the gateway behind it. */
export class OutboundProxyError extends Error {
  /** It, or what is behind it, may be back soon. */
  readonly isOutage: boolean;

  constructor(message: string, isOutage: boolean) {
    super(message);
    this.isOutage = isOutage;
  }
}

/** Whether it is an error of the network or of DNS. Not: TLS, HTTP, and no file descriptor left. */
export function isNetworkError(code: string): boolean {
  return /^E(?!RR_|MFILE$|NFILE$|PROTO$)/.test(code);
}

type OnTunnel = (error: Error | null, socket?: Socket) => void;

interface TunnelTarget {
  readonly host?: string | null | undefined;
  readonly port?: number | string | null | undefined;
  readonly servername?: string | undefined;
}

/** The call has its own connect timeout. The tunnel's is later, and only closes what an outbound proxy leaves open. */
const AFTER_CONNECT_TIMEOUT_MS = 500;

/**
 * Connects to a gateway through an outbound proxy. Always CONNECT, even for http: the proxy relays bytes and never rewrites a
 * request. Only https hides the key from it.
 */
function connectThrough(
  proxy: string,
  target: TunnelTarget,
  tls: TlsOptions | null,
  connectMs: number,
  done: OnTunnel,
): void {
  const host = target.host ?? "";
  const authority = `${host.includes(":") ? `[${host}]` : host}:${target.port}`;
  const headers = { host: authority };
  const connecting = request(proxy, { method: "CONNECT", path: authority, headers, agent: false });
  let connection: Socket | null = null;
  let isDone = false;
  const finish = (error: Error | null, socket?: Socket) => {
    if (isDone) return;
    isDone = true;
    clearTimeout(timer);
    if (error !== null) {
      connecting.destroy();
      connection?.destroy();
    }
    done(error, socket);
  };
  const fail = (what: string, isOutage: boolean) =>
    finish(new OutboundProxyError(`the outbound proxy ${proxy} ${what}`, isOutage));
  const timer = setTimeout(() => fail("did not answer", true), connectMs + AFTER_CONNECT_TIMEOUT_MS);
  connecting.on("error", ({ code = "", message }: NodeJS.ErrnoException) =>
    fail(`cannot be reached (${code || message})`, isNetworkError(code)),
  );
  connecting.once("connect", (answer, socket, head) => {
    connection = socket;
    if (isDone) socket.destroy();
    // Bytes right behind the proxy's answer would be taken for the gateway's.
    else if (answer.statusCode !== 200 || head.length > 0)
      // 502 to 504: it cannot reach the gateway now. Others, such as 407, last until the configuration changes.
      fail(`answered ${answer.statusCode} to CONNECT`, [502, 503, 504].includes(answer.statusCode ?? 0));
    else if (tls === null) finish(null, socket);
    else startTls(socket, target, tls, finish);
  });
  connecting.end();
}

function startTls(socket: Socket, target: TunnelTarget, tls: TlsOptions, done: OnTunnel): void {
  const host = target.host ?? "";
  // An IP address has no server name. The certificate is checked against `host` all the same.
  const name = target.servername ? { host, servername: target.servername } : { host };
  const secured = tlsConnect({ socket, ...name, ...tls, ALPNProtocols: ["http/1.1"] });
  secured.once("error", done);
  secured.once("secureConnect", () => {
    secured.off("error", done);
    done(null, secured);
  });
}
