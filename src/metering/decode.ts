import type { Transform } from "node:stream";
import zlib from "node:zlib";

/** Undoes a content encoding. What is decoded goes out as soon as possible. */
export interface Decoder {
  see(chunk: Buffer): void;
  /** Calls back once, when everything that was seen is decoded or cannot be: with the reason, if not. */
  finish(done: (problem: string | null) => void): void;
}

/** Compressed bytes that may wait for the decoder. */
const MAX_WAITING = 8 * 1024 * 1024;
/** Decoding stops here, whatever the answer: the bytes cost CPU, and nothing worth reading is longer. */
const MAX_DECODED = 64 * 1024 * 1024;
/** From this size on, an answer that grows more than so many times is a decompression bomb. */
const BOMB_SIZE = 8 * 1024 * 1024;
const BOMB_FACTOR = 200;
/** More encodings on top of each other are an attack. */
const MAX_CODINGS = 3;
/** Decoded bytes per chunk. With Node's 16 KB there are four times as many handovers. */
const CHUNK_SIZE = 64 * 1024;
/** A window of 8 MB, the most HTTP allows (RFC 9659). The format itself allows 2 GB. */
const ZSTD_WINDOW_LOG = 23;

/** Whether an answer in this content encoding, or list of encodings, can be read. */
export function decodes(encoding: string): boolean {
  return streamsFor(encoding) !== null;
}

/** null: this encoding cannot be read. */
export function createDecoder(encoding: string, onBytes: (bytes: Buffer) => void): Decoder | null {
  const streams = streamsFor(encoding);
  if (streams === null) return null;
  let decoder: Decoder = { see: onBytes, finish: (done) => done(null) };
  // Encodings are listed in the order they were applied (RFC 9110 section 8.4), so the last one is undone first.
  for (const openStream of streams) decoder = new Decompressor(openStream, decoder);
  return decoder;
}

type ZlibStream = Transform & { readonly bytesWritten: number };
type OpenStream = (firstByte: number) => ZlibStream;

function streamsFor(encoding: string): OpenStream[] | null {
  const codings = encoding
    .toLowerCase()
    .split(",")
    .map((coding) => coding.trim())
    .filter((coding) => coding !== "" && coding !== "identity");
  if (codings.length > MAX_CODINGS) return null;
  const streams: OpenStream[] = [];
  for (const coding of codings) {
    const openStream = streamFor(coding);
    if (openStream === null) return null;
    streams.push(openStream);
  }
  return streams;
}

/** With these flush modes, zlib decodes a stream that was cut as far as it came. */
function streamFor(coding: string): OpenStream | null {
  const { Z_SYNC_FLUSH, BROTLI_OPERATION_FLUSH } = zlib.constants;
  const options = { finishFlush: Z_SYNC_FLUSH, chunkSize: CHUNK_SIZE };
  switch (coding) {
    case "gzip":
    case "x-gzip":
      return () => zlib.createGunzip(options);
    case "deflate":
      // The name means the zlib format, but some servers send raw deflate. The first byte tells (RFC 1950 section 2.2).
      return (first) => ((first & 0x0f) === 8 ? zlib.createInflate(options) : zlib.createInflateRaw(options));
    case "br":
      return () => zlib.createBrotliDecompress({ ...options, finishFlush: BROTLI_OPERATION_FLUSH });
    case "zstd":
      return zstdStream();
    default:
      return null;
  }
}

/** Node has zstd since 22.15. */
function zstdStream(): OpenStream | null {
  const create: unknown = Reflect.get(zlib, "createZstdDecompress");
  if (typeof create !== "function") return null;
  const constants: Record<string, unknown> = { ...zlib.constants };
  const { ZSTD_d_windowLogMax: windowLog, ZSTD_e_flush: finishFlush } = constants;
  const params = { [String(windowLog)]: ZSTD_WINDOW_LOG };
  return () => create({ finishFlush, chunkSize: CHUNK_SIZE, params }) as ZlibStream;
}

/** Undoes one encoding and hands the bytes to the next decoder. */
class Decompressor implements Decoder {
  readonly #openStream: OpenStream;
  readonly #next: Decoder;
  #stream: ZlibStream | null = null;
  #received = 0;
  #decoded = 0;
  #ended = false;
  #problem: string | null = null;
  #done: ((problem: string | null) => void) | null = null;

  constructor(openStream: OpenStream, next: Decoder) {
    this.#openStream = openStream;
    this.#next = next;
  }

  see(chunk: Buffer): void {
    if (this.#ended || this.#done !== null || chunk.length === 0) return;
    this.#stream ??= this.#open(chunk[0] ?? 0);
    this.#received += chunk.length;
    this.#stream.write(chunk);
    if (this.#stream.writableLength > MAX_WAITING) this.#end("decoding fell behind");
  }

  finish(done: (problem: string | null) => void): void {
    if (this.#done !== null) return;
    this.#done = done;
    if (this.#ended) this.#report();
    else if (this.#stream === null) this.#end(null);
    else this.#stream.end();
  }

  #open(firstByte: number): ZlibStream {
    const stream = this.#openStream(firstByte);
    stream.on("data", (bytes: Buffer) => {
      if (this.#ended) return;
      this.#decoded += bytes.length;
      this.#next.see(bytes);
      const isBomb = this.#decoded > BOMB_SIZE && this.#decoded > BOMB_FACTOR * this.#received;
      if (isBomb || this.#decoded > MAX_DECODED) this.#end("it decodes to too many bytes");
    });
    stream.once("end", () => {
      // Node before 26 reads only the first of several zstd frames. In the other formats this is not part of the answer.
      this.#end(stream.bytesWritten < this.#received ? "bytes follow its end" : null);
    });
    stream.on("error", () => this.#end("it could not be decoded"));
    return stream;
  }

  #end(problem: string | null): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#problem = problem;
    this.#stream?.destroy();
    this.#report();
  }

  #report(): void {
    const done = this.#done;
    if (done !== null) this.#next.finish((later) => done(this.#problem ?? later));
  }
}
