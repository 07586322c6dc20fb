import { visibleLines } from "./table.ts";

/** Says what went wrong, and lets the program end with this code once everything is written. */
export function fail(message: string, code: number): void {
  process.stderr.write(`${visibleLines(message)}\n`);
  process.exitCode = code;
}
