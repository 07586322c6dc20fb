import type { Agent, ClientRequest, IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import type { Clock } from "../clock.ts";
import { idleTime } from "./kept-connection.ts";

const SWEEP_MS = 1000;

/** What every kind of agent has, and its type leaves out. */
interface Inner {
  readonly freeSockets: Record<string, Socket[] | undefined>;
  readonly sockets: Record<string, Socket[] | undefined>;
  addRequest(asking: ClientRequest, options: Asked): void;
  keepSocketAlive(socket: KeptSocket): boolean;
  reuseSocket(socket: Socket, asking: ClientRequest): void;
  getName(options: Asked): string;
}

/** Of the options of a request. */
interface Asked {
  host?: string;
  port?: number | string;
  headers?: object;
}

/** Node notes here which request a connection was last used for. */
type KeptSocket = Socket & { readonly _httpMessage?: { readonly res?: IncomingMessage | null } | null };

/**
 * Lets a keep-alive agent hand out a kept connection without the work that Node does for any agent: it copies the options
 * of every request twice over, and sets a timer for each connection before and after each request. Here the moment up to
 * which a connection may be used is noted instead, and one timer for all of them closes those that nobody used. It is
 * for an agent without a timeout of its own, of which all requests to one address may share their connections.
 */
export function keepConnections(agent: Agent, clock: Clock): void {
  const inner = agent as unknown as Inner;
  const usableUntil = new WeakMap<Socket, number>();
  let sweeping = false;

  const sweepSoon = () => {
    if (sweeping) return;
    sweeping = true;
    setTimeout(sweep, SWEEP_MS).unref();
  };
  const sweep = () => {
    sweeping = false;
    const now = clock.elapsed();
    let left = false;
    for (const name in inner.freeSockets) {
      for (const socket of inner.freeSockets[name] ?? []) {
        if ((usableUntil.get(socket) ?? 0) <= now) socket.destroy();
        else left = true;
      }
    }
    if (left) sweepSoon();
  };

  /** The one that was used last; null: there is none. */
  const takeKept = (name: string): Socket | null => {
    const free = inner.freeSockets[name];
    if (free === undefined || free.length === 0) return null;
    const now = clock.elapsed();
    for (let socket = free.pop(); socket !== undefined; socket = free.pop()) {
      if (socket.destroyed || !socket.writable) continue;
      if ((usableUntil.get(socket) ?? 0) > now) return socket;
      socket.destroy();
    }
    return null;
  };

  inner.getName = ({ host, port }) => `${host}:${port}`;

  const keepSocketAlive = inner.keepSocketAlive.bind(agent);
  inner.keepSocketAlive = (socket) => {
    // Asked first: it knows of announcements that leave no time at all.
    if (!keepSocketAlive(socket)) return false;
    usableUntil.set(socket, clock.elapsed() + idleTime(socket._httpMessage?.res?.headers["keep-alive"]));
    sweepSoon();
    return true;
  };

  const addRequest = inner.addRequest.bind(agent);
  inner.addRequest = (asking, options) => {
    // The headers with the key are written by now, and an agent has no use for them: it would keep them with the
    // connection, and Node prints them under NODE_DEBUG=http or net. The object is the request's own, made for this call.
    options.headers = {};
    const name = inner.getName(options);
    const socket = takeKept(name);
    if (socket === null) return addRequest(asking, options);
    inner.reuseSocket(socket, asking);
    asking.onSocket(socket);
    const used = inner.sockets[name];
    if (used === undefined) inner.sockets[name] = [socket];
    else used.push(socket);
  };
}
