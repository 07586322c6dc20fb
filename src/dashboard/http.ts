import { type IncomingMessage, type ServerResponse, STATUS_CODES } from "node:http";
import type { Duplex } from "node:stream";
import { HttpError } from "../core/errors.ts";
import { discardBody, endSoon } from "../proxy/write-refusal.ts";
import type { Failure } from "./api.ts";

/** On every response of the dashboard's port. There are no cookies: browsers send them to every port of a host. */
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

const JSON_TYPE = "application/json; charset=utf-8";
const MAX_BODY_BYTES = 64 * 1024;
const BODY_TIMEOUT_MS = 10_000;

export function send(
  req: IncomingMessage,
  res: ServerResponse,
  status: number,
  type: string,
  body: Buffer,
): void {
  res.writeHead(status, { ...PAGE_HEADERS, "content-type": type, "content-length": String(body.length) });
  res.end(req.method === "HEAD" ? undefined : body);
  // An upload may still be arriving.
  discardBody(req);
}

export function sendJson(req: IncomingMessage, res: ServerResponse, status: number, value: unknown): void {
  if (!res.headersSent && !res.destroyed)
    send(req, res, status, JSON_TYPE, Buffer.from(JSON.stringify(value)));
}

/** Refuses a connection that sent no valid request, or asks for another protocol, and closes it. */
export function refuseConnection(socket: Duplex, status: number, message: string): void {
  if (!socket.writable) {
    socket.destroy();
    return;
  }
  const failure: Failure = { error: message };
  const body = JSON.stringify(failure);
  const headers = {
    ...PAGE_HEADERS,
    "content-type": JSON_TYPE,
    "content-length": String(Buffer.byteLength(body)),
    connection: "close",
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  socket.on("error", () => socket.destroy());
  socket.write(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join("")}\r\n${body}`);
  endSoon(socket);
}

/**
 * The body of a POST. It must be application/json: a page of another origin cannot send that without a preflight request,
 * which is never answered. Throws an HttpError.
 */
export async function readJson(req: IncomingMessage): Promise<unknown> {
  if (!/^application\/json\s*(?:;|$)/i.test(req.headers["content-type"] ?? "")) {
    throw new HttpError(415, "send application/json");
  }
  const body = await readBody(req);
  try {
    return JSON.parse(body.toString("utf8"));
  } catch {
    throw new HttpError(400, "the body is not JSON");
  }
}

/** Uses events, because leaving a `for await` loop destroys the connection before the response is sent. */
function readBody(req: IncomingMessage): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    const stop = () => {
      clearTimeout(timer);
      req.off("data", onData);
    };
    const fail = (status: number, message: string) => {
      stop();
      reject(new HttpError(status, message));
    };
    const onData = (chunk: Buffer) => {
      size += chunk.length;
      if (size > MAX_BODY_BYTES) fail(413, "the request is larger than 64 KB");
      else chunks.push(chunk);
    };
    const timer = setTimeout(() => fail(408, "the request did not arrive within 10 s"), BODY_TIMEOUT_MS);
    req.on("data", onData);
    req.once("end", () => {
      stop();
      resolve(Buffer.concat(chunks));
    });
    req.once("error", () => fail(400, "the request was aborted"));
    req.once("close", () => fail(400, "the request was aborted"));
  });
}

/** Whether it is an object with exactly these fields: a misspelled field must not count as a missing one. */
export function hasOnly(body: unknown, fields: readonly string[]): body is Record<string, unknown> {
  if (typeof body !== "object" || body === null || Array.isArray(body)) return false;
  return Object.keys(body).length === fields.length && fields.every((field) => Object.hasOwn(body, field));
}
