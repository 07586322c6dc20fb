import type { IncomingMessage, ServerResponse } from "node:http";
import type { Secret } from "../secret.ts";
import type { UsageFilter } from "./ask-usage.ts";
import { ErrorBody, readErrorResponse } from "./error-response.ts";
import { addCause, addOwn, reasonPhrase, responseHeaders, setLength } from "./headers.ts";
import { KeyMask } from "./key-mask.ts";
import type { ResponseObserver } from "./observer.ts";

export interface ResponseWriterOptions {
  readonly key: Secret;
  /** keybearer's own headers: name, value, name, value. */
  readonly ownHeaders: readonly string[];
  /** Removes the usage that only keybearer asked for; null: nothing is to be removed. */
  readonly usageFilter: UsageFilter | null;
}

/** Writes a gateway's response to the client as it arrives, at the client's pace. */
export class ResponseWriter {
  readonly #response: IncomingMessage;
  readonly #client: ServerResponse;
  readonly #observer: ResponseObserver;
  readonly #options: ResponseWriterOptions;
  /** The beginning of an error, while it is held back to be read. */
  #error: ErrorBody | null = null;
  #usageFilter: UsageFilter | null = null;
  #keyMask: KeyMask | null = null;
  #hasBody = false;
  #isCut = false;

  constructor(
    response: IncomingMessage,
    client: ServerResponse,
    observer: ResponseObserver,
    options: ResponseWriterOptions,
  ) {
    this.#response = response;
    this.#client = client;
    this.#observer = observer;
    this.#options = options;
  }

  /** The client's response was ended before the gateway's. */
  get isCut(): boolean {
    return this.#isCut;
  }

  start(): void {
    const { statusCode: status = 0, headers, rawHeaders } = this.#response;
    if (status >= 400) {
      this.#error = new ErrorBody();
      return;
    }
    const { key, usageFilter } = this.#options;
    const clientHeaders = responseHeaders(rawHeaders, key);
    if (this.#observer.isStream) {
      // A stream may report an error too, with the key in it.
      this.#keyMask = new KeyMask(key);
      if (usageFilter !== null && headers["content-encoding"] === undefined) {
        this.#usageFilter = usageFilter;
        setLength(clientHeaders, null);
      }
    }
    addCause(clientHeaders, this.#observer.cause);
    this.#writeHead(clientHeaders);
    // A stream may take long to its first event, so its head is sent now. A body that arrived together with the head is
    // written before this microtask runs, in one packet with it.
    queueMicrotask(() => {
      const { writableEnded, destroyed } = this.#client;
      // flushHeaders() would write bytes above 0x7f as UTF-8. An empty chunk sends the head in latin1.
      if (!this.#hasBody && !writableEnded && !destroyed) this.#client.write(Buffer.alloc(0));
    });
  }

  write(chunk: Buffer): void {
    if (this.#error !== null) {
      if (this.#error.add(chunk)) this.#writeError(this.#error, false);
      return;
    }
    if (this.#isCut) return;
    this.#send(this.#usageFilter === null ? chunk : this.#usageFilter.pass(chunk));
    this.#observer.see(chunk);
  }

  end(): void {
    if (this.#error !== null) this.#writeError(this.#error, true);
    if (this.#client.writableEnded) return;
    const rest = this.#usageFilter?.end() ?? null;
    if (rest !== null) this.#send(rest);
    this.#client.end(this.#keyMask?.end() ?? undefined);
  }

  #writeError(error: ErrorBody, isWhole: boolean): void {
    const { key } = this.#options;
    const received = error.bytes();
    const answer = readErrorResponse(this.#response, received, isWhole, key);
    this.#error = null;
    this.#observer.seeError(answer, received);
    this.#writeHead(answer.headers);
    if (!isWhole) this.#keyMask = new KeyMask(key);
    if (answer.isCut) {
      this.#isCut = true;
      this.#client.end(answer.body);
    } else this.#send(answer.body);
  }

  #send(chunk: Buffer | null): void {
    if (chunk === null || this.#client.destroyed) return;
    this.#hasBody = true;
    const clean = this.#keyMask === null ? chunk : this.#keyMask.pass(chunk);
    if (clean.length === 0 || this.#client.write(clean)) return;
    this.#response.pause();
    this.#client.once("drain", this.#onDrain);
  }

  readonly #onDrain = (): void => {
    this.#response.resume();
  };

  #writeHead(headers: string[]): void {
    const { statusCode = 0, statusMessage = "" } = this.#response;
    // The gateway's Date is sent on, or none: the mirror measures the gateway's clock by it.
    this.#client.sendDate = false;
    addOwn(headers, this.#options.ownHeaders);
    this.#client.writeHead(statusCode, reasonPhrase(statusMessage, this.#options.key), headers);
  }
}
