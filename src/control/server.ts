import { createServer } from "node:http";
import { answerControl, type Controls } from "./routes.ts";
import { type Claimed, claimSocket } from "./socket.ts";

/** The daemon's end of the control socket. */
export interface ControlServer {
  /** Takes the socket, and with it this home, before anything else is set up. */
  claim(): Promise<Claimed>;
  /** From now on questions are answered; before, they are put off. */
  serve(controls: Controls): void;
  close(): Promise<void>;
}

export function createControlServer(socket: string): ControlServer {
  let controls: Controls | null = null;
  const server = createServer((req, res) => {
    if (controls !== null) return void answerControl(req, res, controls);
    res.writeHead(503, { "content-type": "application/json" });
    res.end('{"error":"keybearer is starting"}');
  });
  // Running out of file handles for a moment must not end the daemon.
  server.on("error", () => {});
  return {
    claim: () => claimSocket(server, socket),
    serve(ready) {
      controls = ready;
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
