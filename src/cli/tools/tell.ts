import { cellsOf } from "../columns.ts";
import { noteInWords } from "../note.ts";
import { visible } from "../table.ts";

/**
 * Lines for the person where stdout is for what a program may read: a token, or JSON. At a terminal a line that is
 * too long is broken in front of what is to be typed.
 */
export function tell(...lines: readonly string[]): void {
  const width = process.stderr.isTTY === true ? Math.max(20, process.stderr.columns || 80) : null;
  for (const line of lines.flatMap((text) => text.split("\n"))) {
    const shown = width === null || cellsOf(line) <= width ? visible(line) : broken(line, width);
    process.stderr.write(`${shown}\n`);
  }
}

function broken(line: string, width: number): string {
  const at = line.indexOf(" → ");
  const note = at === -1 ? { what: line, next: null } : { what: line.slice(0, at), next: line.slice(at + 3) };
  return noteInWords(note, width);
}
