import { type IncomingMessage, type ServerResponse, STATUS_CODES } from "node:http";
import type { Duplex } from "node:stream";
import { typeable } from "../core/command-name.ts";
import { type HttpAnswer, type Protocol, type Refusal, refusalAnswer, refuse } from "../core/refusal.ts";

/** How much of an unwanted upload is read, and for how long, before the connection is closed. */
const MAX_DISCARDED = 8 * 1024 * 1024;
const MAX_DISCARDING_MS = 10_000;
/** How long a client may keep its side open after the connection was ended. */
const END_TIMEOUT_MS = 1000;

/** Returns the status. */
export function writeRefusal(
  req: IncomingMessage,
  res: ServerResponse,
  refusal: Refusal,
  protocol: Protocol,
  id: string,
): number {
  const answer = answerFor(refusal, protocol, id);
  sendAnswer(req, res, answer);
  return answer.status;
}

/** Unless an answer has begun. */
export function sendAnswer(
  req: IncomingMessage,
  res: ServerResponse,
  { status, headers, body }: HttpAnswer,
): void {
  if (res.headersSent || res.destroyed) return;
  res.writeHead(status, headers);
  res.end(req.method === "HEAD" ? undefined : body);
  // An upload may still be arriving.
  discardBody(req);
}

function answerFor(refusal: Refusal, protocol: Protocol, id: string): HttpAnswer {
  // The reader is not where the daemon was started.
  const message = typeable(refusal.message, "anywhere");
  return refusalAnswer({ ...refusal, message }, protocol, id);
}

/**
 * Reads the rest of an upload and drops it, up to a limit in bytes and time. A client that is still sending would lose its
 * answer if the connection were closed now.
 */
export function discardBody(req: IncomingMessage): void {
  if (req.complete) return;
  // A pipe to a gateway would pause it again.
  req.unpipe();
  // The request of an answered call does not always emit `close`. Its socket does.
  const { socket } = req;
  const timer = setTimeout(() => socket.destroy(), MAX_DISCARDING_MS);
  const stop = () => {
    clearTimeout(timer);
    socket.off("close", stop);
  };
  socket.once("close", stop);
  req.once("end", stop);
  const readBefore = socket.bytesRead;
  req.on("data", () => {
    if (socket.bytesRead - readBefore > MAX_DISCARDED) socket.destroy();
  });
  req.resume();
}

/** For an upgrade or unreadable bytes, where Node makes no response object. Returns the status. */
export function writeSocketRefusal(socket: Duplex, refusal: Refusal, protocol: Protocol, id: string): number {
  const answer = answerFor(refusal, protocol, id);
  writeAnswer(socket, answer);
  return answer.status;
}

/** The same for a port that tools do not call, whose handlers leave the socket to this. */
export function refuseSocket(socket: Duplex, answer: HttpAnswer): void {
  // The refusal was written already, and the client still sends: destroying the socket now could lose it.
  if (socket.writableEnded && !socket.destroyed) return;
  socket.on("error", () => socket.destroy());
  if (socket.writable) writeAnswer(socket, answer);
  else socket.destroy();
}

function writeAnswer(socket: Duplex, { status, headers, body }: HttpAnswer): void {
  const all = Object.entries({ ...headers, connection: "close" });
  const lines = all.map(([name, value]) => `${name}: ${value}\r\n`).join("");
  socket.write(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines}\r\n${body}`);
  endSoon(socket);
}

/** Ends a connection that the server no longer manages. `end` alone closes only our side of it. */
export function endSoon(socket: Duplex): void {
  socket.end();
  const timer = setTimeout(() => socket.destroy(), END_TIMEOUT_MS);
  socket.once("close", () => clearTimeout(timer));
}

/** Why Node's parser did not accept the bytes as a request. */
export function parserRefusal({ code }: NodeJS.ErrnoException): Refusal {
  switch (code) {
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
