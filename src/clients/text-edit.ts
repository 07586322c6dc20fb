import { lineStart } from "../core/lines.ts";

/** A text with one setting changed, or why it cannot be changed safely. The line counts from 1. */
export type Edited =
  | { readonly ok: true; readonly text: string }
  | { readonly ok: false; readonly problem: string; readonly line: number | null };

export function cannotEdit(problem: string, line: number | null = null): Edited & { readonly ok: false } {
  return { ok: false, problem, line };
}

export function changeByHand(setting: string): Edited & { readonly ok: false } {
  return cannotEdit(`the way it is written, ${setting} cannot be changed safely: change it by hand`);
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
