// Servers of tests on free ports of 127.0.0.1.
import { once } from "node:events";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import type { Test } from "tap";

export interface Listening {
  readonly port: number;
  /** http://127.0.0.1:port */
  readonly origin: string;
  /** The connections that are open now. */
  readonly sockets: ReadonlySet<Socket>;
}

/** Starts a TCP or HTTP server. It stops, and cuts its connections, when the test ends. @param at 0: a free one. */
export async function listen(t: Test, server: Server, at = 0): Promise<Listening> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
    // Tests cut connections on purpose.
    socket.on("error", () => {});
  });
  server.listen(at, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { port, origin: `http://127.0.0.1:${port}`, sockets };
}

/** The port of the discard protocol: no program listens on it, and the system hands it out to none. */
export const CLOSED_PORT = 9;

/**
 * A port on which a test may listen later. It is below the range that the system hands out by itself, and no other test is given
 * it before this process ends.
 */
export async function freePort(): Promise<number> {
  for (let port = 10_000 + ((process.pid * 7) % 20_000); ; port += 1) {
    // A listener at another address marks it as taken. Some systems have no such address.
    const mark = await tryToListen(port, "127.0.0.2");
    if (mark.problem === "EADDRINUSE") continue;
    const { server, problem } = await tryToListen(port, "127.0.0.1");
    if (problem !== null) continue;
    server.close();
    await once(server, "close");
    return port;
  }
}

async function tryToListen(port: number, host: string): Promise<{ server: Server; problem: string | null }> {
  const server = createServer().unref().listen(port, host);
  const problem = await once(server, "listening").then(
    () => null,
    (error: NodeJS.ErrnoException) => error.code ?? error.message,
  );
  return { server, problem };
}
