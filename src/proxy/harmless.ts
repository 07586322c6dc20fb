import type { Snapshot } from "../config/snapshot.ts";
import { blotKeyShapes, isFreeOfKeyShapes } from "../secret.ts";

/** A token, also in the middle of a word, where blotKeyShapes does not look. */
const TOKEN = /kb_[A-Za-z0-9_-]{16,}/g;
/** SQLite's own tools end a text at a NUL, and half a character is none. */
const UNWRITABLE = /[\p{Cc}\p{Cs}]/gu;
/** What is in nearly every text: nothing but printable ASCII. */
const PRINTABLE = /^[\x20-\x7e]*$/;

/**
 * A text that a client or a gateway chose, as it may be written down: none of our keys, whatever they look like, nothing
 * that begins as keys and tokens do, and nothing that is no character.
 */
export function harmless(text: string, { keys }: Snapshot, most: number): string {
  if (PRINTABLE.test(text) && !text.includes("kb_") && isFreeOfKeyShapes(text) && !keys.isIn(text))
    return text.slice(0, most);
  const clean = blotKeyShapes(keys.blotFrom(text).replace(TOKEN, "[hidden]"));
  return clean.slice(0, most).replace(UNWRITABLE, "\ufffd");
}
