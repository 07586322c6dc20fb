import { existsSync, renameSync } from "node:fs";
import { LedgerFault, systemFault } from "../fault.ts";
import { isOurs, refuseOtherThanFile } from "../on-disk.ts";

/** The file itself last: while it is there, a crash in between leaves the damage to be found again. */
const SIDES = ["-wal", "-shm", ""] as const;

/**
 * Moves a damaged log out of the way, whole, so that SQLite still finds its WAL. Nothing is deleted, nothing
 * overwritten. Answers where it lies now.
 */
export function moveAside(file: string, now: number): string {
  for (const side of SIDES) {
    const found = refuseOtherThanFile(file + side);
    if (found !== null && !isOurs(found))
      throw new LedgerFault("foreign", "it is damaged, but belongs to another user, and was left as it is");
  }
  const time = new Date(now).toISOString().replace(/[-:]|\.\d+/g, "");
  let target = `${file}.corrupt-${time}`;
  for (let n = 2; taken(target); n += 1) target = `${file}.corrupt-${time}-${n}`;
  try {
    for (const side of SIDES) {
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
