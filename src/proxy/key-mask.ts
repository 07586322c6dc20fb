import { Transform, type TransformCallback } from "node:stream";
import type { Secret } from "../secret.ts";

/**
 * Takes a key out of bytes that stream by, wherever they are cut. It puts as many asterisks in its place, because the
 * length of the whole was told already.
 */
export class KeyMask {
  readonly #key: Secret;
  /** What may be the beginning of the key waits for the next bytes. */
  #held: Buffer = NOTHING;

  constructor(key: Secret) {
    this.#key = key;
  }

  /** What can go on of these bytes and of those that waited. */
  pass(chunk: Buffer): Buffer {
    const bytes = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    const clean = this.#key.isIn(bytes) ? masked(bytes, this.#key) : bytes;
    const passed = clean.length - this.#key.begunAtEndOf(clean);
    this.#held = clean.subarray(passed);
    return clean.subarray(0, passed);
  }

  /** Nothing follows: what waited is no key. */
  end(): Buffer {
    const held = this.#held;
    this.#held = NOTHING;
    return held;
  }
}

const NOTHING = Buffer.alloc(0);

/** One character for each byte, so that everything else stays as it was, in whatever charset. */
function masked(bytes: Buffer, key: Secret): Buffer {
  return Buffer.from(key.maskIn(bytes.toString("latin1")), "latin1");
}

/** The same as a stream. */
export function createKeyMask(key: Secret): Transform {
  const mask = new KeyMask(key);
  return new Transform({
    transform(chunk: Buffer, _encoding, done: TransformCallback) {
      done(null, mask.pass(chunk));
    },
    flush(done) {
      done(null, mask.end());
    },
  });
}
