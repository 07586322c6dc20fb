import type { IncomingMessage, ServerResponse } from "node:http";
import type { Duplex, Transform } from "node:stream";
import type { Gateway } from "../config/shape.ts";
import type { Metering } from "../metering/protocols.ts";
import type { Refusal } from "../refusal.ts";
import type { Secret } from "../secret.ts";
import type { RecordEnd } from "../usage/record.ts";
import { type Heard, type Hearing, NOTHING_HEARD } from "./hearing.ts";
import type { Way } from "./ways.ts";

/** One call to a gateway: everything decided, nothing sent yet. */
export interface Exchange extends Sending {
  readonly res: ServerResponse;
  /** All of it, where it was read by now; null: it is still to be read from the request. */
  readonly body: readonly Buffer[] | null;
  /** Set for a tool with `ask_usage` whose request was changed to ask for it. */
  readonly asking: Asking | null;
}

/** Field by field: to spread one object into another costs more than everything else about it. */
export function exchangeOf(
  sending: Sending,
  res: ServerResponse,
  asking: Asking | null,
  body: readonly Buffer[] | null,
): Exchange {
  return {
    req: sending.req,
    gateway: sending.gateway,
    way: sending.way,
    path: sending.path,
    headers: sending.headers,
    key: sending.key,
    metering: sending.metering,
    countText: sending.countText,
    seeBody: sending.seeBody,
    heardIn: sending.heardIn,
    onHead: sending.onHead,
    ownHeaders: sending.ownHeaders,
    res,
    asking,
    body,
  };
}

export interface Asking {
  /** What is sent instead of what the client sent. */
  readonly body: Buffer;
  /** Takes what only keybearer asked for out of the answer again. */
  readonly filter: Transform;
}

export interface UpgradeExchange extends Sending {
  readonly socket: Duplex;
  /** What the client sent behind its request already. */
  readonly head: Buffer;
  /** Writes a refusal to the bare connection. At once: the engine closes it right after it told of a failure. */
  readonly answer: (refusal: Refusal) => number;
}

/** What is the same for both. */
export interface Sending {
  readonly req: IncomingMessage;
  readonly gateway: Gateway;
  readonly way: Way;
  readonly path: string;
  /** Name, value, name, value. */
  readonly headers: readonly string[];
  readonly key: Secret;
  readonly metering: Metering | null;
  readonly countText: boolean;
  /** Told of every chunk of the request's body; null: nobody wants to know. */
  readonly seeBody: ((chunk: Buffer) => void) | null;
  /** Where whoever looks at the call while it runs finds what listens to its answer. */
  readonly heardIn: { hearing: Hearing | null };
  /** Called when the head of the gateway's answer has arrived. */
  readonly onHead: (status: number, ids: Readonly<Record<string, string>>) => void;
  /** keybearer's own headers on the answer: name, value, name, value. */
  readonly ownHeaders: readonly string[];
}

export type End = RecordEnd;

/** How a request ended. There is exactly one for every request. */
export interface Outcome extends Heard {
  readonly end: End;
  /** What the client was answered, or null when it was gone before. */
  readonly status: number | null;
  /** Set where nothing was answered yet and keybearer has to. */
  readonly refusal: Refusal | null;
  /** Why there was no whole answer of the gateway's, in a few words; null: there was one, or it is not its fault. */
  readonly failure: string | null;
  readonly bytesIn: number;
  /** Something of it may have reached the gateway: a connection was there. */
  readonly arrived: boolean;
}

/** Field by field, for the same reason. */
export function outcomeOf(heard: Heard, sent: Omit<Outcome, keyof Heard>): Outcome {
  return {
    cause: heard.cause,
    words: heard.words,
    firstByteElapsed: heard.firstByteElapsed,
    stream: heard.stream,
    bytesOut: heard.bytesOut,
    gatewayIds: heard.gatewayIds,
    reading: heard.reading,
    end: sent.end,
    status: sent.status,
    refusal: sent.refusal,
    failure: sent.failure,
    bytesIn: sent.bytesIn,
    arrived: sent.arrived,
  };
}

/** For a request that ended before anything was sent to a gateway. */
export const NOTHING_SENT: Outcome = Object.freeze({
  ...NOTHING_HEARD,
  end: "refused",
  status: null,
  refusal: null,
  failure: null,
  bytesIn: 0,
  arrived: false,
});
