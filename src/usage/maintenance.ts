import { constants, createReadStream, createWriteStream } from "node:fs";
import { open, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { createGzip } from "node:zlib";
import { background } from "../core/background.ts";
import type { Clock } from "../core/clock.ts";
import type { Logger } from "../core/log.ts";
import { openOwnFile } from "../core/own-file.ts";
import type { Ticker } from "../core/ticker.ts";
import { DAY_MS, MINUTE_MS } from "../core/units.ts";
import type { Indexer } from "./index/indexer.ts";
import {
  dayFileName,
  endOfDay,
  type JournalFile,
  journalFiles,
  MAX_UNPACKED_BYTES,
  readStat,
} from "./journal/files.ts";
import type { Journal } from "./journal/journal.ts";

interface MaintenanceDeps {
  readonly folder: string;
  readonly clock: Clock;
  readonly ticker: Ticker;
  readonly log: Logger;
  /** How long records are kept, milliseconds. */
  readonly keep: () => number;
  readonly journal: Pick<Journal, "day">;
  readonly indexer: Pick<Indexer, "catchUp" | "hasPassed">;
}

const FIRST_RUN_MS = 10 * MINUTE_MS;
const CHECK_SECONDS = 60;
/** A run deletes no more days than this, so that a wrong clock cannot empty the log. */
const MAX_DELETED_DAYS = 2;
/** How long a run waits for the index. What the index has not read by then is compressed by the next run. */
const CATCH_UP_MS = MINUTE_MS;

/** Once a day: deletes the days that are no longer kept, and compresses those that the index has passed. */
export class Maintenance {
  readonly #deps: MaintenanceDeps;
  readonly #endTicks: () => void;
  #nextRun: number;
  #inFlight: Promise<void> | null = null;
  readonly #stop = new AbortController();
  #lastRun: number | null = null;

  constructor(deps: MaintenanceDeps) {
    this.#deps = deps;
    this.#nextRun = deps.clock.elapsed() + FIRST_RUN_MS;
    this.#endTicks = deps.ticker.every(CHECK_SECONDS, () => {
      if (deps.clock.elapsed() >= this.#nextRun) background(this.run(), deps.log, "usage maintenance");
    });
  }

  /** When the last run finished; null: none has since the start. */
  get lastRun(): number | null {
    return this.#lastRun;
  }

  run(): Promise<void> {
    this.#inFlight ??= this.#run().finally(() => {
      this.#inFlight = null;
    });
    return this.#inFlight;
  }

  async stop(): Promise<void> {
    this.#endTicks();
    this.#stop.abort();
    // The ticker's call has logged a failure.
    await this.#inFlight?.catch(() => {});
  }

  async #run(): Promise<void> {
    const { clock, log } = this.#deps;
    this.#nextRun = clock.elapsed() + DAY_MS;
    const deleted = await this.#deleteOldDays();
    await this.#deps.indexer.catchUp(CATCH_UP_MS);
    const compressed = await this.#compress();
    this.#lastRun = clock.now();
    log.info({ deleted, compressed }, "usage maintenance finished");
  }

  async #deleteOldDays(): Promise<number> {
    const oldest = this.#deps.clock.now() - this.#deps.keep();
    const old = this.#finishedFiles().filter(({ day }) => endOfDay(day) <= oldest);
    const deleted = old.slice(0, MAX_DELETED_DAYS);
    for (const { day } of deleted) {
      const path = join(this.#deps.folder, dayFileName(day));
      await rm(`${path}.gz`, { force: true });
      await rm(path, { force: true });
    }
    return deleted.length;
  }

  async #compress(): Promise<number> {
    let count = 0;
    for (const { day, path, gzipped } of this.#finishedFiles()) {
      if (gzipped || !this.#deps.indexer.hasPassed(day)) continue;
      if ((readStat(path)?.size ?? 0) > MAX_UNPACKED_BYTES) continue;
      if (!(await compress(path, this.#stop.signal))) break;
      count += 1;
    }
    return count;
  }

  #finishedFiles(): JournalFile[] {
    const { folder, journal } = this.#deps;
    const current = journal.day ?? "";
    return journalFiles(folder).filter(({ day }) => day < current);
  }
}

/** A crash at any point leaves one whole file; if both names exist, the plain one counts. Returns false if it was stopped. */
async function compress(path: string, signal: AbortSignal): Promise<boolean> {
  const temporary = `${path}.gz.tmp`;
  try {
    await rm(temporary, { force: true });
    const output = createWriteStream(temporary, { flags: "wx", mode: 0o600 });
    const input = createReadStream(path, { fd: openOwnFile(path, constants.O_RDONLY) });
    await pipeline(input, createGzip(), output, { signal });
    const handle = await open(temporary, "r");
    try {
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(temporary, `${path}.gz`);
    await rm(path);
    return true;
  } catch (error) {
    await rm(temporary, { force: true });
    if (signal.aborted) return false;
    throw error;
  }
}
