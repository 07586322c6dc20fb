import { connect, createServer } from "node:net";
import type { Child } from "./children.ts";

/** A port that is free now on both loopback addresses. Whoever takes it in between makes the start fail, in words. */
export async function freePort(): Promise<number> {
  for (let attempt = 0; attempt < 20; attempt += 1) {
    const port = await boundOnce("127.0.0.1", 0);
    if (port !== null && (await boundOnce("::1", port)) !== null) return port;
  }
  throw new Error("no free port was found");
}

function boundOnce(host: string, port: number): Promise<number | null> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", (error: NodeJS.ErrnoException) =>
      // A machine without IPv6: nobody else can hold that address either.
      resolve(error.code === "EADDRNOTAVAIL" || error.code === "EAFNOSUPPORT" ? port : null),
    );
    server.listen({ host, port, exclusive: true }, () => {
      const address = server.address();
      const bound = typeof address === "object" && address !== null ? address.port : null;
      server.close(() => resolve(bound));
    });
  });
}

const LONGEST_START_MS = 30_000;

/** Until the port accepts a connection. Asked every millisecond or so, because the start-up time is read off it. */
export async function untilListening(child: Child, port: number): Promise<void> {
  const until = performance.now() + LONGEST_START_MS;
  while (performance.now() < until) {
    if (!child.running())
      throw new Error(`it ended while it started: ${child.lastWords() || child.output()}`);
    if (await accepts(port)) return;
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  throw new Error(`it was not listening after ${LONGEST_START_MS / 1000} s`);
}

function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: "127.0.0.1", port });
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
  });
}
