import { request } from "node:http";
import { connect } from "node:net";
import { hasCode } from "../core/errors.ts";
import { PEER_HEADER } from "./routes.ts";

export type Asked<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly running: boolean; readonly reason: string };

const PATIENCE_MS = 15_000;
/** Where the daemon itself waits for a console, which it does for 30 s an answer. */
export const CONSOLE_PATIENCE_MS = 75_000;

/** Asks the running daemon. Its socket is found by path: whoever can open it is the same user. */
export function askDaemon<T>(
  socket: string,
  method: "GET" | "POST",
  path: string,
  body?: unknown,
  patience: number = PATIENCE_MS,
): Promise<Asked<T>> {
  // Node cannot ask a socket who is at its other end, so that the log says who the caller claims to be.
  const headers = { [PEER_HEADER]: String(process.pid) };
  return new Promise((resolve) => {
    const asking = request({ socketPath: socket, method, path, timeout: patience, headers }, (answer) => {
      const chunks: Buffer[] = [];
      answer.on("data", (chunk: Buffer) => chunks.push(chunk));
      answer.on("error", (error) => resolve({ ok: false, running: true, reason: error.message }));
      answer.on("end", () => {
        try {
          const value = JSON.parse(Buffer.concat(chunks).toString("utf8"));
          if (answer.statusCode === 200) resolve({ ok: true, value });
          else resolve({ ok: false, running: true, reason: String(value.error) });
        } catch {
          resolve({ ok: false, running: true, reason: "the daemon answered something unreadable" });
        }
      });
    });
    asking.on("timeout", () =>
      asking.destroy(new Error(`the daemon did not answer within ${patience / 1000} s`)),
    );
    asking.on("error", (error) => {
      const absent = hasCode(error, "ENOENT", "ECONNREFUSED");
      resolve({
        ok: false,
        running: !absent,
        reason: absent ? "keybearer is not running → keybearer run" : error.message,
      });
    });
    asking.end(body === undefined ? undefined : JSON.stringify(body));
  });
}

/** Only a living process accepts a connection, however busy it is: the kernel does it. */
export function isDaemonListening(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
  });
}
