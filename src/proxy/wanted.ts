import { BACKSLASH, parsed } from "./json-bytes.ts";

/** Paths of one or two keys, and what follows from them: worked out once, since every request scans for the same ones. */
export interface Wanted {
  readonly keys: WantedKeys;
  /** How many paths there are. */
  readonly size: number;
  /** Bytes of the longest key as it may be written. */
  readonly longestKey: number;
  /** Of this path it is also kept which value stood there first; null: of none. */
  readonly watched: string | null;
}

/** A key of which the value is wanted, or something below it. */
export interface WantedKey {
  readonly name: string;
  readonly bytes: Buffer;
  /** null: only what lies below it is wanted. */
  readonly path: string | null;
  /** The wanted keys of the object below it; null: there are none. */
  readonly inner: WantedKeys | null;
}

/** @param paths "model", "response.usage". Not a path together with its own outer key. */
export function wantedFields(paths: readonly string[], watched: string | null = null): Wanted {
  const names = [...new Set(paths.map((path) => path.split(".")[0] ?? ""))];
  const keys = names.map((name): WantedKey => {
    const below = paths.filter((path) => path.startsWith(`${name}.`));
    const inner = below.map((path) => keyOf(path.slice(name.length + 1), path, null));
    return keyOf(
      name,
      paths.includes(name) ? name : null,
      inner.length === 0 ? null : new WantedKeys(inner, below),
    );
  });
  const longest = Math.max(0, ...paths.flatMap((path) => path.split(".")).map((key) => key.length));
  return {
    keys: new WantedKeys(keys, paths),
    size: new Set(paths).size,
    // Every character of a key may be written as \u0000, and the quotes are read with it.
    longestKey: 2 + 6 * longest,
    watched,
  };
}

function keyOf(name: string, path: string | null, inner: WantedKeys | null): WantedKey {
  return { name, bytes: Buffer.from(name), path, inner };
}

/** A field that was found, and its value as JSON.parse gives it. */
export interface Found {
  readonly path: string;
  value: unknown;
}

/** The wanted keys of one object, found by their bytes: most keys of a document are others, and no text is made of them. */
export class WantedKeys {
  /** The paths of all of them and of what is wanted below them. */
  readonly paths: readonly string[];
  readonly #byFirst: readonly (readonly WantedKey[] | null)[];
  readonly #all: readonly WantedKey[];

  constructor(keys: readonly WantedKey[], paths: readonly string[]) {
    this.#all = keys;
    this.paths = paths;
    this.#byFirst = Array.from({ length: 256 }, (_, byte) => {
      const beginning = keys.filter(({ bytes }) => bytes[0] === byte);
      return beginning.length === 0 ? null : beginning;
    });
  }

  /** The key that is written from one quote to the other; null: it is none of these. */
  find(chunk: Buffer, quote: number, end: number): WantedKey | null {
    const from = quote + 1;
    const length = end - 1 - from;
    const first = chunk[from] ?? 0;
    const candidates = this.#byFirst[first] ?? null;
    // Only a key that begins as one of these, or with an escape, can be one of these.
    if (candidates === null && first !== BACKSLASH) return null;
    for (let i = 0; candidates !== null && i < candidates.length; i += 1) {
      const key = candidates[i];
      if (key !== undefined && key.bytes.length === length && stands(key.bytes, chunk, from)) return key;
    }
    return hasEscape(chunk, from, end) ? this.named(chunk.toString("latin1", quote, end)) : null;
  }

  /** The same for a key as it is written, with its quotes. */
  named(written: string): WantedKey | null {
    const name = written.includes("\\") ? parsed(written) : written.slice(1, -1);
    return this.#all.find((key) => key.name === name) ?? null;
  }
}

function stands(bytes: Buffer, chunk: Buffer, from: number): boolean {
  for (let i = 1; i < bytes.length; i += 1) if (bytes[i] !== chunk[from + i]) return false;
  return true;
}

function hasEscape(chunk: Buffer, from: number, to: number): boolean {
  for (let at = from; at < to; at += 1) if (chunk[at] === BACKSLASH) return true;
  return false;
}
