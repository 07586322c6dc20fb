import { keyBody } from "./redact.ts";
import { mergeSpans, type Span } from "./spans.ts";

/*
 * Finds a key in what another program sends back, also a part of it or an encoded one. Almost no text contains a key, so
 * the pass over the text must be cheap, however many forms the key has. It looks at four characters and goes 13 on, so
 * that every run of 16 is met. Whether these four occur in any form is one bit of a table.
 */

/** This many consecutive characters of a key's body give it away. */
const RUN = 16;
/** If 16 consecutive bytes are known, at least this many characters of their base64 are. */
const BASE64_RUN = 20;
/** A part with fewer different characters is padding, or a line of dashes. */
const MIN_DISTINCT = 5;
const MIN_ENCODED = 8;
/** No key is longer. Of a larger file, the parts would take seconds and 100 MB. */
const MAX_ENCODED = 4096;
/** A part this long, where a chunk ends, is held back. */
const MIN_HELD = 8;
const MAX_SAMPLE = 4;
/** Bits in the table, which has 8 KB. A key of 100 characters sets 1,200. */
const SLOTS = 65_536;

/** One way to write a key. */
interface Form {
  readonly text: string;
  /** Where the key's body begins. What is before it is public. */
  readonly body: number;
  /** How many consecutive characters of the body are taken for the key. */
  readonly run: number;
  /** How many characters encode one character of the key: 2 in hex. */
  readonly width: 1 | 2;
}

export class KeySearch {
  readonly #forms: readonly Form[];
  /** How many characters are looked at, and how far it is to the next ones. */
  readonly #size: number;
  readonly #step: number;
  readonly #shortest: number;
  readonly #table = new Uint32Array(SLOTS / 32);
  /** All samples of all forms in order, with the form and the position of each. */
  readonly #samples: Int32Array;
  readonly #sampleForms: Uint8Array;
  readonly #samplePositions: Uint32Array;
  /** The characters that occur in any form. */
  readonly #isUsed = new Uint8Array(256);
  /** All forms, one on each line. */
  readonly #lines: string;
  readonly #longest: number;
  readonly #spellings: readonly string[];

  constructor(key: string) {
    this.#spellings = key === "" ? [] : listSpellings(key);
    this.#forms = listForms(key, this.#spellings);
    this.#shortest = Math.min(...this.#forms.map(({ run }) => run));
    this.#size = Math.min(MAX_SAMPLE, this.#shortest);
    this.#step = this.#shortest - this.#size + 1;
    const found: { readonly sample: number; readonly form: number; readonly at: number }[] = [];
    for (const [index, { text, body, run }] of this.#forms.entries()) {
      // One sample of each run is met. Of a form that counts only as a whole, the first ones are enough.
      const last =
        run === text.length ? Math.min(this.#step - 1, run - this.#size) : text.length - this.#size;
      for (let at = body; at <= last; at += 1) {
        const sample = sampleAt(text, at, this.#size);
        found.push({ sample, form: index, at });
        const slot = hashSlot(sample);
        this.#table[slot >>> 5] = (this.#table[slot >>> 5] ?? 0) | (1 << slot);
      }
    }
    found.sort((a, b) => a.sample - b.sample);
    this.#samples = Int32Array.from(found, ({ sample }) => sample);
    this.#sampleForms = Uint8Array.from(found, ({ form }) => form);
    this.#samplePositions = Uint32Array.from(found, ({ at }) => at);
    this.#longest = Math.max(0, ...this.#forms.map(({ text }) => text.length));
    this.#lines = this.#forms.map(({ text }) => text).join("\n");
    for (const { text } of this.#forms)
      for (const code of Buffer.from(text, "latin1")) this.#isUsed[code] = 1;
  }

  /** Where the key is, in order. */
  find(text: string | Buffer): readonly Span[] {
    if (text.length < this.#shortest) return NOTHING;
    const spans = typeof text === "string" ? this.#findInString(text) : this.#findInBytes(text);
    return spans === null ? NOTHING : mergeSpans(spans);
  }

  #findInBytes(bytes: Buffer): Span[] | null {
    // Shorter samples are those of a password of a few characters.
    if (this.#size < MAX_SAMPLE) return this.#findInString(bytes.toString("latin1"));
    const step = this.#step;
    const table = this.#table;
    // Four reads of four bytes in a round. One byte at a time and one sample at a time take three times as long.
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    const last = bytes.length - MAX_SAMPLE;
    let spans: Span[] | null = null;
    let at = 0;
    for (; at + 3 * step <= last; at += 4 * step) {
      const bits =
        readBit(table, view.getInt32(at, true)) |
        readBit(table, view.getInt32(at + step, true)) |
        readBit(table, view.getInt32(at + 2 * step, true)) |
        readBit(table, view.getInt32(at + 3 * step, true));
      if ((bits & 1) === 0) continue;
      for (let one = at; one < at + 4 * step; one += step)
        spans = this.#compare(bytes, one, view.getInt32(one, true), spans);
    }
    for (; at <= last; at += step) spans = this.#compare(bytes, at, view.getInt32(at, true), spans);
    return spans;
  }

  #findInString(text: string): Span[] | null {
    const last = text.length - this.#size;
    let spans: Span[] | null = null;
    for (let at = 0; at <= last; at += this.#step)
      spans = this.#compare(text, at, sampleAt(text, at, this.#size), spans);
    return spans;
  }

  /** Adds the runs around a sample to the spans. */
  #compare(text: string | Buffer, at: number, sample: number, before: Span[] | null): Span[] | null {
    if ((readBit(this.#table, sample) & 1) === 0) return before;
    let spans = before;
    for (let i = lowerBound(this.#samples, sample); this.#samples[i] === sample; i += 1) {
      const form = this.#forms[this.#sampleForms[i] ?? 0];
      const span = form === undefined ? null : runAround(text, at, form, this.#samplePositions[i] ?? 0);
      if (span === null) continue;
      spans ??= [];
      spans.push(span);
    }
    return spans;
  }

  /** How many of the last bytes are a part of any form. */
  partAtEnd(bytes: Buffer): number {
    const last = bytes[bytes.length - 1];
    // Events end with a line break, which is in no form.
    if (last === undefined || this.#isUsed[last] === 0) return 0;
    const longest = Math.min(bytes.length, this.#longest);
    const tail = bytes.toString("latin1", bytes.length - longest);
    // The end of a part is a part, too. So half of what is left can be excluded each time.
    let fits = 0;
    let tooLong = longest + 1;
    while (tooLong - fits > 1) {
      const length = Math.min(2 * fits + 1, (fits + tooLong) >> 1);
      if (this.#lines.includes(tail.slice(longest - length))) fits = length;
      else tooLong = length;
    }
    return fits;
  }

  /**
   * How many of the last bytes to hold back until more is known: the beginning of the key, however short, or a part of it
   * that hardly occurs by chance. Fewer characters from its middle pass, because streams must not wait for each letter.
   */
  heldAtEnd(bytes: Buffer, part: number): number {
    if (part >= MIN_HELD) return part;
    const tail = bytes.toString("latin1", bytes.length - part);
    for (let from = 0; from < part; from += 1)
      if (this.#spellings.some((spelling) => spelling.startsWith(tail.slice(from)))) return part - from;
    return 0;
  }
}

const NOTHING: readonly Span[] = Object.freeze([]);

/** A few characters as a number, the first one in its lowest byte. */
function sampleAt(text: string, at: number, size: number): number {
  let sample = 0;
  for (let i = size - 1; i >= 0; i -= 1) sample = (sample << 8) | text.charCodeAt(at + i);
  return sample;
}

/** Its lowest bit says whether a sample may be in the table. */
function readBit(table: Uint32Array, sample: number): number {
  const slot = hashSlot(sample);
  return (table[slot >>> 5] ?? 0) >>> slot;
}

function hashSlot(sample: number): number {
  return Math.imul(sample, 0x9e3779b1) >>> 16;
}

/** The position of the first number that is not smaller. */
function lowerBound(numbers: Int32Array, wanted: number): number {
  let low = 0;
  let high = numbers.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((numbers[middle] ?? 0) < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The whole run around a sample that agrees with a form; null: it is too short. */
function runAround(text: string | Buffer, at: number, form: Form, formAt: number): Span | null {
  const start = Math.max(0, at - formAt);
  const end = at + form.text.length - formAt;
  const near = typeof text === "string" ? text.slice(start, end) : text.toString("latin1", start, end);
  const offset = formAt - (at - start);
  let from = at - start;
  while (from > 0 && near[from - 1] === form.text[offset + from - 1]) from -= 1;
  let to = at - start;
  while (to < near.length && near[to] === form.text[offset + to]) to += 1;
  const bodyFrom = Math.max(from, form.body - offset);
  if (to - bodyFrom < form.run) return null;
  const isWhole = to - from === form.text.length;
  if (!isWhole && !isVaried(form, offset + bodyFrom, offset + to)) return null;
  return { from: start + from, to: start + to };
}

function isVaried({ text, width }: Form, from: number, to: number): boolean {
  const different = new Set<string>();
  for (let at = from + (from % width); at + width <= to; at += width)
    different.add(text.slice(at, at + width));
  return different.size >= MIN_DISTINCT;
}

/** Parts of a key count if its body is long enough. Of a shorter one, only the whole. */
function listForms(key: string, spellings: readonly string[]): Form[] {
  // A short password. Encoded, it would be found in ordinary texts.
  if (key.length < MIN_ENCODED || key.length > MAX_ENCODED) return spellings.map(wholeOnly);
  const bodyLength = keyBody(key).length;
  const hasParts = bodyLength >= RUN;
  const body = hasParts ? key.length - bodyLength : 0;
  const form = (text: string, from: number, run: number, width: 1 | 2 = 1): Form =>
    hasParts ? { text, body: from, run, width } : wholeOnly(text);
  const hex = Buffer.from(key, "latin1").toString("hex");
  return [
    ...spellings.map((text) => form(text, body, RUN)),
    ...withUpperCase(hex).map((text) => form(text, 2 * body, 2 * RUN, 2)),
    ...listBase64(key, body).map(({ text, from }) => form(text, from, BASE64_RUN)),
    ...escapedForms(key).map(wholeOnly),
  ];
}

function wholeOnly(text: string): Form {
  return { text, body: 0, run: text.length, width: 1 };
}

/** As it is; in JSON as JavaScript, Go (which escapes &) and PHP (which escapes /) write it; and in a URL. */
function listSpellings(key: string): string[] {
  const json = JSON.stringify(key).slice(1, -1);
  // A broken file may hold half a surrogate pair, which encodeURIComponent refuses.
  const url = /[^\x21-\x7e]/.test(key) ? key : encodeURIComponent(key);
  return [...new Set([key, json, json.replaceAll("/", "\\/"), json.replaceAll("&", "\\u0026"), url])];
}

/** In front of the key there may be any number of bytes, so it can begin at three places of a group of four characters. */
function listBase64(key: string, body: number): { readonly text: string; readonly from: number }[] {
  return [0, 1, 2].flatMap((before) => {
    const bytes = Buffer.concat([Buffer.alloc(before), Buffer.from(key, "latin1")]);
    const firstChar = (byte: number) => Math.ceil((8 * (before + byte)) / 6);
    const start = firstChar(0);
    const standard = bytes.toString("base64").slice(start, Math.floor((8 * bytes.length) / 6));
    const url = standard.replaceAll("+", "-").replaceAll("/", "_");
    return [...new Set([standard, url])].map((text) => ({ text, from: firstChar(body) - start }));
  });
}

/** Every character escaped: `\u0073`, %73, &#115; and &#x73;. */
function escapedForms(key: string): string[] {
  const each = (write: (hex: string, code: number) => string) =>
    Array.from(key, (char) => write(char.charCodeAt(0).toString(16), char.charCodeAt(0))).join("");
  const upper = (hex: string) => hex.toUpperCase();
  return [
    ...new Set([
      each((hex) => `\\u${hex.padStart(4, "0")}`),
      each((hex) => `\\u${upper(hex).padStart(4, "0")}`),
      each((hex) => `%${hex}`),
      each((hex) => `%${upper(hex)}`),
      each((_, code) => `&#${code};`),
      each((hex) => `&#x${hex};`),
      each((hex) => `&#x${upper(hex)};`),
    ]),
  ];
}

function withUpperCase(hex: string): string[] {
  return [...new Set([hex, hex.toUpperCase()])];
}
