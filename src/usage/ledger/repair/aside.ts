import { existsSync, renameSync } from "node:fs";
import { systemFault } from "../fault.ts";

/**
 * Moves a damaged log out of the way, whole, so that SQLite still finds its WAL. Nothing is deleted, nothing
 * overwritten. Answers where it lies now.
 */
export function moveAside(file: string, now: number): string {
  const time = new Date(now).toISOString().replace(/[-:]|\.\d+/g, "");
  let target = `${file}.corrupt-${time}`;
  for (let n = 2; taken(target); n += 1) target = `${file}.corrupt-${time}-${n}`;
  try {
    // The file itself last: while it is there, a crash in between leaves the damage to be found again.
    for (const side of ["-wal", "-shm", ""]) {
      if (existsSync(file + side)) renameSync(file + side, target + side);
    }
  } catch (error) {
    throw systemFault(error);
  }
  return target;
}

function taken(target: string): boolean {
  return [target, `${target}-wal`, `${target}-shm`].some((path) => existsSync(path));
}
