import type { Agent, IncomingMessage, ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import type { Gateway } from "../config/shape.ts";
import type { Refusal } from "../refusal.ts";
import type { Secret } from "../secret.ts";
import type { Cause } from "./cause.ts";
import type { OutgoingHeaders } from "./headers.ts";

/** One call to a gateway: everything decided, nothing sent yet. */
export interface Exchange extends Sending {
  readonly res: ServerResponse;
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
  readonly origin: string;
  readonly path: string;
  readonly headers: OutgoingHeaders;
  readonly agent: Agent;
  readonly key: Secret;
  /** keybearer's own headers on the answer: name, value, name, value. */
  readonly ownHeaders: readonly string[];
}

export type End = "complete" | "client-left" | "gateway-failed" | "refused";

/** How a request ended. There is exactly one for every request. */
export interface Outcome {
  readonly end: End;
  /** What the client was answered, or null when it was gone before. */
  readonly status: number | null;
  readonly cause: Cause | null;
  /** The gateway's own words where it refused, short and without the key. */
  readonly words: string | null;
  /** Set where nothing was answered yet and keybearer has to. */
  readonly refusal: Refusal | null;
  /** Milliseconds from the start of the call to the gateway's first byte. */
  readonly firstByteMs: number | null;
  readonly bytesIn: number;
  readonly bytesOut: number;
}

/** For a request that ended before anything was sent to a gateway. */
export const NOTHING_SENT: Outcome = Object.freeze({
  end: "refused",
  status: null,
  cause: null,
  words: null,
  refusal: null,
  firstByteMs: null,
  bytesIn: 0,
  bytesOut: 0,
});
