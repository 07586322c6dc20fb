import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import { inspect } from "node:util";
import { numberAt, parseObject } from "./json.ts";
import { KeySearch } from "./key-search.ts";
import { mergeSpans, type Span } from "./spans.ts";

/** A key, or another string that is worth money. It is hidden in everything that is printed. */
export class Secret {
  /** What a person may see: enough to distinguish two keys in a console, too little to help a thief. */
  readonly fingerprint: string;
  readonly #value: string;
  #search: KeySearch | null = null;

  constructor(value: string) {
    this.#value = value;
    this.fingerprint = `…${value.slice(value.length < 16 ? -2 : -4)}`;
  }

  /** A set that finds any of these secrets in a text. */
  static together(secrets: readonly Secret[]): SecretSet {
    return new SecretSet(secrets.map((secret) => secret.#finder));
  }

  /** Prepared once, when it is first needed: most secrets are only read and compared. */
  get #finder(): KeySearch {
    this.#search ??= new KeySearch(this.#value);
    return this.#search;
  }

  /** The bare string, for the wire or a key store. The architecture test lists the files that may call this. */
  reveal(): string {
    return this.#value;
  }

  /** Scheme, host and port of a secret that is an address: what a person may see of it. null: it is none. */
  origin(): string | null {
    const url = URL.canParse(this.#value) ? new URL(this.#value) : null;
    return url !== null && /^https?:$/.test(url.protocol) ? url.origin : null;
  }

  equals(other: Secret): boolean {
    const salt = "equality";
    return timingSafeEqual(Buffer.from(this.digest(salt)), Buffer.from(other.digest(salt)));
  }

  /** Whether it begins and ends like what a console shows of a key. A leading `sk-` is ignored. */
  hasEnds(head: string, tail: string): boolean {
    const value = this.#value.replace(/^sk-/, "");
    const shown = head.length + tail.length;
    return shown >= 6 && shown < value.length && value.startsWith(head) && value.endsWith(tail);
  }

  /** A salted digest identifies a key that is not stored. */
  digest(salt: string): string {
    return createHmac("sha256", salt).update(this.#value).digest("hex");
  }

  /** By which LiteLLM names a key. Not stored: a salted digest serves for that. */
  sha256(): string {
    return createHash("sha256").update(this.#value).digest("hex");
  }

  /** Whether a text holds it or enough of it to recognize it, plain or encoded (key-search.ts). */
  isIn(text: string | Buffer): boolean {
    return this.#finder.find(text).length > 0;
  }

  /** When it expires, as a JSON Web Token says by itself, in milliseconds UTC; null: it does not say. */
  get expiresAt(): number | null {
    const [, payload = "", signature] = this.#value.split(".");
    if (signature === undefined) return null;
    const seconds = numberAt(parseObject(Buffer.from(payload, "base64url").toString("utf8")), "exp");
    return seconds === null ? null : seconds * 1000;
  }

  redactFrom(text: string): string {
    return replaced(text, this.#finder.find(text), () => REDACTED);
  }

  /** Replaces it with as many asterisks, so that the length of the text stays the same. */
  maskIn(text: string): string {
    return replaced(text, this.#finder.find(text), ({ from, to }) => "*".repeat(to - from));
  }

  /** How many of the last bytes are a part of it, if only one letter. */
  partAtEndOf(bytes: Buffer): number {
    return this.#finder.partAtEnd(bytes);
  }

  /** How many of the last bytes may be the beginning of it, or are a long part, and must not be sent yet. */
  begunAtEndOf(bytes: Buffer, part = this.partAtEndOf(bytes)): number {
    return part === 0 ? 0 : this.#finder.heldAtEnd(bytes, part);
  }

  toString(): string {
    return `[key ${this.fingerprint}]`;
  }

  toJSON(): string {
    return this.toString();
  }

  [inspect.custom](): string {
    return this.toString();
  }
}

/** Finds many secrets in a text. Made by Secret.together. */
export class SecretSet {
  readonly #finders: readonly KeySearch[];

  constructor(finders: readonly KeySearch[]) {
    this.#finders = finders;
  }

  isIn(text: string): boolean {
    for (const finder of this.#finders) if (finder.find(text).length > 0) return true;
    return false;
  }

  redactFrom(text: string): string {
    if (!this.isIn(text)) return text;
    // All at once: one key may begin with another.
    const spans = mergeSpans(this.#finders.flatMap((finder) => finder.find(text)));
    return replaced(text, spans, () => REDACTED);
  }
}

const REDACTED = "[redacted]";

function replaced(text: string, spans: readonly Span[], write: (span: Span) => string): string {
  if (spans.length === 0) return text;
  let clean = "";
  let at = 0;
  for (const span of spans) {
    clean += text.slice(at, span.from) + write(span);
    at = span.to;
  }
  return clean + text.slice(at);
}

const PLACEHOLDER = /[<>]|\.\.\.|YOUR|REPLACE|xxxx|your[-_]|replace[-_]/;

/** Why a text cannot be a complete key; null: it can. A gateway answers 401 to all of these without a reason. */
export function keyProblem(text: string): string | null {
  if (text === "") return "the key is empty";
  if (/[\r\n]/.test(text)) return "the key contains a line break";
  if (/\s/.test(text)) return "the key contains a space";
  if (/[^\x21-\x7e]/.test(text)) return "the key contains a character that is not plain ASCII";
  if (text.length < 8) return "the key has fewer than 8 characters";
  if (PLACEHOLDER.test(text)) return "the key is a placeholder, not a key";
  return null;
}
