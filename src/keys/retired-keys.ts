import type { Secret } from "../core/secret.ts";

const MOST = 64;

/** Replaced keys that are still blotted: requests under way finish with them. */
export class RetiredKeys {
  #keys: readonly Secret[] = [];

  /** A key that its successor is the same as is not retired. */
  add(key: Secret | null, successor: Secret | null | undefined): void {
    if (key === null || key === successor || successor?.equals(key)) return;
    this.#keys = [...this.#keys.slice(1 - MOST), key];
  }

  all(): readonly Secret[] {
    return this.#keys;
  }
}
