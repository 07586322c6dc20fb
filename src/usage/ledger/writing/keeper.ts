import { statSync } from "node:fs";
import { faultOf, LedgerFault, nextStep } from "../fault.ts";
import type { LedgerMeans } from "../ledger.ts";
import { moveAside } from "../repair/aside.ts";
import { checkIntegrity } from "../repair/integrity.ts";
import type { LedgerState } from "../state.ts";
import { type Book, type Entry, openBook, type Poisoned, type Running } from "./book.ts";

/** Checking takes about 2 ms a megabyte. Larger files are checked once requests are served. */
const CHECKED_AT_START = 64 * 1024 * 1024;
/** A file that is damaged again so soon is not the file's fault. */
const AGAIN_MS = 10_000;
const LOOK_MS = 1000;
/** A WAL beyond this is held up by a reader. */
const LARGE_WAL = 64 * 1024 * 1024;

export type KeeperState = Omit<LedgerState, "waiting" | "lost" | "aside" | "work" | "upkeptAt">;

export interface KeeperEvents {
  /** A file was opened. */
  readonly onOpen: (book: Book) => void;
  /** It is too large to be checked at once. */
  readonly onLarge: () => void;
  /** A damaged one was kept aside before that. */
  readonly onAside: (aside: string, book: Book) => void;
}

/** Keeps one good file open under the ledger's name, whatever happens to it. */
export class Keeper {
  readonly #means: LedgerMeans;
  readonly #running: ReadonlyMap<string, Running>;
  readonly #events: KeeperEvents;
  #book: Book | null = null;
  #trouble: { readonly fault: LedgerFault; readonly since: number } | null = null;
  #lookedAt = Number.NEGATIVE_INFINITY;
  #replacedAt = Number.NEGATIVE_INFINITY;
  #displaced: string | null = null;
  #checked = false;
  /** Kept aside, but not yet known to a new file. */
  readonly #asides: string[] = [];
  /** Finished records written since the file was last seen in its place: if it was gone by then, so are they. */
  #recent: Entry[] = [];

  constructor(means: LedgerMeans, running: ReadonlyMap<string, Running>, events: KeeperEvents) {
    this.#means = means;
    this.#running = running;
    this.#events = events;
  }

  get trouble(): LedgerFault | null {
    return this.#trouble?.fault ?? null;
  }

  get book(): Book | null {
    return this.#book;
  }

  /** In one transaction. Throws when nothing could be written. */
  write(entries: readonly Entry[]): Poisoned[] {
    if (entries.length === 0 && this.#trouble === null && this.#book !== null) return [];
    if (this.#means.clock.elapsed() - this.#lookedAt >= LOOK_MS) this.look();
    const book = this.#book ?? this.#open();
    // Only a real write tells that the disk is back.
    if (this.#trouble !== null) this.#probe(book);
    const poisoned = book.write(entries);
    this.#recent.push(...entries.filter(({ kind }) => kind !== "open"));
    if (this.#trouble !== null) this.#means.log.info("the usage log can be written again");
    this.#trouble = null;
    return poisoned;
  }

  /** Whether the file that is open is still the one that people see. */
  look(): void {
    this.#lookedAt = this.#means.clock.elapsed();
    if (this.#book === null) return;
    const words = this.#book.displaced();
    if (words === null) {
      this.#recent = [];
      return;
    }
    const time = new Date(this.#means.clock.now()).toISOString();
    this.#displaced = `${words}, noticed at ${time}: what lies there since is the usage log now`;
    this.#means.log.error({ reason: words }, "the usage log was taken away while it was open");
    this.#leave();
    this.#checked = false;
    this.#open();
  }

  /** Nothing can be written until a later write succeeds. */
  fail(fault: LedgerFault): void {
    if (this.#trouble?.fault.message !== fault.message) {
      this.#means.log.error(
        { reason: fault.message },
        "the usage log is unavailable: requests are refused until it can be written",
      );
    }
    this.#trouble = { fault, since: this.#trouble?.since ?? this.#means.clock.now() };
    // A connection that met a failing disk may be in any state; one that waits for a lock is not.
    if (fault.kind !== "busy") this.#leave();
  }

  /** The file is damaged: it is kept aside and a new one begun. Throws when that cannot be done. */
  replace(fault: LedgerFault): void {
    const { clock, file, log } = this.#means;
    if (clock.elapsed() - this.#replacedAt < AGAIN_MS) {
      throw new LedgerFault("disk", `it was damaged again within seconds (${fault.message})`);
    }
    const aside = moveAside(file, clock.now());
    this.#replacedAt = clock.elapsed();
    log.error(
      { reason: fault.message, aside },
      "the usage log is damaged: it was kept aside, a new one begun",
    );
    this.#asides.push(aside);
    this.#leave();
    this.#open();
  }

  state(): KeeperState {
    const { file } = this.#means;
    const trouble = this.#trouble;
    const wal = sizeOf(`${file}-wal`);
    return {
      condition: trouble === null ? "ok" : "unavailable",
      since: trouble?.since ?? null,
      reason: trouble === null ? null : `the usage log ${file} cannot be written: ${trouble.fault.message}`,
      next: trouble === null ? null : nextStep(trouble.fault, file),
      file,
      bytes: sizeOf(file) + wal,
      warnings: [
        ...(this.#displaced === null ? [] : [this.#displaced]),
        ...(wal > LARGE_WAL ? [largeWal(file, wal)] : []),
      ],
    };
  }

  close(): void {
    try {
      this.#book?.checkpoint();
    } catch (error) {
      // The next start takes the WAL over.
      this.#means.log.warn({ reason: faultOf(error).message }, "the usage log keeps its WAL");
    }
    this.#leave();
  }

  #open(): Book {
    const { clock, file, log, sync } = this.#means;
    this.#check();
    const book = openBook(file, sync);
    try {
      const interrupted = book.takeOver(this.#running);
      if (interrupted > 0)
        log.warn({ records: interrupted }, "requests were cut off when keybearer last ended");
      if (this.#recent.length > 0) book.write(this.#recent);
      this.#events.onOpen(book);
      for (const aside of this.#asides.splice(0)) this.#events.onAside(aside, book);
    } catch (error) {
      book.abandon();
      throw error;
    }
    this.#book = book;
    this.#lookedAt = clock.elapsed();
    return book;
  }

  /** Before anything could be written to it, so that a damaged file is kept as it was found. */
  #check(): void {
    if (this.#checked) return;
    const { file } = this.#means;
    if (sizeOf(file) > CHECKED_AT_START) this.#events.onLarge();
    else if (sizeOf(file) > 0) checkIntegrity(file);
    this.#checked = true;
  }

  #leave(): void {
    const book = this.#book;
    this.#book = null;
    book?.abandon();
  }

  #probe(book: Book): void {
    book.transact((rows) => rows.setFact("written_again_at", String(this.#means.clock.now())));
  }
}

function largeWal(file: string, bytes: number): string {
  const size = Math.round(bytes / 1024 / 1024);
  return `${file}-wal has grown to ${size} MB, because another program keeps reading ${file} → close that program`;
}

function sizeOf(path: string): number {
  try {
    return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
  } catch {
    return 0;
  }
}
