import { once } from "node:events";
import { connect, createServer, type Socket, type TcpNetConnectOpts } from "node:net";
import type { Test } from "tap";
import { listen } from "./listen.ts";

/** Two ends of a connection: ours, made with these options, and the gateway's. */
export async function socketPair(
  t: Test,
  options: Pick<TcpNetConnectOpts, "onread"> = {},
): Promise<{ socket: Socket; gateway: Socket }> {
  const server = createServer({ noDelay: true });
  const { port } = await listen(t, server);
  const accepted = once(server, "connection");
  const socket = connect({ port, host: "127.0.0.1", ...options });
  t.teardown(() => socket.destroy());
  const [gateway] = (await accepted) as [Socket];
  if (socket.connecting) await once(socket, "connect");
  return { socket, gateway };
}
