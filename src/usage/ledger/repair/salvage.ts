import { existsSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import type { Clock } from "../../../clock.ts";
import type { Logger } from "../../../logger.ts";
import type { Connection } from "../connect.ts";
import { faultOf, isPassing } from "../fault.ts";
import type { Aside, Work } from "../state.ts";
import type { Book } from "../writing/book.ts";
import { afterwards, BEGUN, type Piece, type Progress, progressIn } from "./progress.ts";
import { asideIn, deletedInWords } from "./progress-told.ts";
import { hasRoom } from "./room.ts";
import { openSource, type Source, sourceOf } from "./source.ts";
import { takeOver } from "./take-over.ts";
import { createTelling } from "./telling.ts";

/** Takes over from logs that are no longer in use what can be read, in small steps beside the daily work. */
export interface Salvage {
  /** A damaged log was just kept aside, and this new one begun. */
  begin(aside: string, book: Book): void;
  /** A log was deleted while it was open, and this new one begun. What is still open of it is closed here in the end. */
  rescue(deleted: string, connection: Connection, book: Book): void;
  /** A log was opened: what an earlier run did not finish goes on. */
  resume(book: Book): void;
  aside(): readonly Aside[];
  /** About deleted ones, in words. */
  warnings(): readonly string[];
  work(): Work | null;
  /** What can only be read now is read first, within a few seconds. */
  stop(): Promise<void>;
}

export interface SalvageMeans {
  readonly file: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly book: () => Book | null;
  /** Runs what may fail because of the disk. false: it failed, and is tried again later. */
  readonly attempt: (work: () => void) => boolean;
  /** More is in the log in use than was: at the end of a salvage, and now and then on its way. */
  readonly onSaved?: (() => void) | undefined;
}

const FACT = "salvage:";
/** So many seqs a step, as many as a few milliseconds allow. */
const [LEAST, MOST] = [128, 1024];
const PIECE_MS = 12;
const PAUSE_MS = 15;
const RETRY_MS = 1000;
/** So often a disk may fail at the same place before that place is passed over. */
const TRIES = 30;
const LAST_MOMENT_MS = 3000;

export function createSalvage(means: SalvageMeans): Salvage {
  return new StepwiseSalvage(means);
}

class StepwiseSalvage implements Salvage {
  readonly #means: SalvageMeans;
  readonly #tell: (ended: boolean) => void;
  readonly #known = new Map<string, Progress>();
  /** Deleted logs that are still open. */
  readonly #open = new Map<string, Connection>();
  #source: { readonly name: string; readonly from: Source } | null = null;
  #timer: NodeJS.Timeout | undefined;
  #size = LEAST;
  #failures = 0;
  #stopped = false;

  constructor(means: SalvageMeans) {
    this.#means = means;
    this.#tell = createTelling(means.clock, means.onSaved);
  }

  begin(aside: string, book: Book): void {
    this.#enter(basename(aside), BEGUN, book);
  }

  rescue(deleted: string, connection: Connection, book: Book): void {
    const now = this.#means.clock.now();
    let name = `deleted-${now}`;
    for (let n = 2; this.#known.has(name); n += 1) name = `deleted-${now}-${n}`;
    this.#open.set(name, connection);
    this.#enter(name, { ...BEGUN, deleted }, book);
  }

  #enter(name: string, progress: Progress, book: Book): void {
    // In memory first: it is said in status even where it cannot be written.
    this.#known.set(name, progress);
    this.#later(PAUSE_MS);
    book.transact((rows) => rows.setFact(FACT + name, JSON.stringify(progress)));
  }

  resume(book: Book): void {
    for (const fact of book.rows.factsLike(FACT)) {
      const progress = progressIn(fact.value);
      const name = fact.name.slice(FACT.length);
      if (progress === null) continue;
      if (progress.deleted === null || this.#open.has(name)) this.#known.set(name, progress);
      else if (progress.salvage === "under way") this.#giveUp(name, progress, book);
    }
    this.#later(PAUSE_MS);
  }

  /** The program that had it open has ended. */
  #giveUp(name: string, { deleted, saved, ...rest }: Progress, book: Book): void {
    this.#enter(name, { ...rest, deleted, saved, salvage: "not possible" }, book);
    this.#means.log.error(
      { reason: deleted, saved },
      "keybearer ended before all was saved from the deleted usage log",
    );
  }

  aside(): readonly Aside[] {
    return asideIn(dirname(this.#means.file), this.#known);
  }

  warnings(): readonly string[] {
    return [...this.#known.values()].filter(({ deleted }) => deleted !== null).map(deletedInWords);
  }

  work(): Work | null {
    const job = this.#current();
    if (job === null) return null;
    const [name, { next }] = job;
    const source = this.#source?.name === name ? this.#source.from : null;
    if (source === null || source.top === null || next === null)
      return { what: "salvage", done: 0, total: 0 };
    return { what: "salvage", done: source.top - next, total: source.top - source.bottom + 1 };
  }

  async stop(): Promise<void> {
    clearTimeout(this.#timer);
    const { clock, log } = this.#means;
    const end = clock.elapsed() + LAST_MOMENT_MS;
    for (;;) {
      const [name, progress] = this.#current() ?? [];
      if (name === undefined || progress === undefined || !this.#open.has(name)) break;
      if (this.#step() === RETRY_MS || clock.elapsed() >= end) {
        log.error({ reason: progress.deleted }, "not all was saved from the deleted usage log");
        break;
      }
      await pause(0);
    }
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.#leaveSource();
    for (const connection of this.#open.values()) connection.close();
  }

  /** What is deleted comes first: it is there only as long as this process is. */
  #current(): [string, Progress] | null {
    const jobs = [...this.#known].filter(([, { salvage }]) => salvage === "under way");
    return jobs.find(([name]) => this.#open.has(name)) ?? jobs[0] ?? null;
  }

  #later(milliseconds: number): void {
    clearTimeout(this.#timer);
    if (this.#stopped || this.#current() === null) return;
    this.#timer = setTimeout(() => this.#later(this.#step()), milliseconds).unref();
  }

  /** Answers in how many milliseconds to go on. */
  #step(): number {
    const { attempt, clock, file } = this.#means;
    const job = this.#current();
    const book = this.#means.book();
    if (job === null || book === null || !hasRoom(dirname(file))) return RETRY_MS;
    const [name, progress] = job;
    const began = clock.elapsed();
    const found = this.#look(name, progress);
    if (found === "later") {
      // A disk that fails altogether says nothing about this one place on it.
      const works = attempt(() =>
        book.transact((rows) => rows.setFact(FACT + name, JSON.stringify(progress))),
      );
      if (works) this.#failures += 1;
      return RETRY_MS;
    }
    const written = attempt(() => {
      const reached = book.transact((rows, tally) => {
        const saved = found === null ? 0 : takeOver(found, book.connection.db, rows, tally);
        const after = afterwards(progress, found, saved);
        rows.setFact(FACT + name, JSON.stringify(after));
        return after;
      });
      this.#reach(name, reached);
    });
    const took = clock.elapsed() - began;
    if (took > PIECE_MS) this.#size = Math.max(LEAST, this.#size / 2);
    else if (took < PIECE_MS / 2) this.#size = Math.min(MOST, this.#size * 2);
    if (written) this.#tell(this.#known.get(name)?.salvage !== "under way");
    return written ? PAUSE_MS : RETRY_MS;
  }

  /** The next piece of an old log; null: nothing can be read there. Its faults are not those of the log in use. */
  #look(name: string, { next }: Progress): Piece | null | "later" {
    try {
      const from = this.#sourceOf(name);
      from.insist(this.#failures >= TRIES);
      const to = next ?? from.top;
      const once = next === null ? { folded: from.folded(), lifts: from.lifts() } : { folded: [], lifts: [] };
      if (to === null) return { records: [], unreadable: 0, ...once, next: null };
      const low = to - this.#size + 1;
      const piece = { ...from.read(low, to), ...once, next: from.below(low) };
      this.#failures = 0;
      return piece;
    } catch (error) {
      const fault = faultOf(error);
      const path = join(dirname(this.#means.file), name);
      if (isPassing(fault) && (this.#open.has(name) || existsSync(path))) return "later";
      const fields = { file: name, reason: fault.message };
      this.#means.log.error(fields, "nothing more can be saved from the old usage log");
      return null;
    }
  }

  #sourceOf(name: string): Source {
    if (this.#source?.name === name) return this.#source.from;
    this.#leaveSource();
    const open = this.#open.get(name);
    const from = open === undefined ? openSource(join(dirname(this.#means.file), name)) : sourceOf(open);
    this.#source = { name, from };
    this.#failures = 0;
    return from;
  }

  #leaveSource(): void {
    this.#source?.from.close();
    this.#source = null;
  }

  #reach(name: string, progress: Progress): void {
    this.#known.set(name, progress);
    const { salvage, saved, unreadable } = progress;
    if (salvage === "under way") return;
    this.#leaveSource();
    this.#open.delete(name);
    this.#means.log.warn(
      { file: name, salvage, saved, unreadable },
      "the salvage of the old usage log ended",
    );
  }
}
