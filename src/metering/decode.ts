import type { Transform } from "node:stream";
import { finished } from "node:stream/promises";
import zlib from "node:zlib";
import { hasCode } from "../core/errors.ts";

/** Compressed bytes that may wait for the decoder. */
const MAX_WAITING = 8 * 1024 * 1024;
/** Decoding stops here, for decompression bombs too: the bytes cost CPU, and no response that is worth reading is longer. */
const MAX_DECODED = 64 * 1024 * 1024;
/** More codings on top of each other are an attack. */
const MAX_CODINGS = 3;
/** Decoded bytes per chunk. With Node's 16 KB there are four times as many handovers. */
const CHUNK_SIZE = 64 * 1024;
/** A window of 8 MB, the most HTTP allows (RFC 9659). The format itself allows 2 GB. */
const ZSTD_WINDOW_LOG = 23;

/** Whether a body in this content encoding, or list of encodings, can be read. */
export function decodes(encoding: string): boolean {
  return parseCodings(encoding) !== null;
}

/** Undoes a content encoding. Hands the bytes on as soon as they are decoded. */
export class Decoder {
  /** In the order in which they are undone. Empty: the body is not compressed. */
  readonly #stages: Decompressor[] = [];
  readonly #isSupported: boolean;
  /** Takes the bytes to the first stage. */
  #onChunk: (bytes: Buffer) => void;

  constructor(encoding: string, onBytes: (bytes: Buffer) => void) {
    const codings = parseCodings(encoding);
    this.#isSupported = codings !== null;
    this.#onChunk = onBytes;
    for (const coding of codings ?? []) {
      const stage = new Decompressor(coding, this.#onChunk);
      this.#stages.unshift(stage);
      this.#onChunk = (bytes) => stage.see(bytes);
    }
  }

  see(chunk: Buffer): void {
    if (this.#isSupported) this.#onChunk(chunk);
  }

  /** Waits until all bytes are decoded. The result says why they could not be; null: they were. */
  async finish(): Promise<string | null> {
    if (!this.#isSupported) return "its content encoding is not supported";
    let problem: string | null = null;
    for (const stage of this.#stages) {
      const found = await stage.finish();
      problem ??= found;
    }
    return problem;
  }
}

/**
 * Decodes a short body at once, as much of it as arrived. What is not encoded is returned as it is.
 * @returns null if the encoding is not supported, or if the bytes are not in it.
 */
export function decodeSync(bytes: Buffer, encoding: string, maxBytes: number): Buffer | "too-large" | null {
  const codings = parseCodings(encoding);
  if (codings === null) return null;
  let decoded = bytes;
  try {
    for (const coding of codings.toReversed()) {
      const { decodeSync, options } = coding(decoded[0] ?? 0);
      decoded = decodeSync(decoded, { ...options, maxOutputLength: maxBytes });
    }
  } catch (error) {
    return hasCode(error, "ERR_BUFFER_TOO_LARGE") ? "too-large" : null;
  }
  return decoded;
}

/** Undoes one coding. */
class Decompressor {
  readonly #coding: Coding;
  readonly #onBytes: (bytes: Buffer) => void;
  /** Opened with the first byte, which decides the format. */
  #stream: ZlibStream | null = null;
  #received = 0;
  #decoded = 0;
  #isFinished = false;
  #problem: string | null = null;

  constructor(coding: Coding, onBytes: (bytes: Buffer) => void) {
    this.#coding = coding;
    this.#onBytes = onBytes;
  }

  see(chunk: Buffer): void {
    if (this.#isFinished || chunk.length === 0) return;
    this.#stream ??= this.#open(chunk[0] ?? 0);
    if (this.#stream.destroyed) return;
    this.#received += chunk.length;
    this.#stream.write(chunk);
    if (this.#stream.writableLength > MAX_WAITING) this.#stop("decoding fell behind");
  }

  async finish(): Promise<string | null> {
    this.#isFinished = true;
    if (this.#stream === null) return null;
    this.#stream.end();
    // Rejects if the stream was stopped. Then #problem has the reason.
    await finished(this.#stream).catch(() => {});
    return this.#problem;
  }

  #open(firstByte: number): ZlibStream {
    const { open, options } = this.#coding(firstByte);
    const stream = open(options);
    stream.on("data", (bytes: Buffer) => {
      if (stream.destroyed) return;
      this.#decoded += bytes.length;
      this.#onBytes(bytes);
      if (this.#decoded > MAX_DECODED) this.#stop("it decodes to too many bytes");
    });
    stream.once("end", () => {
      // Node before 26 reads only the first of several zstd frames. In the other formats this is not part of the response.
      this.#stop(stream.bytesWritten < this.#received ? "bytes follow its end" : null);
    });
    stream.on("error", () => this.#stop("it could not be decoded"));
    return stream;
  }

  /** The first problem counts: what follows it is a consequence. */
  #stop(problem: string | null): void {
    this.#problem ??= problem;
    this.#stream?.destroy();
  }
}

/** In the order in which they were applied (RFC 9110 section 8.4); null: one of them cannot be undone. */
function parseCodings(encoding: string): Coding[] | null {
  if (encoding === "") return [];
  const names = encoding
    .toLowerCase()
    .split(",")
    .map((name) => name.trim())
    .filter((name) => name !== "" && name !== "identity");
  if (names.length > MAX_CODINGS) return null;
  const codings: Coding[] = [];
  for (const name of names) {
    const coding = parseCoding(name);
    if (coding === null) return null;
    codings.push(coding);
  }
  return codings;
}

type ZlibStream = Transform & { readonly bytesWritten: number };

/** Node's functions for one format. */
interface Codec {
  readonly open: (options: object) => ZlibStream;
  readonly decodeSync: (bytes: Buffer, options: object) => Buffer;
  readonly options: object;
}

/** Chooses the codec. The first byte matters only for deflate. */
type Coding = (firstByte: number) => Codec;

// With these flush modes, Node decodes as much as it can of a body that was cut.
const ZLIB_OPTIONS = { finishFlush: zlib.constants.Z_SYNC_FLUSH, chunkSize: CHUNK_SIZE };
const BROTLI_OPTIONS = { finishFlush: zlib.constants.BROTLI_OPERATION_FLUSH, chunkSize: CHUNK_SIZE };

const GZIP: Codec = { open: zlib.createGunzip, decodeSync: zlib.gunzipSync, options: ZLIB_OPTIONS };
const ZLIB: Codec = { open: zlib.createInflate, decodeSync: zlib.inflateSync, options: ZLIB_OPTIONS };
const RAW: Codec = { open: zlib.createInflateRaw, decodeSync: zlib.inflateRawSync, options: ZLIB_OPTIONS };
const BROTLI: Codec = {
  open: zlib.createBrotliDecompress,
  decodeSync: zlib.brotliDecompressSync,
  options: BROTLI_OPTIONS,
};
const ZSTD = zstdCodec();

function parseCoding(name: string): Coding | null {
  switch (name) {
    case "gzip":
    case "x-gzip":
      return () => GZIP;
    case "deflate":
      // The name means the zlib format, but some servers send raw deflate (RFC 1950 section 2.2).
      return (firstByte) => ((firstByte & 0x0f) === 8 ? ZLIB : RAW);
    case "br":
      return () => BROTLI;
    case "zstd":
      return ZSTD === null ? null : () => ZSTD;
    default:
      return null;
  }
}

/** Node has zstd since 22.15. */
function zstdCodec(): Codec | null {
  const open: unknown = Reflect.get(zlib, "createZstdDecompress");
  const decodeSync: unknown = Reflect.get(zlib, "zstdDecompressSync");
  if (typeof open !== "function" || typeof decodeSync !== "function") return null;
  const constants: Record<string, unknown> = { ...zlib.constants };
  const { ZSTD_d_windowLogMax: windowLog, ZSTD_e_flush: finishFlush } = constants;
  const params = { [String(windowLog)]: ZSTD_WINDOW_LOG };
  return {
    open: open as Codec["open"],
    decodeSync: decodeSync as Codec["decodeSync"],
    options: { finishFlush, chunkSize: CHUNK_SIZE, params },
  };
}
