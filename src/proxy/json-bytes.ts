export const QUOTE = 0x22;
export const BACKSLASH = 0x5c;
export const COMMA = 0x2c;
export const COLON = 0x3a;
export const OPEN_LIST = 0x5b;
export const CLOSE_LIST = 0x5d;
export const OPEN_OBJECT = 0x7b;
export const CLOSE_OBJECT = 0x7d;

/** Up to here a plain loop finds the end of a string sooner than Buffer's own search, which pays off on long ones. */
const SHORT = 16;
/** Where escaped quotes stand as close as this, as in JSON inside of a string, the loop goes on for a while. */
const CLOSE = 8;
const WHILE = 32;

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

/** The same for a value that stands in these bytes. */
export function parsedIn(chunk: Buffer, from: number, to: number): unknown {
  if (isPlainString(chunk, from, to)) return chunk.toString("latin1", from + 1, to - 1);
  return parsed(chunk.toString("utf8", from, to));
}

/** Whether it is a string of which every byte is a character: names and ids, which are most of what is looked for. */
function isPlainString(chunk: Buffer, from: number, to: number): boolean {
  if (chunk[from] !== QUOTE) return false;
  for (let at = from + 1; at < to - 1; at += 1) {
    const byte = chunk[at] ?? 0;
    if (byte < 0x20 || byte >= 0x7f || byte === BACKSLASH) return false;
  }
  return true;
}

/** What endOfString answers where a string goes on behind the chunk. */
const GOES_ON = -1;
/** The same, and its next byte is escaped. */
const GOES_ON_ESCAPED = -2;

/** Behind the quote that closes the string in which `from` lies. */
function endOfString(chunk: Buffer, from: number): number {
  const length = chunk.length;
  let at = from;
  let near = at + SHORT;
  while (at < length) {
    if (near > length) near = length;
    while (at < near) {
      const byte = chunk[at];
      if (byte === QUOTE) return at + 1;
      at += byte === BACKSLASH ? 2 : 1;
    }
    if (at >= length) break;
    const quote = chunk.indexOf(QUOTE, at);
    const end = quote === -1 ? length : quote;
    let before = end - 1;
    while (before >= at && chunk[before] === BACKSLASH) before -= 1;
    const escaped = ((end - before) & 1) === 0;
    if (quote !== -1 && !escaped) return quote + 1;
    near = end - at < CLOSE ? end + WHILE : end;
    at = escaped ? end + 1 : end;
  }
  // What is escaped is stepped over, so that beyond the end means: escaped, and in the next chunk.
  return at > length ? GOES_ON_ESCAPED : GOES_ON;
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
    if (this.#scalar) return this.#pastScalar(chunk, from);
    let at = from;
    if (this.#quoted) {
      at = endOfString(chunk, this.#escaped ? from + 1 : from);
      if (at < 0) return this.#cut(at, chunk.length);
      this.#quoted = false;
      this.#escaped = false;
      if (this.#nest === 0) return this.#end(at);
    }
    const length = chunk.length;
    let nest = this.#nest;
    while (at < length) {
      const byte = chunk[at] ?? 0;
      at += 1;
      if (byte === QUOTE) {
        at = endOfString(chunk, at);
        if (at >= 0 && nest > 0) continue;
        this.#nest = nest;
        this.#quoted = at < 0;
        return at < 0 ? this.#cut(at, length) : this.#end(at);
      }
      // Digits, commas and spaces, most of what stands outside of strings, lie below the brackets.
      if (byte < OPEN_LIST) continue;
      if ((byte | 0x20) === OPEN_OBJECT) nest += 1;
      else if ((byte | 0x20) === CLOSE_OBJECT) {
        nest -= 1;
        if (nest <= 0) return this.#end(at);
      }
    }
    this.#nest = nest;
    return length;
  }

  #end(at: number): number {
    this.#whole = true;
    return at;
  }

  #cut(how: number, length: number): number {
    this.#escaped = how === GOES_ON_ESCAPED;
    return length;
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
}

/** Gathers a text that comes in pieces, up to a bound. */
export class Pieces {
  #kept: Buffer[] = [];
  #size = 0;
  readonly #most: number;

  constructor(most: number) {
    this.#most = most;
  }

  /** Bytes that came, kept or not. */
  get size(): number {
    return this.#size;
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
