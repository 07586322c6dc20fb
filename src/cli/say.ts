import { wrapped } from "./columns.ts";
import { visible } from "./table.ts";

/** Lines for the person, one each. */
export function say(...lines: readonly string[]): void {
  for (const line of lines) process.stdout.write(`${visible(line)}\n`);
}

/** The same for sentences: at a terminal they are broken between words; a program finds each on one line. */
export function saySentences(...sentences: readonly string[]): void {
  const { isTTY, columns } = process.stdout;
  const width = isTTY === true ? Math.max(20, columns || 80) : Number.POSITIVE_INFINITY;
  for (const sentence of sentences) process.stdout.write(`${wrapped(visible(sentence), width)}\n`);
}
