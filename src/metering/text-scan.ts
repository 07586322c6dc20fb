import { BACKSLASH, CLOSE_LIST, CLOSE_OBJECT, COLON, COMMA, isSpace, QUOTE } from "./json-bytes.ts";
import type { TextSeen } from "./reading.ts";

/** The fields in which the protocols carry what a model wrote. */
const WRITTEN =
  /^(?:content|text|delta|refusal|reasoning|reasoning_content|thinking|arguments|partial_json|thought)$/;
const LONGEST_KEY = 24;
const LETTER_U = 0x75;

/**
 * Counts what a model wrote, in JSON of any of the protocols as its bytes pass: the strings below certain names, at any
 * depth. It is for an estimate, so that an exotic field more or less does not matter.
 */
export class TextScan {
  #ascii = 0;
  #other = 0;
  #inString = false;
  #escaped = false;
  /** Digits of \u0000 still to come, and their value so far. */
  #digits = 0;
  #unit = 0;
  /** Of the string that is read, or was read last: its beginning, and what it holds. */
  #begin = "";
  #stringAscii = 0;
  #stringOther = 0;
  /** A string has ended, of which the next byte tells whether it was a key. */
  #open = false;
  #written = false;

  get seen(): TextSeen {
    return { ascii: this.#ascii, other: this.#other };
  }

  see(chunk: Buffer): void {
    let at = 0;
    while (at < chunk.length) {
      if (this.#inString && !this.#escaped && this.#digits === 0) at = this.#plain(chunk, at);
      const byte = chunk[at];
      if (byte === undefined) return;
      at += 1;
      if (this.#inString) this.#inside(byte);
      else if (byte === QUOTE) this.#openString();
      else if (!isSpace(byte)) this.#outside(byte);
    }
  }

  /** A document has ended, perhaps in the middle: what follows is another one. */
  reset(): void {
    this.#inString = false;
    this.#open = false;
    this.#written = false;
  }

  #openString(): void {
    this.#inString = true;
    this.#escaped = false;
    this.#digits = 0;
    this.#begin = "";
    this.#stringAscii = 0;
    this.#stringOther = 0;
  }

  #outside(byte: number): void {
    if (byte === COLON) this.#written = this.#open && WRITTEN.test(this.#begin);
    else if (
      this.#open &&
      this.#written &&
      (byte === COMMA || byte === CLOSE_OBJECT || byte === CLOSE_LIST)
    ) {
      this.#ascii += this.#stringAscii;
      this.#other += this.#stringOther;
    }
    if (byte === CLOSE_OBJECT) this.#written = false;
    this.#open = false;
  }

  /** Most of a string is neither escaped nor its end. */
  #plain(chunk: Buffer, from: number): number {
    let at = from;
    let other = 0;
    for (; at < chunk.length; at += 1) {
      const byte = chunk[at] ?? 0;
      if (byte === QUOTE || byte === BACKSLASH) break;
      if (byte >= 0x80) other += 1;
    }
    this.#stringOther += other;
    this.#stringAscii += at - from - other;
    if (this.#begin.length < LONGEST_KEY)
      this.#begin += chunk.toString("latin1", from, Math.min(at, from + LONGEST_KEY));
    return at;
  }

  #inside(byte: number): void {
    if (this.#digits > 0) this.#digit(byte);
    else if (!this.#escaped) {
      // Nothing else is left over.
      this.#escaped = byte === BACKSLASH;
      this.#inString = byte !== QUOTE;
      this.#open = byte === QUOTE;
    } else {
      this.#escaped = false;
      if (byte === LETTER_U) {
        this.#digits = 4;
        this.#unit = 0;
      } else this.#stringAscii += 1;
    }
  }

  /** What is escaped counts as the bytes it would have been; half of a pair is two of its four. */
  #digit(byte: number): void {
    this.#digits -= 1;
    const digit = Number.parseInt(String.fromCharCode(byte), 16);
    this.#unit = this.#unit * 16 + (Number.isNaN(digit) ? 0 : digit);
    if (this.#digits > 0) return;
    if (this.#unit < 0x80) this.#stringAscii += 1;
    else this.#stringOther += this.#unit < 0x800 || (this.#unit >= 0xd800 && this.#unit < 0xe000) ? 2 : 3;
  }
}
