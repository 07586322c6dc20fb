import type { IncomingMessage } from "node:http";
import { type ModelScan, modelInPath, modelScan } from "./model-scan.ts";
import { type AheadBounds, type AheadEnd, type Looker, putBack, ReadAhead } from "./read-ahead.ts";

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

/** What the beginning of a request told, before anything of it is sent on. */
export class BodyHead {
  readonly end: HeadEnd;
  /** The body is over, or there is none: nothing follows what is held. */
  readonly over: boolean;
  /**
   * What was read out of the request, still to be sent on, from the body's first byte. null: it is put back, or taken by
   * whoever sends it on, or nothing was read.
   */
  held: readonly Buffer[] | null;
  readonly #scan: ModelScan | null;
  /** The path names the model, whatever the body says. */
  readonly #named: string | null;
  /** Bytes that were looked at when they were read ahead, and that see() is still to be told of. */
  #known: number;

  constructor(
    end: HeadEnd,
    scan: ModelScan | null,
    named: string | null,
    over: boolean,
    ahead: ReadAhead | null,
  ) {
    this.end = end;
    this.over = over;
    this.held = ahead === null || ahead.size === 0 ? null : ahead.held;
    this.#scan = scan;
    this.#named = named;
    this.#known = ahead?.size ?? 0;
  }

  get bytesHeld(): number {
    return (this.held ?? []).reduce((sum, chunk) => sum + chunk.length, 0);
  }

  /** The model asked for, as far as it was seen by now; null: none. */
  get model(): string | null {
    return this.#named ?? this.#scan?.model ?? null;
  }

  /**
   * Two models that differ stand in the body, and gateways differ in which one they take. Told only with `toEnd`, and
   * certain only once `whole` is true.
   */
  get disputed(): boolean {
    return this.#named === null && this.#scan !== null && this.#scan.disputed;
  }

  /** What it says of how long its answer may be, by field. Told only with `toEnd`. */
  get lengths(): Readonly<Record<string, unknown>> {
    return this.#scan?.lengths ?? NO_LENGTHS;
  }

  /** Everything that could name a model was seen. */
  get whole(): boolean {
    return this.end !== "unreadable" && (this.over || this.#scan === null || this.#scan.done);
  }

  /**
   * To be told of every chunk as the body streams by, from its first byte on: goes on where the reading ahead stopped.
   * Called before the chunk is sent on, it can still keep the gateway from ever getting the request whole.
   */
  see(chunk: Buffer): void {
    const known = Math.min(chunk.length, this.#known);
    this.#known -= known;
    if (known < chunk.length && this.#scan !== null && !this.#scan.done)
      this.#scan.see(known === 0 ? chunk : chunk.subarray(known));
  }
}

const NO_LENGTHS: Readonly<Record<string, unknown>> = Object.freeze({});

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
 * Reads as much of the body as it takes to know the model, and holds it: see BodyHead.held. At once where nothing has to
 * be waited for. A client that expects `100 Continue` must have been told before. Never rejects.
 */
export function readHead(
  req: IncomingMessage,
  endpoint: string,
  options: HeadOptions,
): BodyHead | Promise<BodyHead> {
  const { patience, toEnd = false, most = MOST_AHEAD } = options;
  const named = modelInPath(endpoint);
  const empty = !hasBody(req);
  if (empty || (named !== null && !toEnd))
    return new BodyHead(named === null ? "none" : "told", null, named, empty, null);
  const scan = modelScan(req.headers["content-type"], req.headers["content-encoding"], toEnd);
  if (scan === null) return new BodyHead(named === null ? "unreadable" : "told", null, named, false, null);
  const ahead = new ReadAhead(req, { most, patience }, new ModelLooker(scan));
  const end = ahead.read();
  if (end instanceof Promise) return end.then((later) => headOf(later, scan, named, ahead));
  return headOf(end, scan, named, ahead);
}

/** In front of what is still to come, as if it had never been read. For whoever reads the request itself. */
export function putBackHeld(req: IncomingMessage, head: BodyHead | null): void {
  if (head === null || head.held === null) return;
  putBack(req, head.held);
  head.held = null;
}

/**
 * Reads the body into memory up to its end, if that comes within the bounds, and puts every byte back. Only then is the
 * connection read further, so that its end is heard of before anybody asks for the body. Never rejects.
 * @param head what was read of it before, which may be all there is.
 */
export async function readToEnd(
  req: IncomingMessage,
  bounds: AheadBounds,
  head: BodyHead | null,
): Promise<AheadEnd> {
  if (head?.over) return "ended";
  putBackHeld(req, head);
  const ahead = new ReadAhead(req, bounds, null);
  const end = await ahead.read();
  putBack(req, ahead.held);
  return end;
}

class ModelLooker implements Looker {
  readonly #scan: ModelScan;

  constructor(scan: ModelScan) {
    this.#scan = scan;
  }

  look(chunk: Buffer): boolean {
    this.#scan.see(chunk);
    return this.#scan.done;
  }
}

function headOf(end: AheadEnd, scan: ModelScan, named: string | null, ahead: ReadAhead): BodyHead {
  // Also where what was looked for was enough, nearly always nothing follows it.
  return new BodyHead(headEnd(end, named ?? scan.model), scan, named, ahead.over, ahead);
}

function headEnd(end: AheadEnd, model: string | null): HeadEnd {
  if (end === "left" || end === "stalled") return end;
  if (model !== null) return "told";
  return end === "full" ? "later" : "none";
}

/** A body that is over already and empty is none: to read it would be its end. */
function hasBody(req: IncomingMessage): boolean {
  if (req.complete && req.readableLength === 0) return false;
  const { headers } = req;
  return headers["transfer-encoding"] !== undefined || (headers["content-length"] ?? "0") !== "0";
}
