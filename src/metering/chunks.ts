const BACKSLASH = 0x5c;
const ASCII = /^[\0-\x7f]*$/;

/**
 * Bytes that came in several chunks, read as if they were one. Joining them would take the memory of a large prompt twice,
 * and memory outside of its heap makes V8 collect all of the heap more often: that took a third of a request with 100 KB.
 */
export class Chunks {
  readonly all: readonly Buffer[];
  readonly length: number;
  /** The first chunk in latin1. Most fields that count are in it, and are read after the last chunk was searched. */
  readonly #first: string;
  /** The place of the current chunk in the list. */
  #index = 0;
  #text: string;
  #begin = 0;

  constructor(all: readonly Buffer[]) {
    this.all = all;
    this.length = all.reduce((sum, { length }) => sum + length, 0);
    this.#first = all[0]?.toString("latin1") ?? "";
    this.#text = this.#first;
  }

  /** The chunk that was read last, in latin1. */
  get text(): string {
    return this.#text;
  }

  /** Where that chunk begins. */
  get begin(): number {
    return this.#begin;
  }

  /** undefined: there is no byte at this position. */
  at(position: number): number | undefined {
    const offset = position - this.#begin;
    if (offset >= 0 && offset < this.#text.length) return this.#text.charCodeAt(offset);
    return this.seek(position) ? this.#text.charCodeAt(position - this.#begin) : undefined;
  }

  /** The position after the quote that ends a JSON string; -1: it does not end. @param begin where its first quote is. */
  endOfString(begin: number): number {
    if (!this.seek(begin)) return -1;
    const end = endOfString(this.#text, begin - this.#begin);
    if (end !== -1) return this.#begin + end;
    // It ends in a later chunk.
    let next = this.#begin + this.#text.length;
    while (this.seek(next)) {
      let quote = this.#text.indexOf('"');
      while (quote !== -1) {
        if (!this.#isEscaped(next + quote)) return next + quote + 1;
        quote = this.#text.indexOf('"', quote + 1);
      }
      next += this.#text.length;
    }
    return -1;
  }

  toString(encoding: "utf8" | "latin1", from: number, to: number): string {
    let latin1 = "";
    for (let position = from; position < to && this.seek(position); ) {
      latin1 += this.#text.slice(position - this.#begin, to - this.#begin);
      position = this.#begin + this.#text.length;
    }
    const isSame = encoding === "latin1" || ASCII.test(latin1);
    return isSame ? latin1 : Buffer.from(latin1, "latin1").toString("utf8");
  }

  joined(): Buffer {
    const [first] = this.all;
    return first !== undefined && this.all.length === 1 ? first : Buffer.concat(this.all);
  }

  /** Whether an odd number of backslashes is before a quote, some of them in the chunk before. */
  #isEscaped(quote: number): boolean {
    let before = quote - 1;
    while (this.at(before) === BACKSLASH) before -= 1;
    this.seek(quote);
    return (quote - before) % 2 === 0;
  }

  /** Goes to the chunk that holds a position. False: none does. */
  seek(position: number): boolean {
    if (position < 0 || position >= this.length) return false;
    let index = this.#index;
    let begin = this.#begin;
    while (position < begin) {
      index -= 1;
      begin -= this.all[index]?.length ?? 0;
    }
    for (let length = this.all[index]?.length ?? 0; position >= begin + length; ) {
      index += 1;
      begin += length;
      length = this.all[index]?.length ?? 0;
    }
    if (index !== this.#index)
      this.#text = index === 0 ? this.#first : (this.all[index]?.toString("latin1") ?? "");
    this.#index = index;
    this.#begin = begin;
    return true;
  }
}

/** The same in one text. */
export function endOfString(text: string, begin: number): number {
  for (let quote = text.indexOf('"', begin + 1); quote !== -1; quote = text.indexOf('"', quote + 1)) {
    let before = quote - 1;
    while (text.charCodeAt(before) === BACKSLASH) before -= 1;
    if ((quote - before) % 2 === 1) return quote + 1;
  }
  return -1;
}
