export const QUOTE = 0x22;
export const BACKSLASH = 0x5c;
export const COMMA = 0x2c;
export const COLON = 0x3a;
export const OPEN_LIST = 0x5b;
export const CLOSE_LIST = 0x5d;
export const OPEN_OBJECT = 0x7b;
export const CLOSE_OBJECT = 0x7d;

/** Up to here a plain loop finds the end of a string sooner than Buffer's own search, which pays off on long ones. */
const SHORT = 48;

export function isSpace(byte: number): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;
}

/** As JSON.parse, but undefined, which no JSON means, where that would throw. */
export function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Digits, commas and spaces, most of what stands outside of strings, lie below the brackets. */
function pastPlain(chunk: Buffer, from: number): number {
  const length = chunk.length;
  let at = from;
  for (; at < length; at += 1) {
    const byte = chunk[at] ?? 0;
    if (byte === QUOTE || byte >= OPEN_LIST) return at;
  }
  return at;
}

/** Passes over one JSON value of any size and depth, by its quotes and brackets, cut anywhere. It checks nothing else. */
export class ValueSkip {
  #nest = 0;
  #quoted = false;
  #escaped = false;
  #scalar = false;
  #whole = false;

  /** The value has ended before the byte that pass() returned. */
  get whole(): boolean {
    return this.#whole;
  }

  /** Call before pass(), with the value's first byte, which pass() gets as well. */
  begin(byte: number): void {
    this.#nest = 0;
    this.#quoted = false;
    this.#escaped = false;
    this.#whole = false;
    this.#scalar = byte !== QUOTE && byte !== OPEN_LIST && byte !== OPEN_OBJECT;
  }

  pass(chunk: Buffer, from: number): number {
    let at = this.#quoted ? this.#pastString(chunk, from) : from;
    if (this.#scalar) return this.#pastScalar(chunk, at);
    while (at < chunk.length && !this.#whole) {
      at = pastPlain(chunk, at);
      const byte = chunk[at] ?? 0;
      at += 1;
      if (byte === QUOTE) {
        this.#quoted = true;
        at = this.#pastString(chunk, at);
      } else if ((byte | 0x20) === OPEN_OBJECT) this.#nest += 1;
      else if ((byte | 0x20) === CLOSE_OBJECT) {
        this.#nest -= 1;
        this.#whole = this.#nest <= 0;
      }
    }
    return Math.min(at, chunk.length);
  }

  #pastScalar(chunk: Buffer, from: number): number {
    for (let at = from; at < chunk.length; at += 1) {
      const byte = chunk[at] ?? 0;
      if (byte !== COMMA && (byte | 0x20) !== CLOSE_OBJECT && !isSpace(byte)) continue;
      this.#whole = true;
      return at;
    }
    return chunk.length;
  }

  /** Past the closing quote, or to the chunk's end. */
  #pastString(chunk: Buffer, from: number): number {
    let at = this.#escaped ? from + 1 : from;
    this.#escaped = false;
    while (at < chunk.length) {
      const near = Math.min(chunk.length, at + SHORT);
      for (; at < near; at += 1) {
        const byte = chunk[at];
        if (byte === BACKSLASH) at += 1;
        else if (byte === QUOTE) return this.#closed(at + 1);
      }
      if (at >= chunk.length) break;
      const quote = chunk.indexOf(QUOTE, at);
      const end = quote === -1 ? chunk.length : quote;
      let slashes = 0;
      while (end - slashes > at && chunk[end - slashes - 1] === BACKSLASH) slashes += 1;
      const escaped = slashes % 2 === 1;
      if (quote !== -1 && !escaped) return this.#closed(quote + 1);
      at = escaped ? end + 1 : end;
    }
    // The loops step over what is escaped, so that beyond the end means: escaped, and in the next chunk.
    this.#escaped = at > chunk.length;
    return chunk.length;
  }

  #closed(at: number): number {
    this.#quoted = false;
    if (this.#nest === 0) this.#whole = true;
    return at;
  }
}

/** Gathers a text that comes in pieces, up to a bound. */
export class Pieces {
  #kept: Buffer[] = [];
  #size = 0;
  #most = 0;

  begin(most: number): void {
    this.#kept = [];
    this.#size = 0;
    this.#most = most;
  }

  /** Copies, since a slice would hold the whole chunk in memory. */
  add(chunk: Buffer, from: number, to: number): void {
    this.#size += to - from;
    if (this.#size <= this.#most) this.#kept.push(Buffer.from(chunk.subarray(from, to)));
    else this.#kept = [];
  }

  /** All of it with its last piece; null where that is beyond the bound. */
  take(chunk: Buffer, from: number, to: number): string | null {
    const size = this.#size + to - from;
    const kept = this.#kept;
    this.#kept = [];
    if (size > this.#most) return null;
    if (kept.length === 0) return chunk.toString("utf8", from, to);
    return Buffer.concat([...kept, chunk.subarray(from, to)], size).toString("utf8");
  }
}
