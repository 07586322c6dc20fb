import { type Exchange, pause, sendJson, writePiece } from "./exchange.ts";
import type { Pace } from "./faults.ts";

/** How a whole answer is cut up when a fault wants chunks of it. */
const CHUNK_BYTES = 64;

/** Sends a whole answer; at the pace of a fault, where there is one. */
export async function sendPaced(exchange: Exchange, answer: unknown, pace: Pace): Promise<void> {
  if (pace.betweenChunks === null && pace.cutAfter === null) return sendJson(exchange, 200, answer);
  const body = Buffer.from(JSON.stringify(answer));
  exchange.response.writeHead(200, {
    "Content-Type": "application/json; charset=utf-8",
    "Content-Length": body.length,
  });
  exchange.response.flushHeaders();
  exchange.entry.status = 200;
  for (let at = 0; at < body.length; at += CHUNK_BYTES) {
    if (at / CHUNK_BYTES === pace.cutAfter) return cutConnection(exchange);
    await pause(pace.betweenChunks ?? 0, exchange.gone);
    if (exchange.gone.aborted) return;
    await writePiece(exchange, body.subarray(at, at + CHUNK_BYTES));
  }
  exchange.response.end();
}

/** Ends the connection in the middle of an answer, once what was written has left. */
export function cutConnection(exchange: Exchange): void {
  // Node 26 gathers what is written in one turn of the loop, and hands it to the socket at the end of it.
  setImmediate(() => exchange.response.socket?.destroySoon());
}
