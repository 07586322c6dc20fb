import { createHash, randomUUID } from "node:crypto";
import { once } from "node:events";
import type { IncomingMessage, ServerResponse } from "node:http";
import { setImmediate as immediate, setTimeout as timeout } from "node:timers/promises";
import type { Clock } from "../core/clock.ts";
import type { Book, BookEntry } from "./book.ts";

/** One request and its answer, and whether anybody still waits for it. */
export interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  /** Server generated; a caller's own X-Client-Request-ID is not honoured, as on sub2api. */
  readonly id: string;
  /** On the clock that only goes forward. */
  readonly begunAt: number;
  readonly entry: BookEntry;
  /** Aborts when the answer can no longer be delivered. */
  readonly gone: AbortSignal;
}

export type Body =
  | { readonly ok: true; readonly bytes: Buffer; readonly length: number; readonly sha256: string }
  | { readonly ok: false; readonly reason: "too-large" | "gone" };

export function openExchange(
  request: IncomingMessage,
  response: ServerResponse,
  socket: number,
  book: Book,
  clock: Clock,
): Exchange {
  const url = request.url ?? "/";
  const cut = url.indexOf("?");
  const entry = book.add({
    method: request.method ?? "GET",
    path: url,
    rawHeaders: request.rawHeaders,
    socket,
    startedAt: clock.now(),
    bodyBytes: 0,
    bodyText: "",
    bodySha256: null,
    keyId: null,
    requestId: null,
    status: null,
    finishedAt: null,
    abortedAt: null,
  });
  const leaving = new AbortController();
  response.once("close", () => {
    if (response.headersSent) entry.status = response.statusCode;
    if (response.writableFinished) entry.finishedAt = clock.now();
    else entry.abortedAt = clock.now();
    leaving.abort();
  });
  // A client that vanishes shows as an error on either side; `close` above says all there is to say.
  request.on("error", () => {});
  response.on("error", () => {});
  return {
    request,
    response,
    method: entry.method,
    path: cut === -1 ? url : url.slice(0, cut),
    query: new URLSearchParams(cut === -1 ? "" : url.slice(cut + 1)),
    id: randomUUID(),
    begunAt: clock.elapsed(),
    entry,
    gone: leaving.signal,
  };
}

/** Reads the body to its end, keeping at most so many bytes of it. What is over is counted and thrown away. */
export function readBody(exchange: Exchange, book: Book, keepBytes: number): Promise<Body> {
  const { request, entry } = exchange;
  const hash = createHash("sha256");
  const kept: Buffer[] = [];
  const beginning: Buffer[] = [];
  let beginningBytes = 0;
  return new Promise((resolve) => {
    request.on("data", (chunk: Buffer) => {
      entry.bodyBytes += chunk.length;
      hash.update(chunk);
      if (beginningBytes < book.bodyBytes) {
        const part = chunk.subarray(0, book.bodyBytes - beginningBytes);
        beginning.push(part);
        beginningBytes += part.length;
      }
      if (entry.bodyBytes <= keepBytes) kept.push(chunk);
      // Answered at once, while the rest still flows: a client that is cut off in its upload never reads why.
      else if (keepBytes > 0) {
        kept.length = 0;
        resolve({ ok: false, reason: "too-large" });
      }
    });
    request.once("end", () => {
      entry.bodySha256 = hash.digest("hex");
      entry.bodyText = Buffer.concat(beginning).toString("utf8");
      resolve({
        ok: true,
        bytes: Buffer.concat(kept),
        length: entry.bodyBytes,
        sha256: entry.bodySha256,
      });
    });
    request.once("close", () => {
      if (entry.bodySha256 === null) entry.bodyText = Buffer.concat(beginning).toString("utf8");
      resolve({ ok: false, reason: "gone" });
    });
  });
}

export function sendJson(
  exchange: Exchange,
  status: number,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): void {
  sendText(exchange, status, "application/json; charset=utf-8", JSON.stringify(body), headers);
}

export function sendText(
  exchange: Exchange,
  status: number,
  type: string,
  text: string,
  headers: Readonly<Record<string, string>> = {},
): void {
  const bytes = Buffer.from(text);
  exchange.response.writeHead(status, { "Content-Type": type, "Content-Length": bytes.length, ...headers });
  exchange.entry.status = status;
  exchange.response.end(bytes);
}

/** Hands a piece to the network and waits while the client is behind. */
export async function writePiece(exchange: Exchange, piece: string | Buffer): Promise<void> {
  if (exchange.gone.aborted || exchange.response.write(piece)) return;
  await once(exchange.response, "drain", { signal: exchange.gone }).catch(() => {});
}

/**
 * Waits, but not for a client that has left. Even 0 lets the loop turn: pieces written in one turn would leave
 * together.
 */
export async function pause(milliseconds: number, gone: AbortSignal): Promise<void> {
  if (gone.aborted) return;
  const waiting =
    milliseconds > 0
      ? timeout(milliseconds, undefined, { signal: gone })
      : immediate(undefined, { signal: gone });
  await waiting.catch(() => {});
}
