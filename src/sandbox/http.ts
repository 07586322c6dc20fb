import { randomUUID } from "node:crypto";
import { once } from "node:events";
import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from "node:http";
import { setTimeout as sleep, setImmediate as yieldToEventLoop } from "node:timers/promises";

/** A parsed JSON object whose fields are not checked yet. */

/** One request to the sandbox, with its response. */
export class Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  /** Sent back as X-Client-Request-ID. Like sub2api, the sandbox ignores an id that the client sends. */
  readonly id = randomUUID();
  /** Aborts when the response has ended or its connection is gone. */
  readonly closed: AbortSignal;

  constructor(request: IncomingMessage, response: ServerResponse) {
    this.request = request;
    this.response = response;
    this.method = request.method ?? "GET";
    const [path = "/", query = ""] = (request.url ?? "/").split(/\?(.*)/s, 2);
    this.path = path;
    this.query = new URLSearchParams(query);
    const controller = new AbortController();
    this.closed = controller.signal;
    response.once("close", () => controller.abort());
    // A client that disconnects raises errors on both streams. "close" reports the same.
    request.on("error", () => {});
    response.on("error", () => {});
  }

  /**
   * The whole body. "too-large" comes while the rest still arrives and is discarded: a client that is disconnected in
   * the middle of its upload never reads why.
   */
  readBody(maxBytes: number): Promise<Buffer | "too-large" | "disconnected"> {
    let chunks: Buffer[] = [];
    let length = 0;
    return new Promise((resolve) => {
      this.request.on("data", (chunk: Buffer) => {
        length += chunk.length;
        if (length <= maxBytes) {
          chunks.push(chunk);
          return;
        }
        chunks = [];
        resolve("too-large");
      });
      this.request.once("end", () => resolve(Buffer.concat(chunks)));
      this.request.once("close", () => resolve("disconnected"));
    });
  }

  sendJson(status: number, body: unknown, headers: OutgoingHttpHeaders = {}): void {
    this.send(status, "application/json; charset=utf-8", JSON.stringify(body), headers);
  }

  send(status: number, contentType: string, text: string, headers: OutgoingHttpHeaders = {}): void {
    const bytes = Buffer.from(text);
    this.response.writeHead(status, {
      "Content-Type": contentType,
      "Content-Length": bytes.length,
      ...headers,
    });
    this.response.end(bytes);
  }

  /** Writes a part of the body and waits while the client is behind. */
  async write(text: string): Promise<void> {
    if (this.closed.aborted || this.response.write(text)) return;
    await untilAborted(once(this.response, "drain", { signal: this.closed }));
  }

  /** Even 0 yields to the event loop: parts that are written in one turn would leave in one packet. */
  async pause(milliseconds: number): Promise<void> {
    const options = { signal: this.closed };
    await untilAborted(
      milliseconds > 0 ? sleep(milliseconds, undefined, options) : yieldToEventLoop(undefined, options),
    );
  }
}

/** Waits for a promise that rejects only when its signal aborts. */
async function untilAborted(promise: Promise<unknown>): Promise<void> {
  try {
    await promise;
  } catch {
    // The client is gone; every caller checks `closed` next.
  }
}
