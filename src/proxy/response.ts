import type { IncomingMessage } from "node:http";
import type { Writable } from "node:stream";
import type { Secret } from "../core/secret.ts";
import type { UsageFilter } from "./ask-usage.ts";
import { ErrorBody, readErrorResponse } from "./error-response.ts";
import { addCause, addOwn, reasonPhrase, responseHeaders, setLength } from "./headers.ts";
import type { Cause } from "./key-health/cause.ts";
import type { ResponseObserver } from "./observer.ts";

/** The client's side of a response: a ServerResponse, or the socket of a request for a WebSocket. */
export interface ClientSide {
  readonly stream: Writable;
  /** keybearer's own headers: name, value, name, value. */
  readonly ownHeaders: readonly string[];
  /** Removes the usage that only keybearer asked for; null: nothing has to be removed. */
  readonly usageFilter: UsageFilter | null;
  writeHead(status: number, reason: string, headers: string[]): void;
}

/** Writes a gateway's response to the client as it arrives, at the client's pace. */
export class ResponseWriter {
  /** The client's response was ended before the gateway's. */
  isTruncated = false;
  readonly #response: IncomingMessage;
  readonly #client: ClientSide;
  readonly #observer: ResponseObserver;
  readonly #key: Secret;
  readonly #refine: (cause: Cause) => Cause;
  /** The beginning of an error, while it is held back to be read. */
  #error: ErrorBody | null = null;
  #usageFilter: UsageFilter | null = null;
  #keyMask: KeyMask | null = null;
  #hasBody = false;

  /** @param refine adds what is known about the key to the cause of an error. */
  constructor(
    response: IncomingMessage,
    client: ClientSide,
    observer: ResponseObserver,
    key: Secret,
    refine: (cause: Cause) => Cause,
  ) {
    this.#response = response;
    this.#client = client;
    this.#observer = observer;
    this.#key = key;
    this.#refine = refine;
  }

  start(): void {
    const { statusCode: status = 0, headers, rawHeaders } = this.#response;
    if (status >= 400) {
      this.#error = new ErrorBody();
      return;
    }
    const clientHeaders = responseHeaders(rawHeaders, this.#key);
    if (this.#observer.isStream) {
      // A stream may report an error too, with the key in it.
      this.#keyMask = new KeyMask(this.#key);
      if (this.#client.usageFilter !== null && headers["content-encoding"] === undefined) {
        this.#usageFilter = this.#client.usageFilter;
        setLength(clientHeaders, null);
      }
    }
    addCause(clientHeaders, this.#observer.cause);
    this.#writeHead(clientHeaders);
    // A stream may take long to its first event, so its head is sent now. A body that arrived together with the head is
    // written before this microtask runs, in one packet with it.
    queueMicrotask(() => {
      const { stream } = this.#client;
      // flushHeaders() would write bytes above 0x7f as UTF-8. An empty chunk sends the head in latin1.
      if (!this.#hasBody && !stream.writableEnded && !stream.destroyed) stream.write(Buffer.alloc(0));
    });
  }

  write(chunk: Buffer): void {
    if (this.#error !== null) {
      if (this.#error.add(chunk)) this.#writeError(this.#error, false);
      return;
    }
    if (this.isTruncated) return;
    this.#send(this.#usageFilter === null ? chunk : this.#usageFilter.pass(chunk));
    this.#observer.see(chunk);
  }

  end(): void {
    if (this.#error !== null) this.#writeError(this.#error, true);
    const { stream } = this.#client;
    if (stream.writableEnded) return;
    this.#send(this.#usageFilter?.end() ?? null);
    stream.end(this.#keyMask?.end() ?? undefined);
  }

  #writeError(error: ErrorBody, isWhole: boolean): void {
    const received = error.bytes();
    const answer = readErrorResponse(this.#response, received, isWhole, this.#key, this.#refine);
    this.#error = null;
    this.#observer.seeError(answer, received);
    this.#writeHead(answer.headers);
    if (!isWhole) this.#keyMask = new KeyMask(this.#key);
    this.#send(answer.body);
    if (!answer.isTruncated) return;
    this.isTruncated = true;
    this.#client.stream.end();
  }

  #send(chunk: Buffer | null): void {
    const { stream } = this.#client;
    if (chunk === null || stream.destroyed) return;
    this.#hasBody = true;
    const clean = this.#keyMask === null ? chunk : this.#keyMask.pass(chunk);
    if (clean.length === 0 || stream.write(clean)) return;
    this.#response.pause();
    stream.once("drain", () => this.#response.resume());
  }

  #writeHead(headers: string[]): void {
    const { statusCode = 0, statusMessage = "" } = this.#response;
    addOwn(headers, this.#client.ownHeaders);
    this.#client.writeHead(statusCode, reasonPhrase(statusMessage, this.#key), headers);
  }
}

/** Masks a key in a stream of chunks. The number of bytes stays the same, because the length may be announced already. */
class KeyMask {
  readonly #key: Secret;
  /** The last bytes, if they are a part of the key; null: they are not. */
  #tail: Buffer | null = null;
  /** How many of these were sent. The rest is held back. */
  #sent = 0;

  constructor(key: Secret) {
    this.#key = key;
  }

  /** The bytes that can be sent now. */
  pass(chunk: Buffer): Buffer {
    const bytes = this.#tail === null ? chunk : Buffer.concat([this.#tail, chunk]);
    const sent = this.#sent;
    const clean = this.#masked(bytes);
    const part = this.#key.partAtEndOf(bytes);
    if (part === 0) {
      this.#tail = null;
      this.#sent = 0;
      return sent === 0 ? clean : clean.subarray(sent);
    }
    const partStart = bytes.length - part;
    const end = Math.max(sent, bytes.length - this.#key.begunAtEndOf(bytes, part));
    this.#tail = bytes.subarray(partStart);
    this.#sent = Math.max(0, end - partStart);
    return clean.subarray(sent, end);
  }

  /** The last bytes; null: there are none. */
  end(): Buffer | null {
    return this.#tail === null ? null : this.#masked(this.#tail).subarray(this.#sent);
  }

  /** One character for each byte, so that everything else stays as it was in any charset. */
  #masked(bytes: Buffer): Buffer {
    if (!this.#key.isIn(bytes)) return bytes;
    return Buffer.from(this.#key.maskIn(bytes.toString("latin1")), "latin1");
  }
}
