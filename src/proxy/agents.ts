import { Agent as HttpAgent } from "node:http";
import { Agent as HttpsAgent } from "node:https";
import { createSecureContext, rootCertificates, type SecureContext } from "node:tls";
import type { Clock } from "../clock.ts";
import type { Gateway } from "../config/shape.ts";
import { keepConnections } from "./keeping.ts";
import { sleepWatch } from "./slept.ts";
import { type ConnectOptions, connectThrough, type Done, type TlsOptions, type Tunnel } from "./tunnel.ts";

/**
 * One keep-alive agent per gateway, scheme and tool: without one, every call would pay for a new TLS handshake. Tools do
 * not share connections: what a gateway sends too late on one would be the next tool's answer.
 */
export interface Agents {
  /** @param tool Its name; without one keybearer asks for itself. */
  agentFor(gateway: Gateway, origin: string, tool?: string): HttpAgent;
  /** null: the gateway is called without TLS. */
  tlsFor(gateway: Gateway, scheme: Scheme): TlsOptions | null;
  /** Lets go of the agents of tools that are gone, and of gateways that are no longer configured as they were. */
  keepOnly(gateways: readonly Gateway[], tools: readonly string[]): void;
  close(): void;
}

/** The call itself times out first and says so; this only keeps a silent proxy from holding connections for ever. */
const AFTER_THE_CALL_MS = 500;

export type Scheme = "http:" | "https:";

export function createAgents(clock: Clock): Agents {
  const agents = new Map<string, HttpAgent>();
  const hasSlept = sleepWatch(clock);
  const tlsOf = createTls();
  const tlsFor = (gateway: Gateway, scheme: Scheme) => (scheme === "https:" ? tlsOf(gateway) : null);
  return {
    tlsFor,
    agentFor(gateway, origin, tool) {
      if (hasSlept()) for (const agent of agents.values()) closeIdleOf(agent);
      const scheme = origin.startsWith("https:") ? "https:" : "http:";
      const id = connectionIdentity(gateway, scheme, tool ?? null);
      let agent = agents.get(id);
      if (agent === undefined) {
        agent = createAgent(gateway, tlsFor(gateway, scheme), clock);
        agents.set(id, agent);
      }
      return agent;
    },
    keepOnly(gateways, tools) {
      const wanted = wantedIdentities(gateways, tools);
      for (const [id, agent] of agents) {
        if (wanted.has(id)) continue;
        agents.delete(id);
        closeIdleOf(agent);
      }
    },
    close() {
      for (const agent of agents.values()) agent.destroy();
      agents.clear();
    },
  };
}

/** Requests of the same share their connections, also from one configuration to the next. */
export function connectionIdentity(
  { name, proxy, authority, timeouts }: Gateway,
  scheme: Scheme,
  tool: string | null,
): string {
  return JSON.stringify([name, proxy, authority, timeouts.connect, scheme, tool]);
}

export function wantedIdentities(gateways: readonly Gateway[], tools: readonly string[]): Set<string> {
  const wanted = new Set<string>();
  for (const gateway of gateways) {
    for (const tool of [null, ...tools]) {
      wanted.add(connectionIdentity(gateway, "http:", tool));
      wanted.add(connectionIdentity(gateway, "https:", tool));
    }
  }
  return wanted;
}

/** Requests under way finish on the agent they started with; only what nobody uses is closed. */
export function closeIdleOf(agent: HttpAgent): void {
  for (const sockets of Object.values(agent.freeSockets)) {
    for (const socket of sockets ?? []) socket.destroy();
  }
}

/** null: the gateway is connected to directly. */
export function tunnelOf({ proxy, timeouts }: Gateway, tls: TlsOptions | null): Tunnel | null {
  return proxy === null ? null : { proxy, tls, patience: timeouts.connect + AFTER_THE_CALL_MS };
}

/**
 * How the certificate of a gateway is checked: by the authorities that Node comes with and the gateway's own, whatever the
 * environment says (NODE_EXTRA_CA_CERTS, SSL_CERT_FILE, NODE_TLS_REJECT_UNAUTHORIZED) and whichever command asks.
 */
function createTls(): (gateway: Gateway) => TlsOptions {
  // By the gateway's own authority: to read all of Node's takes milliseconds.
  const contexts = new Map<string, SecureContext>();
  return ({ authority }) => {
    const own = authority === null ? [] : [authority.pem];
    const known = own.join();
    const secureContext = contexts.get(known) ?? createSecureContext({ ca: [...rootCertificates, ...own] });
    contexts.set(known, secureContext);
    return { rejectUnauthorized: true, secureContext };
  };
}

function createAgent(gateway: Gateway, tls: TlsOptions | null, clock: Clock): HttpAgent {
  const options = {
    keepAlive: true,
    maxFreeSockets: 32,
    scheduling: "lifo" as const,
  };
  const agent = tls === null ? new HttpAgent(options) : new HttpsAgent({ ...options, ...tls });
  keepConnections(agent, clock);
  const tunnel = tunnelOf(gateway, tls);
  if (tunnel !== null) {
    // Node's agents take a connection by callback, which its type leaves out.
    const createConnection = (to: ConnectOptions, done: Done) => connectThrough(tunnel, to, done);
    Object.assign(agent, { createConnection });
  }
  return agent;
}
