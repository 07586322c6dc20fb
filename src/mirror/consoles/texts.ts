import { blotKeyShapes } from "../../secret.ts";
import { type JsonObject, textAt } from "./json.ts";

const MOST_CHARACTERS = 200;
/** Longer than this, a text is cut before it is searched: what a console writes must not cost us time. */
const MOST_SEARCHED = 4096;

/**
 * A console's text, fit to be kept and to be shown on a terminal: nothing shaped like a key, no character that moves a
 * cursor or turns the direction of writing, not long.
 */
export function cleanText(text: string, most: number = MOST_CHARACTERS): string {
  // Blotted before it is cut, so that no key's beginning is left, and after the control characters that could split one.
  const printable = text.slice(0, MOST_SEARCHED).replace(COLOUR, " ").replace(UNPRINTABLE, " ");
  const plain = blotKeyShapes(printable).trim();
  const characters = [...plain];
  return characters.length <= most ? plain : `${characters.slice(0, most - 1).join("")}…`;
}

/** Taken out whole: the letter at its end would stick to a key behind it, which then no longer looks like one. */
const COLOUR = /\p{Cc}\[[\d;?]*[A-Za-z~]/gu;
/** Control and format characters, halves of characters, and the separators that some terminals break a line at. */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]+/gu;

/** The cleaned text at a name; null where there is none, or nothing in it. */
export function cleanAt(object: JsonObject, name: string): string | null {
  const text = textAt(object, name);
  const clean = text === null ? "" : cleanText(text);
  return clean === "" ? null : clean;
}
