import type { TextSeen } from "./reading.ts";
import type { Tokens } from "./usage.ts";

/**
 * Tokens by a rule of thumb, for where nobody reports them. Against OpenAI's tokenizer (o200k), on texts and on requests
 * made of them: within a fifth for prose, code and tools; a third too low for JSON as text; up to a third too high for
 * Chinese and Japanese, and half for Russian. Other makers' tokenizers give more for all of these, so that it is not
 * made lower.
 */
const ASCII_A_TOKEN = 4;
const OTHER_A_TOKEN = 3.5;

export function estimateTokens(asked: TextSeen, answered: TextSeen): Tokens {
  const input = tokensIn(asked);
  return { input, cacheRead: 0, cacheWrite: 0, output: tokensIn(answered), reasoning: 0 };
}

function tokensIn({ ascii, other }: TextSeen): number {
  return Math.ceil(ascii / ASCII_A_TOKEN + other / OTHER_A_TOKEN);
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const LETTER_U = 0x75;
const OPEN_OBJECT = 0x7b;
const OPEN_LIST = 0x5b;

/** A longer run of letters and digits without a break is no text, but a picture or a file in base64. */
const LONGEST_WORD = 256;
/** What a picture is counted as, in bytes of text: about a thousand tokens, as most models do. */
const PICTURE = 4000;
const SMALLEST_PICTURE = 4096;

/**
 * Counts the text in a request's body as its bytes pass, cut anywhere: what stands in its strings. The names of fields
 * are strings too. A model does not get to read them all, but they make up for what each message costs on top. A body
 * that is no JSON holds no text.
 */
export class RequestText {
  #ascii = 0;
  #other = 0;
  #state: "start" | "outside" | "string" | "escape" | "no-json" = "start";
  /** Of a character that is written as \u0000, the digits still to come. */
  #digits = 0;
  /** How long the present word is. */
  #word = 0;

  get seen(): TextSeen {
    return { ascii: this.#ascii, other: this.#other };
  }

  see(chunk: Buffer): void {
    for (let at = 0; at < chunk.length; at += 1) {
      if (this.#state === "string") at = this.#inside(chunk, at);
      else if (this.#state === "escape") this.#escaped(chunk[at] ?? 0);
      else if (this.#state === "no-json") return;
      else this.#outside(this.#state, chunk[at] ?? 0);
    }
  }

  #outside(state: "start" | "outside", byte: number): void {
    if (state === "outside") {
      if (byte === QUOTE) this.#state = "string";
    } else if (byte > 0x20 && byte < 0x80) {
      // Before it only space, or a byte order mark.
      this.#state = byte === OPEN_OBJECT || byte === OPEN_LIST ? "outside" : "no-json";
    }
  }

  /** Reads on in a string, and returns where that stopped. */
  #inside(chunk: Buffer, from: number): number {
    let word = this.#word;
    let ascii = 0;
    let at = from;
    let byte = 0;
    for (; at < chunk.length; at += 1) {
      byte = chunk[at] ?? 0;
      if (byte === QUOTE || byte === BACKSLASH) break;
      if (isWord(byte)) word += 1;
      else {
        if (word > LONGEST_WORD) this.#endWord(word);
        word = 0;
      }
      if (byte < 0x80) ascii += 1;
    }
    this.#ascii += ascii;
    this.#other += at - from - ascii;
    this.#word = word;
    if (at < chunk.length) {
      this.#endWord(word);
      this.#state = byte === QUOTE ? "outside" : "escape";
    }
    return at;
  }

  #escaped(byte: number): void {
    if (this.#digits > 0) {
      this.#digits -= 1;
      if (this.#digits > 0) return;
      // Nearly all that is written so lies beyond ASCII, where it would be three bytes.
      this.#other += 3;
    } else if (byte === LETTER_U) {
      this.#digits = 4;
      return;
    } else this.#ascii += 1;
    this.#state = "string";
  }

  #endWord(length: number): void {
    this.#word = 0;
    if (length <= LONGEST_WORD) return;
    this.#ascii += (length >= SMALLEST_PICTURE ? PICTURE : 0) - length;
  }
}

/** The letters of base64, both kinds. */
function isWord(byte: number): boolean {
  return (
    (byte >= 0x61 && byte <= 0x7a) ||
    (byte >= 0x41 && byte <= 0x5a) ||
    (byte >= 0x2b && byte <= 0x39 && byte !== 0x2c && byte !== 0x2e) ||
    byte === 0x3d ||
    byte === 0x5f
  );
}
