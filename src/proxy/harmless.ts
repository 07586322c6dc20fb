import type { Snapshot } from "../config/snapshot.ts";
import { blotKeyShapes } from "../secret.ts";

/** A token, also in the middle of a word, where blotKeyShapes does not look. */
const TOKEN = /kb_[A-Za-z0-9_-]{16,}/g;
/** SQLite's own tools end a text at a NUL, and half a character is none. */
const UNWRITABLE = /[\p{Cc}\p{Cs}]/gu;

/**
 * A text that a client or a gateway chose, as it may be written down: none of our keys, whatever they look like, nothing
 * that begins as keys and tokens do, and nothing that is no character.
 */
export function harmless(text: string, { config, keyOf }: Snapshot, most: number): string {
  let clean = text;
  for (const tool of Object.values(config.tools)) {
    const key = keyOf(tool);
    if (key.state === "ready") clean = key.key.blotFrom(clean);
  }
  if (clean.includes("kb_")) clean = clean.replace(TOKEN, "[hidden]");
  clean = blotKeyShapes(clean);
  return clean.slice(0, most).replace(UNWRITABLE, "\ufffd");
}
