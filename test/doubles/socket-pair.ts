import { once } from "node:events";
import { connect, createServer, type Socket, type TcpNetConnectOpts } from "node:net";
import type { Test } from "tap";

/** Two ends of a connection: ours, made with these options, and the gateway's. */
export async function socketPair(
  t: Test,
  options: Pick<TcpNetConnectOpts, "onread"> = {},
): Promise<{ socket: Socket; gateway: Socket }> {
  const server = createServer().listen(0, "127.0.0.1");
  t.teardown(() => server.close());
  await once(server, "listening");
  const address = server.address();
  const accepted = once(server, "connection");
  const port = typeof address === "object" && address !== null ? address.port : 0;
  const socket = connect({ port, host: "127.0.0.1", ...options });
  const [gateway] = (await accepted) as [Socket];
  gateway.setNoDelay(true);
  t.teardown(() => [socket.destroy(), gateway.destroy()]);
  if (socket.connecting) await once(socket, "connect");
  return { socket, gateway };
}
