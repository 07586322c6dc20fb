import { setTimeout as pause } from "node:timers/promises";
import type Database from "libsql";
import { createBeat } from "../../../beat.ts";
import type { Closing, Opening } from "../../record.ts";
import { faultOf, type LedgerFault } from "../fault.ts";
import type { Ledger, LedgerMeans } from "../ledger.ts";
import { createSalvage, type Salvage } from "../repair/salvage.ts";
import type { LedgerState } from "../state.ts";
import { createUpkeep, type Upkeep } from "../upkeep/upkeep.ts";
import type { Entry, Finished } from "./book.ts";
import { Keeper } from "./keeper.ts";
import { createLosses, type Losses } from "./losses.ts";
import { soundClosing, soundOpening } from "./sound.ts";
import { Turns } from "./turns.ts";
import { Waiter, Waiting } from "./waiting.ts";

/** Somebody else has the lock: come back so soon. */
const BUSY_RETRY_MS = 50;
/** How long an opening waits for a lock. */
const PATIENCE_MS = 5000;
/** Where one was opened so shortly before, the next is not written to the log by itself. */
const BUSY_MS = 20;
/** Openings that wait for a lock at most; more would be a sign that nothing ever comes back. */
const MOST_OPENINGS = 5000;

/** Collects what is to be written: at once where little goes on, else noted and written together. See Turns. */
export class FileLedger implements Ledger {
  readonly #means: LedgerMeans;
  readonly #keeper: Keeper;
  readonly #salvage: Salvage;
  readonly #upkeep: Upkeep;
  readonly #waiting = new Waiting();
  readonly #losses: Losses;
  readonly #endTicks: () => void;
  readonly #turns = new Turns({
    write: () => {
      if (!this.#stopped) this.#attempt(() => this.#flush());
    },
    finished: () => (this.#stopped || this.#isHeldUp() ? 0 : this.#waiting.ended),
    noted: () => this.#waiting.opened,
  });
  /** When the last one was opened, on the clock that only goes forward. */
  #openedAt = Number.NEGATIVE_INFINITY;
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
    this.#keeper = new Keeper(means, this.#waiting.running, {
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

  open(opening: Opening): boolean | Promise<boolean> {
    const { id } = opening;
    if (!this.available() || this.#waiting.size >= MOST_OPENINGS) return false;
    // A second one would be told false by the log, and must not take the first one's place here.
    if (this.#waiting.running.isOpen(id)) return false;
    const now = this.#means.clock.elapsed();
    const waiter = new Waiter(soundOpening(opening), now + PATIENCE_MS);
    this.#waiting.open(waiter);
    const isBusy = now - this.#openedAt < BUSY_MS;
    this.#openedAt = now;
    if (this.#isHeldUp()) this.#lose(this.#waiting.squeeze());
    else if (isBusy && this.#note(waiter)) return true;
    else this.#turns.open();
    return new Promise((told) => {
      waiter.told = told;
    });
  }

  close(id: string, closing: Closing): void {
    const running = this.#waiting.running.end(id);
    if (running === null) return;
    const sound = soundClosing(closing);
    if (running.noted && !running.inBook) this.#end(running, sound);
    else this.#finish({ kind: "close", opening: running.opening, closing: sound });
  }

  add(opening: Opening, closing: Closing): void {
    // Ended while its opening was still on the way to the disk.
    if (this.#waiting.running.isOpen(opening.id)) this.close(opening.id, closing);
    else this.#finish({ kind: "add", opening: soundOpening(opening), closing: soundClosing(closing) });
  }

  state(): LedgerState {
    const kept = this.#keeper.state();
    return {
      ...kept,
      warnings: [...this.#salvage.warnings(), ...kept.warnings],
      waiting: this.#isHeldUp() ? this.#waiting.ended : 0,
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
    this.#waiting.giveUp(() => true);
    this.#lose(this.#waiting.drop());
    this.#losses.tell();
    this.#keeper.close();
  }

  /** On disk without waiting for the log. */
  #note(waiter: Waiter): boolean {
    waiter.noted = this.#keeper.book?.slips?.note(waiter.opening) === true;
    if (waiter.noted) this.#turns.note();
    return waiter.noted;
  }

  #finish(record: Finished): void {
    if (this.#stopped) return;
    this.#waiting.finish(record);
    this.#onFinished();
  }

  /** Over before it was in the log. */
  #end(running: Waiter, closing: Closing): void {
    if (this.#stopped) return;
    this.#waiting.end(running, closing);
    this.#onFinished();
  }

  #onFinished(): void {
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
    } catch (error) {
      this.#fail(faultOf(error));
    }
  }

  #flush(): void {
    const refused = this.#keeper.write(this.#waiting.all());
    this.#losses.reject(refused);
    this.#waiting.written(refused);
    this.#keeper.book?.slips?.clear();
    this.#losses.tell();
  }

  /** Somebody else holds the lock: what waits is tried again soon, openings only until their time is up. */
  #wait(fault: LedgerFault): void {
    const now = this.#means.clock.elapsed();
    this.#busySince ??= now;
    this.#waiting.giveUp(({ deadline }) => deadline <= now);
    this.#lose(this.#waiting.squeeze());
    clearTimeout(this.#retry);
    if (now - this.#busySince >= PATIENCE_MS) this.#fail(fault);
    else this.#retry = setTimeout(() => this.#attempt(() => this.#flush()), BUSY_RETRY_MS).unref();
  }

  /** The disk says no: nothing new is let in, and what is finished waits. */
  #fail(fault: LedgerFault): void {
    this.#keeper.fail(fault);
    this.#waiting.giveUp(() => true);
    this.#lose(this.#waiting.squeeze());
  }

  #lose(records: readonly Entry[]): void {
    for (const record of records) this.#losses.count(record);
  }
}
