import type { Secret } from "./secret.ts";

/** Up to so many are looked for one after the other, which the engine does faster than anything written here. */
const FEW = 8;
/** How many last characters of a spelling are looked for first, and in how many buckets they are sorted. */
const TAIL = 4;
const BUCKETS = 0x10000;

/**
 * Many secrets, looked for in one walk through a text, however many there are. Made by Secret.together.
 *
 * The walk keeps the last four characters as a number of 16 bits, of which each character that comes shifts the oldest one
 * out; only where some spelling ends in the same number is that spelling compared.
 */
export class SecretSet {
  readonly #secrets: readonly Secret[];
  /** Looked for one by one: all of them where they are few, else those that are too short for a tail. */
  readonly #single: readonly string[];
  /** By the number of their tails. */
  readonly #others = new Map<number, string[]>();
  /** 1 for every number that #others holds. */
  readonly #tails: Uint8Array;

  constructor(secrets: readonly Secret[], spellings: readonly string[]) {
    this.#secrets = secrets;
    this.#single = spellings.length <= FEW ? spellings : spellings.filter(({ length }) => length < TAIL);
    this.#tails = new Uint8Array(this.#single === spellings ? 0 : BUCKETS);
    if (this.#single !== spellings) for (const spelling of spellings) this.#sortIn(spelling);
  }

  isIn(text: string): boolean {
    for (const spelling of this.#single) if (text.includes(spelling)) return true;
    if (this.#others.size === 0) return false;
    let tail = 0;
    for (let at = 0; at < text.length; at += 1) {
      tail = next(tail, text.charCodeAt(at));
      if (this.#tails[tail] === 1 && this.#endsAt(text, at + 1, tail)) return true;
    }
    return false;
  }

  /** Takes each of them out of a text, as Secret.blotFrom does. */
  redactFrom(text: string): string {
    if (!this.isIn(text)) return text;
    let clean = text;
    for (const secret of this.#secrets) clean = secret.redactFrom(clean);
    return clean;
  }

  #sortIn(spelling: string): void {
    if (spelling.length < TAIL) return;
    let tail = 0;
    for (let at = spelling.length - TAIL; at < spelling.length; at += 1)
      tail = next(tail, spelling.charCodeAt(at));
    this.#tails[tail] = 1;
    const same = this.#others.get(tail);
    if (same === undefined) this.#others.set(tail, [spelling]);
    else same.push(spelling);
  }

  #endsAt(text: string, end: number, tail: number): boolean {
    for (const spelling of this.#others.get(tail) ?? [])
      if (end >= spelling.length && text.startsWith(spelling, end - spelling.length)) return true;
    return false;
  }
}

/** The secrets of two sources in one list, which is the same one for as long as both give the same ones. */
export function joined(
  one: () => readonly Secret[],
  other: () => readonly Secret[],
): () => readonly Secret[] {
  let [ones, others] = [one(), other()];
  let all = [...ones, ...others];
  return () => {
    if (one() !== ones || other() !== others) {
      [ones, others] = [one(), other()];
      all = [...ones, ...others];
    }
    return all;
  };
}

function next(tail: number, code: number): number {
  return ((tail << 4) ^ code) & (BUCKETS - 1);
}
