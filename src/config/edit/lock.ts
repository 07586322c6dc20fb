import { randomBytes } from "node:crypto";
import { lstatSync, readlinkSync, renameSync, type Stats, symlinkSync, unlinkSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";
import type { Clock } from "../../core/clock.ts";
import { hasCode } from "../../core/errors.ts";

/** What is done under the lock takes less than a millisecond: whoever holds it this long is gone, or hangs. */
const STALE_AFTER_MS = 10_000;
const PATIENCE_MS = 15_000;

/**
 * Does one short thing that no other process of ours does at the same time. The lock is a symlink that leads to the
 * holder's process id: made in one step together with what it says, which a file is not. What is done must not give
 * way, so that only a kill in that very moment can leave the lock behind.
 */
export async function underLock<T>(path: string, work: () => T, clock: Clock): Promise<T> {
  const until = clock.elapsed() + PATIENCE_MS;
  while (!taken(path)) {
    if (clock.elapsed() >= until) throw new Error(`another keybearer command has held ${path} for 15 s`);
    if (!broken(path, clock)) await wait(2 + Math.random() * 10);
  }
  try {
    return work();
  } finally {
    release(path);
  }
}

function taken(path: string): boolean {
  try {
    symlinkSync(String(process.pid), path);
    return true;
  } catch (error) {
    if (hasCode(error, "EEXIST")) return false;
    // Some file systems know no symlinks. Comparing right before the rename has to do there.
    if (hasCode(error, "EPERM", "ENOTSUP")) return true;
    throw error;
  }
}

function release(path: string): void {
  try {
    if (readlinkSync(path) === String(process.pid)) unlinkSync(path);
  } catch {
    // Somebody took it for a dead one's, or there are no symlinks here.
  }
}

/** Takes away the lock of a process that is gone. true: somebody should try again at once. */
function broken(path: string, clock: Clock): boolean {
  const aside = `${path}.${randomBytes(12).toString("hex")}.tmp`;
  try {
    const seen = lstatSync(path);
    if (isAlive(readlinkSync(path)) && clock.now() - seen.mtimeMs < STALE_AFTER_MS) return false;
    renameSync(path, aside);
    // Another one may have broken it first and taken it since: that one is given back.
    if (isSame(lstatSync(aside), seen)) unlinkSync(aside);
    else renameSync(aside, path);
    return true;
  } catch (error) {
    if (hasCode(error, "ENOENT")) return true;
    // EINVAL: no symlink, so nothing of ours. It gets old like one.
    if (hasCode(error, "EINVAL")) return false;
    throw error;
  }
}

function isAlive(pid: string): boolean {
  try {
    process.kill(Number(pid), 0);
    return true;
  } catch (error) {
    return !hasCode(error, "ESRCH");
  }
}

function isSame(one: Stats, other: Stats): boolean {
  return one.ino === other.ino && one.mtimeMs === other.mtimeMs;
}
