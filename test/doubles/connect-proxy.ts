import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import type { Test } from "tap";

/** An outbound proxy that makes tunnels, or answers whatever else it is told to. */
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
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    socket.on("close", () => sockets.delete(socket));
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
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  return {
    url: `http://127.0.0.1:${port}`,
    heads,
    received: () => Buffer.concat(received).toString("latin1"),
    open: () => sockets.size,
  };
}
