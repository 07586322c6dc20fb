import {
  CLOSE_LIST,
  CLOSE_OBJECT,
  COLON,
  COMMA,
  isSpace,
  OPEN_LIST,
  OPEN_OBJECT,
  Pieces,
  parsed,
  parsedIn,
  QUOTE,
  ValueSkip,
} from "./json-bytes.ts";
import { type Found, type Wanted, type WantedKey, type WantedKeys, wantedFields } from "./wanted.ts";

/** Bytes kept of one value, unless told otherwise. */
const MOST_BYTES = 64 * 1024;

/** Stands for a first value that nobody can tell. */
const BROKEN: unique symbol = Symbol("broken");

/** What comes next. `between`: the elements of a list that is the whole document. */
type State = Mark | "value" | "in-key" | "in-value";
type Mark = "start" | "between" | "first-key" | "next-key" | "colon" | "after";

/**
 * Finds a few fields of a JSON text as its bytes pass, cut anywhere, without building or keeping the document. It reads
 * the two outer levels; what lies deeper, and what is not wanted, is passed over by its quotes and brackets and not
 * checked. Broken JSON, as far as it is noticed, holds no fields; one that was cut holds what came. A list of objects
 * counts as that many documents, of which the last to tell a field tells it (Gemini streams so without alt=sse).
 */
export class FieldScan {
  readonly #wanted: Wanted;
  readonly #most: number;
  readonly #toEnd: boolean;
  readonly #found: Found[] = [];
  /** Of a scan that does not read to the end: the paths that stood there, found or too long to be kept. */
  readonly #seen: string[] = [];
  readonly #skip = new ValueSkip();
  /** Of a key or value that is cut: what came of it. */
  #pieces: Pieces | null = null;
  #state: State = "start";
  #done = false;
  #inList = false;
  /** In which of the two levels the next key lies; 0: outside of any object. */
  #level = 0;
  /** The wanted keys of that level. */
  #keys: WantedKeys;
  /** The key whose value comes; null: nobody wants to know it. */
  #key: WantedKey | null = null;
  #firstSeen = false;
  #first: unknown;

  /**
   * @param wanted see wantedFields.
   * @param most a longer value counts as not found.
   * @param toEnd false: done as soon as each field was seen, and of a key that stands twice the first counts. That is
   *   for a request, where the rest may be megabytes, and only for what is harmless to get wrong: JSON.parse, Go and
   *   Python, and so the gateway, take the last. true: read to the end, and the last counts. So for every answer.
   */
  constructor(wanted: readonly string[] | Wanted, most: number = MOST_BYTES, toEnd = false) {
    this.#wanted = "watched" in wanted ? wanted : wantedFields(wanted);
    this.#most = most;
    this.#toEnd = toEnd;
    this.#keys = this.#wanted.keys;
  }

  /** Every field was seen (unless it reads to the end), or the document ended, or it is no JSON. */
  get done(): boolean {
    return this.#done;
  }

  /** In the order in which they were first found. */
  get found(): readonly Found[] {
    return this.#found;
  }

  /** The value of the watched path that stood there first; undefined: none, or it was too long. */
  get first(): unknown {
    return this.#first;
  }

  /** The value, as JSON.parse gives it; undefined: not found. */
  get(path: string): unknown {
    const found = this.#found;
    for (let i = 0; i < found.length; i += 1) if (found[i]?.path === path) return found[i]?.value;
    return undefined;
  }

  see(chunk: Buffer): void {
    let at = 0;
    while (at < chunk.length && !this.#done) {
      if (this.#state === "in-key" || this.#state === "in-value") {
        at = this.#read(chunk, at, this.#state);
        continue;
      }
      const byte = chunk[at] ?? 0;
      if (isSpace(byte)) at += 1;
      // The first byte of a value is read again, as a part of it.
      else if (this.#state === "value") at += this.#beginValue(byte);
      else at += this.#mark(this.#state, byte);
    }
  }

  /** One byte of punctuation. Returns how many bytes it was: none where it begins something. */
  #mark(state: Mark, byte: number): 0 | 1 {
    switch (state) {
      case "start":
      case "between":
        return this.#outside(state, byte);
      case "first-key":
      case "next-key":
        if (byte === QUOTE) return this.#begin("in-key", byte);
        if (byte === CLOSE_OBJECT && state === "first-key") return this.#close();
        return this.#fail();
      case "colon":
        if (byte !== COLON) return this.#fail();
        this.#state = "value";
        return 1;
      case "after":
        if (byte === CLOSE_OBJECT) return this.#close();
        if (byte !== COMMA) return this.#fail();
        this.#state = "next-key";
        return 1;
    }
  }

  #outside(state: "start" | "between", byte: number): 0 | 1 {
    if (byte === OPEN_OBJECT) return this.#open(1, this.#wanted.keys);
    if (state === "start") {
      // A byte order mark is three bytes, which may come one by one.
      if (byte === 0xef || byte === 0xbb || byte === 0xbf) return 1;
      if (byte !== OPEN_LIST) return this.#fail();
      this.#inList = true;
      this.#state = "between";
      return 1;
    }
    if (byte === CLOSE_LIST) this.#done = true;
    else if (byte !== COMMA) {
      this.#key = null;
      return this.#beginValue(byte);
    }
    return 1;
  }

  #open(level: 1 | 2, keys: WantedKeys): 1 {
    this.#level = level;
    this.#keys = keys;
    this.#state = "first-key";
    return 1;
  }

  #close(): 1 {
    const outer = this.#level === 2;
    this.#level = outer ? 1 : 0;
    this.#keys = this.#wanted.keys;
    if (outer) this.#state = "after";
    else if (this.#inList) this.#state = "between";
    else this.#done = true;
    return 1;
  }

  /** @param inside in a wanted value, or below one. */
  #fail(inside = this.#level === 2): 1 {
    this.#done = true;
    this.#found.length = 0;
    // Whoever looks for the watched path alone does not look in here, and may come upon it behind this.
    if (inside && !this.#firstSeen) this.#first = BROKEN;
    return 1;
  }

  #begin(state: "in-key" | "in-value", byte: number): 0 {
    this.#state = state;
    this.#skip.begin(byte);
    return 0;
  }

  #beginValue(byte: number): 0 | 1 {
    const inner = this.#key?.inner ?? null;
    if (inner !== null && byte === OPEN_OBJECT) return this.#open(2, inner);
    if (byte === COMMA || byte === COLON || byte === CLOSE_LIST || byte === CLOSE_OBJECT) return this.#fail();
    return this.#begin("in-value", byte);
  }

  #read(chunk: Buffer, at: number, state: "in-key" | "in-value"): number {
    const end = this.#skip.pass(chunk, at);
    if (!this.#skip.whole) {
      if (state === "in-key") this.#keep(chunk, at, end, this.#wanted.longestKey);
      else if (this.#path() !== null) this.#keep(chunk, at, end, this.#most);
    } else if (state === "in-key") this.#endKey(chunk, at, end);
    else this.#endValue(chunk, at, end);
    return end;
  }

  #keep(chunk: Buffer, from: number, to: number, most: number): void {
    this.#pieces ??= new Pieces(most);
    this.#pieces.add(chunk, from, to);
  }

  #endKey(chunk: Buffer, from: number, to: number): void {
    this.#state = "colon";
    if (this.#pieces !== null) {
      const text = this.#pieces.take(chunk, from, to);
      this.#pieces = null;
      this.#key = text === null ? null : this.#keys.named(text);
    } else this.#key = to - from > this.#wanted.longestKey ? null : this.#keys.find(chunk, from, to);
    // A key that stands twice takes back what the object below it said before.
    const inner = this.#key?.inner ?? null;
    if (inner === null || this.#inList) return;
    for (let i = this.#found.length - 1; i >= 0; i -= 1)
      if (inner.paths.includes(this.#found[i]?.path ?? "")) this.#found.splice(i, 1);
  }

  #endValue(chunk: Buffer, from: number, to: number): void {
    const path = this.#path();
    this.#state = this.#level === 0 ? "between" : "after";
    if (path === null) return;
    const pieces = this.#pieces;
    this.#pieces = null;
    const size = to - from + (pieces?.size ?? 0);
    let value: unknown;
    if (size <= this.#most) {
      value = pieces === null ? parsedIn(chunk, from, to) : parsed(pieces.take(chunk, from, to) ?? "");
      if (value === undefined) {
        this.#fail(path !== this.#wanted.watched);
        return;
      }
    }
    this.#put(path, value);
    if (this.#toEnd) return;
    if (!this.#seen.includes(path)) this.#seen.push(path);
    if (this.#seen.length === this.#wanted.size) this.#done = true;
  }

  #path(): string | null {
    return this.#key === null ? null : this.#key.path;
  }

  /** undefined: too long to be kept, it still stands last. */
  #put(path: string, value: unknown): void {
    if (path === this.#wanted.watched && !this.#firstSeen) {
      this.#firstSeen = true;
      this.#first = value;
    }
    for (let i = 0; i < this.#found.length; i += 1) {
      const known = this.#found[i];
      if (known?.path !== path) continue;
      if (value === undefined) this.#found.splice(i, 1);
      else known.value = value;
      return;
    }
    if (value !== undefined) this.#found.push({ path, value });
  }
}
