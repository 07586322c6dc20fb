import type { IncomingMessage, ServerResponse } from "node:http";

/**
 * Passes an answer on to the client, at the client's pace. pipe() would leave the client hanging when the gateway dies,
 * and pipeline() makes an AbortController and an error with its stack for every call, the good ones too. So the two ends
 * are watched here: `broken` is called when the answer closes before it is complete; that the client left is told by the
 * close of its response, upon which Call ends the answer.
 */
export function passOn(
  answer: IncomingMessage,
  res: ServerResponse,
  see: (chunk: Buffer) => void,
  broken: () => void,
): void {
  let begun = false;
  answer.on("data", (chunk: Buffer) => {
    see(chunk);
    begun = true;
    if (res.destroyed || res.writableEnded) return;
    // Known to be the last one: it goes out with the end, in one write.
    if (answer.complete && answer.readableLength === 0) res.end(chunk);
    else if (!res.write(chunk)) waitFor(res, answer);
  });
  // An error whose beginning was read first stands still since then.
  if (res.writableNeedDrain) waitFor(res, answer);
  else answer.resume();
  answer.on("end", () => {
    if (!res.writableEnded) res.end();
  });
  answer.on("close", () => {
    if (!answer.complete) broken();
  });
  // Bytes that came together with the head are handed out in the tick before this one, and leave in one write with it.
  // Otherwise it goes out alone, and at once: a stream may take its time with the first event.
  process.nextTick(() => {
    if (!begun && !res.destroyed) res.flushHeaders();
  });
}

/** Lets an answer rest until its client has taken what there is. */
function waitFor(res: ServerResponse, answer: IncomingMessage): void {
  answer.pause();
  res.once("drain", () => answer.resume());
}
