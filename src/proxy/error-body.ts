import type { IncomingMessage } from "node:http";
import { brotliDecompressSync, constants, gunzipSync, inflateRawSync, inflateSync } from "node:zlib";
import type { Secret } from "../secret.ts";
import type { AnswerHead } from "./answer-head.ts";
import { type Cause, causeOf } from "./cause.ts";
import { incomingHeaders, reframe, withCause } from "./headers.ts";

/** How much of a gateway's error is looked at before it goes on. */
const MOST_BYTES = 64 * 1024;
const MOST_DECODED = 8 * 1024 * 1024;

export interface Gathered {
  readonly bytes: Buffer;
  /** false: there is more, and it still has to be passed on from the stream. */
  readonly whole: boolean;
}

/** The beginning of an error, while it comes. */
export class Gathering {
  readonly #chunks: Buffer[] = [];
  #size = 0;

  /** True: that is enough to look at. */
  add(chunk: Buffer): boolean {
    this.#chunks.push(chunk);
    this.#size += chunk.length;
    return this.#size > MOST_BYTES;
  }

  gathered(whole: boolean): Gathered {
    return { bytes: Buffer.concat(this.#chunks), whole };
  }
}

/** Reads an error's beginning. Calls back once, unless the stream fails first, which its owner sees by itself. */
export function gather(stream: IncomingMessage, done: (gathered: Gathered) => void): void {
  const gathering = new Gathering();
  const onData = (chunk: Buffer) => {
    if (gathering.add(chunk)) finish(false);
  };
  const onEnd = () => finish(true);
  const finish = (whole: boolean) => {
    stream.off("data", onData);
    stream.off("end", onEnd);
    if (!whole) stream.pause();
    done(gathering.gathered(whole));
  };
  stream.on("data", onData);
  stream.on("end", onEnd);
}

/**
 * An error body without its compression, as far as it came. null: it is in an encoding that is not known here, or lies.
 * "too-large": it is compressed indeed, and made to fill memory.
 */
function decoded(bytes: Buffer, encoding: string): Buffer | null | "too-large" {
  try {
    return decode(bytes, encoding);
  } catch (error) {
    const isTooLarge = error instanceof Error && "code" in error && error.code === "ERR_BUFFER_TOO_LARGE";
    return isTooLarge ? "too-large" : null;
  }
}

function decode(bytes: Buffer, encoding: string): Buffer | null {
  const { Z_SYNC_FLUSH, BROTLI_OPERATION_FLUSH } = constants;
  const options = { maxOutputLength: MOST_DECODED, finishFlush: Z_SYNC_FLUSH };
  switch (encoding.trim().toLowerCase()) {
    case "gzip":
    case "x-gzip":
      return gunzipSync(bytes, options);
    case "deflate":
      // Meant is the zlib format, but some send what is inside of it: the first byte tells (RFC 1950 section 2.2).
      return ((bytes[0] ?? 0) & 0x0f) === 8 ? inflateSync(bytes, options) : inflateRawSync(bytes, options);
    case "br":
      return brotliDecompressSync(bytes, { ...options, finishFlush: BROTLI_OPERATION_FLUSH });
    default:
      return null;
  }
}

/** The same body without the key, or null where the key is not in it: then its bytes pass unchanged. */
function withoutKey(body: Buffer, key: Secret): Buffer | null {
  // One character for each byte, so that everything but the key stays as it was, in whatever charset.
  return key.isIn(body) ? Buffer.from(key.blotFrom(body.toString("latin1")), "latin1") : null;
}

/** The same of a body that was cut, maybe in the middle of the key. */
function cutWithoutKey(body: Buffer, key: Secret): Buffer {
  const clean = withoutKey(body, key) ?? body;
  return clean.subarray(0, clean.length - key.begunAtEndOf(clean));
}

/** A gateway's refusal as the client gets it: byte for byte, but with its cause named and without the key. */
export interface ReadError {
  readonly headers: string[];
  readonly body: Buffer;
  /** More of it comes, which is not passed on. */
  readonly isCut: boolean;
  readonly cause: Cause | null;
  /** What could be read of it, without the key. */
  readonly text: string;
  /** The gateway's own words, short. */
  readonly words: string | null;
}

const LONGEST_WORDS = 300;

export function readError(answer: AnswerHead, { bytes, whole }: Gathered, key: Secret): ReadError {
  const { status, contentType, contentEncoding = "" } = answer;
  const isPlain = /^\s*(?:identity)?\s*$/i.test(contentEncoding);
  const decoding = isPlain ? null : decoded(bytes, contentEncoding);
  const unpacked = decoding === "too-large" ? Buffer.alloc(0) : decoding;
  const said = isPlain ? bytes.toString("utf8") : (unpacked?.toString("utf8") ?? "");
  const cause = causeOf({ status, contentType, body: said });
  // Of what is compressed no part can be changed. So a long one is cut, and so is one that unpacks to far too much.
  const isCut = unpacked !== null && (!whole || decoding === "too-large");
  let changed: Buffer | null = null;
  if (isCut) changed = cutWithoutKey(unpacked, key);
  else if (whole) changed = withoutKey(unpacked ?? bytes, key);
  // What stands behind the end of compressed bytes is no part of them.
  if (changed === null && unpacked !== null && key.isIn(bytes)) changed = unpacked;
  const headers = incomingHeaders(answer.rawHeaders, key);
  if (changed !== null) reframe(headers, changed.length);
  const text = key.blotFrom(said);
  const words = text.slice(0, LONGEST_WORDS) || null;
  return { headers: withCause(headers, cause), body: changed ?? bytes, isCut, cause, text, words };
}
