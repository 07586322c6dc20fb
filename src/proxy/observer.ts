import type { IncomingMessage } from "node:http";
import type { Snapshot } from "../config/snapshot.ts";
import { type GatewayIds, idsInBody, idsInHead } from "../metering/gateway-ids.ts";
import { Meter, type Reading } from "../metering/meter.ts";
import { contentKind, type Metering } from "../metering/protocols.ts";
import type { ErrorResponse } from "./error-response.ts";
import { type Cause, findCause, findEventCause } from "./key-health/cause.ts";
import { loggableIds } from "./loggable.ts";

/** What was learned from a gateway's response. */
export interface Observed {
  readonly cause: Cause | null;
  /** What the gateway says about its error, short and without the key. */
  readonly errorText: string | null;
  /** When the first byte arrived, on the clock that never goes back. */
  readonly firstByteElapsed: number | null;
  /** Whether it was an event stream; null: there was no response. */
  readonly stream: boolean | null;
  readonly bytesOut: number;
  /** Ids by which the gateway's console may know the request, as they may be recorded: by header name, `body` and `error`. */
  readonly gatewayIds: GatewayIds;
  readonly reading: Reading | null;
}

/** The same while the response still arrives. */
export interface OutputSoFar {
  readonly output_tokens: number | null;
  /** Whether the response reported them, or the deltas of its stream were counted. */
  readonly tokens_by: "reported" | "pieces" | null;
}

export const NOTHING_OBSERVED: Observed = Object.freeze({
  cause: null,
  errorText: null,
  firstByteElapsed: null,
  stream: null,
  bytesOut: 0,
  gatewayIds: Object.freeze({}),
  reading: null,
});

/** What decides how a call's response is read; see Call. */
interface ObservedCall {
  readonly snapshot: Snapshot;
  readonly metering: Metering | null;
  readonly text: object | null;
  readonly limitsUse: boolean;
}

/** Reads a response while it passes. It changes no byte, and a failure in here does not harm the call. */
export class ResponseObserver {
  readonly #snapshot: Snapshot;
  readonly #firstByteElapsed: number;
  readonly #meter: Meter;
  readonly #isStream: boolean;
  #cause: Cause | null;
  #error: ErrorResponse | null = null;
  #bytesOut = 0;

  /** Of the gateway's response. */
  readonly status: number;
  /** The ids that are in the head, as they may be recorded. */
  readonly headIds: GatewayIds;

  constructor(
    response: IncomingMessage,
    { snapshot, metering, text, limitsUse }: ObservedCall,
    firstByteElapsed: number,
  ) {
    const { statusCode: status = 0, headers, rawHeaders } = response;
    this.status = status;
    const contentType = headers["content-type"] ?? "";
    const kind = contentKind(contentType);
    this.#snapshot = snapshot;
    this.headIds = loggableIds(idsInHead(rawHeaders), snapshot);
    this.#firstByteElapsed = firstByteElapsed;
    this.#isStream = kind === "events";
    // The cause of an error is known once its body was read. Of other responses, only a web page is a bad sign.
    this.#cause = status < 400 && kind === "page" ? findCause({ status, contentType, body: "" }) : null;
    this.#meter = new Meter({
      metering,
      status,
      contentType,
      contentEncoding: headers["content-encoding"],
      countText: text !== null,
      // If the client leaves, its limits count what it got.
      sampleText: limitsUse,
    });
  }

  get cause(): Cause | null {
    return this.#cause;
  }

  get isStream(): boolean {
    return this.#isStream;
  }

  see(chunk: Buffer): void {
    this.#bytesOut += chunk.length;
    this.#meter.see(chunk);
  }

  /** Bytes of a WebSocket, which are not read. */
  count(bytes: number): void {
    this.#bytesOut += bytes;
  }

  /** The beginning of the response was held back and read as an error. */
  seeError(error: ErrorResponse, received: Buffer): void {
    this.#error = error;
    this.#cause = error.cause;
    this.#bytesOut += error.body.length;
    this.#meter.see(received);
  }

  outputSoFar(): OutputSoFar {
    const { deltas, reported } = this.#meter.soFar();
    // What a stream of messages reports at its start is a placeholder, and soon smaller than the number of its deltas.
    const isReported = reported !== null && reported > deltas;
    const counted = deltas > 0 ? deltas : null;
    return {
      output_tokens: isReported ? reported : counted,
      tokens_by: isReported ? "reported" : counted === null ? null : "pieces",
    };
  }

  /** About how many output tokens the response has reported or sent so far. */
  seenTokens(): number {
    const { deltas, reported, written } = this.#meter.soFar();
    return Math.max(deltas, reported ?? 0, written);
  }

  /** Waits until the last bytes of a compressed response are decoded. */
  async finish(): Promise<Observed> {
    const reading = await this.#meter.finish();
    const refusal = reading.refusal === null ? null : findEventCause(reading.refusal);
    const bodyIds = loggableIds(idsInBody(reading.id, this.#error?.text ?? null), this.#snapshot);
    return {
      cause: this.#cause ?? refusal,
      errorText: this.#error?.message ?? null,
      firstByteElapsed: this.#firstByteElapsed,
      stream: this.#isStream,
      bytesOut: this.#bytesOut,
      gatewayIds: { ...this.headIds, ...bodyIds },
      reading,
    };
  }
}
