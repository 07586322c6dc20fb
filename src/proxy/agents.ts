import { Agent as HttpAgent, request } from "node:http";
import { Agent as HttpsAgent } from "node:https";
import type { Socket } from "node:net";
import { connect as tlsConnect } from "node:tls";
import type { Gateway } from "../config/shape.ts";

/** One keep-alive agent per gateway and scheme: without one, every call would pay for a new TLS handshake. */
export interface Agents {
  agentFor(gateway: Gateway, origin: string): HttpAgent;
  /** Lets go of the agents of gateways that are no longer configured as they were. */
  keepOnly(gateways: readonly Gateway[]): void;
  close(): void;
}

/** Shorter than the idle time of the servers in use, so that a kept connection is rarely a dead one. */
const IDLE_CONNECTION_MS = 4000;

export function createAgents(): Agents {
  const agents = new Map<string, HttpAgent>();
  const identity = (gateway: Gateway, scheme: string) =>
    JSON.stringify([gateway.name, gateway.proxy, scheme]);
  return {
    agentFor(gateway, origin) {
      const scheme = new URL(origin).protocol;
      const id = identity(gateway, scheme);
      let agent = agents.get(id);
      if (agent === undefined) {
        agent = createAgent(scheme, gateway.proxy);
        agents.set(id, agent);
      }
      return agent;
    },
    keepOnly(gateways) {
      const wanted = gateways.flatMap((gateway) => [identity(gateway, "http:"), identity(gateway, "https:")]);
      for (const [id, agent] of agents) {
        if (wanted.includes(id)) continue;
        agents.delete(id);
        closeIdle(agent);
      }
    },
    close() {
      for (const agent of agents.values()) agent.destroy();
      agents.clear();
    },
  };
}

/** Requests under way finish on the agent they started with; only what nobody uses is closed. */
function closeIdle(agent: HttpAgent): void {
  for (const sockets of Object.values(agent.freeSockets)) {
    for (const socket of sockets ?? []) socket.destroy();
  }
}

function createAgent(scheme: string, proxy: string | null): HttpAgent {
  const options = {
    keepAlive: true,
    timeout: IDLE_CONNECTION_MS,
    maxFreeSockets: 32,
    scheduling: "lifo" as const,
  };
  const agent = scheme === "https:" ? new HttpsAgent(options) : new HttpAgent(options);
  if (proxy !== null) tunnelThrough(agent, proxy, scheme === "https:");
  return agent;
}

interface ConnectOptions {
  readonly host?: string;
  readonly port?: number | string;
  readonly servername?: string;
}

/**
 * Always a tunnel, for http too: the proxy never sees a header, and with https not a byte of the key.
 * Node's agents take a connection by callback, which its type leaves out.
 */
function tunnelThrough(agent: HttpAgent, proxy: string, tls: boolean): void {
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
    asking.once("error", (error) => done(error));
    asking.once("response", (answer) => {
      answer.resume();
      done(new Error(`the outbound proxy answered ${answer.statusCode} to CONNECT`));
    });
    asking.once("connect", (answer, socket, head) => {
      if (answer.statusCode !== 200 || head.length > 0) {
        socket.destroy();
        done(new Error(`the outbound proxy answered ${answer.statusCode} to CONNECT`));
        return;
      }
      if (!tls) return done(null, socket);
      const servername = options.servername || options.host || "";
      const secured = tlsConnect({
        socket,
        servername,
        rejectUnauthorized: true,
        ALPNProtocols: ["http/1.1"],
      });
      secured.once("error", done);
      secured.once("secureConnect", () => {
        secured.off("error", done);
        done(null, secured);
      });
    });
    asking.end();
  };
  Object.assign(agent, { createConnection });
}
