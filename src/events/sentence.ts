import type { EventKind } from "../config/schema.ts";
import { escapeControlChars } from "../core/display.ts";
import { redactCredentials, redactKeyShapes } from "../core/redact.ts";
import type { Occurrence, Said } from "./event.ts";

/* Events leave this machine, so what they say is made safe in one place, whatever reported it. */

const MAX_LENGTH = 500;

/** The path, the query and the user name of an address may be secret. */
const ADDRESS = /\b([a-z][a-z0-9+.-]*:\/\/)(?:[^\s/?#@"']*@)?([^\s/?#"'),;]+)[^\s"'),;]*/gi;

/** Sentences that are ours but for the names of models or sessions, which are long runs of characters, as keys are. */
const NAMING_KINDS: readonly EventKind[] = ["other-model", "limit"];

/** Without anything that looks like a credential, without whole addresses, and on one line. */
export function plainOccurrence(occurrence: Occurrence): Occurrence {
  const { kind, subject, message, next, once, said } = occurrence;
  return {
    ...occurrence,
    subject: plainSubject(subject),
    message: NAMING_KINDS.includes(kind) ? plainNames(message) : plainSentence(message),
    // A command may have such names, too.
    next: next === null ? null : plainNames(next),
    ...(once !== undefined && { once: { ...once, name: plainSubject(once.name) } }),
    ...(said !== undefined && { said: plainSaid(said) }),
  };
}

/** What is named in it may be long, as in an event's command; only a problem is a sentence. */
export function plainSaid({ code, values }: Said): Said {
  const plain = Object.entries(values).map(([name, value]) => {
    if (typeof value === "number") return [name, value];
    return [name, name === "problem" ? plainSentence(value) : plainNames(value)];
  });
  return { code, values: Object.fromEntries(plain) };
}

/** Of a plain subject it is the same. */
export function plainSubject(text: string): string {
  return plainLine(redactKeyShapes(text));
}

export function plainSentence(text: string): string {
  return plainLine(redactCredentials(withoutPaths(text)));
}

/** Hides only what begins as keys do. */
function plainNames(text: string): string {
  return plainLine(redactKeyShapes(withoutPaths(text)));
}

function withoutPaths(text: string): string {
  return text.replace(ADDRESS, "$1$2");
}

function plainLine(text: string): string {
  const line = escapeControlChars(text.replace(/\s+/g, " ").trim());
  return line.length > MAX_LENGTH ? `${line.slice(0, MAX_LENGTH - 1)}…` : line;
}
