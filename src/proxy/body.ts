import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";
import { type Refusal, refuse } from "../core/refusal.ts";
import { Chunks } from "../metering/chunks.ts";
import { requestText } from "../metering/estimate.ts";
import { readRequest } from "../metering/request.ts";
import type { Call, Stop } from "./call.ts";
import { overloaded, uploadStopped } from "./failure.ts";

/** A longer body passes unread, or is refused if the tool's limits depend on it. */
const MAX_READ = 32 * 1024 * 1024;
/** All bodies in memory together. */
const MAX_BUFFERED = 256 * 1024 * 1024;
/** What a chunk costs besides its bytes, so that a body of tiny chunks does not fill the memory. */
const CHUNK_OVERHEAD = 256;
/** A client that sends no byte of its body for this long has stopped. */
const STALL_MS = 30_000;

/** Files carry no model, and may be large. */
const FILE_UPLOAD = /^\/v1\/(?:files|uploads)(?:\/|$)/;
/** Some clients send JSON under other types, such as curl without a type and fetch with a string. */
const READABLE_TYPE =
  /^\s*(?:application\/(?:[\w.-]+\+)?json|multipart\/form-data|text\/plain|application\/x-www-form-urlencoded)\b/i;

/** The memory for the bodies of all calls. */
export class BodyBudget {
  #free: number;

  constructor(max: number = MAX_BUFFERED) {
    this.#free = max;
  }

  /** False: there is not that much left. */
  take(call: Call, bytes: number): boolean {
    if (bytes > this.#free) return false;
    this.#free -= bytes;
    call.bufferedBytes += bytes;
    return true;
  }

  /** Gives back all that a call has taken. */
  release(call: Call): void {
    this.#free += call.bufferedBytes;
    call.bufferedBytes = 0;
  }
}

/**
 * Reads the body whole and notes what it asks for. Where nothing depends on it, a body that is too long or not readable
 * passes unread. Resolves to null when the call may go on.
 */
export async function readBody(
  call: Call,
  req: IncomingMessage,
  res: ServerResponse,
  budget: BodyBudget,
): Promise<Stop | null> {
  const { "content-length": declared, "transfer-encoding": chunked, expect } = req.headers;
  const length = chunked === undefined ? Number(declared ?? 0) : 0;
  const mustRead = call.metering !== null && call.limitsNeedBody;
  call.model = call.head.loggedModel(call.head.modelInPath);
  const isEmpty = length === 0 && chunked === undefined;
  if (!isEmpty && mustRead && isEncoded(req.headers)) return unreadable(call);
  if (!isEmpty && mustRead && length > MAX_READ) return tooLarge(call);
  // A call that may wait has its body read: an unread connection does not report that its client left.
  const mayWait = (call.tool?.limits.wait ?? 0) > 0;
  const isRead = !isEmpty && length <= MAX_READ && (mustRead || mayWait || isReadable(call, req));
  // The declared length is taken before the first byte is read.
  if (isRead && !budget.take(call, length)) return overloaded();
  if (expect !== undefined) res.writeContinue();
  call.passesUnread = !isEmpty && !isRead;
  if (!isRead) return null;

  // Most bodies arrive in one packet with the head. Reading them by events takes 8 µs more.
  const isWhole = chunked === undefined && req.complete && req.readableLength === length && !req.destroyed;
  const stop = isWhole ? takeWhole(call, req) : await collect(call, req, budget, mustRead);
  if (stop !== null || call.body === null) return stop;
  call.fields = readRequest(call.body, req.headers["content-type"]);
  if (mustRead && call.body.length > 0 && !call.fields.readable) return unreadable(call);
  call.model ??= call.head.loggedModel(call.fields.model);
  if (call.tool?.estimate) call.text = requestText(call.body.joined());
  return null;
}

function isReadable(call: Call, { headers }: IncomingMessage): boolean {
  const type = headers["content-type"];
  if (FILE_UPLOAD.test(call.endpoint) || isEncoded(headers)) return false;
  return type === undefined || READABLE_TYPE.test(type);
}

function isEncoded(headers: IncomingHttpHeaders): boolean {
  const encoding = headers["content-encoding"]?.trim().toLowerCase() ?? "";
  return encoding !== "" && encoding !== "identity";
}

function takeWhole(call: Call, req: IncomingMessage): null {
  const chunks: Buffer[] = [];
  // Node 26 returns one chunk at a time, earlier versions all of them joined.
  while (req.readableLength > 0) chunks.push(req.read() as Buffer);
  call.body = new Chunks(chunks);
  call.bytesIn = call.body.length;
  return null;
}

/** Reads the body by events. If it passes unread after all, the call has no body. */
async function collect(
  call: Call,
  req: IncomingMessage,
  budget: BodyBudget,
  mustRead: boolean,
): Promise<Stop | null> {
  const isChunked = req.headers["transfer-encoding"] !== undefined;
  const body = new Collector();
  const stallMs = Math.min(STALL_MS, call.gateway?.timeouts.firstByte ?? STALL_MS);
  const end = await readChunks(req, stallMs, (chunk) => {
    body.add(chunk);
    call.bytesIn += chunk.length;
    if (call.bytesIn > MAX_READ) return "too-large";
    // A declared length was taken before.
    return !isChunked || budget.take(call, CHUNK_OVERHEAD + chunk.length) ? null : "no-memory";
  });
  switch (end) {
    case "ended":
      call.body = new Chunks(body.chunks);
      return null;
    case "client-left":
      return "client-left";
    case "stalled":
      return uploadStopped(stallMs);
    case "no-memory":
      return overloaded();
    case "too-large":
      if (mustRead) return tooLarge(call);
      // It passes from its first byte, as if it had never been read. Until then it stays in memory, and in the budget.
      for (const chunk of body.chunks.toReversed()) req.unshift(chunk);
      call.bytesIn = 0;
      call.passesUnread = true;
      return null;
  }
}

/** After this many chunks, those that are shorter than this are copied into blocks, so that they take no more than their bytes. */
const MAX_CHUNKS = 32;
const MIN_CHUNK = 4096;
const BLOCK = 64 * 1024;

/** The chunks of a body as they arrive. */
class Collector {
  readonly chunks: Buffer[] = [];
  #block = Buffer.alloc(0);
  #used = 0;
  /** Where the last chunk begins in the block; null: it is not in there. */
  #begin: number | null = null;

  add(chunk: Buffer): void {
    if (this.chunks.length < MAX_CHUNKS || chunk.length >= MIN_CHUNK) {
      this.chunks.push(chunk);
      this.#begin = null;
      return;
    }
    if (this.#used + chunk.length > this.#block.length) {
      this.#block = Buffer.allocUnsafe(BLOCK);
      this.#used = 0;
      this.#begin = null;
    }
    chunk.copy(this.#block, this.#used);
    if (this.#begin !== null) this.chunks.pop();
    this.#begin ??= this.#used;
    this.#used += chunk.length;
    this.chunks.push(this.#block.subarray(this.#begin, this.#used));
  }
}

type CollectEnd = "ended" | "client-left" | "stalled" | "too-large" | "no-memory";

/** @param add takes a chunk, and returns why no more can be taken. */
function readChunks(
  req: IncomingMessage,
  stallMs: number,
  add: (chunk: Buffer) => CollectEnd | null,
): Promise<CollectEnd> {
  return new Promise((resolve) => {
    const finish = (end: CollectEnd) => {
      clearTimeout(timer);
      req.off("data", onData);
      req.off("end", onEnd);
      req.off("close", onClose);
      req.off("error", onClose);
      if (end !== "ended") req.pause();
      resolve(end);
    };
    const onData = (chunk: Buffer) => {
      timer.refresh();
      const end = add(chunk);
      if (end !== null) finish(end);
    };
    const onEnd = () => finish("ended");
    const onClose = () => finish("client-left");
    const timer = setTimeout(() => finish("stalled"), stallMs);
    req.on("data", onData);
    req.once("end", onEnd);
    req.once("close", onClose);
    req.once("error", onClose);
    // The connection may be gone by now.
    if (req.destroyed) finish("client-left");
  });
}

function unreadable(call: Call): Refusal {
  const message = `the body cannot be read, and tool ${call.tool?.name} has limits that depend on it. send uncompressed JSON`;
  return refuse("bad-request", message);
}

function tooLarge(call: Call): Refusal {
  const message = `the body is larger than 32 MB, and tool ${call.tool?.name} has limits that depend on it`;
  return refuse("body-too-large", message);
}
