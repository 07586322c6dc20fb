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
  QUOTE,
  ValueSkip,
} from "./json-bytes.ts";

/** Bytes kept of one value, unless told otherwise. */
const MOST_BYTES = 64 * 1024;

/** What comes next. `between`: the elements of a list that is the whole document. */
type State = Mark | "value" | "in-key" | "in-value";
type Mark = "start" | "between" | "first-key" | "next-key" | "colon" | "after";

/** Paths of one or two keys, and what follows from them: worked out once, since every request scans for the same ones. */
export interface Wanted {
  readonly paths: ReadonlySet<string>;
  /** The outer keys of the paths of two. */
  readonly parents: ReadonlySet<string>;
  /** Bytes of the longest key as it may be written. */
  readonly longestKey: number;
}

/** @param paths "model", "response.usage". Not a path together with its own outer key. */
export function wantedFields(paths: readonly string[]): Wanted {
  const ofTwo = paths.filter((path) => path.includes("."));
  const keys = paths.flatMap((path) => path.split("."));
  return {
    paths: new Set(paths),
    parents: new Set(ofTwo.map((path) => path.slice(0, path.indexOf(".")))),
    // Every character of a key may be written as \u0000, and the quotes are read with it.
    longestKey: 2 + 6 * Math.max(0, ...keys.map((key) => key.length)),
  };
}

/**
 * Finds a few fields of a JSON text as its bytes pass, cut anywhere, without building or keeping the document. It reads
 * the two outer levels; what lies deeper, and what is not wanted, is passed over by its quotes and brackets and not
 * checked. Broken JSON, as far as it is noticed, holds no fields; one that was cut holds what came. A list of objects
 * counts as that many documents, of which the last to tell a field tells it (Gemini streams so without alt=sse).
 */
export class FieldScan {
  readonly #wanted: ReadonlySet<string>;
  /** The outer keys of the wanted paths of two. */
  readonly #parents: ReadonlySet<string>;
  readonly #most: number;
  readonly #toEnd: boolean;
  readonly #longestKey: number;
  readonly #seen = new Set<string>();
  readonly #found = new Map<string, unknown>();
  readonly #skip = new ValueSkip();
  readonly #pieces = new Pieces();
  #state: State = "start";
  #done = false;
  #inList = false;
  /** In which of the two levels the next key lies; 0: outside of any object. */
  #level = 0;
  /** On the second level: the outer key and a dot. */
  #prefix = "";
  /** The key whose value comes, and the path as which that is wanted. */
  #key: string | null = null;
  #path: string | null = null;

  /**
   * @param wanted see wantedFields.
   * @param most a longer value counts as not found.
   * @param toEnd false: done as soon as each field was seen, and of a key that stands twice the first counts. That is
   *   for a request, where the rest may be megabytes, and only for what is harmless to get wrong: JSON.parse, Go and
   *   Python, and so the gateway, take the last. true: read to the end, and the last counts. So for every answer.
   */
  constructor(wanted: readonly string[] | Wanted, most: number = MOST_BYTES, toEnd = false) {
    const { paths, parents, longestKey } = "paths" in wanted ? wanted : wantedFields(wanted);
    this.#wanted = paths;
    this.#parents = parents;
    this.#most = most;
    this.#toEnd = toEnd;
    this.#longestKey = longestKey;
  }

  /** Every field was seen (unless it reads to the end), or the document ended, or it is no JSON. */
  get done(): boolean {
    return this.#done;
  }

  /** The value, as JSON.parse gives it; undefined: not found. */
  get(path: string): unknown {
    return this.#found.get(path);
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
        if (byte === QUOTE) return this.#begin("in-key", byte, this.#longestKey);
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
    if (byte === OPEN_OBJECT) return this.#open(1, "");
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
      this.#path = null;
      return this.#beginValue(byte);
    }
    return 1;
  }

  #open(level: 1 | 2, prefix: string): 1 {
    this.#level = level;
    this.#prefix = prefix;
    this.#state = "first-key";
    return 1;
  }

  #close(): 1 {
    const outer = this.#level === 2;
    this.#level = outer ? 1 : 0;
    this.#prefix = "";
    if (outer) this.#state = "after";
    else if (this.#inList) this.#state = "between";
    else this.#done = true;
    return 1;
  }

  #fail(): 1 {
    this.#done = true;
    this.#found.clear();
    return 1;
  }

  #begin(state: "in-key" | "in-value", byte: number, most: number): 0 {
    this.#state = state;
    this.#skip.begin(byte);
    this.#pieces.begin(most);
    return 0;
  }

  #beginValue(byte: number): 0 | 1 {
    const opens = this.#level === 1 && this.#key !== null && this.#parents.has(this.#key);
    if (opens && byte === OPEN_OBJECT) return this.#open(2, `${this.#key}.`);
    if (byte === COMMA || byte === COLON || byte === CLOSE_LIST || byte === CLOSE_OBJECT) return this.#fail();
    return this.#begin("in-value", byte, this.#path === null ? 0 : this.#most);
  }

  #read(chunk: Buffer, at: number, state: "in-key" | "in-value"): number {
    const end = this.#skip.pass(chunk, at);
    const kept = state === "in-key" || this.#path !== null;
    if (!this.#skip.whole) {
      if (kept) this.#pieces.add(chunk, at, end);
      return end;
    }
    const text = kept ? this.#pieces.take(chunk, at, end) : null;
    if (state === "in-key") this.#endKey(text);
    else this.#endValue(text);
    return end;
  }

  #endKey(text: string | null): void {
    this.#state = "colon";
    const key = text?.includes("\\") ? parsed(text) : text?.slice(1, -1);
    this.#key = typeof key === "string" ? key : null;
    const path = this.#prefix + (this.#key ?? "");
    // A dot in a key of the first level is no path: {"response.usage":1}.
    const meant = this.#key !== null && this.#wanted.has(path) && !this.#key.includes(".");
    this.#path = meant ? path : null;
    // A key that stands twice takes back what the object below it said before.
    if (this.#level !== 1 || this.#inList || !this.#parents.has(path)) return;
    for (const below of this.#wanted) if (below.startsWith(`${path}.`)) this.#found.delete(below);
  }

  #endValue(text: string | null): void {
    this.#state = this.#level === 0 ? "between" : "after";
    if (this.#path === null) return;
    this.#seen.add(this.#path);
    const value = text === null ? undefined : parsed(text);
    if (text !== null && value === undefined) {
      this.#fail();
      return;
    }
    // Too long to be kept, it still stands last.
    if (value === undefined) this.#found.delete(this.#path);
    else this.#found.set(this.#path, value);
    if (!this.#toEnd && this.#seen.size === this.#wanted.size) this.#done = true;
  }
}
