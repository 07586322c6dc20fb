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

/** Looks at each chunk as it is read. True: that is enough. */
export interface Looker {
  look(chunk: Buffer): boolean;
}

/** Thousands of tiny chunks weigh more than their bytes, so that those below this size are joined. */
const SMALL = 64 * 1024;

/**
 * Reads the beginning of a request's body out of it, and holds it. What is held must be put back, or sent on by whoever
 * took it, before anybody else reads the request.
 *
 * Traps of Node's streams: once a body is over, read() of its last byte makes `end` follow in the next tick; read() of
 * exactly as many bytes as there are does not, so that there is time to put them back. And a body that is over and empty
 * must not be read at all, or it ends right here.
 */
export class ReadAhead {
  readonly held: Buffer[] = [];
  readonly #req: IncomingMessage;
  readonly #bounds: AheadBounds;
  readonly #looker: Looker | null;
  /** As the head says; NaN: it does not. */
  readonly #length: number;
  #size = 0;

  /** @param looker null: nothing is ever enough. */
  constructor(req: IncomingMessage, bounds: AheadBounds, looker: Looker | null) {
    this.#req = req;
    this.#bounds = bounds;
    this.#looker = looker;
    const { "content-length": length, "transfer-encoding": chunked } = req.headers;
    this.#length = length === undefined || chunked !== undefined ? Number.NaN : Number(length);
  }

  get size(): number {
    return this.#size;
  }

  /**
   * Nothing follows what is held. Node calls a request complete only after everybody who waits for its last bytes had
   * them, and so mostly later than its length tells.
   */
  get over(): boolean {
    return this.#size === this.#length || (this.#req.complete && this.#req.readableLength === 0);
  }

  /** Nearly always what is needed is there already: then nothing is waited for and nobody listens. */
  read(): AheadEnd | Promise<AheadEnd> {
    return this.#step() ?? this.#readOn();
  }

  #step(): AheadEnd | null {
    const req = this.#req;
    const there = req.readableLength;
    const chunk: Buffer | null = there === 0 ? null : req.complete ? req.read(there) : req.read();
    if (chunk !== null) {
      this.held.push(chunk);
      if (this.held.length > 1) join(this.held);
      this.#size += chunk.length;
      if (this.#looker?.look(chunk)) return "enough";
    }
    if (this.over) return "ended";
    if (this.#size >= this.#bounds.most) return "full";
    return req.destroyed || req.socket.destroyed ? "left" : null;
  }

  async #readOn(): Promise<AheadEnd> {
    // Node tells of a request before it has parsed what came behind its head in the same piece.
    await null;
    return this.#step() ?? new Promise((resolve) => this.#listen(resolve));
  }

  #listen(resolve: (end: AheadEnd) => void): void {
    const req = this.#req;
    const finish = (end: AheadEnd) => {
      clearTimeout(timer);
      req.off("readable", onReadable);
      req.off("close", onClose);
      resolve(end);
    };
    const onReadable = () => {
      timer.refresh();
      const end = this.#step();
      if (end !== null) finish(end);
    };
    const onClose = () => finish("left");
    const timer = setTimeout(() => finish("stalled"), this.#bounds.patience);
    req.on("readable", onReadable);
    req.once("close", onClose);
  }
}

/** Each is joined to one that is no larger, so that no byte is copied more often than sizes double. */
function join(chunks: Buffer[]): void {
  for (;;) {
    const last = chunks.at(-1);
    const before = chunks.at(-2);
    if (before === undefined || last === undefined || before.length > Math.min(last.length, SMALL)) return;
    chunks.splice(-2, 2, Buffer.concat([before, last]));
  }
}

/** In front of what is still to come, byte for byte, as if it had never been read. */
export function putBack(req: IncomingMessage, chunks: readonly Buffer[]): void {
  for (let i = chunks.length - 1; i >= 0; i -= 1) req.unshift(chunks[i]);
}
