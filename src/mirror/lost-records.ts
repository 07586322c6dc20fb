import type Database from "libsql";
import { background } from "../core/background.ts";
import type { Clock } from "../core/clock.ts";
import type { Logger } from "../core/log.ts";
import type { Ticker } from "../core/ticker.ts";
import { MINUTE_MS } from "../core/units.ts";
import { transact } from "../usage/index/database.ts";
import type { Journal } from "../usage/journal/journal.ts";
import { addLogGap, keptFrom, type LogGap, readLogGaps } from "./store/coverage-gaps.ts";
import type { MirrorDatabase } from "./store/database.ts";
import { readJsonFact, writeFact } from "./store/facts.ts";
import { queryAll, queryNumber, queryValue } from "./store/query.ts";
import { catchUp, type LastRecord, type MirrorUsage } from "./usage.ts";

interface LostRecordsDeps {
  readonly clock: Clock;
  readonly ticker: Ticker;
  readonly log: Logger;
  readonly database: Pick<MirrorDatabase, "ask">;
  readonly usage: Pick<MirrorUsage, "catchUp" | "last">;
  readonly journal: Pick<Journal, "flush" | "lostAt">;
  /** The journal was changed while keybearer did not run: it no longer has what the index had read of it. */
  readonly wasChanged: boolean;
  /** When the machine was started, wall time. */
  readonly bootedAt: number;
}

const TICK_BEATS = 2;
const WORK_EVERY_MS = 30_000;
/** A start does not wait for the index. */
const FIRST_CHECK_MS = 5000;
/** A flush reaches the disk within seconds. A slow disk may need longer. */
const UNWRITTEN_MS = 10 * MINUTE_MS;

/**
 * Finds when the usage log lost records: a person put back an older copy or cut a file off, or a power cut took what was not
 * on the disk. Only the console has the requests of that time. They must not become foreign, so the time becomes a gap of
 * the log.
 */
export class LostRecords {
  readonly #deps: LostRecordsDeps;
  readonly #startedAt: number;
  readonly #stopTicks: () => void;
  /** What earlier runs lost was looked for. */
  #isChecked = false;
  /** The newest record of earlier runs, once they were checked. */
  #earlier: LastRecord | null = null;
  /** The newest record when the journal was last flushed. */
  #flushed: string | null = null;
  /** In time elapsed. */
  #nextWork: number;
  #working: Promise<void> | null = null;
  /** The value of Journal.lostAt that was noted. */
  #notedLoss: number | null = null;
  /** The index has every record that began before this. */
  #indexedTo: number;

  constructor(deps: LostRecordsDeps) {
    const { clock, ticker } = deps;
    this.#deps = deps;
    this.#startedAt = clock.now();
    this.#indexedTo = clock.now();
    this.#nextWork = clock.elapsed() + FIRST_CHECK_MS;
    this.#stopTicks = ticker.every(TICK_BEATS, () => this.#tick());
  }

  /**
   * The log's coverage gaps, with new ones. The index must have caught up.
   * @param newest what catchUp returned.
   */
  gaps(db: Database.Database, newest: LastRecord | null): readonly LogGap[] {
    this.#check(db, newest);
    return readLogGaps(db);
  }

  /** Call this once the journal is closed. */
  async close(): Promise<void> {
    const { database, usage } = this.#deps;
    this.#stopTicks();
    await this.#working;
    database.ask((db) => {
      // Closing the journal checks its file again.
      this.#noteLoss(db);
      const last = usage.last() ?? this.#earlier;
      // What was not checked is left to the next start.
      if (this.#isChecked && last !== null) writeClosedWith(db, last);
    });
  }

  #tick(): void {
    const { clock, log, usage, journal, database } = this.#deps;
    if (journal.lostAt() !== this.#notedLoss) database.ask((db) => this.#noteLoss(db));
    const isNeeded = !this.#isChecked || (usage.last()?.id ?? null) !== this.#flushed;
    if (!isNeeded || clock.elapsed() < this.#nextWork || this.#working !== null) return;
    this.#nextWork = clock.elapsed() + WORK_EVERY_MS;
    this.#working = this.#work().finally(() => {
      this.#working = null;
    });
    background(this.#working, log, "looking for lost usage records");
  }

  async #work(): Promise<void> {
    await this.#flush();
    if (!this.#isChecked) await this.#checkWithoutConsole();
  }

  /** A power cut then takes only what began within half a minute after the newest record that it leaves. */
  async #flush(): Promise<void> {
    const { usage, journal } = this.#deps;
    const last = usage.last()?.id ?? null;
    if (last === this.#flushed) return;
    if (await journal.flush()) this.#flushed = last;
  }

  /** A console may be configured later, and lists requests of up to a month before. */
  async #checkWithoutConsole(): Promise<void> {
    const { database, usage } = this.#deps;
    try {
      const newest = await catchUp(usage);
      database.ask((db) => this.#check(db, newest));
    } catch {
      // The index cannot be read now. The next time is in half a minute.
    }
  }

  #check(db: Database.Database, newest: LastRecord | null): void {
    this.#noteLoss(db);
    transact(db, () => {
      // If it is not in the index, the journal was replaced while this process runs.
      if (newest !== null) this.#addGap(db, lostEnd(db, newest, this.#deps.clock.now()));
      if (!this.#isChecked) this.#checkEarlierRuns(db);
    });
    this.#isChecked = true;
    if (newest !== null) this.#indexedTo = newest.started_at;
  }

  #checkEarlierRuns(db: Database.Database): void {
    const closedWith = readClosedWith(db);
    const newest = newestBefore(db, this.#startedAt);
    const lost = closedWith === null ? null : lostEnd(db, closedWith, this.#startedAt);
    const isClosed = closedWith !== null && newest?.id === closedWith.id;
    if (lost !== null) this.#addGap(db, lost);
    else if (!isClosed) this.#checkAfterKill(db, newest);
    this.#earlier = newest;
    // Until this run closes the log, its end is not known.
    writeClosedWith(db, null);
  }

  /** The last run did not write down what the log had. kill -9 alone loses nothing: the system keeps what was written. */
  #checkAfterKill(db: Database.Database, newest: NewestRecord | null): void {
    const { wasChanged, bootedAt } = this.#deps;
    // Everything since the last record may be lost.
    if (wasChanged) this.#addGap(db, watchedPart(db, lastStartBefore(db, this.#startedAt), this.#startedAt));
    if (newest === null) return;
    const written = newest.started_at + newest.waited_ms;
    // It was a power cut, or a crash of the system.
    if (bootedAt > written)
      this.#addGap(db, watchedPart(db, written - MINUTE_MS, Math.min(bootedAt, written + UNWRITTEN_MS)));
  }

  /** Records that the index had not read yet were lost when the journal's file was replaced or cut off. */
  #noteLoss(db: Database.Database): void {
    const lostAt = this.#deps.journal.lostAt();
    if (lostAt === null || lostAt === this.#notedLoss) return;
    transact(db, () => this.#addGap(db, watchedPart(db, lastStartBefore(db, this.#indexedTo), lostAt)));
    this.#notedLoss = lostAt;
  }

  #addGap(db: Database.Database, gap: LogGap | null): void {
    if (gap === null || !addLogGap(db, gap)) return;
    const fields = { from: new Date(gap.from).toISOString(), to: new Date(gap.to).toISOString() };
    this.#deps.log.warn(
      fields,
      "the usage log lost its end: requests of that time cannot be compared with the console",
    );
  }
}

function readClosedWith(db: Database.Database): LastRecord | null {
  return readJsonFact(db, null, "closed_with", null);
}

function writeClosedWith(db: Database.Database, last: LastRecord | null): void {
  const text = last === null ? null : JSON.stringify({ id: last.id, started_at: last.started_at });
  writeFact(db, null, "closed_with", text);
}

/** The time that is lost if the log does not have its newest record any more; null: it does, or the record was pruned. */
function lostEnd(db: Database.Database, { id, started_at }: LastRecord, now: number): LogGap | null {
  if (started_at < keptFrom(db)) return null;
  if (queryValue(db, "SELECT 1 FROM usage.records WHERE id = ?", id) !== null) return null;
  // A log that began later, after damage or a deletion, holds every key only since then.
  const held = heldSince(db);
  if (held === null || held >= started_at) return null;
  return watchedPart(db, lastStartBefore(db, started_at), Math.min(now, started_at + MINUTE_MS));
}

interface NewestRecord extends LastRecord {
  /** It was written when it no longer waited for capacity. */
  readonly waited_ms: number;
}

/** Of this machine, and of earlier runs. A record of many refusals stands for requests that were not sent. */
function newestBefore(db: Database.Database, startedAt: number): NewestRecord | null {
  const [newest = null] = queryAll<NewestRecord>(
    db,
    `SELECT id, started_at, waited_ms FROM usage.records
     WHERE +started_at < ? AND machine IS NULL AND +last_id IS NULL ORDER BY id DESC LIMIT 1`,
    startedAt,
  );
  return newest;
}

/** Without the time before a key was held, and without what was pruned: nothing in it can raise an alarm. */
function watchedPart(db: Database.Database, from: number, to: number): LogGap | null {
  const begin = Math.max(from, keptFrom(db), heldSince(db) ?? to);
  return begin < to ? { from: begin, to } : null;
}

function heldSince(db: Database.Database): number | null {
  return queryNumber(db, "SELECT min(since) FROM mirror.held_keys");
}

/**
 * When the last record of this machine before this time began. Records in flight or interrupted do not count: a running
 * process may have appended them to the older copy, so they prove nothing about the records before them. Neither do those
 * of other machines, which come at any time.
 */
function lastStartBefore(db: Database.Database, time: number): number {
  // By id, from the end. The plus keeps SQLite from sorting the whole log by another index.
  const sql = `SELECT started_at FROM usage.records
    WHERE +started_at <= ? AND +end <> 'interrupted' AND machine IS NULL ORDER BY id DESC LIMIT 1`;
  return queryNumber(db, sql, time) ?? 0;
}
