import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import type { Test } from "tap";

/** Stands in front of a gateway, and can stop its streams in the middle for as long as a test likes. */
export interface HeldStreams {
  /** http://127.0.0.1:port */
  readonly origin: string;
  /** From now on a stream stops after its first piece. */
  hold(): void;
  release(): void;
  /** How many stand still. */
  held(): number;
}

export async function startHoldingStreams(t: Test, toPort: number): Promise<HeldStreams> {
  const sockets = new Set<Socket>();
  const still = new Set<Socket>();
  let holds = false;
  const server = createServer({ noDelay: true }, (client) => {
    const onward = connect({ port: toPort, host: "127.0.0.1", noDelay: true });
    for (const [one, other] of [
      [client, onward],
      [onward, client],
    ] as const) {
      sockets.add(one);
      one.on("error", () => other.destroy());
      one.on("close", () => {
        sockets.delete(one);
        other.destroySoon();
      });
    }
    client.pipe(onward);
    onward.on("data", (piece: Buffer) => {
      client.write(piece);
      if (!holds || !piece.includes("\ndata: ")) return;
      onward.pause();
      still.add(onward);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    hold() {
      holds = true;
    },
    release() {
      holds = false;
      for (const socket of still) socket.resume();
      still.clear();
    },
    held: () => still.size,
  };
}
