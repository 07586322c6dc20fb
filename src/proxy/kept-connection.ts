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
  kept: boolean,
  error: NodeJS.ErrnoException,
): boolean {
  const stale = kept && (error.code === "ECONNRESET" || error.code === "EPIPE");
  return stale && complete && /^(?:GET|HEAD|OPTIONS)$/.test(method);
}

export function isConnected(outgoing: ClientRequest, socket: Socket): boolean {
  if (outgoing.reusedSocket) return true;
  return !socket.connecting && !(socket instanceof TLSSocket && socket.getProtocol() === null);
}

export function whenConnected(socket: Socket, then: () => void): void {
  socket.once(socket instanceof TLSSocket ? "secureConnect" : "connect", then);
}

/** Shorter than the idle time of the servers in use, so that a kept connection is rarely a dead one. */
export const UNANNOUNCED_IDLE_MS = 4000;
/** The same where the server announced how long it waits, which it may overrate. */
export const LONGEST_IDLE_MS = 30_000;
/** So long before the moment that a server announced it is not counted on any more. */
export const BEFORE_THE_SERVER_MS = 1000;

/** How long a connection may rest, by what the last answer announced. */
export function idleTime(keepAlive: string | string[] | undefined): number {
  const announced = /^timeout=(\d+)/.exec(String(keepAlive ?? ""))?.[1];
  if (announced === undefined) return UNANNOUNCED_IDLE_MS;
  return Math.min(LONGEST_IDLE_MS, Number(announced) * 1000 - BEFORE_THE_SERVER_MS);
}

/** How long a gateway that has answered may take to read what is left of the request. */
export const LAST_WORDS_MS = 1000;

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
