import type { Server } from "node:http";
import type { Duplex } from "node:stream";

/** How often Node looks for a head that takes longer than headersTimeout. The default of 30 s would let 10 s take 40. */
export const HEAD_CHECK_MS = 1000;
/** The longest a timer can wait. */
const NEVER_MS = 2 ** 31 - 1;

/**
 * Lets the server look for slow heads only while somebody is connected: its timer would wake an idle process every second.
 * Node begins that timer anew, at the pace that stands in the server by then, whenever it hears that the server listens. A
 * Node that would not goes on looking every second. To be called once it listens.
 */
export function checkHeadsWhileConnected(server: Server): void {
  const seen = new WeakSet<Duplex>();
  let connected = 0;
  const pace = (connectionsCheckingInterval: number) => {
    // Closed, it has stopped looking, and would begin again.
    if (!server.listening) return;
    Object.assign(server, { connectionsCheckingInterval });
    server.emit("listening");
  };
  server.on("connection", (socket: Duplex) => {
    // A connection may be taken in more than once.
    if (seen.has(socket)) return;
    seen.add(socket);
    connected += 1;
    if (connected === 1) pace(HEAD_CHECK_MS);
    socket.once("close", () => {
      connected -= 1;
      if (connected === 0) pace(NEVER_MS);
    });
  });
  pace(NEVER_MS);
}
