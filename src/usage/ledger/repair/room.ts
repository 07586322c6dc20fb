import { statfsSync } from "node:fs";

/** Left to the requests: what is saved from an old file must not be what fills the disk. */
const RESERVE = 64 * 1024 * 1024;

export function hasRoom(folder: string): boolean {
  try {
    const { bavail, blocks, bsize } = statfsSync(folder);
    return bavail * bsize > Math.min(RESERVE, (blocks * bsize) / 10);
  } catch {
    // Nobody knows: a write will tell.
    return true;
  }
}
