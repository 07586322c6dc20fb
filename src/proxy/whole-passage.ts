import type { Dispatcher } from "undici";
import { answerHead } from "./answer-head.ts";
import type { Call } from "./call.ts";
import type { Exchange } from "./exchange.ts";
import { closedEarly } from "./kept-connection.ts";
import type { Line, Lines } from "./lines.ts";
import type { Passage } from "./passage.ts";

/**
 * A request that is here whole, as nearly every one is. undici sends it: for that it does half the work that node:http
 * does, and hands the answer over as it comes off the connection, without a stream in between. Its handlers of the older
 * kind: the newer ones are made of these, at the price of an object of all headers.
 */
export class WholePassage implements Passage, Dispatcher.DispatchHandler {
  readonly #call: Call;
  readonly #lines: Lines;
  readonly #line: Line;
  #abort: (() => void) | null = null;
  #resume: (() => void) | null = null;
  /** Of the answer's body, as its head says; NaN: it does not. */
  #bytesLeft = Number.NaN;
  #keepAlive: string | undefined;
  #answered = false;
  #over = false;
  readonly taken = true;
  readonly kept: boolean;

  constructor(lines: Lines, call: Call) {
    this.#call = call;
    this.#lines = lines;
    this.#line = lines.take();
    this.kept = this.#line.used;
  }

  send({ req, path, headers, body, asking }: Exchange): void {
    const chunks = asking === null ? (body ?? []) : [asking.body];
    this.#line.client.dispatch(
      {
        method: (req.method ?? "GET") as Dispatcher.HttpMethod,
        path,
        headers: unframed(headers) as string[],
        body: chunks.length > 1 ? Buffer.concat(chunks) : (chunks[0] ?? null),
      },
      this,
    );
  }

  onConnect(abort: () => void): void {
    // Too late: the client left or was answered while the connection was made. Nothing may be sent any more.
    if (this.#over) {
      abort();
      return;
    }
    this.#abort = abort;
    this.#line.used = true;
    this.#line.awaitsHead = true;
    this.#call.onConnected();
  }

  onHeaders(status: number, raw: Buffer[], resume: () => void, words: string): boolean {
    // Hints in front of the answer are not passed on.
    if (status < 200 || this.#over) return true;
    this.#resume = resume;
    this.#answered = true;
    const rawHeaders: string[] = [];
    for (const bytes of raw) rawHeaders.push(bytes.toString("latin1"));
    const head = answerHead(status, words, rawHeaders);
    this.#bytesLeft = head.contentLength;
    this.#keepAlive = head.keepAlive;
    this.#call.onAnswer(head, this);
    return true;
  }

  onData(chunk: Buffer): boolean {
    if (this.#over) return true;
    this.#bytesLeft -= chunk.length;
    return this.#call.onPiece(chunk, this.#bytesLeft === 0);
  }

  onComplete(): void {
    if (this.#over) return;
    this.#over = true;
    this.#lines.give(this.#line, this.#keepAlive);
    this.#call.onEnd();
  }

  onError(error: NodeJS.ErrnoException): void {
    if (this.#over) return;
    this.#over = true;
    this.#lines.drop(this.#line);
    if (this.#answered) this.#call.onBroken(asNode(error));
    else this.#call.onFailure(asNode(error));
  }

  resume(): void {
    if (!this.#over) this.#resume?.();
  }

  destroy(): void {
    if (this.#over) return;
    this.#over = true;
    this.#abort?.();
    this.#lines.drop(this.#line);
  }

  finish(): void {
    // Nobody waits for what may still follow.
    this.destroy();
  }
}

/** How the body is framed is said by whoever sends it: it is here whole, and has a length. */
function unframed(headers: readonly string[]): readonly string[] {
  const at = headers.indexOf("transfer-encoding");
  return at === -1 || at % 2 === 1 ? headers : headers.toSpliced(at, 2);
}

/** The same failure under the name that node:http gives it. */
function asNode(error: NodeJS.ErrnoException): Error {
  if (error.code === "UND_ERR_SOCKET") return closedEarly();
  if (error.code === "UND_ERR_HEADERS_OVERFLOW") return Object.assign(error, { code: "HPE_HEADER_OVERFLOW" });
  return error;
}
