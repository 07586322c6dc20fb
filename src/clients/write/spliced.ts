/** A text with one thing changed in it, or why that cannot be done safely; the line counts from 1. */
export type Spliced =
  | { readonly ok: true; readonly text: string }
  | { readonly ok: false; readonly reason: string; readonly line: number | null };

/** What is wrong with a text, and in which line. */
export interface Fault {
  readonly line: number;
  readonly what: string;
}

/** Thrown inside a reader and caught at its door: a reader calls itself for what lies inside. */
export class Unreadable extends Error {
  readonly at: number;
  constructor(at: number, what: string) {
    super(what);
    this.at = at;
  }
}

export function faultAt(text: string, { at, message }: Unreadable): Fault {
  return { line: text.slice(0, at).split("\n").length, what: message };
}

export function refuse(reason: string, line: number | null = null): Spliced {
  return { ok: false, reason, line };
}

/** The one line break that a file uses, going by its first. */
export function lineBreakOf(text: string): string {
  return /\r?\n/.exec(text)?.[0] ?? "\n";
}

export function lineStart(text: string, at: number): number {
  return text.lastIndexOf("\n", at - 1) + 1;
}

/** After the line break; the end of the text where there is none. */
export function nextLine(text: string, at: number): number {
  const end = text.indexOf("\n", at);
  return end === -1 ? text.length : end + 1;
}

/** In front of the line break, whichever it is. */
export function lineEnd(text: string, at: number): number {
  const end = text.indexOf("\n", at);
  if (end === -1) return text.length;
  return end > at && text[end - 1] === "\r" ? end - 1 : end;
}

/** One text in the place of another. */
export interface Edit {
  readonly from: number;
  readonly to: number;
  readonly text: string;
}

/** Edits do not overlap; of two in one place, the first stays first. */
export function applyEdits(text: string, edits: readonly Edit[]): string {
  let result = "";
  let at = 0;
  for (const edit of edits.toSorted((a, b) => a.from - b.from)) {
    result += text.slice(at, edit.from) + edit.text;
    at = edit.to;
  }
  return result + text.slice(at);
}
