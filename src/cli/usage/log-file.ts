import { setTimeout as pause } from "node:timers/promises";
import { askDaemon } from "../../control/client.ts";
import type { UsageIndexStatus } from "../../control/status.ts";
import { EXIT, errorMessage } from "../../core/errors.ts";
import { findPaths, type Paths } from "../../core/paths.ts";
import { StateLock } from "../../daemon/state-lock.ts";
import { type Connection, IndexFault, indexFault, openIndexForReading } from "../../usage/index/database.ts";
import { stampOf, UsageIndex } from "../../usage/index/usage-index.ts";
import { journalFiles, statOf } from "../../usage/journal/files.ts";
import { fail } from "../ui/messages.ts";

/**
 * Reads the index, brought up to date first. Nothing recorded yet is an answer; an index that cannot be read is a
 * failure, and said so.
 */
export async function withLog(
  read: (db: Connection["db"]) => Promise<void> | void,
  nothingYet: (words: string) => void,
): Promise<void> {
  const paths = findPaths();
  if (journalFiles(paths.usage).length === 0)
    return nothingYet(
      `there is no usage log yet in ${paths.usage}; it begins with the first request → keybearer run`,
    );
  const behind = await bringUpToDate(paths);
  if (behind !== null) process.stderr.write(`${behind}\n`);
  const fault = await readIndex(paths, read);
  if (fault === null) return;
  const next = fault.kind === "busy" ? "close the program that has it open" : "keybearer usage rebuild";
  fail(`the usage index ${paths.index} cannot be read: ${fault.message} → ${next}`, EXIT.failed);
}

async function readIndex(
  paths: Paths,
  read: (db: Connection["db"]) => Promise<void> | void,
): Promise<IndexFault | null> {
  let connection: Connection | null = null;
  try {
    connection = openIndexForReading(paths.index);
    await read(connection.db);
    return null;
  } catch (error) {
    const fault = indexFault(error);
    // Anything else is a bug and must not hide.
    if (!(fault instanceof IndexFault)) throw error;
    return fault;
  } finally {
    connection?.close();
  }
}

/** A command that finds no daemon works on the index this long before it lets a daemon start. */
const SLICE_MS = 100;
const BETWEEN_SLICES_MS = 20;
/** Another program may hold the index. */
const MAX_WAIT_MS = 3000;

/** Brings the index up to date: the daemon does it if one runs. What is missing, in words; null: nothing. */
export async function bringUpToDate(paths: Paths): Promise<string | null> {
  const asked = await askDaemon<UsageIndexStatus>(paths.socket, "POST", "/index", {});
  if (asked.ok) return behindInWords(asked.value);
  if (asked.running) return `the index may be behind: ${asked.reason}`;
  const index = indexOf(paths);
  return await finish(index, () => index.catchUp(), paths);
}

/** Rebuilds the index. What is missing, in words; null: nothing. */
export async function rebuildIndex(paths: Paths): Promise<string | null> {
  const asked = await askDaemon<UsageIndexStatus>(paths.socket, "POST", "/rebuild", {});
  if (asked.ok) return await followDaemon(paths);
  if (asked.running) return asked.reason;
  const index = indexOf(paths);
  return await finish(index, () => index.rebuild(), paths);
}

/** A command checks an index up to this size for damage: that takes about 2 ms per megabyte. */
const MAX_CHECKED_BYTES = 64 * 1024 * 1024;

function indexOf({ index: file, usage: folder }: Paths): UsageIndex {
  const isLarge = (statOf(file)?.size ?? 0) > MAX_CHECKED_BYTES;
  return new UsageIndex({ file, folder }, isLarge ? stampOf(file) : null);
}

export function behindInWords({ current, share, rebuilding, waiting_for }: UsageIndexStatus): string | null {
  if (current) return null;
  if (waiting_for !== null) return `the index is behind (${inPercent(share)}): ${waiting_for}`;
  return `the index is ${rebuilding ? "being rebuilt" : "catching up"}: ${inPercent(share)}`;
}

function inPercent(share: number): string {
  return `${Math.floor(share * 100)} % of the usage log is in it`;
}

/** In slices, each under the lock: a daemon that starts meanwhile gets it, and goes on by itself. */
async function finish(index: UsageIndex, begin: () => Generator<void>, paths: Paths): Promise<string | null> {
  const deadline = performance.now() + MAX_WAIT_MS;
  let steps = begin();
  try {
    for (;;) {
      const lock = StateLock.take(paths.lock);
      if (lock === null) return "the index may be behind: keybearer is starting or stopping";
      try {
        if (runSlice(steps)) return null;
      } catch (error) {
        if (!(error instanceof IndexFault)) throw error;
        if (performance.now() > deadline)
          return `the index is behind (${inPercent(index.progress().share)}): ${error.message}`;
        steps = index.catchUp();
      } finally {
        lock.release();
      }
      showProgress(index.progress().share);
      await pause(BETWEEN_SLICES_MS);
    }
  } catch (error) {
    return `the index could not be brought up to date: ${errorMessage(error)}`;
  } finally {
    index.close();
    endProgress();
  }
}

/** True: everything is done. */
function runSlice(steps: Generator<void>): boolean {
  const end = performance.now() + SLICE_MS;
  while (performance.now() < end) if (steps.next().done === true) return true;
  return false;
}

async function followDaemon(paths: Paths): Promise<string | null> {
  for (;;) {
    const asked = await askDaemon<UsageIndexStatus>(paths.socket, "POST", "/index", {});
    if (!asked.ok) return asked.reason;
    if (asked.value.current) break;
    if (asked.value.waiting_for !== null) return behindInWords(asked.value);
    showProgress(asked.value.share);
  }
  endProgress();
  return null;
}

const BAR_WIDTH = 30;

function showProgress(share: number): void {
  if (!process.stderr.isTTY) return;
  const done = Math.round(share * BAR_WIDTH);
  const bar = "#".repeat(done) + "-".repeat(BAR_WIDTH - done);
  process.stderr.write(`\rreading the usage log [${bar}] ${Math.floor(share * 100)} %`);
}

function endProgress(): void {
  if (process.stderr.isTTY) process.stderr.write("\r\x1b[K");
}
