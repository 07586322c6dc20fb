import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { readJson } from "../control/body.ts";
import type { Problem } from "../core/display.ts";
import { HttpError } from "../core/errors.ts";
import { discardBody, refuseSocket } from "../proxy/write-refusal.ts";
import type { Failure, FailureCode } from "./api.ts";

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

export function send(
  req: IncomingMessage,
  res: ServerResponse,
  status: number,
  type: string,
  body: Buffer,
): void {
  res.writeHead(status, headersFor(type, body));
  res.end(req.method === "HEAD" ? undefined : body);
  // An upload may still be arriving.
  discardBody(req);
}

export function sendJson(req: IncomingMessage, res: ServerResponse, status: number, value: unknown): void {
  if (!res.headersSent && !res.destroyed)
    send(req, res, status, JSON_TYPE, Buffer.from(JSON.stringify(value)));
}

/** A failure for which the page has a text of its own. */
export function codedError(status: number, code: FailureCode, problem: string | Problem): HttpError {
  return new HttpError(status, problem, code);
}

/** Refuses a connection that sent no valid request, or asks for another protocol, and closes it. */
export function refuseConnection(socket: Duplex, status: number, message: string): void {
  const answer: Failure = { error: message, code: null };
  const body = Buffer.from(JSON.stringify(answer));
  refuseSocket(socket, { status, headers: headersFor(JSON_TYPE, body), body: String(body) });
}

function headersFor(type: string, body: Buffer): Record<string, string> {
  return { ...PAGE_HEADERS, "content-type": type, "content-length": String(body.length) };
}

/**
 * The body of a POST. It must be application/json: a page of another origin cannot send that without a preflight request,
 * which is never answered. Throws an HttpError.
 */
export async function readPost(req: IncomingMessage): Promise<unknown> {
  if (!/^application\/json\s*(?:;|$)/i.test(req.headers["content-type"] ?? ""))
    throw new HttpError(415, "send application/json");
  return readJson(req);
}
