import { Agent as HttpAgent, request } from "node:http";
import { Agent as HttpsAgent } from "node:https";
import type { Socket } from "node:net";
import { connect as tlsConnect } from "node:tls";
import type { Clock } from "../clock.ts";
import type { Gateway } from "../config/shape.ts";
import { keepConnections } from "./keeping.ts";
import { type Address, type Addresses, addressesOf, addressFor } from "./route.ts";

/** How a request gets to its gateway. */
export interface Way {
  readonly address: Address;
  readonly agent: HttpAgent;
}

/** One keep-alive agent per gateway and scheme: without one, every call would pay for a new TLS handshake. */
export interface Agents {
  agentFor(gateway: Gateway, origin: string): HttpAgent;
  wayFor(gateway: Gateway, path: string): Way;
  /** Lets go of the agents of gateways that are no longer configured as they were. */
  keepOnly(gateways: readonly Gateway[]): void;
  close(): void;
}

/** The call itself times out first and says so; this only keeps a silent proxy from holding connections for ever. */
const AFTER_THE_CALL_MS = 500;

/** More than this between the two clocks means that the machine slept: its kept connections are gone, unnoticed. */
const SLEPT_MS = 2000;

export function createAgents(clock: Clock): Agents {
  const agents = new Map<string, HttpAgent>();
  /** What is known of a gateway as one snapshot holds it, for every request but its first. */
  let known = new WeakMap<Gateway, KnownGateway>();
  let [seenNow, seenElapsed] = [clock.now(), clock.elapsed()];
  const closeIdleAfterSleep = () => {
    const [now, elapsed] = [clock.now(), clock.elapsed()];
    // Wall time goes on in sleep, the other clock does not. A call on a dead connection would wait for its time-out.
    const slept = now - seenNow - (elapsed - seenElapsed);
    seenNow = now;
    seenElapsed = elapsed;
    if (slept < SLEPT_MS) return;
    for (const agent of agents.values()) closeIdle(agent);
  };
  const identity = (gateway: Gateway, scheme: string) =>
    JSON.stringify([gateway.name, gateway.proxy, gateway.timeouts.connect, scheme]);
  const agentFor = (gateway: Gateway, origin: string) => {
    closeIdleAfterSleep();
    const scheme = origin.startsWith("https:") ? "https:" : "http:";
    const id = identity(gateway, scheme);
    let agent = agents.get(id);
    if (agent === undefined) {
      agent = createAgent(scheme, gateway, clock);
      agents.set(id, agent);
    }
    return agent;
  };
  const knownOf = (gateway: Gateway) => {
    let found = known.get(gateway);
    if (found === undefined) {
      found = { addresses: addressesOf(gateway), ways: new Map() };
      known.set(gateway, found);
    }
    return found;
  };
  return {
    agentFor,
    wayFor(gateway, path) {
      const { addresses, ways } = knownOf(gateway);
      const address = addressFor(path, addresses);
      const found = ways.get(address);
      if (found !== undefined) {
        closeIdleAfterSleep();
        return found;
      }
      const way = { address, agent: agentFor(gateway, address.origin) };
      ways.set(address, way);
      return way;
    },
    keepOnly(gateways) {
      const wanted = gateways.flatMap((gateway) => [identity(gateway, "http:"), identity(gateway, "https:")]);
      known = new WeakMap();
      for (const [id, agent] of agents) {
        if (wanted.includes(id)) continue;
        agents.delete(id);
        closeIdle(agent);
      }
    },
    close() {
      for (const agent of agents.values()) agent.destroy();
      agents.clear();
      known = new WeakMap();
    },
  };
}

interface KnownGateway {
  readonly addresses: Addresses;
  readonly ways: Map<Address, Way>;
}

/** Requests under way finish on the agent they started with; only what nobody uses is closed. */
export function closeIdle(agent: HttpAgent): void {
  for (const sockets of Object.values(agent.freeSockets)) {
    for (const socket of sockets ?? []) socket.destroy();
  }
}

function createAgent(scheme: string, { proxy, timeouts }: Gateway, clock: Clock): HttpAgent {
  const options = {
    keepAlive: true,
    maxFreeSockets: 32,
    scheduling: "lifo" as const,
  };
  // Whatever the environment says about it (NODE_TLS_REJECT_UNAUTHORIZED), and whoever asks: what a reader of the console
  // connected to, a call with a key may be sent over next.
  const agent =
    scheme === "https:" ? new HttpsAgent({ ...options, rejectUnauthorized: true }) : new HttpAgent(options);
  keepConnections(agent, clock);
  if (proxy !== null) {
    const patience = timeouts.connect + AFTER_THE_CALL_MS;
    tunnelThrough(agent, { proxy, tls: scheme === "https:", patience });
  }
  return agent;
}

interface ConnectOptions {
  readonly host?: string;
  readonly port?: number | string;
  readonly servername?: string;
}

interface Tunnel {
  readonly proxy: string;
  readonly tls: boolean;
  /** Milliseconds for the proxy's answer and TLS behind it together. */
  readonly patience: number;
}

/**
 * Always a tunnel, for http too: the proxy never sees a header, and with https not a byte of the key.
 * Node's agents take a connection by callback, which its type leaves out.
 */
function tunnelThrough(agent: HttpAgent, { proxy, tls, patience }: Tunnel): void {
  const createConnection = (
    options: ConnectOptions,
    done: (error: Error | null, socket?: Socket) => void,
  ): void => {
    const authority = `${options.host?.includes(":") ? `[${options.host}]` : options.host}:${options.port}`;
    const asking = request(proxy, {
      method: "CONNECT",
      path: authority,
      headers: { host: authority },
      agent: false,
    });
    let tunnel: Socket | null = null;
    let over = false;
    const finish = (error: Error | null, socket?: Socket) => {
      if (over) return;
      over = true;
      clearTimeout(timer);
      if (error !== null) {
        asking.destroy();
        tunnel?.destroy();
      }
      done(error, socket);
    };
    const timer = setTimeout(() => finish(new Error(`the outbound proxy ${proxy} did not answer`)), patience);
    asking.on("error", (error: NodeJS.ErrnoException) =>
      finish(new Error(`the outbound proxy ${proxy} cannot be reached (${error.code ?? error.message})`)),
    );
    asking.once("connect", (answer, socket, head) => {
      tunnel = socket;
      if (over) return void socket.destroy();
      // Whatever the proxy sends first would be taken for the gateway's.
      if (answer.statusCode !== 200 || head.length > 0) {
        return finish(new Error(`the outbound proxy ${proxy} answered ${answer.statusCode} to CONNECT`));
      }
      if (tls) secure(socket, options, finish);
      else finish(null, socket);
    });
    asking.end();
  };
  Object.assign(agent, { createConnection });
}

function secure(
  socket: Socket,
  { host = "", servername = "" }: ConnectOptions,
  finish: (error: Error | null, socket?: Socket) => void,
): void {
  // An address has no server name, but its certificate is held against it all the same.
  const name = servername === "" ? { host } : { host, servername };
  const secured = tlsConnect({ socket, ...name, rejectUnauthorized: true, ALPNProtocols: ["http/1.1"] });
  secured.once("error", finish);
  secured.once("secureConnect", () => {
    secured.off("error", finish);
    finish(null, secured);
  });
}
