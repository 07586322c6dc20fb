import type { IncomingMessage } from "node:http";
import { type ModelScan, modelInPath, modelScan } from "./model-scan.ts";
import { type AheadBounds, type AheadEnd, putBack, readAhead } from "./read-ahead.ts";

/** What the beginning of a request told, before anything of it is sent on. */
export interface BodyHead {
  readonly end: HeadEnd;
  /** The model asked for, as far as it was seen by now; null: none. */
  readonly model: string | null;
  /**
   * Two models that differ stand in the body, and gateways differ in which one they take. Told only with `toEnd`, and
   * certain only once `whole` is true.
   */
  readonly disputed: boolean;
  /** What it says of how long its answer may be, by field. Told only with `toEnd`. */
  readonly lengths: Readonly<Record<string, unknown>>;
  /** Everything that could name a model was seen. */
  readonly whole: boolean;
  /**
   * To be told of every chunk as the body streams by, from its first byte on: goes on where the reading ahead stopped.
   * Called before the chunk is sent on, it can still keep the gateway from ever getting the request whole.
   */
  see(chunk: Buffer): void;
}

export type HeadEnd =
  | "told"
  /** There is no body, or it names no model. */
  | "none"
  /** It is compressed, or a form without a boundary. */
  | "unreadable"
  /** Not within what may be read ahead; see() may still come upon it. */
  | "later"
  /** The client left before it was told. */
  | "left"
  /** The client stopped sending before it was told. */
  | "stalled";

export interface HeadOptions {
  /** Milliseconds of silence after which a client has stalled. */
  readonly patience: number;
  /**
   * Read on to the end of the body, or to `most`, after the model was seen, so that a second one is seen as well; beyond
   * `most` see() goes on looking. For where the model decides whether the request may pass. Default false: the first
   * model there is counts, and nothing more is read.
   */
  readonly toEnd?: boolean;
  /** Bytes to read ahead at most. Default 1 MB. */
  readonly most?: number;
}

const MOST_AHEAD = 1024 * 1024;

/**
 * Reads as much of the body as it takes to know the model, and puts every byte back, so that the body can be sent on
 * whole. A client that expects `100 Continue` must have been told before. Never rejects.
 */
export function readHead(req: IncomingMessage, endpoint: string, options: HeadOptions): Promise<BodyHead> {
  const { patience, toEnd = false, most = MOST_AHEAD } = options;
  const named = modelInPath(endpoint);
  const unread = (end: HeadEnd) => Promise.resolve(headOf(without(named), named === null ? end : "told"));
  if (!hasBody(req) || (named !== null && !toEnd)) return unread("none");
  const read = modelScan(req.headers["content-type"], req.headers["content-encoding"], toEnd);
  if (read === null) return unread("unreadable");
  const scan = named === null ? read : asNamed(read, named);
  let ahead = 0;
  const see = (chunk: Buffer) => {
    scan.see(chunk);
    ahead += chunk.length;
    return scan.done;
  };
  return new Promise((resolve) => {
    readAhead(req, { most, patience }, see, ({ end, chunks }) => {
      putBack(req, chunks);
      resolve(headOf(scan, headEnd(end, scan), { ahead, over: end === "ended" }));
    });
  });
}

/**
 * Reads the body into memory up to its end, if that comes within the bounds, and puts every byte back. Only then is the
 * connection read further, so that its end is heard of before anybody asks for the body. Never rejects.
 */
export function readToEnd(req: IncomingMessage, bounds: AheadBounds): Promise<AheadEnd> {
  return new Promise((resolve) => {
    readAhead(
      req,
      bounds,
      () => false,
      ({ end, chunks }) => {
        putBack(req, chunks);
        resolve(end);
      },
    );
  });
}

function headEnd(end: AheadEnd, scan: ModelScan): HeadEnd {
  if (end === "left" || end === "stalled") return end;
  if (scan.model !== null) return "told";
  return end === "full" ? "later" : "none";
}

/** A body that is over already and empty is none: to read it would be its end. */
function hasBody({ headers, complete, readableLength }: IncomingMessage): boolean {
  if (complete && readableLength === 0) return false;
  return headers["transfer-encoding"] !== undefined || (headers["content-length"] ?? "0") !== "0";
}

/** Where there is no body to look at. */
function without(model: string | null): ModelScan {
  return { see: () => {}, model, disputed: false, lengths: {}, done: true };
}

/** The path names the model, whatever the body says. */
function asNamed(scan: ModelScan, model: string): ModelScan {
  return {
    see: (chunk) => scan.see(chunk),
    model,
    disputed: false,
    get lengths() {
      return scan.lengths;
    },
    get done() {
      return scan.done;
    },
  };
}

function headOf(scan: ModelScan, end: HeadEnd, { ahead, over } = { ahead: 0, over: false }): BodyHead {
  let passed = 0;
  return {
    end,
    get model() {
      return scan.model;
    },
    get disputed() {
      return scan.disputed;
    },
    get lengths() {
      return scan.lengths;
    },
    get whole() {
      return end !== "unreadable" && (over || scan.done);
    },
    see(chunk) {
      const known = Math.min(chunk.length, ahead - passed);
      passed += known;
      if (known < chunk.length && !scan.done) scan.see(chunk.subarray(known));
    },
  };
}
