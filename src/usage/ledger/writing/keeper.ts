import type { Connection } from "../connect.ts";
import { faultOf, LedgerFault, nextStep } from "../fault.ts";
import type { LedgerMeans } from "../ledger.ts";
import { refuseForeign, sizeOf } from "../on-disk.ts";
import { moveAside } from "../repair/aside.ts";
import { checkIntegrity } from "../repair/integrity.ts";
import type { LedgerState } from "../state.ts";
import { type Book, type Entry, openBook, type Poisoned, type RunningRecords } from "./book.ts";
import type { Displaced } from "./place.ts";

/** Checking takes about 2 ms a megabyte. Larger files are checked once requests are served. */
const CHECKED_AT_START = 64 * 1024 * 1024;
/** A file that is damaged again so soon is not the file's fault. */
const AGAIN_MS = 10_000;
const LOOK_MS = 1000;
/** To keep more of what is written already costs more than to look whether it is safe. */
const MOST_RECENT = 64;
/** A WAL beyond this is held up by a reader. */
const LARGE_WAL = 64 * 1024 * 1024;

export type KeeperState = Omit<
  LedgerState,
  "waiting" | "lost" | "refusalsLost" | "aside" | "work" | "upkeptAt"
>;

export interface KeeperEvents {
  /** A file was opened. */
  readonly onOpen: (book: Book) => void;
  /** It is too large to be checked at once. */
  readonly onLarge: () => void;
  /** A damaged one was kept aside before that. */
  readonly onAside: (aside: string, book: Book) => void;
  /** One that was deleted while it was open is still open to be read; and whose is the connection now. */
  readonly onDeleted: (words: string, connection: Connection, book: Book) => void;
}

/** Keeps one good file open under the ledger's name, whatever happens to it. */
export class Keeper {
  readonly #means: LedgerMeans;
  readonly #running: RunningRecords;
  readonly #events: KeeperEvents;
  #book: Book | null = null;
  #trouble: { readonly fault: LedgerFault; readonly since: number } | null = null;
  #lookedAt = Number.NEGATIVE_INFINITY;
  #replacedAt = Number.NEGATIVE_INFINITY;
  /** What last became of the file while it was open, in words. */
  #displaced: readonly string[] = [];
  #checked = false;
  /** Kept aside, but not yet known to a new file. */
  readonly #asides: string[] = [];
  /** Deleted while it was open: what is in it can be read as long as it is. */
  readonly #deleted: { readonly words: string; readonly book: Book }[] = [];
  /** Finished records written since the file was last seen in its place: if it was gone by then, so are they. */
  #recent: Entry[] = [];

  constructor(means: LedgerMeans, running: RunningRecords, events: KeeperEvents) {
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
    for (const entry of entries) if (entry.kind !== "open") this.#recent.push(entry);
    if (this.#recent.length >= MOST_RECENT) this.#lookedAt = Number.NEGATIVE_INFINITY;
    if (this.#trouble !== null) this.#means.log.info("the usage log can be written again");
    this.#trouble = null;
    return poisoned;
  }

  /** Whether the file that is open is still the one that people see. */
  look(): void {
    this.#lookedAt = this.#means.clock.elapsed();
    if (this.#book === null) return;
    const displaced = this.#book.place.displaced();
    if (displaced === null) {
      this.#recent = [];
      return;
    }
    this.#means.log.error({ reason: displaced.words }, "the usage log was taken away while it was open");
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
    this.#book?.abandon();
    this.#book = null;
    this.#open();
  }

  state(): KeeperState {
    const { file } = this.#means;
    const trouble = this.#trouble;
    const wal = bytesOf(`${file}-wal`);
    return {
      condition: trouble === null ? "ok" : "unavailable",
      since: trouble?.since ?? null,
      reason: trouble === null ? null : `the usage log ${file} cannot be written: ${trouble.fault.message}`,
      next: trouble === null ? null : nextStep(trouble.fault, file),
      file,
      bytes: bytesOf(file) + wal,
      warnings: [...this.#displaced, ...(wal > LARGE_WAL ? [largeWal(file, wal)] : [])],
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
    for (const { book } of this.#deleted.splice(0)) book.abandon();
  }

  #open(): Book {
    const { clock, file, log, sync } = this.#means;
    this.#reunite();
    this.#check();
    const book = openBook(file, sync, ({ message }) =>
      log.warn({ reason: message }, "requests wait longer for their records: there is no place to note them"),
    );
    try {
      const interrupted = book.takeOver(this.#running);
      if (interrupted > 0)
        log.warn({ records: interrupted }, "requests were cut off when keybearer last ended");
      if (this.#recent.length > 0) book.write(this.#recent);
      this.#events.onOpen(book);
      for (const aside of this.#asides.splice(0)) this.#events.onAside(aside, book);
      for (const { words, book: old } of this.#deleted.splice(0))
        this.#events.onDeleted(words, old.connection, book);
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
    const size = refuseForeign(file)?.size ?? 0;
    if (size > CHECKED_AT_START) this.#events.onLarge();
    else if (size > 0) checkIntegrity(file);
    this.#checked = true;
  }

  #leave(): void {
    const book = this.#book;
    this.#book = null;
    if (book === null) return;
    const { file, clock } = this.#means;
    const displaced = displacementOf(book);
    const words = `${displaced?.words}, noticed at ${new Date(clock.now()).toISOString()}`;
    const gone = displaced?.how === "gone";
    book.leaveSlips();
    if (gone) this.#deleted.push({ words, book });
    const whole = gone || book.abandon();
    book.place.clear(gone, clock.now());
    if (displaced !== null) this.#displaced = gone ? [] : [`${words}: ${sequel(displaced.how, whole, file)}`];
  }

  /** What was gone is back, such as a folder that was moved: there is nothing to save from it. */
  #reunite(): void {
    for (const one of this.#deleted.filter(({ book }) => book.place.holds())) {
      this.#deleted.splice(this.#deleted.indexOf(one), 1);
      one.book.abandon();
    }
  }

  #probe(book: Book): void {
    book.transact((rows) => rows.setFact("written_again_at", String(this.#means.clock.now())));
  }
}

/** null: it is where it was, whatever else is wrong with it. */
function displacementOf(book: Book): Displaced | null {
  try {
    return book.place.displaced();
  } catch {
    return null;
  }
}

/** What that means for the records. */
function sequel(how: Displaced["how"], whole: boolean, file: string): string {
  if (how === "moved") return "the earlier records lie there, and a new one was begun";
  if (how === "replaced")
    return "what lies there is the usage log now, and records that only the earlier file held are not in it";
  return whole
    ? `what it held was written to ${file}, nothing is missing`
    : `another program reads ${file}: the latest records may be missing`;
}

function largeWal(file: string, bytes: number): string {
  const size = Math.round(bytes / 1024 / 1024);
  return `${file}-wal has grown to ${size} MB, because another program keeps reading ${file} → close that program`;
}

function bytesOf(path: string): number {
  try {
    return sizeOf(path) ?? 0;
  } catch {
    return 0;
  }
}
