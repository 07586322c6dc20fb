import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { askDaemon, downloadFrom, startCommand } from "../../control/client.ts";
import type { UsageIndexStatus } from "../../control/status.ts";
import { advice } from "../../core/advice.ts";
import type { Problem } from "../../core/display.ts";
import { EXIT, errorMessage } from "../../core/errors.ts";
import type { Paths } from "../../core/paths.ts";
import { createEmptyPrivateFile } from "../../core/private-file.ts";
import { StateLock } from "../../daemon/state-lock.ts";
import {
  type Connection,
  IndexError,
  openIndexForReading,
  toIndexError,
} from "../../usage/index/database.ts";
import { readStamp, UsageIndex } from "../../usage/index/usage-index.ts";
import { journalFiles, readStat } from "../../usage/journal/files.ts";
import { count } from "../../usage/reports/format.ts";
import { fail, type Message, notice, print } from "../ui/messages.ts";
import { ProgressLine } from "../ui/progress.ts";
import { commandPaths, isOwners } from "../ui/stdio.ts";

/* The index that reports read: a daemon brings it up to date, or this command does if none runs. */

export type IndexDatabase = Connection["db"];

/** An owner of the system service cannot look. */
export function hasUsageLog(paths: Paths): boolean {
  return isOwners(paths) || journalFiles(paths.usage).length > 0;
}

export function noUsageLog(paths: Paths): Problem {
  const problem = `there is no usage log yet in ${paths.usage}; it begins with the first request`;
  return { problem, next: startCommand(paths) };
}

/** Brings the index up to date and reads it. An index that cannot be read fails the command. */
export async function withIndex(
  paths: Paths,
  read: (db: IndexDatabase) => Promise<void> | void,
): Promise<void> {
  if (isOwners(paths)) return withCopy(paths, read);
  const behind = await catchUpIndex(paths);
  if (behind !== null) notice(behind);
  let problem = await readIndex(paths, read);
  if (problem?.kind === "missing" && behind !== null) {
    // The daemon has begun to make it. On a slow machine that takes longer than one answer.
    await followDaemon(paths);
    problem = await readIndex(paths, read);
  }
  if (problem === null) return;
  const next = problem.kind === "busy" ? "close the program that has it open" : advice.usageRebuild();
  fail({ problem: `the usage index ${paths.index} cannot be read: ${problem.message}`, next }, EXIT.failed);
}

/** An owner of the system service gets a copy, which is removed again. */
async function withCopy(paths: Paths, read: (db: IndexDatabase) => Promise<void> | void): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "keybearer-"));
  try {
    const index = join(folder, "index.db");
    const missing = await downloadFrom(paths, "/usageindex", index);
    if (missing !== null) return fail(missing, EXIT.failed);
    const problem = await readIndex({ ...paths, index }, read);
    if (problem !== null) fail(`the usage index cannot be read: ${problem.message}`, EXIT.failed);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** `__copy-index`: the daemon of a system service starts it. */
export function copyIndex(file: string, copy: string): void {
  const { db, close } = openIndexForReading(file);
  try {
    createEmptyPrivateFile(copy);
    db.prepare("VACUUM usage INTO ?").run(copy);
  } finally {
    close();
  }
}

/** Reads the index as it is. Returns why it cannot be read, or null. */
export async function readIndex(
  paths: Paths,
  read: (db: IndexDatabase) => Promise<void> | void,
): Promise<IndexError | null> {
  let connection: Connection | null = null;
  try {
    connection = openIndexForReading(paths.index);
    await read(connection.db);
    return null;
  } catch (error) {
    const problem = toIndexError(error);
    if (!(problem instanceof IndexError)) throw error;
    return problem;
  } finally {
    connection?.close();
  }
}

/** Returns what is missing in the index, as a message, or null. */
export async function catchUpIndex(paths: Paths): Promise<Message | null> {
  const asked = await askDaemon<UsageIndexStatus>(paths, "POST", "/index", {});
  if (asked.ok) return behindMessage(asked.value);
  if (asked.running) return { ...asked, problem: `the index may be behind: ${asked.problem}` };
  const index = openIndex(paths);
  return await finishSteps(index, index.catchUp(), paths);
}

/** `keybearer usage rebuild`: reads the whole journal into a new index. */
export async function rebuild(): Promise<void> {
  const paths = commandPaths();
  const days = journalFiles(paths.usage).length;
  if (days === 0) return fail(`there is no usage log in ${paths.usage}`, EXIT.failed);
  const missing = await rebuildIndex(paths);
  if (missing !== null) return fail(missing, EXIT.failed);
  print(`the index was rebuilt from ${count(days, "day")} of the usage log`);
}

async function rebuildIndex(paths: Paths): Promise<Message | null> {
  const asked = await askDaemon<UsageIndexStatus>(paths, "POST", "/rebuild", {});
  if (asked.ok) return await followDaemon(paths);
  if (asked.running) return asked;
  const index = openIndex(paths);
  return await finishSteps(index, index.rebuild(), paths);
}

async function followDaemon(paths: Paths): Promise<Message | null> {
  const progress = new ProgressLine();
  try {
    for (;;) {
      const asked = await askDaemon<UsageIndexStatus>(paths, "POST", "/index", {});
      if (!asked.ok) return asked;
      if (asked.value.current) return null;
      if (asked.value.waiting_for !== null) return behindMessage(asked.value);
      progress.show(progressMessage(asked.value.share));
    }
  } finally {
    progress.clear();
  }
}

function behindMessage({ current, share, rebuilding, waiting_for }: UsageIndexStatus): string | null {
  if (current) return null;
  if (waiting_for !== null) return `the index is behind (${percentRead(share)}): ${waiting_for}`;
  return `the index is ${rebuilding ? "being rebuilt" : "catching up"}: ${percentRead(share)}`;
}

function percentRead(share: number): string {
  return `${Math.floor(share * 100)} % of the usage log is in it`;
}

/** A command checks an index up to this size for damage, which takes about 2 ms per megabyte. */
const MAX_CHECKED_BYTES = 64 * 1024 * 1024;

function openIndex({ index: file, usage: folder }: Paths): UsageIndex {
  const isLarge = (readStat(file)?.size ?? 0) > MAX_CHECKED_BYTES;
  return new UsageIndex({ file, folder }, isLarge ? readStamp(file) : null);
}

/** Work goes on this long before the lock is released, so that a daemon can start. */
const SLICE_MS = 100;
const BETWEEN_SLICES_MS = 20;
/** Another program may hold the index this long. */
const MAX_WAIT_MS = 3000;

/** Works in slices, each under the state lock. A daemon that starts meanwhile gets the lock and continues by itself. */
async function finishSteps(index: UsageIndex, first: Generator<void>, paths: Paths): Promise<string | null> {
  const deadline = performance.now() + MAX_WAIT_MS;
  const progress = new ProgressLine();
  let steps = first;
  try {
    for (;;) {
      const lock = StateLock.take(paths.lock);
      if (lock === null) return "the index may be behind: keybearer is starting or stopping";
      try {
        if (runSlice(steps)) return null;
      } catch (error) {
        if (!(error instanceof IndexError)) throw error;
        if (performance.now() > deadline)
          return `the index is behind (${percentRead(index.progress().share)}): ${error.message}`;
        steps = index.catchUp();
      } finally {
        lock.release();
      }
      progress.show(progressMessage(index.progress().share));
      await pause(BETWEEN_SLICES_MS);
    }
  } catch (error) {
    return `the index could not be brought up to date: ${errorMessage(error)}`;
  } finally {
    index.close();
    progress.clear();
  }
}

/** Returns true once everything is done. */
function runSlice(steps: Generator<void>): boolean {
  const end = performance.now() + SLICE_MS;
  while (performance.now() < end) if (steps.next().done === true) return true;
  return false;
}

const BAR_WIDTH = 30;

function progressMessage(share: number): string {
  const done = Math.round(share * BAR_WIDTH);
  const bar = "#".repeat(done) + "-".repeat(BAR_WIDTH - done);
  return `reading the usage log [${bar}] ${Math.floor(share * 100)} %`;
}
