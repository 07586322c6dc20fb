import type { Snapshot } from "../config/snapshot.ts";
import { isFreeOfKeyShapes, looksLikeCredential, redactKeyShapes } from "../core/redact.ts";
import { holdsToken, redactTokens } from "../core/token.ts";
import { MAX_SESSION, MAX_USER_AGENT } from "../usage/record.ts";

/* Texts that a client or a gateway chose, as they may be recorded. */

const MAX_MODEL = 200;
const MAX_PLACE = 200;
/** As long as the guard lets a target be. */
const MAX_ENDPOINT = 8192;

export function loggableModel(name: string | null, snapshot: Snapshot): string | null {
  return name === null ? null : sanitize(name, snapshot, MAX_MODEL);
}

export function loggableEndpoint(endpoint: string, snapshot: Snapshot): string {
  return sanitize(endpoint, snapshot, MAX_ENDPOINT);
}

/** A redacted id matches nothing in the console, so it is left out. */
export function loggableIds<Ids extends Readonly<Record<string, string>>>(ids: Ids, snapshot: Snapshot): Ids {
  const isKept = (id: string) => sanitize(id, snapshot, id.length) === id;
  for (const name in ids) {
    // Most ids are kept, so a list of entries is made only here.
    if (!isKept(ids[name] ?? ""))
      return Object.fromEntries(Object.entries(ids).filter(([, id]) => isKept(id))) as Ids;
  }
  return ids;
}

/** A secret may follow, however short. */
const NAMES_SECRET = /bearer|basic |token|secret|passw|api[-_]?key/i;

/** null: it was redacted or is not ASCII, so it would not equal what a console lists. */
export function loggableUserAgent(text: string, snapshot: Snapshot): string | null {
  if (!PRINTABLE.test(text) || NAMES_SECRET.test(text) || looksLikeCredential(text)) return null;
  if (sanitize(text, snapshot, text.length) !== text) return null;
  return text.slice(0, MAX_USER_AGENT).trim() || null;
}

/** A folder or a branch. */
export function loggablePlace(text: string, snapshot: Snapshot): string {
  return sanitize(text, snapshot, MAX_PLACE);
}

/** What ids of sessions are made of. With a slash, keybearer names its own: see limits/sessions.ts. */
const NOT_OF_SESSION = /[^\w.:@+-]+/g;

/** null: it is empty, or holds a secret. Ids look random, so only what begins as keys do counts as one. */
export function loggableSession(text: string, snapshot: Snapshot): string | null {
  if (sanitize(text, snapshot, text.length) !== text) return null;
  // A command would take what begins with a hyphen for an option.
  return text.trim().replace(NOT_OF_SESSION, "-").replace(/^-+/, "").slice(0, MAX_SESSION) || null;
}

/** SQLite's own tools end a text at a NUL, and half a surrogate pair is no character. */
const UNWRITABLE = /[\p{Cc}\p{Cs}]/gu;
const PRINTABLE = /^[\x20-\x7e]*$/;

/** Without keys, tokens and control characters. */
function sanitize(text: string, { keys }: Snapshot, maxLength: number): string {
  const isClean = PRINTABLE.test(text) && !holdsToken(text) && isFreeOfKeyShapes(text) && !keys.isIn(text);
  if (isClean) return text.slice(0, maxLength);
  const clean = redactKeyShapes(redactTokens(keys.redactFrom(text)));
  return clean.slice(0, maxLength).replace(UNWRITABLE, "\ufffd");
}
