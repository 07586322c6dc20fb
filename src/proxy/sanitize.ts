import type { Snapshot } from "../config/snapshot.ts";
import { blotKeyShapes, isFreeOfKeyShapes } from "../secret.ts";

/** A token, also in the middle of a word, where blotKeyShapes does not look. */
const TOKEN = /kb_[A-Za-z0-9_-]{16,}/g;
/** SQLite's own tools end a text at a NUL, and half a surrogate pair is no character. */
const UNWRITABLE = /[\p{Cc}\p{Cs}]/gu;
const PRINTABLE = /^[\x20-\x7e]*$/;

/** A text that a client or a gateway chose, as it may be logged: without keys, tokens and control characters. */
export function sanitizeForLog(text: string, { keys }: Snapshot, maxLength: number): string {
  const isClean =
    PRINTABLE.test(text) && !text.includes("kb_") && isFreeOfKeyShapes(text) && !keys.isIn(text);
  if (isClean) return text.slice(0, maxLength);
  const clean = blotKeyShapes(keys.blotFrom(text).replace(TOKEN, "[hidden]"));
  return clean.slice(0, maxLength).replace(UNWRITABLE, "\ufffd");
}
