import { connect, createServer } from "node:net";
import type { Test } from "tap";
import { listen } from "./listen.ts";

/** An outbound proxy that makes tunnels, or gives every request the same answer. */
export interface ConnectProxy {
  readonly url: string;
  /** The head of each request it got. */
  readonly heads: readonly string[];
  /** Every byte that came from keybearer, inside tunnels too. */
  received(): string;
  open(): number;
}

/** `answer` null: a tunnel to where it was asked for. Text: that instead. */
export async function startConnectProxy(t: Test, answer: string | null = null): Promise<ConnectProxy> {
  const heads: string[] = [];
  const received: Buffer[] = [];
  const server = createServer((socket) => {
    socket.on("data", (chunk: Buffer) => void received.push(chunk));
    socket.once("data", (chunk: Buffer) => {
      const head = chunk.toString("latin1");
      heads.push(head);
      if (answer !== null) return void socket.write(answer);
      const [, host, port] = /^CONNECT (\S+):(\d+) HTTP\/1\.1\r\n/.exec(head) ?? [];
      const onward = connect({ host: host ?? "", port: Number(port) }, () => {
        socket.write("HTTP/1.1 200 Connection established\r\n\r\n");
        socket.pipe(onward).pipe(socket);
      });
      onward.on("error", () => socket.destroy());
      onward.on("close", () => socket.destroy());
      socket.on("close", () => onward.destroy());
    });
  });
  const { origin, sockets } = await listen(t, server);
  return {
    url: origin,
    heads,
    received: () => Buffer.concat(received).toString("latin1"),
    open: () => sockets.size,
  };
}
