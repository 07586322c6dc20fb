import { once } from "node:events";
import type { AddressInfo, Server, Socket } from "node:net";
import type { Test } from "tap";

export interface Listening {
  readonly port: number;
  /** http://127.0.0.1:port */
  readonly origin: string;
  /** The connections that are open now. */
  readonly sockets: ReadonlySet<Socket>;
}

/** Starts a TCP or HTTP server on a free port. It stops, and cuts its connections, when the test ends. */
export async function listen(t: Test, server: Server): Promise<Listening> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
    // Tests cut connections on purpose.
    socket.on("error", () => {});
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { port, origin: `http://127.0.0.1:${port}`, sockets };
}
