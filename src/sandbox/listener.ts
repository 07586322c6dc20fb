import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";

/** A loopback HTTP server that can be started and stopped again, and stops at once. */
export interface Listener {
  /** 0 picks a free port. Resolves to the port it listens on. */
  start(port: number): Promise<number>;
  /** Ends every connection, streams too. Does nothing when it is not running. */
  stop(): Promise<void>;
  readonly port: number | null;
  readonly openSockets: number;
}

export type OnRequest = (request: IncomingMessage, response: ServerResponse, socket: number) => void;

const HOST = "127.0.0.1";
/** Longer than clients keep an idle connection, so that they are the ones to close it. */
const KEEP_ALIVE = 75_000;

export function createListener(onRequest: OnRequest): Listener {
  const sockets = new Map<Socket, number>();
  let running: { readonly server: Server; readonly port: number } | null = null;
  let connections = 0;

  function newServer(): Server {
    const server = createServer({ keepAliveTimeout: KEEP_ALIVE, requestTimeout: 0 }, (request, response) => {
      onRequest(request, response, sockets.get(request.socket) ?? 0);
    });
    server.on("connection", (socket) => {
      connections += 1;
      sockets.set(socket, connections);
      socket.once("close", () => sockets.delete(socket));
    });
    return server;
  }

  return {
    async start(port) {
      if (running !== null) throw new Error("the sandbox is already running");
      const server = newServer();
      await new Promise<void>((resolve, reject) => {
        server.once("error", reject);
        server.listen(port, HOST, () => {
          server.off("error", reject);
          resolve();
        });
      });
      const address = server.address();
      const taken = typeof address === "object" && address !== null ? address.port : port;
      running = { server, port: taken };
      return taken;
    },
    async stop() {
      if (running === null) return;
      const { server } = running;
      running = null;
      const closed = [new Promise<unknown>((resolve) => server.close(resolve))];
      // Every socket by hand: closeAllConnections leaves out what is no longer HTTP in Node's eyes.
      for (const socket of sockets.keys()) {
        closed.push(new Promise((resolve) => socket.once("close", resolve)));
        socket.destroy();
      }
      await Promise.all(closed);
    },
    get port() {
      return running?.port ?? null;
    },
    get openSockets() {
      return sockets.size;
    },
  };
}
