import type { IncomingMessage } from "node:http";

/** How reading ahead came to its end. */
export type AheadEnd =
  /** What was looked for was seen. */
  | "enough"
  /** The body is over. */
  | "ended"
  /** As much as may be held was read. */
  | "full"
  /** The client left before its body was through. */
  | "left"
  /** Nothing came for as long as is waited. */
  | "stalled";

export interface AheadBounds {
  /** Bytes to hold at most; one chunk more may be read. */
  readonly most: number;
  /** Milliseconds without a byte after which it has stalled. */
  readonly patience: number;
}

/** What was read, out of the request until it is put back. */
export interface Ahead {
  readonly end: AheadEnd;
  readonly chunks: readonly Buffer[];
}

/** Thousands of tiny chunks weigh more than their bytes, so that those below this size are joined. */
const SMALL = 64 * 1024;

/**
 * Reads the beginning of a request's body, until `see` says that it is enough, and hands it to `take`, once.
 *
 * Traps of Node's streams: once a body is over, read() of its last byte makes `end` follow in the next tick, unless
 * something was put back by then; and a body that is over and empty must not be read at all, or it ends right here. So
 * `take` is called in the tick of the last read(), and what is to be put back must be put back before it returns.
 */
export function readAhead(
  req: IncomingMessage,
  { most, patience }: AheadBounds,
  see: (chunk: Buffer) => boolean,
  take: (ahead: Ahead) => void,
): void {
  const chunks: Buffer[] = [];
  let size = 0;
  const read = (): AheadEnd | null => {
    const chunk: Buffer | null = req.readableLength > 0 ? req.read() : null;
    if (chunk !== null) {
      chunks.push(chunk);
      join(chunks);
      size += chunk.length;
      if (see(chunk)) return "enough";
    }
    if (req.complete && req.readableLength === 0) return "ended";
    if (size >= most) return "full";
    return req.destroyed || req.socket.destroyed ? "left" : null;
  };

  // Nearly always what is needed is there already: then nothing is waited for and nobody listens.
  const atOnce = read();
  if (atOnce !== null) {
    take({ end: atOnce, chunks });
    return;
  }

  const finish = (end: AheadEnd) => {
    clearTimeout(timer);
    req.off("readable", onReadable);
    req.off("close", onClose);
    take({ end, chunks });
  };
  const onReadable = () => {
    timer.refresh();
    const end = read();
    if (end !== null) finish(end);
  };
  const onClose = () => finish("left");
  const timer = setTimeout(() => finish("stalled"), patience);
  req.on("readable", onReadable);
  req.once("close", onClose);
}

/** Each is joined to one that is no larger, so that no byte is copied more often than sizes double. */
function join(chunks: Buffer[]): void {
  for (;;) {
    const [before, last] = chunks.slice(-2);
    if (before === undefined || last === undefined || before.length > Math.min(last.length, SMALL)) return;
    chunks.splice(-2, 2, Buffer.concat([before, last]));
  }
}

/** In front of what is still to come, byte for byte, as if it had never been read. */
export function putBack(req: IncomingMessage, chunks: readonly Buffer[]): void {
  for (let i = chunks.length - 1; i >= 0; i -= 1) req.unshift(chunks[i]);
}
