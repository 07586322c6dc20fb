import { visible } from "./table.ts";

/** Lines for the person, one each. */
export function say(...lines: readonly string[]): void {
  for (const line of lines) process.stdout.write(`${visible(line)}\n`);
}
