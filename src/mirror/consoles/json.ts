import { redactKeyShapes } from "../../core/redact.ts";

/** Untrusted JSON: each field is checked when it is read. A field that is missing or of another type reads as null. */
export type JsonObject = Readonly<Record<string, unknown>>;

export function asFields(value: unknown): JsonObject | null {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as JsonObject) : null;
}

/** null: not JSON, or not an object. */
export function parseObject(text: string): JsonObject | null {
  try {
    return asFields(JSON.parse(text));
  } catch {
    return null;
  }
}

/** Own fields only, so that "constructor" is never Object's. */
export function fieldAt(object: JsonObject, name: string): unknown {
  return Object.hasOwn(object, name) ? object[name] : undefined;
}

export function objectAt(object: JsonObject, name: string): JsonObject | null {
  return asFields(fieldAt(object, name));
}

export function listAt(object: JsonObject, name: string): readonly unknown[] | null {
  const value = fieldAt(object, name);
  return Array.isArray(value) ? value : null;
}

/** Raw text: use cleanAt for what is stored or shown. */
export function textAt(object: JsonObject, name: string): string | null {
  const value = fieldAt(object, name);
  return typeof value === "string" ? value : null;
}

export function numberAt(object: JsonObject, name: string): number | null {
  const value = fieldAt(object, name);
  // 1e999 is valid JSON and reads as Infinity.
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

/** An integer that a double holds exactly. */
export function wholeAt(object: JsonObject, name: string): number | null {
  const value = fieldAt(object, name);
  return typeof value === "number" && Number.isSafeInteger(value) ? value : null;
}

/** An integer that is not negative. */
export function countAt(object: JsonObject, name: string): number | null {
  const value = wholeAt(object, name);
  return value !== null && value >= 0 ? value : null;
}

export function flagAt(object: JsonObject, name: string): boolean | null {
  const value = fieldAt(object, name);
  return typeof value === "boolean" ? value : null;
}

/** The cleaned text of a field; null if there is none. */
export function cleanAt(object: JsonObject, name: string): string | null {
  const clean = cleanText(textAt(object, name) ?? "");
  return clean === "" ? null : clean;
}

const MAX_CHARACTERS = 200;
/** Longer texts are cut before they are searched, so that a console cannot make us spend time. */
const MAX_SEARCHED = 4096;
/** Removed as a whole: the letter at its end would otherwise stick to a key that follows, and hide it. */
const COLOR_CODE = /\p{Cc}\[[\d;?]*[A-Za-z~]/gu;
/** Control and format characters, lone surrogates, and separators at which some terminals break the line. */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]+/gu;

/** Makes a console's text safe to store and to print: no keys, no control characters, at most 200 characters. */
export function cleanText(text: string, redact: (text: string) => string = redactKeyShapes): string {
  // Control characters could split a key, and cutting could leave its first part: so keys are hidden between the two.
  const printable = text.slice(0, MAX_SEARCHED).replace(COLOR_CODE, " ").replace(UNPRINTABLE, " ");
  const clean = redact(printable).trim();
  const characters = [...clean];
  return characters.length <= MAX_CHARACTERS ? clean : `${characters.slice(0, MAX_CHARACTERS - 1).join("")}…`;
}
