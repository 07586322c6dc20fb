import { existsSync, readFileSync } from "node:fs";

/**
 * The processes that appended a line each to the file. Of whole lines only: a shell makes the file before it writes to it,
 * and what is not there yet would be taken for process 0, which stands for everybody.
 */
export function notedPids(file: string): number[] {
  return existsSync(file) ? readFileSync(file, "utf8").split("\n").slice(0, -1).map(Number) : [];
}
