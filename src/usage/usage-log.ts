import { join } from "node:path";
import type Database from "libsql";
import type { Clock } from "../core/clock.ts";
import type { Logger } from "../core/log.ts";
import type { Ticker } from "../core/ticker.ts";
import { MINUTE_MS } from "../core/units.ts";
import type { Limiter } from "../limits/limiter.ts";
import { DATABASE_SUFFIXES, IndexError, queryIndex } from "./index/database.ts";
import { type Ask, Indexer, type IndexState } from "./index/indexer.ts";
import { findChange } from "./index/journal-digest.ts";
import { dayFileName, journalFiles, readStat } from "./journal/files.ts";
import { Journal, type JournalState } from "./journal/journal.ts";
import { LimitsReplay } from "./journal/limits-replay.ts";
import type { Position } from "./journal/position.ts";
import { Maintenance } from "./maintenance.ts";

interface UsageLogDeps {
  /** The journal's. */
  readonly folder: string;
  /** index.db */
  readonly index: string;
  readonly clock: Clock;
  readonly ticker: Ticker;
  readonly log: Logger;
  readonly sync: "normal" | "full";
  /** How long records are kept, milliseconds. */
  readonly keep: () => number;
  readonly limiter: Limiter;
}

interface UsageLogState extends JournalState {
  readonly folder: string;
  /** Of the journal and the index together. */
  readonly bytes: number;
  readonly index: IndexState;
  readonly maintainedAt: number | null;
  /** What happened to the journal while keybearer did not run; null: nothing. */
  readonly changed: string | null;
}

/** The bytes of the journal before its newest file. */
interface OlderBytes {
  /** The day of the newest file; null: none is open. */
  readonly before: string | null;
  readonly bytes: number;
  /** When they were counted, on the clock that cannot be set. */
  readonly at: number;
  readonly maintainedAt: number | null;
}

/** How long the main thread, and with it every request, may wait for a lock. */
const READ_TIMEOUT_MS = 20;
/** How long a reader waits for the index to catch up. */
const CATCH_UP_MS = 3000;
const REBUILD_MS = 1000;
/** The files of past days hardly change. A dashboard asks for their size every second. */
const SIZES_MS = MINUTE_MS;

/** The usage log: the journal, which is the truth, and the index, which reports read. */
export class UsageLog {
  readonly journal: Journal;
  readonly #deps: UsageLogDeps;
  readonly #indexer: Indexer;
  readonly #maintenance: Maintenance;
  #changed: string | null;
  #older: OlderBytes = { before: null, bytes: 0, at: Number.NEGATIVE_INFINITY, maintainedAt: null };

  constructor(deps: UsageLogDeps) {
    this.#deps = deps;
    const { folder, index, clock, ticker, log, sync, keep, limiter } = deps;
    const indexer = new Indexer({ file: index, folder, log });
    const onAppend = () => indexer.noteAppend();
    const indexedDay = () => readIndexedDay(index);
    this.#changed = findChange(index, folder, READ_TIMEOUT_MS);
    if (this.#changed !== null) log.error(this.#changed);
    const replay = new LimitsReplay(limiter);
    const journal = new Journal({ folder, clock, ticker, log, sync, limiter, replay, indexedDay, onAppend });
    this.#maintenance = new Maintenance({ folder, clock, ticker, log, keep, journal, indexer });
    this.#indexer = indexer;
    this.journal = journal;
  }

  /** Brings the index up to date. If that takes longer, the result says how far it is. */
  catchUp(timeoutMs = CATCH_UP_MS, signal?: AbortSignal): Promise<IndexState> {
    this.journal.writeRefusals();
    return this.#indexer.catchUp(timeoutMs, signal);
  }

  /** Rebuilds the index. That may continue after this returns. */
  rebuild(): Promise<IndexState> {
    // From now on, the index has the journal as it is.
    this.#changed = null;
    return this.#indexer.rebuild(REBUILD_MS);
  }

  /** Queries the index, once it is up to date. null: it cannot be read now. */
  async read<T>(query: (db: Database.Database) => T): Promise<T | null> {
    await this.catchUp();
    return this.readNow(query);
  }

  /** Asks the index's thread, once it is up to date. */
  readonly ask: Ask = async (name, values, signal) => {
    await this.catchUp(CATCH_UP_MS, signal);
    return this.#indexer.ask(name, values, signal);
  };

  /** Queries the index as it is. null: it cannot be read now. */
  readNow<T>(query: (db: Database.Database) => T): T | null {
    return queryNow(this.#deps.index, query);
  }

  state(): UsageLogState {
    return {
      ...this.journal.state(),
      folder: this.#deps.folder,
      bytes: this.#bytes(),
      index: this.#indexer.state(),
      maintainedAt: this.#maintenance.lastRun,
      changed: this.#changed,
    };
  }

  #bytes(): number {
    const { folder, index } = this.#deps;
    let sum = 0;
    try {
      sum += this.#journalBytes(folder);
      for (const suffix of DATABASE_SUFFIXES) sum += readStat(index + suffix)?.size ?? 0;
    } catch {
      // The folder cannot be read, which the journal's state says.
    }
    return sum;
  }

  #journalBytes(folder: string): number {
    const elapsed = this.#deps.clock.elapsed();
    const { day } = this.journal;
    const { lastRun } = this.#maintenance;
    const isSame = day !== null && day === this.#older.before && lastRun === this.#older.maintainedAt;
    if (!isSame || elapsed - this.#older.at > SIZES_MS) {
      const older = journalFiles(folder).filter((file) => file.day !== day);
      const bytes = older.reduce((sum, { path }) => sum + (readStat(path)?.size ?? 0), 0);
      this.#older = { before: day, bytes, at: elapsed, maintainedAt: lastRun };
    }
    const current = day === null ? null : readStat(join(folder, dayFileName(day)));
    return this.#older.bytes + (current?.size ?? 0);
  }

  async stop(): Promise<void> {
    this.journal.stop();
    // Together: maintenance may be waiting for the index.
    await Promise.all([this.#maintenance.stop(), this.#indexer.stop()]);
  }
}

/** The newest day that the index has read; null: none, or it cannot be read now. */
function readIndexedDay(index: string): string | null {
  return queryNow(index, (db) => {
    const row = db.prepare("SELECT value FROM usage.meta WHERE name = 'position'").raw().get();
    return Array.isArray(row) ? (JSON.parse(String(row[0])) as Position).day : null;
  });
}

function queryNow<T>(index: string, query: (db: Database.Database) => T): T | null {
  const found = queryIndex(index, query, READ_TIMEOUT_MS);
  return found instanceof IndexError ? null : found;
}
