import type { ClientRequest, IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { TLSSocket } from "node:tls";

/**
 * A kept connection may have been closed by the gateway at the very moment it was used again. Sending once more is safe
 * only where doing it twice is, and where there is no body that is gone by now (RFC 9110 section 9.2.2): a chat that might
 * have been accepted is never sent again, because it might be paid twice.
 */
export function mayTryAgain(
  { method = "", complete }: IncomingMessage,
  outgoing: ClientRequest | null,
  error: NodeJS.ErrnoException,
): boolean {
  const stale = outgoing?.reusedSocket === true && (error.code === "ECONNRESET" || error.code === "EPIPE");
  return stale && complete && /^(?:GET|HEAD|OPTIONS)$/.test(method);
}

export function isConnected(outgoing: ClientRequest, socket: Socket): boolean {
  if (outgoing.reusedSocket) return true;
  return !socket.connecting && !(socket instanceof TLSSocket && socket.getProtocol() === null);
}

/** How long a gateway that has answered may take to read what is left of the request. */
const LAST_WORDS_MS = 1000;

/**
 * A gateway may answer before it has the whole request, and read no further. Node keeps the connection for the rest, and
 * the rest in memory. That all is sent is told a little later than its answer comes, so that it is given a moment.
 */
export function letGoUnlessSent(outgoing: ClientRequest): void {
  if (outgoing.writableFinished || outgoing.destroyed) return;
  const timer = setTimeout(() => outgoing.destroy(), LAST_WORDS_MS);
  const done = () => clearTimeout(timer);
  outgoing.once("finish", done);
  outgoing.once("close", done);
}

export function closedEarly(): Error {
  return Object.assign(new Error("the connection was closed"), { code: "ECONNRESET" });
}
