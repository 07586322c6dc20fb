import { existsSync, readFileSync } from "node:fs";

/** Waits for a condition, and fails rather than waiting for ever. */
export async function until(condition: () => boolean, limit = 10_000): Promise<void> {
  const start = performance.now();
  while (!condition()) {
    if (performance.now() - start > limit) throw new Error("what was waited for did not come");
    await new Promise((done) => setTimeout(done, 5));
  }
}

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    // A killed process that nobody has waited for yet still has its number.
    return !existsSync("/proc") || !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
}
