import type { Stats } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import type { Clock } from "../../../clock.ts";
import type { Logger } from "../../../logger.ts";
import { reason } from "../../../reason.ts";
import type { LedgerFault } from "../fault.ts";
import { statOf } from "../on-disk.ts";
import { answerOf } from "../raw-row.ts";
import { checkIntegrity } from "../repair/integrity.ts";
import type { Work } from "../state.ts";
import type { Book } from "../writing/book.ts";
import { checkApart, type LoadedLibrary, loadedLibrary } from "./check-apart.ts";
import { createPruning } from "./prune.ts";

/** Once a day: old records go, the file gives back room, statistics are refreshed, the whole is checked. */
export interface Upkeep {
  start(): void;
  /** To be called every second or so: the hours go by it, and it notices that the machine slept or its clock was set. */
  tick(): void;
  /** A log was opened: when it was last looked after stands in it. */
  resume(book: Book): void;
  /** Looks whether a day has gone by since the last time, and does it then. Resolves when that is through. */
  look(): Promise<void>;
  /** Reads the whole file for damage, a large one on another thread. */
  check(): Promise<boolean>;
  work(): Work | null;
  /** Wall time of the last time it ran through. */
  last(): number | null;
  stop(): Promise<void>;
}

export interface UpkeepMeans {
  readonly file: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly keep: () => number;
  readonly book: () => Book | null;
  /** Runs what may fail because of the disk. false: it failed, and is tried again later. */
  readonly attempt: (work: () => void) => boolean;
}

/**
 * Whether a day has gone by is looked at once an hour. By the tick that comes anyway: node-cron reads the time by Intl,
 * which costs every start 20 ms and 9 MB.
 */
const HOUR_MS = 3_600_000;
/** More than that between two ticks: the machine slept, or its clock was set. */
const SLEPT_MS = 10 * 60_000;
const FIRST_LOOK_MS = 20_000;
/** Less than a day, so that it does not wander an hour on each time. */
const DUE_MS = 23.5 * 3_600_000;
/** So long after the last time, the clock is believed at once. */
const BELIEVED_MS = 3 * 86_400_000;
const FACT = "upkept_at";

/** How long a piece of work may hold up the requests, and how long they have for themselves after it. */
const PIECE_MS = 15;
const PAUSE_MS = 10;
const [LEAST_ROWS, MOST_ROWS] = [20, 500];
/** Pages given back at a time, and how many free ones are worth it: new records would fill them anyway. */
const GIVE_BACK_PAGES = 64;
const KEPT_FREE_PAGES = 1000;
/** Read within such a piece of work, at 2 ms a megabyte. Another thread takes 70 ms to begin, and leaves 2 MB behind. */
const SMALL = 4 * 1024 * 1024;

export function createUpkeep(means: UpkeepMeans): Upkeep {
  return new DailyUpkeep(means);
}

class DailyUpkeep implements Upkeep {
  readonly #means: UpkeepMeans;
  readonly #library: LoadedLibrary = loadedLibrary();
  readonly #stop = new AbortController();
  #soon: NodeJS.Timeout | undefined;
  #running: Promise<void> | null = null;
  #work: Work | null = null;
  #checks = 0;
  /** Wall time of the last tick, and of the last look. */
  #ticked: number | null = null;
  #looked: number | null = null;
  #last: number | null = null;

  constructor(means: UpkeepMeans) {
    this.#means = means;
  }

  start(): void {
    this.#soon = setTimeout(() => void this.look(), FIRST_LOOK_MS).unref();
  }

  tick(): void {
    const now = this.#means.clock.now();
    const passed = now - (this.#ticked ?? now);
    this.#ticked = now;
    this.#looked ??= now;
    if (this.#stop.signal.aborted) return;
    const awake = passed >= 0 && passed < SLEPT_MS;
    if (!awake || now - this.#looked >= HOUR_MS) void this.look();
  }

  look(): Promise<void> {
    this.#looked = this.#means.clock.now();
    this.#running ??= this.#upkeep()
      .catch((error) => this.#means.log.error({ err: error }, "the usage log could not be looked after"))
      .finally(() => {
        this.#running = null;
        this.#work = null;
      });
    return this.#running;
  }

  work(): Work | null {
    return this.#work ?? (this.#checks > 0 ? { what: "check", done: 0, total: 0 } : null);
  }

  last(): number | null {
    return this.#last;
  }

  resume(book: Book): void {
    const fact = book.rows.fact(FACT);
    this.#last = fact === null ? null : Number(fact);
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    clearTimeout(this.#soon);
    await this.#running;
  }

  async #upkeep(): Promise<void> {
    const { book, clock, log } = this.#means;
    const last = this.#last;
    const now = clock.now();
    // A time to come is that of a clock that was set back since.
    if (book() === null || (last !== null && last <= now && now - last < DUE_MS)) return;
    const began = clock.elapsed();
    const done =
      (await this.#prune(believed(now, last))) &&
      (await this.#giveBack()) &&
      this.#settle() &&
      (await this.check());
    if (!done || !this.#attempt((open) => open.transact((rows) => rows.setFact(FACT, String(now))))) return;
    this.#last = now;
    log.info({ ms: Math.round(clock.elapsed() - began) }, "the usage log was looked after");
  }

  async #prune(now: number): Promise<boolean> {
    const { clock, keep } = this.#means;
    const pruning = createPruning(now - keep());
    let size = LEAST_ROWS;
    for (let more = true; more; ) {
      const began = clock.elapsed();
      if (!this.#attempt((open) => (more = pruning.step(open, size)))) return false;
      const took = clock.elapsed() - began;
      if (took > PIECE_MS) size = Math.max(LEAST_ROWS, Math.floor(size / 2));
      else if (took < PIECE_MS / 2) size = Math.min(MOST_ROWS, size * 2);
      this.#work = { what: "retention", done: pruning.done, total: pruning.total };
      if (!(await this.#breathe())) return false;
    }
    this.#work = null;
    return true;
  }

  async #giveBack(): Promise<boolean> {
    for (;;) {
      let free = 0;
      const done = this.#attempt(({ connection: { db } }) => {
        free = Number(answerOf(db, "PRAGMA log.freelist_count"));
        if (free > KEPT_FREE_PAGES) db.exec(`PRAGMA log.incremental_vacuum(${GIVE_BACK_PAGES})`);
      });
      if (!done) return false;
      if (free <= KEPT_FREE_PAGES) return true;
      if (!(await this.#breathe())) return false;
    }
  }

  #settle(): boolean {
    return this.#attempt(({ connection: { db } }) => {
      // A few hundred rows an index are enough to plan by, and take no time.
      db.exec("PRAGMA analysis_limit = 400; PRAGMA log.optimize");
      db.prepare("PRAGMA log.wal_checkpoint(TRUNCATE)").raw().get();
    });
  }

  async check(): Promise<boolean> {
    const { file } = this.#means;
    const before = foundAt(file);
    const size = (before?.size ?? 0) + (foundAt(`${file}-wal`)?.size ?? 0);
    if (before === null || size <= SMALL) return this.#attempt(() => checkIntegrity(file));
    this.#checks += 1;
    const fault = await this.#faultApart().finally(() => {
      this.#checks -= 1;
    });
    return this.#attempt(() => {
      // Another file may lie there by now, which is not to answer for it.
      if (fault !== null && foundAt(file)?.ino === before.ino) throw fault;
    });
  }

  async #faultApart(): Promise<LedgerFault | null> {
    let check: ReturnType<typeof checkApart>;
    try {
      check = checkApart(this.#means.file, this.#library);
    } catch (error) {
      this.#means.log.warn({ reason: reason(error) }, "the usage log could not be checked");
      return null;
    }
    const stop = () => check.stop();
    this.#stop.signal.addEventListener("abort", stop, { once: true });
    try {
      return await check.found;
    } finally {
      this.#stop.signal.removeEventListener("abort", stop);
    }
  }

  #attempt(work: (book: Book) => void): boolean {
    const open = this.#means.book();
    return open !== null && !this.#stop.signal.aborted && this.#means.attempt(() => work(open));
  }

  async #breathe(): Promise<boolean> {
    await pause(PAUSE_MS, null, { ref: false });
    return !this.#stop.signal.aborted;
  }
}

/**
 * The time to reckon by what is old. A clock that is suddenly far ahead may be wrong, and what it would delete does not
 * come back: until it has stood for a day, the time of the last run counts. Without one, nothing is old.
 */
function believed(now: number, last: number | null): number {
  if (last === null) return 0;
  return last > now || now - last <= BELIEVED_MS ? now : last;
}

function foundAt(file: string): Stats | null {
  try {
    return statOf(file);
  } catch {
    return null;
  }
}
