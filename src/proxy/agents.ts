import { type ClientRequest, type ClientRequestArgs, Agent as HttpAgent } from "node:http";
import { Agent as HttpsAgent, type RequestOptions } from "node:https";
import type { Duplex } from "node:stream";
import { createSecureContext, rootCertificates, type SecureContext } from "node:tls";
import type { Clock } from "../clock.ts";
import type { Gateway } from "../config/shape.ts";
import { connectThrough, type Done, type TlsOptions, type Tunnel } from "./tunnel.ts";

/**
 * Below the idle time of the servers in use, so that a request rarely meets a connection that was just closed. Node itself
 * stays a second below what a server announces.
 */
const IDLE_MS = 4000;
const MAX_FREE_SOCKETS = 256;
/** The call has its own connect timeout. This one only closes what an outbound proxy leaves open. */
const AFTER_CONNECT_TIMEOUT_MS = 500;
/** The wall clock goes on while the machine sleeps, the other one does not. */
const SLEEP_MS = 2000;

/**
 * The keep-alive agents, one for each gateway, scheme and tool. Tools do not share connections: a response that a gateway
 * sends too late would be the next tool's.
 */
export class Agents {
  readonly #clock: Clock;
  readonly #agents = new Map<Gateway, Map<string, HttpAgent>>();
  /** By the gateway's own certificate authority. To read Node's root certificates takes milliseconds. */
  readonly #secureContexts = new Map<string, SecureContext>();
  #seenNow: number;
  #seenElapsed: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#seenNow = clock.now();
    this.#seenElapsed = clock.elapsed();
  }

  /** @param tool its name; without one keybearer itself calls. */
  readonly agentFor = (gateway: Gateway, origin: string, tool = ""): HttpAgent => {
    if (this.#hasSlept()) this.#forEach(closeIdle);
    let agents = this.#agents.get(gateway);
    if (agents === undefined) {
      agents = new Map();
      this.#agents.set(gateway, agents);
    }
    const isSecure = origin.startsWith("https:");
    const name = `${isSecure ? "https" : "http"} ${tool}`;
    let agent: HttpAgent | undefined = agents.get(name);
    if (agent === undefined) {
      agent = isSecure ? this.#secureAgent(gateway) : new PlainAgent(gateway);
      agents.set(name, agent);
    }
    return agent;
  };

  /** Forgets gateways that are no longer configured. Their requests in flight finish. */
  keepOnly(gateways: readonly Gateway[]): void {
    for (const [gateway, agents] of this.#agents) {
      if (gateways.includes(gateway)) continue;
      this.#agents.delete(gateway);
      for (const agent of agents.values()) closeIdle(agent);
    }
  }

  close(): void {
    this.#forEach((agent) => agent.destroy());
    this.#agents.clear();
  }

  #forEach(work: (agent: HttpAgent) => void): void {
    for (const agents of this.#agents.values()) for (const agent of agents.values()) work(agent);
  }

  /** Connections do not survive a sleep, and nobody says so: a request over one of them would wait for its timeout. */
  #hasSlept(): boolean {
    const now = this.#clock.now();
    const elapsed = this.#clock.elapsed();
    const slept = now - this.#seenNow - (elapsed - this.#seenElapsed);
    this.#seenNow = now;
    this.#seenElapsed = elapsed;
    return slept >= SLEEP_MS;
  }

  /**
   * Certificates are checked by Node's own authorities and the gateway's, whatever the environment says
   * (NODE_EXTRA_CA_CERTS, SSL_CERT_FILE, NODE_TLS_REJECT_UNAUTHORIZED).
   */
  #secureAgent(gateway: Gateway): HttpsAgent {
    const pem = gateway.authority?.pem ?? "";
    let secureContext = this.#secureContexts.get(pem);
    if (secureContext === undefined) {
      const ca = pem === "" ? [...rootCertificates] : [...rootCertificates, pem];
      secureContext = createSecureContext({ ca });
      this.#secureContexts.set(pem, secureContext);
    }
    return new SecureAgent(gateway, { rejectUnauthorized: true, secureContext });
  }
}

/** Closes the connections that no request uses. */
export function closeIdle(agent: HttpAgent): void {
  for (const sockets of Object.values(agent.freeSockets)) {
    for (const socket of sockets ?? []) socket.destroy();
  }
}

const OPTIONS = {
  keepAlive: true,
  scheduling: "lifo",
  maxFreeSockets: MAX_FREE_SOCKETS,
  timeout: IDLE_MS,
} as const;

/** As its type says. Node always passes it, and it takes an error without a stream. */
type OnConnection = (error: Error | null, stream: Duplex) => void;

class PlainAgent extends HttpAgent {
  readonly #tunnel: Tunnel | null;

  constructor(gateway: Gateway) {
    super(OPTIONS);
    this.#tunnel = tunnelOf(gateway, null);
  }

  override createConnection(options: ClientRequestArgs, done?: OnConnection): Duplex | null | undefined {
    if (this.#tunnel === null) return super.createConnection(withoutHeaders(options), done);
    connectThrough(this.#tunnel, options, done as Done);
    return undefined;
  }

  override keepSocketAlive(socket: Duplex): boolean {
    socket.once("data", closeOnLateBytes);
    // Its type leaves out what the documentation says: whether the socket is kept.
    return super.keepSocketAlive(socket) as unknown as boolean;
  }

  override reuseSocket(socket: Duplex, request: ClientRequest): void {
    socket.off("data", closeOnLateBytes);
    super.reuseSocket(socket, request);
  }
}

/** The same with TLS. */
class SecureAgent extends HttpsAgent {
  readonly #tunnel: Tunnel | null;

  constructor(gateway: Gateway, tls: TlsOptions) {
    super({ ...OPTIONS, ...tls });
    this.#tunnel = tunnelOf(gateway, tls);
  }

  override createConnection(options: RequestOptions, done?: OnConnection): Duplex | null | undefined {
    if (this.#tunnel === null) return super.createConnection(withoutHeaders(options), done);
    connectThrough(this.#tunnel, options, done as Done);
    return undefined;
  }

  override keepSocketAlive(socket: Duplex): boolean {
    socket.once("data", closeOnLateBytes);
    return super.keepSocketAlive(socket) as unknown as boolean;
  }

  override reuseSocket(socket: Duplex, request: ClientRequest): void {
    socket.off("data", closeOnLateBytes);
    super.reuseSocket(socket, request);
  }
}

/** The socket keeps its options, and would show the key when it is printed. */
function withoutHeaders<T extends object>(options: T): T {
  return { ...options, headers: undefined };
}

/** Bytes between two requests belong to neither, and the next request would take them for its response. */
function closeOnLateBytes(this: Duplex): void {
  this.destroy();
}

/** null: the gateway is connected to directly. */
function tunnelOf({ proxy, timeouts }: Gateway, tls: TlsOptions | null): Tunnel | null {
  if (proxy === null) return null;
  return { proxy, tls, timeoutMs: timeouts.connect + AFTER_CONNECT_TIMEOUT_MS };
}
