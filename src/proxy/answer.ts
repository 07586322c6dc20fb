import { type IncomingMessage, type ServerResponse, STATUS_CODES } from "node:http";
import type { Duplex } from "node:stream";
import { type Protocol, type Refusal, refusalAnswer, refuse } from "../refusal.ts";

/** How much of a refused upload is read away, and for how long, before the connection is given up. */
const MOST_DISCARDED = 8 * 1024 * 1024;
const LONGEST_DISCARDING = 10_000;
/** How long a client that was told goodbye may keep its side of the connection open. */
const LAST_WORDS_MS = 1000;

export function answerRefusal(
  req: IncomingMessage,
  res: ServerResponse,
  refusal: Refusal,
  protocol: Protocol,
  id: string,
): number {
  const answer = refusalAnswer(refusal, protocol, id);
  if (res.headersSent || res.destroyed) return answer.status;
  res.writeHead(answer.status, answer.headers);
  res.end(req.method === "HEAD" ? undefined : answer.body);
  discard(req);
  return answer.status;
}

/**
 * A client in the middle of its upload reads the answer only if the connection is not reset under it, so what it sends
 * is read away; but not without end.
 */
export function discard(req: IncomingMessage): void {
  if (req.complete) return;
  // What it was piped into would stop it again.
  req.unpipe();
  // Once it was answered, a request may have no connection any more, and does not hear of its end by itself.
  const { socket } = req;
  const timer = setTimeout(() => socket.destroy(), LONGEST_DISCARDING);
  const stop = () => {
    clearTimeout(timer);
    socket.off("close", stop);
  };
  socket.once("close", stop);
  req.once("end", stop);
  // Bytes that were read before and put back do not count: they came before the answer.
  const before = socket.bytesRead;
  req.on("data", () => {
    if (socket.bytesRead - before > MOST_DISCARDED) socket.destroy();
  });
  req.resume();
}

/** For an upgrade there is no response object, only the bare connection. */
export function answerUpgradeRefusal(
  socket: Duplex,
  refusal: Refusal,
  protocol: Protocol,
  id: string,
): number {
  const answer = refusalAnswer(refusal, protocol, id);
  const headers = Object.entries({ ...answer.headers, connection: "close" });
  const lines = headers.map(([name, value]) => `${name}: ${value}\r\n`).join("");
  socket.write(`HTTP/1.1 ${answer.status} ${STATUS_CODES[answer.status]}\r\n${lines}\r\n${answer.body}`);
  sayGoodbye(socket);
  return answer.status;
}

/** Ending is only our half of it; nobody else closes a connection that has left the server or cannot be read. */
export function sayGoodbye(socket: Duplex): void {
  socket.end();
  const timer = setTimeout(() => socket.destroy(), LAST_WORDS_MS);
  socket.once("close", () => clearTimeout(timer));
}

/**
 * The same for bytes that are no request: nobody knows the caller's protocol, and the connection ends. What it was told,
 * or null where there was nobody to tell.
 */
export function answerUnparsable(
  error: NodeJS.ErrnoException,
  socket: Duplex,
  id: string,
): { readonly refusal: Refusal; readonly status: number } | null {
  // It was told already, and sends on: closed now, the words would be lost on it.
  if (socket.writableEnded && !socket.destroyed) return null;
  if (error.code === "ECONNRESET" || !socket.writable) {
    socket.destroy();
    return null;
  }
  const refusal = unparsable(error);
  const status = answerUpgradeRefusal(socket, refusal, "openai", id);
  // It ended in the middle of its head: whether anybody still listens cannot be told.
  return error.code === "HPE_INVALID_EOF_STATE" ? null : { refusal, status };
}

function unparsable(error: NodeJS.ErrnoException): Refusal {
  switch (error.code) {
    case "HPE_HEADER_OVERFLOW":
      return refuse("headers-too-large", "the head of the request is larger than 16 KB");
    case "HPE_CHUNK_EXTENSIONS_OVERFLOW":
      return refuse("body-too-large", "the chunks of the body have extensions larger than 16 KB");
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return refuse("bad-request", "the head of the request did not arrive within 10 s");
    default:
      return refuse("bad-request", "this is not a request that can be read");
  }
}
