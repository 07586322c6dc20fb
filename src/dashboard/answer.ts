import { type IncomingMessage, type ServerResponse, STATUS_CODES } from "node:http";
import type { Duplex } from "node:stream";
import { discardBody, endSoon } from "../proxy/write-refusal.ts";
import type { Failure } from "./api.ts";

/** On everything that leaves the dashboard's port. No cookie, ever: cookies are sent to every port of a host. */
export const PAGE_HEADERS: Readonly<Record<string, string>> = {
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "x-content-type-options": "nosniff",
  "x-frame-options": "DENY",
  "cache-control": "no-store",
  "referrer-policy": "no-referrer",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
};

/** An answer that is not what was asked for. */
export class No {
  readonly status: number;
  readonly words: string;
  constructor(status: number, words: string) {
    this.status = status;
    this.words = words;
  }
}

/** The route goes on answering by itself. */
export const TAKEN: unique symbol = Symbol("taken");

export function send(req: IncomingMessage, res: ServerResponse, answer: unknown): void {
  if (answer === TAKEN || res.headersSent || res.destroyed) return;
  const failed = answer instanceof No;
  const failure: Failure | null = failed ? { error: answer.words } : null;
  const body = Buffer.from(JSON.stringify(failure ?? answer));
  res.writeHead(failed ? answer.status : 200, {
    ...PAGE_HEADERS,
    "content-type": "application/json; charset=utf-8",
    "content-length": String(body.length),
  });
  res.end(req.method === "HEAD" ? undefined : body);
  // What is left of an upload that nobody wants.
  discardBody(req);
}

/** Bytes that are no request, or one that asks for another protocol: told so, and the connection ends. */
export function sendBare(socket: Duplex, status: number, words: string): void {
  if (!socket.writable) {
    socket.destroy();
    return;
  }
  const failure: Failure = { error: words };
  const body = JSON.stringify(failure);
  const headers = {
    ...PAGE_HEADERS,
    "content-type": "application/json; charset=utf-8",
    "content-length": String(Buffer.byteLength(body)),
    connection: "close",
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  socket.on("error", () => socket.destroy());
  socket.write(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join("")}\r\n${body}`);
  endSoon(socket);
}
