import { textAt } from "../../core/json.ts";
import { redactKeyShapes } from "../../core/redact.ts";

/** The cleaned text of a field; null if there is none. */
export function cleanAt(value: unknown, name: string): string | null {
  const clean = cleanText(textAt(value, name) ?? "");
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
