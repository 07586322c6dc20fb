import { type Failed, failed } from "../core/display.ts";
import { lineStart, nextLine } from "../core/lines.ts";

/** A text with one setting changed, or why it cannot be changed safely. The line counts from 1. */
export type Edited = { readonly ok: true; readonly text: string } | CannotEdit;

export interface CannotEdit extends Failed {
  readonly line: number | null;
}

/** The problem continues a sentence that names the file. */
export function cannotEdit(
  problem: string,
  line: number | null = null,
  next: string | null = null,
): CannotEdit {
  return { ...failed(problem, next), line };
}

export function changeByHand(setting: string): CannotEdit {
  return cannotEdit(`the way it is written, ${setting} cannot be changed safely`, null, "change it by hand");
}

/** The same as a message about the file. */
export function cannotEditFile(path: string, { problem, next, line }: CannotEdit): Failed {
  const where = line === null ? "" : `line ${line}: `;
  return failed(`${path} was left as it is: ${where}${problem}`, next);
}

export function splice(text: string, start: number, end: number, insert: string): string {
  return text.slice(0, start) + insert + text.slice(end);
}

/** The line break a file uses, going by its first. */
export function lineBreakOf(text: string): string {
  return /\r?\n/.exec(text)?.[0] ?? "\n";
}

/** The blanks a line begins with. */
export function indentAt(text: string, at: number): string {
  return /^\uFEFF?([ \t]*)/.exec(text.slice(lineStart(text, at)))?.[1] ?? "";
}

/** Removes whole lines, with the line break behind them. The last line of a text without one goes with the break before it. */
export function removeLines(text: string, start: number, end: number): string {
  const line = lineStart(text, start);
  const from = text[line] === "\uFEFF" ? line + 1 : line;
  const to = nextLine(text, end);
  if (to < text.length || text.endsWith("\n")) return splice(text, from, to, "");
  return splice(text, text.slice(0, from).replace(/\r?\n$/, "").length, to, "");
}

/** Adds a line at the end. A text without a line break at its end stays one. */
export function appendLine(text: string, line: string): string {
  const newline = lineBreakOf(text);
  const isEnded = text.replace("\uFEFF", "") === "" || text.endsWith("\n");
  return isEnded ? `${text}${line}${newline}` : `${text}${newline}${line}`;
}

/** The match of a sticky expression at a position. */
export function matchAt(expression: RegExp, text: string, at: number): RegExpExecArray | null {
  expression.lastIndex = at;
  return expression.exec(text);
}

/** Gives the line of a position, from 1. Each position must be behind the one before, so that a long text is counted once. */
export function lineCounter(text: string): (at: number) => number {
  let line = 1;
  let next = text.indexOf("\n");
  return (at) => {
    while (next !== -1 && next < at) {
      line += 1;
      next = text.indexOf("\n", next + 1);
    }
    return line;
  };
}
