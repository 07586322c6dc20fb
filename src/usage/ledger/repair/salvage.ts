import { existsSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import type { Logger } from "../../../logger.ts";
import type { UsageRecord } from "../../record.ts";
import type { Cell, Tally } from "../cells.ts";
import { faultOf } from "../fault.ts";
import type { Rows } from "../rows.ts";
import type { Aside, Work } from "../state.ts";
import type { Book } from "../writing/book.ts";
import { openSource, type Source } from "./source.ts";

/** Takes over from damaged logs what can be read, in small steps beside the daily work. */
export interface Salvage {
  /** A damaged log was just kept aside, and this new one begun. */
  begin(aside: string, book: Book): void;
  /** A log was opened: what an earlier run did not finish goes on. */
  resume(book: Book): void;
  aside(): readonly Aside[];
  work(): Work | null;
  stop(): void;
}

export interface SalvageMeans {
  readonly file: string;
  readonly log: Logger;
  readonly book: () => Book | null;
  /** Runs what may fail because of the disk. false: it failed, and is tried again later. */
  readonly attempt: (work: () => void) => boolean;
}

/** Kept in the new log, so that it says the same after a restart. */
interface Progress {
  readonly salvage: Aside["salvage"];
  readonly saved: number;
  readonly unreadable: number;
  /** The highest seq not looked at yet; null: nothing was looked at yet. */
  readonly next: number | null;
}

interface Piece {
  readonly records: readonly UsageRecord[];
  readonly unreadable: number;
  readonly folded: readonly Cell[];
  /** Where to go on below; null: that was the last. */
  readonly next: number | null;
}

const FACT = "salvage:";
/** So many seqs a step: a few milliseconds. */
const STEP = 128;
const PAUSE_MS = 15;
const RETRY_MS = 1000;
const BEGUN: Progress = { salvage: "under way", saved: 0, unreadable: 0, next: null };

export function createSalvage(means: SalvageMeans): Salvage {
  return new StepwiseSalvage(means);
}

class StepwiseSalvage implements Salvage {
  readonly #means: SalvageMeans;
  readonly #known = new Map<string, Progress>();
  #source: { readonly name: string; readonly from: Source } | null = null;
  #timer: NodeJS.Timeout | undefined;
  #stopped = false;

  constructor(means: SalvageMeans) {
    this.#means = means;
  }

  begin(aside: string, book: Book): void {
    const name = basename(aside);
    // In memory first: it is said in status even where it cannot be written.
    this.#known.set(name, BEGUN);
    this.#later(PAUSE_MS);
    book.transact((rows) => rows.setFact(FACT + name, JSON.stringify(BEGUN)));
  }

  resume(book: Book): void {
    for (const { name, value } of book.rows.factsLike(FACT)) {
      const progress = progressIn(value);
      if (progress !== null) this.#known.set(name.slice(FACT.length), progress);
    }
    this.#later(PAUSE_MS);
  }

  aside(): readonly Aside[] {
    const folder = dirname(this.#means.file);
    return (
      [...this.#known]
        .map(([name, { salvage, saved, unreadable }]) => ({
          file: join(folder, name),
          salvage,
          saved,
          unreadable,
        }))
        // Once its owner has put it away there is nothing left to say about it.
        .filter(({ salvage, file }) => salvage === "under way" || existsSync(file))
    );
  }

  work(): Work | null {
    const job = this.#current();
    if (job === null) return null;
    const [, { saved, next }] = job;
    return { what: "salvage", done: saved, total: next === null ? 0 : saved + Math.max(next, 0) };
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.#leaveSource();
  }

  #current(): [string, Progress] | null {
    return [...this.#known].find(([, { salvage }]) => salvage === "under way") ?? null;
  }

  #later(milliseconds: number): void {
    clearTimeout(this.#timer);
    if (this.#stopped || this.#current() === null) return;
    this.#timer = setTimeout(() => this.#later(this.#step()), milliseconds).unref();
  }

  /** Answers in how many milliseconds to go on. */
  #step(): number {
    const job = this.#current();
    const book = this.#means.book();
    if (job === null || book === null) return RETRY_MS;
    const [name, progress] = job;
    const found = this.#look(name, progress);
    const written = this.#means.attempt(() => {
      const reached = book.transact((rows, tally) => {
        const saved = found === null ? 0 : takeOver(found, rows, tally);
        const after = afterwards(progress, found, saved);
        rows.setFact(FACT + name, JSON.stringify(after));
        return after;
      });
      this.#reach(name, reached);
    });
    return written ? PAUSE_MS : RETRY_MS;
  }

  /** The next piece of a damaged log; null: nothing can be read there. Its faults are not those of the log in use. */
  #look(name: string, { next }: Progress): Piece | null {
    try {
      const from = this.#sourceOf(name);
      const to = next ?? from.top;
      const folded = next === null ? from.folded() : [];
      if (to === null) return { records: [], unreadable: 0, folded, next: null };
      const low = to - STEP + 1;
      return { ...from.read(low, to), folded, next: from.below(low) };
    } catch (error) {
      const fields = { file: name, reason: faultOf(error).message };
      this.#means.log.error(fields, "nothing more can be saved from the damaged usage log");
      return null;
    }
  }

  #sourceOf(name: string): Source {
    if (this.#source?.name === name) return this.#source.from;
    this.#leaveSource();
    const from = openSource(join(dirname(this.#means.file), name));
    this.#source = { name, from };
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
    this.#means.log.warn(
      { file: name, salvage, saved, unreadable },
      "the salvage of the damaged usage log ended",
    );
  }
}

function takeOver({ records, folded }: Piece, rows: Rows, tally: Tally): number {
  // Below everything else, so that seq goes on telling the order in which records began.
  let seq = Math.min(rows.lowestSeq() ?? 1, 1);
  let saved = 0;
  for (const record of records) {
    seq -= 1;
    const finished: UsageRecord = record.end === null ? { ...record, end: "interrupted" } : record;
    // Already there: it was still under way when the damage was found.
    if (!rows.insert(finished, seq)) continue;
    tally.count(finished);
    saved += 1;
  }
  for (const cell of folded) tally.add(cell);
  return saved;
}

function afterwards(before: Progress, found: Piece | null, saved: number): Progress {
  if (found === null) return { ...before, salvage: before.saved > 0 ? "done" : "not possible" };
  return {
    salvage: found.next === null ? "done" : "under way",
    saved: before.saved + saved,
    unreadable: before.unreadable + found.unreadable,
    next: found.next,
  };
}

function progressIn(text: string): Progress | null {
  try {
    return { ...BEGUN, ...JSON.parse(text) };
  } catch {
    return null;
  }
}
