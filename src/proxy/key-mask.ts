import type { Secret } from "../secret.ts";

/** Masks a key in a stream of chunks. The number of bytes stays the same, because the length may be announced already. */
export class KeyMask {
  readonly #key: Secret;
  /** Bytes that may be the beginning of the key. */
  #held: Buffer | null = null;

  constructor(key: Secret) {
    this.#key = key;
  }

  /** The bytes that can be sent now. */
  pass(chunk: Buffer): Buffer {
    const bytes = this.#held === null ? chunk : Buffer.concat([this.#held, chunk]);
    const clean = this.#key.isIn(bytes) ? this.#masked(bytes) : bytes;
    const held = this.#key.begunAtEndOf(clean);
    this.#held = held === 0 ? null : clean.subarray(clean.length - held);
    return held === 0 ? clean : clean.subarray(0, clean.length - held);
  }

  /** The last bytes; null: there are none. */
  end(): Buffer | null {
    const held = this.#held;
    this.#held = null;
    return held;
  }

  /** One character for each byte, so that everything else stays as it was in any charset. */
  #masked(bytes: Buffer): Buffer {
    return Buffer.from(this.#key.maskIn(bytes.toString("latin1")), "latin1");
  }
}
