import { readdirSync, readlinkSync } from "node:fs";
import { join } from "node:path";

/** How many sockets a process has open. Other descriptors come and go with the thread of the index. 0: this is not Linux. */
export function openSockets(pid: number): number {
  if (process.platform !== "linux") return 0;
  const folder = `/proc/${pid}/fd`;
  return readdirSync(folder).filter((name) => targetOf(join(folder, name)).startsWith("socket:")).length;
}

function targetOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    // It was closed meanwhile.
    return "";
  }
}
