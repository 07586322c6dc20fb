import { createHmac, timingSafeEqual } from "node:crypto";
import { inspect } from "node:util";

/** A key, or another string that is worth money. It hides itself wherever it is printed. */
export class Secret {
  /** What a person may see: enough to tell two keys apart in a console, too little to help a thief. */
  readonly fingerprint: string;
  readonly #value: string;
  /** How another program's text may spell it, the longest spelling first. */
  readonly #spellings: readonly string[];

  constructor(value: string) {
    this.#value = value;
    this.#spellings = spellingsOf(value);
    this.fingerprint = `…${value.slice(value.length < 16 ? -2 : -4)}`;
  }

  /** A set that finds any of these secrets in a text. */
  static together(secrets: readonly Secret[]): SecretSet {
    return new SecretSet(secrets.flatMap((secret) => secret.#spellings));
  }

  /** The bare string, for the wire or a key store. The architecture test lists the files that may call this. */
  reveal(): string {
    return this.#value;
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

  isIn(text: string | Buffer): boolean {
    for (const spelling of this.#spellings) if (text.includes(spelling)) return true;
    return false;
  }

  redactFrom(text: string): string {
    let clean = text;
    for (const spelling of this.#spellings) clean = clean.replaceAll(spelling, REDACTED);
    return clean;
  }

  /** Replaces it with as many asterisks, so that the length of the text stays the same. */
  maskIn(text: string): string {
    let clean = text;
    for (const spelling of this.#spellings) clean = clean.replaceAll(spelling, "*".repeat(spelling.length));
    return clean;
  }

  /** How many of the last bytes may be the beginning of it. */
  begunAtEndOf(bytes: Buffer): number {
    const longestSpelling = this.#spellings[0]?.length ?? 0;
    const tail = bytes.toString("latin1", Math.max(0, bytes.length - longestSpelling + 1));
    let begun = 0;
    for (const spelling of this.#spellings) {
      const first = spelling.charAt(0);
      for (let at = tail.indexOf(first); at !== -1; at = tail.indexOf(first, at + 1)) {
        if (spelling.startsWith(tail.slice(at))) begun = Math.max(begun, tail.length - at);
      }
    }
    return begun;
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

/** Finds many secrets in one pass over a text. Made by Secret.together. */
export class SecretSet {
  /** null: there are no secrets. */
  readonly #pattern: RegExp | null;

  constructor(spellings: readonly string[]) {
    // An alternation takes the first that matches. The longest comes first, so that nothing is left of a key that begins
    // with another one.
    const longestFirst = spellings.toSorted((a, b) => b.length - a.length).map(escapeRegExp);
    this.#pattern = longestFirst.length === 0 ? null : new RegExp(longestFirst.join("|"), "g");
  }

  isIn(text: string): boolean {
    return this.#pattern !== null && text.search(this.#pattern) !== -1;
  }

  redactFrom(text: string): string {
    return this.#pattern === null ? text : text.replace(this.#pattern, REDACTED);
  }
}

const REDACTED = "[redacted]";

function escapeRegExp(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");
}

/** As it is; in JSON as JavaScript, Go (which escapes &) and PHP (which escapes /) write it; and in a URL. */
function spellingsOf(value: string): string[] {
  const json = JSON.stringify(value).slice(1, -1);
  // A broken file may hold half a surrogate pair, which encodeURIComponent refuses.
  const url = /[^\x21-\x7e]/.test(value) ? value : encodeURIComponent(value);
  const all = [json.replaceAll("&", "\\u0026"), json.replaceAll("/", "\\/"), json, url, value];
  return [...new Set(all)].filter((one) => one !== "").toSorted((a, b) => b.length - a.length);
}

const PLACEHOLDER = /[<>]|\.\.\.|YOUR|REPLACE|xxxx|your[-_]|replace[-_]/;

/** Why a text cannot be a complete key; null: it can. A gateway answers 401 to all of these without a reason. */
export function keyFault(text: string): string | null {
  if (text === "") return "the key is empty";
  if (/[\r\n]/.test(text)) return "the key contains a line break";
  if (/\s/.test(text)) return "the key contains a space";
  if (/[^\x21-\x7e]/.test(text)) return "the key contains a character that is not plain ASCII";
  if (text.length < 8) return "the key has fewer than 8 characters";
  if (PLACEHOLDER.test(text)) return "the key is a placeholder, not a key";
  return null;
}
