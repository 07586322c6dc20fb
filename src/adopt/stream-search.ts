import type { Secret } from "../core/secret.ts";

/** A key of 1,300 characters in its longest form, six characters for each, is found across the border of two chunks. */
const OVERLAP = 8192;

/**
 * Finds keys in bytes that arrive in chunks, in every form that Secret.isIn knows. It takes a second for 2 GB and one key;
 * a search for the bare value alone is only three times as fast.
 */
export class StreamSearch {
  #missing: readonly Secret[];
  readonly #found: Secret[] = [];
  #tail = Buffer.alloc(0);

  constructor(keys: readonly Secret[]) {
    this.#missing = keys;
  }

  get found(): readonly Secret[] {
    return this.#found;
  }

  /** Nothing more can be found. */
  get isComplete(): boolean {
    return this.#missing.length === 0;
  }

  /** The chunk's memory may be used again afterwards. */
  add(chunk: Buffer): void {
    if (this.isComplete) return;
    this.#search(chunk);
    if (this.#tail.length > 0) this.#search(Buffer.concat([this.#tail, chunk.subarray(0, OVERLAP)]));
    const last = chunk.length < OVERLAP ? Buffer.concat([this.#tail, chunk]) : chunk;
    this.#tail = Buffer.from(last.subarray(-OVERLAP));
  }

  #search(bytes: Buffer): void {
    const found = this.#missing.filter((key) => key.isIn(bytes));
    if (found.length === 0) return;
    this.#found.push(...found);
    this.#missing = this.#missing.filter((key) => !found.includes(key));
  }
}
