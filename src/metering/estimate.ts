import { NO_TOKENS, type Tokens } from "./usage.ts";

/** The bytes of a text, by what they cost a tokenizer. */
export interface TextBytes {
  ascii: number;
  /** Bytes of all other characters. Most Chinese, Japanese and Korean ones have three. */
  other: number;
}

/**
 * A rule of thumb, for when no tokens are reported. Against OpenAI's tokenizer (o200k): within a fifth for prose, code and
 * tools; a third too low for JSON as text; up to a third too high for Chinese and Japanese, and half for Russian. The
 * tokenizers of other makers count more for all of these, so it is not set lower.
 */
const ASCII_PER_TOKEN = 4;
const OTHER_PER_TOKEN = 3.5;

export function estimateTokens(request: TextBytes, response: TextBytes): Tokens {
  return { ...NO_TOKENS, input: tokensIn(request), output: tokensIn(response) };
}

function tokensIn({ ascii, other }: TextBytes): number {
  return Math.ceil(ascii / ASCII_PER_TOKEN + other / OTHER_PER_TOKEN);
}

/** The fields in which the protocols carry what a model wrote. */
const WRITTEN =
  /^(?:content|text|delta|refusal|reasoning|reasoning_content|thinking|arguments|partial_json|thought)$/;

/** Counts what a model wrote: the strings in certain fields of a response's documents. */
export class ResponseText {
  readonly bytes: TextBytes = { ascii: 0, other: 0 };

  add(document: unknown): void {
    visitStrings(document, "", 0, (text, field) => {
      if (field !== null && WRITTEN.test(field)) addText(this.bytes, text);
    });
  }
}

/** Reading every piece of a stream takes 4 µs a piece, which doubles what the meter needs. So a long one is read less often. */
const FIRST_PIECES = 64;
const EVERY_FIRST = 8;
const EVERY_LATER = 64;

/** Estimates how many tokens a model wrote, from some pieces of the stream. */
export class SampledText {
  readonly #first = new Sample(EVERY_FIRST);
  readonly #later = new Sample(EVERY_LATER);
  #pieces = 0;

  /** @param data in latin1 */
  add(data: string, parse: (json: string) => unknown): void {
    const sample = this.#pieces < FIRST_PIECES ? this.#first : this.#later;
    this.#pieces += 1;
    sample.add(data, parse);
  }

  get tokens(): number {
    return this.#first.tokens + this.#later.tokens;
  }
}

/** Takes the share of the text in one of several pieces for the share in all of them. */
class Sample {
  readonly #every: number;
  readonly #text = new ResponseText();
  #pieces = 0;
  #bytes = 0;
  #sampledBytes = 0;

  constructor(every: number) {
    this.#every = every;
  }

  add(data: string, parse: (json: string) => unknown): void {
    this.#bytes += data.length;
    if (this.#pieces % this.#every === 0) {
      this.#sampledBytes += data.length;
      this.#text.add(parse(data));
    }
    this.#pieces += 1;
  }

  get tokens(): number {
    if (this.#sampledBytes === 0) return 0;
    return Math.ceil((tokensIn(this.#text.bytes) * this.#bytes) / this.#sampledBytes);
  }
}

/** A longer string of nothing but base64 is not text, but an image, a file or a signature. */
const MAX_WORD = 256;
const MIN_IMAGE = 4096;
/** An image counts as this many bytes of text: about a thousand tokens, as with most models. */
const IMAGE_BYTES = 4000;

/**
 * Counts the text in a request's body: all strings, and the names of fields. A model does not read all names, but they make
 * up for what each message costs on top. A body that is not JSON has no text.
 */
export function requestText(body: Buffer): TextBytes {
  const bytes: TextBytes = { ascii: 0, other: 0 };
  visitStrings(parse(body), "", 0, (text) => {
    const data = text.startsWith("data:") ? text.slice(text.indexOf(",") + 1) : text;
    const isText = data.length <= MAX_WORD || /[^\w+/=-]/.test(data);
    if (isText) addText(bytes, text);
    else if (data.length >= MIN_IMAGE) bytes.ascii += IMAGE_BYTES;
  });
  return bytes;
}

/** null: this is not JSON. */
function parse(body: Buffer): unknown {
  try {
    // Many gateways accept a byte order mark, but JSON.parse does not.
    return JSON.parse(body.toString().replace(/^\ufeff/, ""));
  } catch {
    return null;
  }
}

function addText(bytes: TextBytes, text: string): void {
  const total = Buffer.byteLength(text);
  const ascii = total === text.length ? total : text.replace(/[^\0-\x7f]/g, "").length;
  bytes.ascii += ascii;
  bytes.other += total - ascii;
}

/** No body is nested deeper. */
const MAX_DEPTH = 50;

/** @param field the name of the field that holds the text, also as an item of a list; null: the text is such a name. */
type OnString = (text: string, field: string | null) => void;

function visitStrings(value: unknown, field: string, depth: number, onString: OnString): void {
  if (typeof value === "string") {
    onString(value, field);
  } else if (depth > MAX_DEPTH || typeof value !== "object" || value === null) {
    return;
  } else if (Array.isArray(value)) {
    for (const item of value) visitStrings(item, field, depth + 1, onString);
  } else {
    for (const [name, item] of Object.entries(value)) {
      onString(name, null);
      visitStrings(item, name, depth + 1, onString);
    }
  }
}
