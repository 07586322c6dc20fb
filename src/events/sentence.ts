import { escapeControlChars } from "../core/display.ts";
import { redactCredentials, redactKeyShapes } from "../core/redact.ts";
import type { Occurrence } from "./event.ts";

/* Events leave this machine, so what they say is made safe in one place, whatever reported it. */

const MAX_LENGTH = 500;

/** The path, the query and the user name of an address may be secret. */
const ADDRESS = /\b([a-z][a-z0-9+.-]*:\/\/)(?:[^\s/?#@"']*@)?([^\s/?#"'),;]+)[^\s"'),;]*/gi;

/** Without anything that looks like a credential, without whole addresses, and on one line. */
export function plainOccurrence(occurrence: Occurrence): Occurrence {
  const { subject, message, next } = occurrence;
  return {
    ...occurrence,
    subject: plainSubject(subject),
    message: plainSentence(message),
    // A command may have the id of a session, which is a long run of characters, too.
    next: next === null ? null : plainLine(redactKeyShapes(next)),
  };
}

/** Of a plain subject it is the same. */
export function plainSubject(text: string): string {
  return plainLine(redactKeyShapes(text));
}

export function plainSentence(text: string): string {
  return plainLine(redactCredentials(text.replace(ADDRESS, "$1$2")));
}

function plainLine(text: string): string {
  const line = escapeControlChars(text.replace(/\s+/g, " ").trim());
  return line.length > MAX_LENGTH ? `${line.slice(0, MAX_LENGTH - 1)}…` : line;
}
