import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import type { Test } from "tap";

/** Stands between a client and a port, passes every byte on, and keeps both directions. */
export interface WireTap {
  readonly port: number;
  readonly connections: readonly TappedConnection[];
}

export interface TappedConnection {
  /** What the client sent, byte for character. */
  sent(): string;
  /** What came back. */
  received(): string;
}

/** `answerInstead`: bytes for a request that is to be answered here, as by a host that changes its address later. */
export async function startWireTap(
  t: Test,
  toPort: number,
  answerInstead: (firstBytes: string) => string | null = () => null,
): Promise<WireTap> {
  const connections: TappedConnection[] = [];
  const sockets = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    sockets.add(client);
    client.on("error", () => {});
    client.on("close", () => sockets.delete(client));
    client.once("data", (first: Buffer) => {
      const instead = answerInstead(first.toString("latin1"));
      if (instead !== null) return void client.end(instead);
      connections.push(passOn(client, first, toPort));
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const address = server.address();
  return { port: typeof address === "object" && address !== null ? address.port : 0, connections };
}

function passOn(client: Socket, first: Buffer, toPort: number): TappedConnection {
  const sent: Buffer[] = [first];
  const received: Buffer[] = [];
  const onward = connect({ port: toPort, host: "127.0.0.1", noDelay: true, allowHalfOpen: true });
  onward.on("error", () => client.destroy());
  onward.on("data", (chunk: Buffer) => void received.push(chunk));
  client.on("data", (chunk: Buffer) => void sent.push(chunk));
  client.on("close", () => onward.destroy());
  onward.on("close", () => client.destroySoon());
  onward.write(first);
  client.pipe(onward);
  onward.pipe(client);
  return {
    sent: () => Buffer.concat(sent).toString("latin1"),
    received: () => Buffer.concat(received).toString("latin1"),
  };
}
