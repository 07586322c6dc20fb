import { setTimeout as pause } from "node:timers/promises";
import type Database from "libsql";
import type { Closing, Opening } from "../../record.ts";
import { faultOf, type LedgerFault } from "../fault.ts";
import type { Ledger, LedgerMeans } from "../ledger.ts";
import { createSalvage, type Salvage } from "../repair/salvage.ts";
import type { LedgerState } from "../state.ts";
import { createUpkeep, type Upkeep } from "../upkeep/upkeep.ts";
import type { Entry, Poisoned, Running } from "./book.ts";
import { Keeper } from "./keeper.ts";
import { createLosses, type Losses } from "./losses.ts";
import { soundClosing, soundOpening } from "./sound.ts";
import { createWaiting, type Item } from "./waiting.ts";

/** Somebody else has the lock: come back so soon. */
const BUSY_RETRY_MS = 50;
/** How long an opening waits for a lock. */
const PATIENCE_MS = 5000;
/** Openings that wait for a lock at most; more would be a sign that nothing ever comes back. */
const MOST_OPENINGS = 5000;
const TICK_MS = 1000;

/** Collects what is to be written, and writes it once per turn of the event loop. */
export class FileLedger implements Ledger {
  readonly #means: LedgerMeans;
  readonly #keeper: Keeper;
  readonly #salvage: Salvage;
  readonly #upkeep: Upkeep;
  /** Every record that is open, or closed but not on disk, so that it could be written whole into another file. */
  readonly #running = new Map<string, Running>();
  readonly #closing = new Set<string>();
  readonly #waiting = createWaiting();
  readonly #losses: Losses;
  readonly #tick: NodeJS.Timeout;
  #scheduled = false;
  #retry: NodeJS.Timeout | undefined;
  /** Since when the lock is not to be had. */
  #busySince: number | null = null;
  #stopped = false;

  constructor(means: LedgerMeans) {
    this.#means = means;
    const { file, log, clock, keep, onSaved } = means;
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
    this.#tick = setInterval(() => this.#everySecond(), TICK_MS).unref();
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
    const sound = soundOpening(opening);
    this.#running.set(id, { opening: sound, onDisk: false });
    return new Promise((done) => {
      const told = (written: boolean) => {
        if (!written) this.#forget(id);
        done(written);
      };
      this.#push({ kind: "open", opening: sound }, told);
    });
  }

  close(id: string, closing: Closing): void {
    const running = this.#running.get(id);
    if (running === undefined || this.#closing.has(id)) return;
    this.#closing.add(id);
    this.#push({ kind: "close", opening: running.opening, closing: soundClosing(closing) }, null);
  }

  add(opening: Opening, closing: Closing): void {
    // Ended while its opening was still on the way to the disk.
    if (this.#running.has(opening.id)) this.close(opening.id, closing);
    else this.#push({ kind: "add", opening: soundOpening(opening), closing: soundClosing(closing) }, null);
  }

  state(): LedgerState {
    const kept = this.#keeper.state();
    return {
      ...kept,
      warnings: [...this.#salvage.warnings(), ...kept.warnings],
      waiting: this.#waiting.records,
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
    clearInterval(this.#tick);
    clearTimeout(this.#retry);
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
    this.#lose(this.#waiting.drop(() => true));
    this.#losses.tell();
    this.#keeper.close();
  }

  #push(entry: Entry, told: Item["told"]): void {
    if (this.#stopped) {
      told?.(false);
      return;
    }
    this.#waiting.push({ entry, told, deadline: this.#means.clock.elapsed() + PATIENCE_MS });
    if (this.#keeper.trouble !== null || this.#busySince !== null) this.#lose(this.#waiting.squeeze());
    else this.#schedule();
  }

  /** Everything that comes in one turn of the event loop goes into one transaction. */
  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      if (!this.#stopped) this.#attempt(() => this.#flush());
    });
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
      this.#schedule();
    } catch (error) {
      this.#fail(faultOf(error));
    }
  }

  #flush(): void {
    const items = this.#waiting.items();
    const refused = this.#keeper.write(items.map(({ entry }) => entry));
    this.#waiting.remove(items);
    this.#reject(refused);
    const rejected = new Set(refused.map(({ entry }) => entry));
    for (const { entry, told } of items) {
      const running = this.#running.get(entry.opening.id);
      if (entry.kind !== "open") this.#forget(entry.opening.id);
      else if (running !== undefined) running.onDisk = true;
      told?.(!rejected.has(entry));
    }
    this.#losses.tell();
  }

  #reject(poisoned: readonly Poisoned[]): void {
    for (const { entry, words } of poisoned) {
      this.#means.log.error(
        { id: entry.opening.id, reason: words },
        "the usage log does not take this record",
      );
      this.#losses.count(entry);
    }
  }

  /** Somebody else holds the lock: what waits is tried again soon, openings only until their time is up. */
  #wait(fault: LedgerFault): void {
    const now = this.#means.clock.elapsed();
    this.#busySince ??= now;
    for (const { told } of this.#waiting.drop(({ told, deadline }) => told !== null && deadline <= now))
      told?.(false);
    this.#lose(this.#waiting.squeeze());
    clearTimeout(this.#retry);
    if (now - this.#busySince >= PATIENCE_MS) this.#fail(fault);
    else this.#retry = setTimeout(() => this.#attempt(() => this.#flush()), BUSY_RETRY_MS).unref();
  }

  /** The disk says no: nothing new is let in, and what is finished waits. */
  #fail(fault: LedgerFault): void {
    this.#keeper.fail(fault);
    for (const { told } of this.#waiting.drop(({ told }) => told !== null)) told?.(false);
    this.#lose(this.#waiting.squeeze());
  }

  #lose(items: readonly Item[]): void {
    for (const { entry, told } of items) {
      this.#forget(entry.opening.id);
      this.#losses.count(entry);
      told?.(false);
    }
  }

  #forget(id: string): void {
    this.#running.delete(id);
    this.#closing.delete(id);
  }
}
