import type { IncomingMessage } from "node:http";
import type { Tool } from "../config/shape.ts";
import { isFileUpload } from "./body.ts";

/** So many bytes of bodies are in memory at most, of all requests together. */
const MOST_BUFFERED = 256 * 1024 * 1024;
/** Of a body that is only looked into, its beginning is read (body-head.ts). */
const MOST_LOOKED_INTO = 1024 * 1024;
/** One that waits for room, or is asked for its usage, is read whole up to this length. */
const MOST_READ = 16 * 1024 * 1024;

/** The memory that the bodies of all requests share: taken before a body's first byte is read, given back when it is over. */
export class BodyBudget {
  #free: number;

  constructor(most: number = MOST_BUFFERED) {
    this.#free = most;
  }

  /** false: there is not that much left. */
  reserve(request: Buffering, bytes: number): boolean {
    if (bytes > this.#free) return false;
    this.#free -= bytes;
    request.bufferedBytes = bytes;
    return true;
  }

  /** It needs no more than this. */
  shrink(request: Buffering, bytes: number): void {
    this.#free += request.bufferedBytes - bytes;
    request.bufferedBytes = bytes;
  }
}

/** A request, with what it has of that memory. */
interface Buffering {
  bufferedBytes: number;
}

/** How much of a request's body may come to be in memory. A body that does not tell its length is taken for a long one. */
export function bytesToBuffer(
  { headers }: Pick<IncomingMessage, "headers">,
  tool: Tool,
  endpoint: string,
): number {
  if (isFileUpload(endpoint)) return 0;
  const most = tool.askUsage || tool.limits.wait > 0 ? MOST_READ : MOST_LOOKED_INTO;
  if (headers["transfer-encoding"] !== undefined) return most;
  return Math.min(Number(headers["content-length"] ?? 0), most);
}
