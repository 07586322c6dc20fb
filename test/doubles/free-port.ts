import { once } from "node:events";
import { createServer } from "node:net";

/** Nobody listens on the port of the discard protocol, and nobody is given it by chance. */
export const CLOSED_PORT = 9;

/** Below the ports that the system hands out to whoever asks for any, so that no other program is given it meanwhile. */
export async function freePort(): Promise<number> {
  for (let port = 10_000 + ((process.pid * 7) % 20_000); ; port += 1) {
    const server = createServer().listen(port, "127.0.0.1");
    const isFree = await once(server, "listening").then(
      () => true,
      () => false,
    );
    if (!isFree) continue;
    server.close();
    await once(server, "close");
    return port;
  }
}
