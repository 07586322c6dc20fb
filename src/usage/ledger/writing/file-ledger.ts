import { setTimeout as pause } from "node:timers/promises";
import type Database from "libsql";
import { createBeat } from "../../../beat.ts";
import type { Closing, Opening } from "../../record.ts";
import { faultOf, type LedgerFault } from "../fault.ts";
import type { Ledger, LedgerMeans } from "../ledger.ts";
import { createSalvage, type Salvage } from "../repair/salvage.ts";
import type { LedgerState } from "../state.ts";
import { createUpkeep, type Upkeep } from "../upkeep/upkeep.ts";
import type { Finished } from "./book.ts";
import { Keeper } from "./keeper.ts";
import { createLosses, type Losses } from "./losses.ts";
import { soundClosing, soundOpening } from "./sound.ts";
import { Turns } from "./turns.ts";
import { Waiter, Waiting } from "./waiting.ts";

/** Somebody else has the lock: come back so soon. */
const BUSY_RETRY_MS = 50;
/** How long an opening waits for a lock. */
const PATIENCE_MS = 5000;
/** Openings that wait for a lock at most; more would be a sign that nothing ever comes back. */
const MOST_OPENINGS = 5000;

/** Collects what is to be written. Openings are written once per turn of the event loop, what is finished soon after. */
export class FileLedger implements Ledger {
  readonly #means: LedgerMeans;
  readonly #keeper: Keeper;
  readonly #salvage: Salvage;
  readonly #upkeep: Upkeep;
  /** Every record that is open, or closed but not on disk, so that it could be written whole into another file. */
  readonly #running = new Map<string, Waiter>();
  readonly #waiting = new Waiting();
  readonly #losses: Losses;
  readonly #endTicks: () => void;
  readonly #turns = new Turns({
    openings: () => {
      if (!this.#stopped) this.#attempt(() => this.#flushOpenings());
    },
    finished: () => {
      const count = this.#waiting.finished.length;
      if (count === 0 || this.#stopped || this.#isHeldUp()) return 0;
      this.#attempt(() => this.#flush());
      return count;
    },
  });
  #retry: NodeJS.Timeout | undefined;
  /** Since when the lock is not to be had. */
  #busySince: number | null = null;
  #stopped = false;

  constructor(means: LedgerMeans) {
    this.#means = means;
    const { file, log, clock, keep, onSaved, beat = createBeat() } = means;
    this.#losses = createLosses(log);
    const shared = { file, log, clock, keep, book: () => this.#keeper.book };
    const attempt = (work: () => void) => this.#attempt(work);
    this.#salvage = createSalvage({ ...shared, attempt, onSaved });
    this.#upkeep = createUpkeep({ ...shared, attempt });
    this.#keeper = new Keeper(means, this.#running, {
      onOpen: (book) => {
        this.#salvage.resume(book);
        this.#upkeep.resume(book);
      },
      onAside: (aside, book) => this.#salvage.begin(aside, book),
      onDeleted: (words, connection, book) => this.#salvage.rescue(words, connection, book),
      onLarge: () => void this.#upkeep.check(),
    });
    this.#endTicks = beat.every(1, () => this.#everySecond());
    this.#attempt(() => this.#flush());
    this.#upkeep.start();
  }

  available(): boolean {
    return !this.#stopped && this.#keeper.trouble === null;
  }

  open(opening: Opening): Promise<boolean> {
    const { id } = opening;
    if (!this.available() || this.#waiting.size >= MOST_OPENINGS) return Promise.resolve(false);
    // A second one would be told false by the log, and must not take the first one's place here.
    if (this.#running.has(id)) return Promise.resolve(false);
    const waiter = new Waiter(soundOpening(opening), this.#means.clock.elapsed() + PATIENCE_MS);
    this.#running.set(id, waiter);
    this.#waiting.open(waiter);
    if (this.#isHeldUp()) this.#lose(this.#waiting.squeeze());
    else this.#turns.open();
    return new Promise((told) => {
      waiter.told = told;
    });
  }

  close(id: string, closing: Closing): void {
    const running = this.#running.get(id);
    if (running === undefined || running.ending) return;
    running.ending = true;
    this.#finish({ kind: "close", opening: running.opening, closing: soundClosing(closing) });
  }

  add(opening: Opening, closing: Closing): void {
    // Ended while its opening was still on the way to the disk.
    if (this.#running.has(opening.id)) this.close(opening.id, closing);
    else this.#finish({ kind: "add", opening: soundOpening(opening), closing: soundClosing(closing) });
  }

  state(): LedgerState {
    const kept = this.#keeper.state();
    return {
      ...kept,
      warnings: [...this.#salvage.warnings(), ...kept.warnings],
      waiting: this.#isHeldUp() ? this.#waiting.finished.length : 0,
      lost: this.#losses.records,
      refusalsLost: this.#losses.refusals,
      aside: this.#salvage.aside(),
      work: this.#salvage.work() ?? this.#upkeep.work(),
      upkeptAt: this.#upkeep.last(),
    };
  }

  ask<T>(question: (db: Database.Database) => T): T | null {
    let answer: T | null = null;
    this.#attempt(() => {
      this.#flush();
      const book = this.#keeper.book;
      if (book !== null) answer = question(book.connection.db);
    });
    return answer;
  }

  async stop(): Promise<void> {
    if (this.#stopped) return;
    this.#endTicks();
    clearTimeout(this.#retry);
    this.#turns.stop();
    await this.#upkeep.stop();
    // Taken away or emptied within the last second, it would be closed over what nobody finds again.
    this.#attempt(() => this.#keeper.look());
    await this.#salvage.stop();
    const end = this.#means.clock.elapsed() + PATIENCE_MS;
    do {
      this.#attempt(() => this.#flush());
      if (this.#busySince === null || this.#waiting.size === 0) break;
      await pause(BUSY_RETRY_MS);
    } while (this.#means.clock.elapsed() < end);
    this.#stopped = true;
    clearTimeout(this.#retry);
    this.#refuse(this.#waiting.giveUp(() => true));
    this.#lose(this.#waiting.drop());
    this.#losses.tell();
    this.#keeper.close();
  }

  #finish(record: Finished): void {
    if (this.#stopped) return;
    this.#waiting.finish(record);
    if (this.#isHeldUp()) this.#lose(this.#waiting.squeeze());
    else this.#turns.finish();
  }

  #isHeldUp(): boolean {
    return this.#busySince !== null || this.#keeper.trouble !== null;
  }

  #everySecond(): void {
    this.#upkeep.tick();
    this.#attempt(() => {
      this.#keeper.look();
      this.#flush();
    });
  }

  /** Runs what may fail for reasons outside the program, and turns a failure into the state it means. */
  #attempt(work: () => void): boolean {
    try {
      work();
      this.#busySince = null;
      return true;
    } catch (error) {
      const fault = faultOf(error);
      if (fault.kind === "busy") this.#wait(fault);
      else if (fault.kind === "corrupt") this.#replace(fault);
      else this.#fail(fault);
      return false;
    }
  }

  #replace(fault: LedgerFault): void {
    try {
      this.#keeper.replace(fault);
      this.#turns.open();
      this.#turns.finish();
    } catch (error) {
      this.#fail(faultOf(error));
    }
  }

  #flush(): void {
    this.#flushOpenings();
    const finished = this.#waiting.finished;
    if (finished.length > 0) {
      this.#losses.reject(this.#keeper.write(finished));
      this.#waiting.completed(finished.length);
      for (const { opening } of finished) this.#running.delete(opening.id);
    }
    this.#losses.tell();
  }

  #flushOpenings(): void {
    const openings = this.#waiting.openings;
    const refused = this.#keeper.write(openings);
    this.#waiting.opened(openings.length);
    this.#losses.reject(refused);
    if (refused.length > 0) {
      const ids = new Set(refused.map(({ entry }) => entry.opening.id));
      this.#refuse(openings.filter(({ opening }) => ids.has(opening.id)));
    }
    for (const waiter of openings) waiter.tell(true);
  }

  /** Somebody else holds the lock: what waits is tried again soon, openings only until their time is up. */
  #wait(fault: LedgerFault): void {
    const now = this.#means.clock.elapsed();
    this.#busySince ??= now;
    this.#refuse(this.#waiting.giveUp(({ deadline }) => deadline <= now));
    this.#lose(this.#waiting.squeeze());
    clearTimeout(this.#retry);
    if (now - this.#busySince >= PATIENCE_MS) this.#fail(fault);
    else this.#retry = setTimeout(() => this.#attempt(() => this.#flush()), BUSY_RETRY_MS).unref();
  }

  /** The disk says no: nothing new is let in, and what is finished waits. */
  #fail(fault: LedgerFault): void {
    this.#keeper.fail(fault);
    this.#refuse(this.#waiting.giveUp(() => true));
    this.#lose(this.#waiting.squeeze());
  }

  #refuse(waiters: readonly Waiter[]): void {
    for (const waiter of waiters) {
      this.#running.delete(waiter.opening.id);
      waiter.tell(false);
    }
  }

  #lose(records: readonly Finished[]): void {
    for (const record of records) {
      this.#running.delete(record.opening.id);
      this.#losses.count(record);
    }
  }
}
