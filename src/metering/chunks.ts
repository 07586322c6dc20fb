/**
 * Bytes that came in several chunks, read as if they were one. Joining them would take the memory of a large prompt twice,
 * and memory outside of its heap makes V8 collect all of the heap more often: that took a third of a request with 100 KB.
 */
export class Chunks {
  readonly all: readonly Buffer[];
  readonly length: number;
  /** The chunk that was read last in latin1, its place in the list, and where it begins. */
  #text: string;
  #index = 0;
  #begin = 0;

  constructor(all: readonly Buffer[]) {
    this.all = all;
    this.length = all.reduce((sum, { length }) => sum + length, 0);
    this.#text = all[0]?.toString("latin1") ?? "";
  }

  /** undefined: there is no byte at this position. */
  at(position: number): number | undefined {
    const offset = position - this.#begin;
    if (offset >= 0 && offset < this.#text.length) return this.#text.charCodeAt(offset);
    return this.#seek(position) ? this.#text.charCodeAt(position - this.#begin) : undefined;
  }

  /** @param char in latin1. -1: it does not occur from there on. */
  indexOf(char: string, from: number): number {
    let position = from;
    while (this.#seek(position)) {
      const found = this.#text.indexOf(char, position - this.#begin);
      if (found !== -1) return this.#begin + found;
      position = this.#begin + this.#text.length;
    }
    return -1;
  }

  toString(encoding: "utf8" | "latin1", from: number, to: number): string {
    let latin1 = "";
    for (let position = from; position < to && this.#seek(position); ) {
      latin1 += this.#text.slice(position - this.#begin, to - this.#begin);
      position = this.#begin + this.#text.length;
    }
    return encoding === "latin1" ? latin1 : Buffer.from(latin1, "latin1").toString(encoding);
  }

  joined(): Buffer {
    const [first] = this.all;
    return first !== undefined && this.all.length === 1 ? first : Buffer.concat(this.all);
  }

  /** Goes to the chunk that holds a position. False: none does. */
  #seek(position: number): boolean {
    if (position < 0 || position >= this.length) return false;
    while (position < this.#begin) this.#go(this.#index - 1, -(this.all[this.#index - 1]?.length ?? 0));
    while (position >= this.#begin + this.#text.length) this.#go(this.#index + 1, this.#text.length);
    return true;
  }

  #go(index: number, by: number): void {
    this.#text = this.all[index]?.toString("latin1") ?? "";
    this.#index = index;
    this.#begin += by;
  }
}
