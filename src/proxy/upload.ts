import type { ClientRequest } from "node:http";
import type { Exchange } from "./exchange.ts";

/**
 * Sends the body of a request on, at the gateway's pace; what is known to be the last of it goes out together with the end.
 * @param outgoing where to, if anywhere any more.
 * @param seen is told of every chunk the client sent, in front of its sending.
 */
export function sendBody(
  { req, body, asking }: Exchange,
  outgoing: () => ClientRequest | null,
  seen: (chunk: Buffer) => void,
): void {
  if (body !== null) {
    for (const chunk of body) seen(chunk);
    sendAll(outgoing(), asking === null ? body : [asking.body]);
    return;
  }
  if (asking !== null) sendAll(outgoing(), [asking.body]);
  const to = (): ClientRequest | null => {
    const present = outgoing();
    return present === null || present.destroyed || present.writableEnded ? null : present;
  };
  req.on("data", (chunk: Buffer) => {
    seen(chunk);
    const present = to();
    if (present === null) return;
    if (req.complete && req.readableLength === 0) present.end(chunk);
    else if (!present.write(chunk)) {
      req.pause();
      present.once("drain", () => req.resume());
    }
  });
  req.on("end", () => to()?.end());
}

function sendAll(outgoing: ClientRequest | null, chunks: readonly Buffer[]): void {
  for (let i = 0; i < chunks.length - 1; i += 1) outgoing?.write(chunks[i]);
  outgoing?.end(chunks.at(-1));
}
