import { gatewayIds } from "../metering/gateway-ids.ts";
import { createMeter, type Meter, type Reading } from "../metering/meter.ts";
import { contentKind, type Metering } from "../metering/protocols.ts";
import type { Secret } from "../secret.ts";
import type { AnswerHead } from "./answer-head.ts";
import { type Cause, causeOf } from "./cause.ts";
import type { ReadError } from "./error-body.ts";

/** What was learned from a gateway's answer. */
export interface Heard {
  readonly cause: Cause | null;
  /** The gateway's own words where it refused, short and without the key. */
  readonly words: string | null;
  /** When the gateway's first byte came, on the clock that only goes forward. */
  readonly firstByteElapsed: number | null;
  /** Whether it was an event stream. */
  readonly stream: boolean | null;
  readonly bytesOut: number;
  /** By header, `body` and `error`: what the gateway's console may know the request by. */
  readonly gatewayIds: Readonly<Record<string, string>>;
  readonly reading: Reading | null;
}

/** The same while it still comes, as far as it goes. */
export interface HeardSoFar extends Pick<Heard, "firstByteElapsed" | "stream" | "bytesOut"> {
  readonly outputTokens: number | null;
  /** Whether the answer said so, or the pieces of its stream were counted. */
  readonly tokensBy: "reported" | "pieces" | null;
}

export const NOTHING_HEARD: Heard = Object.freeze({
  cause: null,
  words: null,
  firstByteElapsed: null,
  stream: null,
  bytesOut: 0,
  gatewayIds: Object.freeze({}),
  reading: null,
});

export interface HearingOptions {
  readonly key: Secret;
  readonly metering: Metering | null;
  /** Count the text of the answer, for a tool that wants an estimate. */
  readonly countText: boolean;
  readonly firstByteElapsed: number;
}

/** Listens to an answer while it passes. It touches no byte, and nothing that goes wrong here harms the call. */
export class Hearing {
  readonly #answer: AnswerHead;
  readonly #options: HearingOptions;
  readonly #meter: Meter;
  readonly #stream: boolean;
  #cause: Cause | null;
  #error: ReadError | null = null;
  #bytesOut = 0;

  constructor(answer: AnswerHead, options: HearingOptions) {
    this.#answer = answer;
    this.#options = options;
    const { status, contentType, contentEncoding } = answer;
    const kind = contentKind(contentType);
    this.#stream = kind === "events";
    // Of an answer that is no refusal only a page is a bad sign.
    this.#cause = status < 400 && kind === "page" ? causeOf({ status, contentType, body: "" }) : null;
    const { metering, countText } = options;
    this.#meter = createMeter({ metering, status, contentType, contentEncoding, countText });
  }

  /** Known from the head alone; of an error only once it was read. */
  get cause(): Cause | null {
    return this.#cause;
  }

  /** The ids that the head alone tells. */
  headIds(): Readonly<Record<string, string>> {
    return idsWithout(this.#options.key, gatewayIds(this.#answer.rawHeaders, null, null));
  }

  /** Bytes of the gateway's, on their way to the client. */
  see(chunk: Buffer): void {
    this.#bytesOut += chunk.length;
    this.#meter.see(chunk);
  }

  /** Bytes that are no answer any more: a WebSocket's. */
  count(bytes: number): void {
    this.#bytesOut += bytes;
  }

  /** Its beginning was held back and read as an error; what went on instead has this length. */
  readAsError(error: ReadError, bytes: Buffer): void {
    this.#error = error;
    this.#cause = error.cause;
    this.#bytesOut += error.body.length;
    this.#meter.see(bytes);
  }

  soFar(): HeardSoFar {
    const { deltas, reported } = this.#meter.soFar();
    // What a stream of messages says before its end is a placeholder, and smaller than what came of it since.
    const said = reported !== null && reported > deltas;
    return {
      firstByteElapsed: this.#options.firstByteElapsed,
      stream: this.#stream,
      bytesOut: this.#bytesOut,
      outputTokens: said ? reported : deltas > 0 ? deltas : null,
      tokensBy: said ? "reported" : deltas > 0 ? "pieces" : null,
    };
  }

  finish(done: (heard: Heard) => void): void {
    this.#meter.finish((reading) => {
      const { key, firstByteElapsed } = this.#options;
      const ids = gatewayIds(this.#answer.rawHeaders, reading.id, this.#error?.text ?? null);
      done({
        cause: this.#cause,
        words: this.#error?.words ?? null,
        firstByteElapsed,
        stream: this.#stream,
        bytesOut: this.#bytesOut,
        gatewayIds: idsWithout(key, ids),
        reading,
      });
    });
  }
}

function idsWithout(key: Secret, ids: Record<string, string>): Record<string, string> {
  for (const name in ids) if (key.isIn(ids[name] ?? "")) delete ids[name];
  return ids;
}
