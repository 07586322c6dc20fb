import type { Transform } from "node:stream";
import zlib from "node:zlib";

/** What was decoded goes out as soon as it can be. */
export interface Decoder {
  see(chunk: Buffer): void;
  /** Calls back once, when all that was seen is decoded or cannot be. Says why it stopped before the end, if it did. */
  finish(done: (trouble: string | null) => void): void;
}

/** Compressed bytes that may wait. */
const MOST_WAITING = 8 * 1024 * 1024;
/** What is decoded at a time. Node's 16 KB make it hand over, and wait to be asked again, four times as often. */
const CHUNK = 64 * 1024;
/** Beyond this much, and this many times what came in, it is made to fill memory and no answer. */
const PLENTY = 8 * 1024 * 1024;
const SWOLLEN = 200;
/** Listing more of them has no honest purpose. */
const MOST_CODINGS = 3;
/** A window of 8 MB, the most that HTTP allows (RFC 9659), where the format itself would allow 2 GB. */
const ZSTD_WINDOW_LOG = 23;

/** bytesWritten is what it has taken in. */
type Stage = Transform & { readonly bytesWritten: number };
type MakeStage = (first: number) => Stage;

/** Whether an answer in this content encoding, or list of them, can be read here. */
export function decodes(encoding: string): boolean {
  return stagesOf(encoding) !== null;
}

/** null: this encoding cannot be read here. The bytes that come are not changed. */
export function createDecoder(encoding: string, onBytes: (bytes: Buffer) => void): Decoder | null {
  const makers = stagesOf(encoding);
  return makers === null ? null : new Stages(makers, onBytes);
}

/** In the order of decoding, which is the reverse of how they are listed (RFC 9110 section 8.4). */
function stagesOf(encoding: string): MakeStage[] | null {
  const codings = encoding
    .toLowerCase()
    .split(",")
    .map((coding) => coding.trim())
    .filter((coding) => coding !== "" && coding !== "identity");
  if (codings.length > MOST_CODINGS) return null;
  const makers: MakeStage[] = [];
  for (const coding of codings.reverse()) {
    const make = makerOf(coding);
    if (make === null) return null;
    makers.push(make);
  }
  return makers;
}

/** What is cut is decoded as far as it came, which zlib calls flushing at the end. */
function makerOf(coding: string): MakeStage | null {
  const { Z_SYNC_FLUSH, BROTLI_OPERATION_FLUSH } = zlib.constants;
  const cut = { finishFlush: Z_SYNC_FLUSH, chunkSize: CHUNK };
  switch (coding) {
    case "gzip":
    case "x-gzip":
      return () => zlib.createGunzip(cut);
    case "deflate":
      // Meant is the zlib format, but some send what is inside of it: the first byte tells (RFC 1950 section 2.2).
      return (first) => ((first & 0x0f) === 8 ? zlib.createInflate(cut) : zlib.createInflateRaw(cut));
    case "br":
      return () => zlib.createBrotliDecompress({ finishFlush: BROTLI_OPERATION_FLUSH, chunkSize: CHUNK });
    case "zstd":
      return zstdMaker();
    default:
      return null;
  }
}

/** Node has it since 22.15. */
function zstdMaker(): MakeStage | null {
  const make: unknown = Reflect.get(zlib, "createZstdDecompress");
  if (typeof make !== "function") return null;
  const constants: Record<string, unknown> = { ...zlib.constants };
  const { ZSTD_d_windowLogMax: windowLog, ZSTD_e_flush: finishFlush } = constants;
  return () =>
    make({ finishFlush, chunkSize: CHUNK, params: { [String(windowLog)]: ZSTD_WINDOW_LOG } }) as Stage;
}

/** One decoder after the other. Whatever goes wrong stops all of them, and is told at the end. */
class Stages implements Decoder {
  readonly #makers: readonly MakeStage[];
  readonly #onBytes: (bytes: Buffer) => void;
  readonly #stages: (Stage | null)[];
  readonly #sizes: number[];
  #trouble: string | null = null;
  #stopped = false;
  #finishing = false;
  #done: ((trouble: string | null) => void) | null = null;

  constructor(makers: readonly MakeStage[], onBytes: (bytes: Buffer) => void) {
    this.#makers = makers;
    this.#onBytes = onBytes;
    this.#stages = makers.map(() => null);
    this.#sizes = [...makers.map(() => 0), 0];
  }

  see(chunk: Buffer): void {
    if (!this.#finishing && chunk.length > 0) this.#into(0, chunk);
  }

  finish(done: (trouble: string | null) => void): void {
    if (this.#finishing) return;
    this.#finishing = true;
    this.#done = done;
    if (this.#stopped) this.#report();
    else this.#end(0);
  }

  #into(index: number, chunk: Buffer): void {
    if (this.#stopped) return;
    this.#sizes[index] = (this.#sizes[index] ?? 0) + chunk.length;
    if (index === this.#makers.length) {
      this.#onBytes(chunk);
      return;
    }
    const stage = this.#stages[index] ?? this.#make(index, chunk[0] ?? 0);
    if (stage === null) return;
    stage.write(chunk);
    if (stage.writableLength > MOST_WAITING) this.#stop("decoding fell behind");
  }

  #make(index: number, first: number): Stage | null {
    const stage = this.#makers[index]?.(first) ?? null;
    this.#stages[index] = stage;
    stage?.on("data", (bytes: Buffer) => {
      this.#into(index + 1, bytes);
      const decoded = this.#sizes[index + 1] ?? 0;
      if (decoded > PLENTY && decoded > SWOLLEN * (this.#sizes[index] ?? 0))
        this.#stop("it decodes to far more than was sent");
    });
    stage?.once("end", () => {
      // Node before 26 reads one zstd frame of several. What follows an end in the other formats is nobody's.
      if (stage.bytesWritten < (this.#sizes[index] ?? 0)) this.#stop("something follows its end");
      else this.#end(index + 1);
    });
    stage?.on("error", () => this.#stop("it could not be decoded"));
    return stage;
  }

  #end(index: number): void {
    if (this.#stopped) return;
    // Nothing came to this one, and so nothing to those behind it.
    const stage = this.#stages[index] ?? null;
    if (index === this.#makers.length || stage === null) this.#stop(null);
    else stage.end();
  }

  #stop(trouble: string | null): void {
    if (this.#stopped) return;
    this.#stopped = true;
    this.#trouble = trouble;
    for (const stage of this.#stages) stage?.destroy();
    this.#stages.fill(null);
    if (this.#finishing) this.#report();
  }

  #report(): void {
    const done = this.#done;
    this.#done = null;
    done?.(this.#trouble);
  }
}
