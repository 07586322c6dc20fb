import type { IncomingMessage } from "node:http";
import type { Transform } from "node:stream";
import { brotliDecompressSync, gunzipSync, inflateSync } from "node:zlib";
import type { Secret } from "../secret.ts";
import type { AnswerHead } from "./answer-head.ts";
import { createBlotting } from "./blotting.ts";
import { type Cause, causeOf } from "./cause.ts";
import { incomingHeaders, reframe, withCause } from "./headers.ts";

/** How much of a gateway's error is looked at before it goes on. */
const MOST_BYTES = 64 * 1024;

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

/** An error body without its compression; empty where it cannot be decoded. */
function decoded(bytes: Buffer, encoding: string | undefined): Buffer {
  try {
    return decode(bytes, encoding);
  } catch {
    return Buffer.alloc(0);
  }
}

function decode(bytes: Buffer, encoding: string | undefined): Buffer {
  const bound = { maxOutputLength: MOST_BYTES * 4 };
  switch (encoding?.trim().toLowerCase()) {
    case undefined:
    case "":
    case "identity":
      return bytes;
    case "gzip":
    case "x-gzip":
      return gunzipSync(bytes, bound);
    case "deflate":
      return inflateSync(bytes, bound);
    case "br":
      return brotliDecompressSync(bytes, bound);
    default:
      return Buffer.alloc(0);
  }
}

/** The same body without the key, or null where the key is not in it: then its bytes pass unchanged. */
function withoutKey(body: Buffer, key: Secret): Buffer | null {
  // One character for each byte, so that everything but the key stays as it was, in whatever charset.
  return key.isIn(body) ? Buffer.from(key.blotFrom(body.toString("latin1")), "latin1") : null;
}

/** A gateway's refusal as the client gets it: byte for byte, but with its cause named and without the key. */
export interface ReadError {
  readonly headers: string[];
  readonly body: Buffer;
  /** What it and the rest must go through, where there is more of it and that can be read; null: they go as they are. */
  readonly rest: Transform | null;
  readonly cause: Cause | null;
  /** What could be read of it, without the key. */
  readonly text: string;
  /** The gateway's own words, short. */
  readonly words: string | null;
}

const LONGEST_WORDS = 300;

export function readError(answer: AnswerHead, { bytes, whole }: Gathered, key: Secret): ReadError {
  const { status, contentType, contentEncoding: encoding } = answer;
  const plain = decoded(bytes, encoding);
  const said = plain.toString("utf8");
  const cause = causeOf({ status, contentType, body: said });
  const blotted = whole ? withoutKey(plain, key) : null;
  // Of what is compressed no part can be changed. Nobody was seen to compress an error of this length, and a key into it.
  const rest = whole || encoding !== undefined ? null : createBlotting(key);
  const headers = incomingHeaders(answer.rawHeaders, key);
  if (blotted !== null) reframe(headers, blotted.length);
  const text = key.blotFrom(said);
  const words = text.slice(0, LONGEST_WORDS) || null;
  return { headers: withCause(headers, cause), body: blotted ?? bytes, rest, cause, text, words };
}
