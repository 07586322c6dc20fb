import { createHmac, timingSafeEqual } from "node:crypto";
import { inspect } from "node:util";
import { SecretSet } from "./redact.ts";
import { mergeSpans, type Span } from "./spans.ts";

/** A key, or another string that is worth money. It hides itself wherever it is printed. */
export class Secret {
  readonly #value: string;
  /** The spellings in which somebody else's text may hold it, each once. */
  readonly #spellings: readonly string[];
  readonly #fingerprint: string;

  constructor(value: string) {
    this.#value = value;
    this.#spellings = spellingsOf(value);
    this.#fingerprint = `…${value.slice(value.length < 16 ? -2 : -4)}`;
  }

  /** Looks for all of them at once, the longest first: of one that begins with another nothing must be left. */
  static together(secrets: readonly Secret[]): SecretSet {
    const sorted = secrets.toSorted((a, b) => b.longest - a.longest);
    const spellings = sorted.flatMap((secret) => secret.#spellings);
    return new SecretSet(sorted, spellings);
  }

  /**
   * The bare string. Called only where a key meets the wire or its store; the architecture test holds the list
   * of files that may.
   */
  reveal(): string {
    return this.#value;
  }

  /** What a person may see: enough to tell two keys apart in a console, too little to help a thief. */
  get fingerprint(): string {
    return this.#fingerprint;
  }

  equals(other: Secret): boolean {
    const salt = "equality";
    return timingSafeEqual(Buffer.from(this.digest(salt)), Buffer.from(other.digest(salt)));
  }

  /** Whether it begins and ends like what a console shows of a key; a leading `sk-` is left aside. */
  hasEnds(head: string, tail: string): boolean {
    const value = this.#value.replace(/^sk-/, "");
    const shown = head.length + tail.length;
    return shown >= 6 && shown < value.length && value.startsWith(head) && value.endsWith(tail);
  }

  /** A salted digest, by which a key can be known again without being kept. */
  digest(salt: string): string {
    return createHmac("sha256", salt).update(this.#value).digest("hex");
  }

  /** Takes this secret out of a text that somebody else wrote, also where that text escapes it. */
  redactFrom(text: string): string {
    let clean = text;
    // Nearly never it is there, and to see that is cheaper than to replace nothing.
    for (const one of this.#spellings) if (clean.includes(one)) clean = clean.replaceAll(one, "[redacted]");
    return clean;
  }

  /** The same for as many characters, so that what stands behind it stays where it was. */
  maskIn(text: string): string {
    return this.#spellings.reduce((clean, one) => clean.replaceAll(one, "*".repeat(one.length)), text);
  }

  /** Characters of its longest spelling. */
  get longest(): number {
    return this.#spellings[0]?.length ?? 0;
  }

  /** How many bytes at the end of these may be the beginning of it. */
  begunAtEndOf(bytes: Buffer): number {
    const tail = bytes.toString("latin1", Math.max(0, bytes.length - this.longest + 1));
    let longest = 0;
    for (const one of this.#spellings) {
      for (let at = tail.indexOf(one[0] ?? ""); at !== -1; at = tail.indexOf(one[0] ?? "", at + 1)) {
        if (one.startsWith(tail.slice(at))) longest = Math.max(longest, tail.length - at);
      }
    }
    return longest;
  }

  isIn(text: string | Buffer): boolean {
    for (const spelling of this.#spellings) if (text.includes(spelling)) return true;
    return false;
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

/** As it is; in JSON as JavaScript, Go (which escapes &) and PHP (which escapes /) write it; and in an address. */
function spellingsOf(value: string): string[] {
  const json = JSON.stringify(value).slice(1, -1);
  // Half a character, which a broken file can hold, cannot be written in an address.
  const address = /[^\x21-\x7e]/.test(value) ? value : encodeURIComponent(value);
  const all = [json.replaceAll("&", "\\u0026"), json.replaceAll("/", "\\/"), json, address, value];
  // Longest first: the bare one may be a part of another.
  return [...new Set(all)].filter((one) => one !== "").toSorted((a, b) => b.length - a.length);
}

const PLACEHOLDER = /[<>]|\.\.\.|YOUR|REPLACE|xxxx|your[-_]|replace[-_]/;

/**
 * Why a text cannot be a complete key, or null. The gateway would answer all of these with the same puzzling 401
 * (SPEC.md section 7, "incomplete key"), so they are told apart here. The value itself is never in the answer.
 */
export function keyFault(text: string): string | null {
  if (text === "") return "the key is empty";
  if (/[\r\n]/.test(text)) return "the key has a line break in it";
  if (/\s/.test(text)) return "the key has a space in it";
  if (/[^\x21-\x7e]/.test(text)) return "the key has a character that is not plain ASCII in it";
  if (text.length < 8) return "the key has fewer than 8 characters";
  if (PLACEHOLDER.test(text)) return "the key is a placeholder, not a key";
  return null;
}

/** Strings of these shapes are somebody's real credential, whoever they belong to. */
const CREDENTIAL_SHAPE =
  /\b(?:sk|pk|rk|gsk|xai|ghp|gho|github_pat|hf|AIza|AKIA|ya29|pplx|nvapi|r8|kb)[-_][A-Za-z0-9._-]{6,}|\bAIza[A-Za-z0-9_-]{10,}|\beyJ[A-Za-z0-9._-]{20,}/g;
const LONG_RUN = /[A-Za-z0-9_+/=-]{24,}/g;

/** Names of models are long runs too, but of short words: claude-sonnet-4-5-20250929 is no secret. */
function looksRandom(run: string): boolean {
  if (/[a-z]/.test(run) && /[A-Z]/.test(run) && /[0-9]/.test(run)) return true;
  return run.split(/[-_]/).some((part) => part.length >= 16 && /[0-9]/.test(part));
}

/** In an address the user name can be as secret as the password: some services take a token there. */
const USER_INFO = /(?<=:\/\/)[^\s/?#"'\\]+(?=@)/g;

/** Where a text whose structure is not known, such as a broken line, holds what has the shape of a credential. */
export function credentialSpans(text: string): Span[] {
  const shaped = [...text.matchAll(CREDENTIAL_SHAPE), ...text.matchAll(USER_INFO)];
  for (const run of text.matchAll(LONG_RUN)) {
    // A token's hash is no secret, and a person needs to see it to compare it.
    const isHash = text.slice(Math.max(0, run.index - 7), run.index) === "sha256:" && HEX.test(run[0]);
    if (!isHash && looksRandom(run[0])) shaped.push(run);
  }
  return mergeSpans(shaped.map((match) => ({ from: match.index, to: match.index + match[0].length })));
}

const HEX = /^[0-9a-f]+$/i;

/** Hides whatever has the shape of a credential. */
export function redactCredentials(text: string): string {
  let shown = "";
  let at = 0;
  for (const { from, to } of credentialSpans(text)) {
    shown += `${text.slice(at, from)}[hidden]`;
    at = to;
  }
  return shown + text.slice(at);
}

/** Only what begins as keys do: a long id of something harmless stays readable. */
export function redactKeyShapes(text: string): string {
  return text.replace(CREDENTIAL_SHAPE, "[hidden]");
}

/** Whether there is nothing for blotKeyShapes to hide. */
export function isFreeOfKeyShapes(text: string): boolean {
  return text.search(CREDENTIAL_SHAPE) === -1;
}

export function looksLikeCredential(text: string): boolean {
  return credentialSpans(text).length > 0;
}
