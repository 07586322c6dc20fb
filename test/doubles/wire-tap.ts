import { connect, createServer, type Socket } from "node:net";
import type { Test } from "tap";
import { listen } from "./listen.ts";

/** Stands between a client and a port, passes every byte on, and keeps both directions. */
export interface WireTap {
  readonly port: number;
  /** http://127.0.0.1:port */
  readonly origin: string;
  readonly connections: readonly TappedConnection[];
  /** From now on an event stream stops after its first piece. */
  hold(): void;
  /** How many streams are stopped. */
  held(): number;
  release(): void;
}

interface TappedConnection {
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
  const stopped = new Set<Socket>();
  let holding = false;
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    client.once("data", (first: Buffer) => {
      const instead = answerInstead(first.toString("latin1"));
      if (instead !== null) return void client.end(instead);
      const onward = connect({ port: toPort, host: "127.0.0.1", noDelay: true, allowHalfOpen: true });
      connections.push(passOn(client, first, onward));
      onward.on("data", (chunk: Buffer) => {
        if (!holding || !chunk.includes("\ndata: ")) return;
        onward.pause();
        stopped.add(onward);
      });
    });
  });
  const { port, origin } = await listen(t, server);
  return {
    port,
    origin,
    connections,
    hold() {
      holding = true;
    },
    held: () => stopped.size,
    release() {
      holding = false;
      for (const socket of stopped) socket.resume();
      stopped.clear();
    },
  };
}

function passOn(client: Socket, first: Buffer, onward: Socket): TappedConnection {
  const sent: Buffer[] = [first];
  const received: Buffer[] = [];
  client.on("data", (chunk: Buffer) => void sent.push(chunk));
  client.on("close", () => onward.destroy());
  onward.on("data", (chunk: Buffer) => {
    received.push(chunk);
    client.write(chunk);
  });
  onward.on("end", () => client.end());
  onward.on("error", () => client.destroy());
  onward.on("close", () => client.destroySoon());
  onward.write(first);
  client.pipe(onward);
  return {
    sent: () => Buffer.concat(sent).toString("latin1"),
    received: () => Buffer.concat(received).toString("latin1"),
  };
}
