import { randomBytes } from "node:crypto";
import { lstatSync } from "node:fs";
import { lstat } from "node:fs/promises";
import { errorCode } from "../core/errors.ts";
import { isObject, type JsonObject, parseObject } from "../core/json.ts";
import { ForeignFile, readOwnFile } from "../core/own-file.ts";
import { fileVersion, writePrivateFile } from "../core/private-file.ts";

/** Where a key or a source may be used. */
export interface Pin {
  /** Scheme, host and port; or a proxy, or a certificate authority. */
  readonly origins: readonly string[];
  /** The tool or gateway it was first used with. */
  readonly name: string;
  /** Its first use, milliseconds UTC. */
  readonly since: number;
  /** The last characters of a key, so that a console's list can be compared with it. */
  readonly fingerprint?: string | undefined;
}

export interface SourcePin extends Pin {
  /** The file, the variable, or the program without its arguments, for messages. */
  readonly words: string;
}

/** Everything that is trusted, by salted digests: neither a key nor an argument is stored. */
export interface Pins {
  readonly salt: string;
  /**
   * Earlier pins were lost, so a key that is not listed may be a known one and needs confirmation. Stays true until a person
   * confirms all of them.
   */
  readonly lost: boolean;
  readonly keys: Map<string, Pin>;
  /** Commands, variables and files outside keybearer's folders. Without a pin they are not read. */
  readonly sources: Map<string, SourcePin>;
  /** Where tools, and sources without a pin of their own, were used: their new keys belong there, too. */
  readonly uses: Map<string, Pin>;
}

type FoundPins =
  | { readonly state: "found"; readonly pins: Pins; readonly identity: string }
  | { readonly state: "missing" }
  /** There is a file, but it cannot be used. */
  | { readonly state: "broken"; readonly problem: string; readonly identity: string | null };

/** Several times the size of all possible pins. */
const MAX_BYTES = 64 * 1024 * 1024;
const VERSION = 1;

export function emptyPins(lost: boolean): Pins {
  return {
    salt: randomBytes(32).toString("hex"),
    lost,
    keys: new Map(),
    sources: new Map(),
    uses: new Map(),
  };
}

export function readPins(file: string): FoundPins {
  const found = lstatSync(file, { bigint: true, throwIfNoEntry: false });
  if (found === undefined) return { state: "missing" };
  const identity = fileVersion(found);
  // The mode of a link says nothing, and a link is refused below.
  if ((found.mode & 0o022n) !== 0n && !found.isSymbolicLink())
    return { state: "broken", problem: "other users can write to it (it must have mode 600)", identity };
  try {
    const pins = parsePins(readOwnFile(file, MAX_BYTES) ?? "");
    return pins === null
      ? { state: "broken", problem: "it is damaged", identity }
      : { state: "found", pins, identity };
  } catch (error) {
    const problem =
      error instanceof ForeignFile ? error.message : `it could not be read (${errorCode(error)})`;
    return { state: "broken", problem, identity };
  }
}

/** Writes the pins whole or not at all, and returns the identity of the file. Throws. */
export function writePins(file: string, pins: Pins): Promise<string> {
  return writePrivateFile(file, pinsText(pins));
}

/** Differs between two versions of the file; null if it cannot be seen. */
export async function pinsIdentity(file: string): Promise<string | null> {
  try {
    return fileVersion(await lstat(file, { bigint: true }));
  } catch {
    return null;
  }
}

function pinsText(pins: Pins): string {
  const list = (map: ReadonlyMap<string, Pin>) => [...map].map(([digest, pin]) => ({ digest, ...pin }));
  const { salt, lost } = pins;
  const lists = { sources: list(pins.sources), uses: list(pins.uses), keys: list(pins.keys) };
  const whole = { version: VERSION, salt, lost, ...lists };
  return `${JSON.stringify(whole, null, 1)}\n`;
}

/** Strict: an entry that is not understood may be the one that protects a key, so the whole file is refused. */
function parsePins(text: string): Pins | null {
  const whole = parseObject(text);
  if (whole?.version !== VERSION) return null;
  const { salt, lost } = whole;
  if (typeof salt !== "string" || !/^[0-9a-f]{64}$/.test(salt) || typeof lost !== "boolean") return null;
  const keys = parseList(whole.keys, parsePin);
  const sources = parseList(whole.sources, parseSourcePin);
  const uses = parseList(whole.uses, parsePin);
  return keys === null || sources === null || uses === null ? null : { salt, lost, keys, sources, uses };
}

function parseList<T>(list: unknown, parse: (entry: JsonObject) => T | null): Map<string, T> | null {
  if (!Array.isArray(list)) return null;
  const map = new Map<string, T>();
  for (const entry of list) {
    const pin = isObject(entry) ? parse(entry) : null;
    if (pin === null || typeof entry.digest !== "string" || !/^[0-9a-f]{64}$/.test(entry.digest)) return null;
    if (map.has(entry.digest)) return null;
    map.set(entry.digest, pin);
  }
  return map;
}

function parsePin(entry: JsonObject): Pin | null {
  const { origins, name, since, fingerprint } = entry;
  if (!isTextList(origins) || typeof name !== "string" || typeof since !== "number") return null;
  if (fingerprint !== undefined && typeof fingerprint !== "string") return null;
  return { origins, name, since, fingerprint };
}

function parseSourcePin(entry: JsonObject): SourcePin | null {
  const pin = parsePin(entry);
  return pin === null || typeof entry.words !== "string" ? null : { ...pin, words: entry.words };
}

function isTextList(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((item) => typeof item === "string");
}
