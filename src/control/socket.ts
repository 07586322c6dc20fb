import { chmodSync, closeSync, openSync, renameSync, statSync, unlinkSync } from "node:fs";
import type { Server } from "node:http";
import { connect } from "node:net";
import { setTimeout as wait } from "node:timers/promises";

/** Binding the control socket is also the lock: whoever listens on it owns this home. */

/** macOS allows 104 bytes with the ending zero, Linux 108. */
const LONGEST_PATH = 103;
/** Making sure takes milliseconds; a mark older than this was left by a start that was killed in the middle. */
const MARK_STALE_MS = 5000;

export type Claimed = "claimed" | "already running" | "path too long";

export async function claimSocket(server: Server, path: string): Promise<Claimed> {
  if (Buffer.byteLength(path) > LONGEST_PATH) return "path too long";
  const mark = `${path}.starting`;
  while (!takeMark(mark)) {
    if (await isAnswered(path)) return "already running";
    await wait(25);
  }
  try {
    // Only a living process accepts, however busy it is: the kernel does it for it. So a refusal means nobody is there.
    if (await isAnswered(path)) return "already running";
    removeQuietly(path);
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen(path, () => {
        server.off("error", reject);
        resolve();
      });
    });
    chmodSync(path, 0o600);
    return "claimed";
  } finally {
    removeQuietly(mark);
  }
}

/** Two starts at the same moment must not both find the socket stale. */
function takeMark(mark: string): boolean {
  try {
    closeSync(openSync(mark, "wx", 0o600));
    return true;
  } catch (error) {
    // Anything else will not pass by itself, and waiting for it would never end.
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    clearStaleMark(mark);
    return false;
  }
}

function clearStaleMark(mark: string): void {
  try {
    if (!isStale(mark)) return;
    // Renamed first: only one of two that see the stale mark gets to remove it.
    const aside = `${mark}.${process.pid}`;
    renameSync(mark, aside);
    // The other one may have been quicker, and this is the mark it has made since.
    if (isStale(aside)) unlinkSync(aside);
    else renameSync(aside, mark);
  } catch {
    // Somebody else was quicker; the next round sees.
  }
}

/** From the future counts as stale, too: the clock was set back since, and it would hold until then. */
function isStale(mark: string): boolean {
  return Math.abs(Date.now() - statSync(mark).mtimeMs) >= MARK_STALE_MS;
}

export function isAnswered(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
  });
}

function removeQuietly(path: string): void {
  try {
    unlinkSync(path);
  } catch {
    // It was not there.
  }
}
