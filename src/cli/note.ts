import { cellsOf, wrapped } from "./columns.ts";
import { visible } from "./table.ts";

/** Something that needs the person, and what to type; null: nothing can be typed. */
export interface Note {
  readonly what: string;
  readonly next: string | null;
}

/** On one line, or the second part on a line of its own: what is to be typed must not be broken. */
export function noteInWords({ what, next }: Note, width: number): string {
  if (next === null) return wrapped(visible(what), width);
  const line = visible(`${what} → ${next}`);
  return cellsOf(line) <= width ? line : `${wrapped(visible(what), width)}\n  → ${visible(next)}`;
}

/** The same, set in below what it belongs to. */
export function noteBelow(note: Note, width: number): string[] {
  return noteInWords(note, width - 2)
    .split("\n")
    .map((line) => `  ${line}`);
}
