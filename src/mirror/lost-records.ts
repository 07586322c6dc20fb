import type Database from "libsql";
import { background } from "../core/background.ts";
import type { Clock } from "../core/clock.ts";
import { errorCode } from "../core/errors.ts";
import type { Logger } from "../core/log.ts";
import { readOwnFile } from "../core/own-file.ts";
import { writePrivateFile } from "../core/private-file.ts";
import type { Ticker } from "../core/ticker.ts";
import { transact } from "../usage/index/database.ts";
import { addLogGap, keptFrom, type LogGap, readLogGaps } from "./store/coverage-gaps.ts";
import type { MirrorDatabase } from "./store/database.ts";
import { queryNumber, queryValue } from "./store/query.ts";
import { catchUp, type LastRecord, type MirrorUsage } from "./usage.ts";

interface LostRecordsDeps {
  /** Where the log's end is noted: beside the log, so that it survives the loss. */
  readonly file: string;
  readonly clock: Clock;
  readonly ticker: Ticker;
  readonly log: Logger;
  readonly database: Pick<MirrorDatabase, "ask">;
  readonly usage: Pick<MirrorUsage, "catchUp" | "last" | "lostAt">;
  readonly sync: "normal" | "full";
  /** When the machine was started, wall time. */
  readonly bootedAt: number;
}

/** Where the usage log ended when this was written. */
interface LogEnd {
  /** The id of the newest record; null: there was none. */
  readonly record: string | null;
  readonly started_at: number;
  /** When the record was seen, wall time. */
  readonly at: number;
  /** The log was closed after it. */
  readonly clean: boolean;
  /** Every record was on the disk before its request was sent. */
  readonly synced: boolean;
}

const TICK_BEATS = 2;
const WRITE_EVERY_MS = 30_000;
/** A start does not wait for the index. */
const FIRST_CHECK_MS = 5000;
const MINUTE_MS = 60_000;
/** The system writes to the disk within half a minute. A slow disk may need longer. */
const UNWRITTEN_MS = 10 * MINUTE_MS;

/**
 * Detects that the usage log lost its end: a person restored an older copy, or a power cut lost what was not on the disk.
 * Only the console has the requests of that time. They must not become foreign, so the time becomes a gap of the log.
 */
export class LostRecords {
  readonly #deps: LostRecordsDeps;
  readonly #stopTicks: () => void;
  /** The end that an earlier run wrote. Until it was checked, its file is not overwritten. */
  #earlier: LogEnd | null;
  #end: LogEnd;
  #isSaved = false;
  /** In time elapsed. */
  #nextWrite: number;
  /** The check or the write that runs now. */
  #running: Promise<void> | null = null;
  #hasFailed = false;
  /** The value of MirrorUsage.lostAt that was noted. */
  #notedLoss: number | null = null;
  /** The index has every record that began before this. */
  #indexedTo: number;

  constructor(deps: LostRecordsDeps) {
    this.#deps = deps;
    this.#earlier = readLogEnd(deps.file);
    this.#end = this.#currentEnd();
    this.#indexedTo = deps.clock.now();
    this.#nextWrite = deps.clock.elapsed() + (this.#earlier === null ? 0 : FIRST_CHECK_MS);
    this.#stopTicks = deps.ticker.every(TICK_BEATS, () => this.#tick());
  }

  /**
   * The log's coverage gaps, with new ones. The index must have caught up.
   * @param newest what catchUp returned.
   */
  gaps(db: Database.Database, newest: LastRecord | null): readonly LogGap[] {
    this.#check(db, newest);
    this.#tick();
    return readLogGaps(db);
  }

  /** Call what it returns once the journal is closed. */
  stop(): () => Promise<void> {
    const { database } = this.#deps;
    this.#stopTicks();
    this.#noteEnd();
    return async () => {
      await this.#running;
      // Closing the journal checks its file once more.
      database.ask((db) => this.#noteLoss(db));
      if (this.#earlier === null) await this.#save({ ...this.#end, clean: true });
    };
  }

  #tick(): void {
    const { clock, log, usage, database } = this.#deps;
    this.#noteEnd();
    if (usage.lostAt() !== this.#notedLoss) database.ask((db) => this.#noteLoss(db));
    const isDue = clock.elapsed() >= this.#nextWrite && (this.#earlier !== null || !this.#isSaved);
    if (!isDue || this.#running !== null) return;
    this.#nextWrite = clock.elapsed() + WRITE_EVERY_MS;
    this.#running = this.#checkAndSave().finally(() => {
      this.#running = null;
    });
    background(this.#running, log, "checking the end of the usage log");
  }

  #noteEnd(): void {
    const last = this.#deps.usage.last();
    if ((last?.id ?? null) === this.#end.record) return;
    this.#end = this.#currentEnd();
    this.#isSaved = false;
  }

  #currentEnd(): LogEnd {
    const { usage, clock, sync } = this.#deps;
    const last = usage.last();
    return {
      record: last?.id ?? null,
      started_at: last?.started_at ?? 0,
      at: clock.now(),
      clean: false,
      synced: sync === "full",
    };
  }

  /** Checks an earlier run's end even if no console is ever read, so that this run's end can replace it. */
  async #checkAndSave(): Promise<void> {
    const { database, usage } = this.#deps;
    if (this.#earlier !== null) {
      try {
        const newest = await catchUp(usage);
        database.ask((db) => this.#check(db, newest));
      } catch {
        // The index cannot be read now. The next write tries again.
      }
    }
    if (this.#earlier === null) await this.#save(this.#end);
  }

  async #save(end: LogEnd): Promise<void> {
    const { file, log } = this.#deps;
    this.#isSaved = true;
    try {
      await writePrivateFile(file, `${JSON.stringify(end)}\n`);
      this.#hasFailed = false;
    } catch (error) {
      this.#isSaved = false;
      if (!this.#hasFailed)
        log.warn({ file, code: errorCode(error) }, "cannot write where the usage log ends");
      this.#hasFailed = true;
    }
  }

  #check(db: Database.Database, newest: LastRecord | null): void {
    const { clock, bootedAt } = this.#deps;
    const earlier = this.#earlier;
    this.#noteLoss(db);
    transact(db, () => {
      // If it is not in the index, the journal was replaced while this process runs.
      if (newest !== null)
        this.#addGap(db, lostEnd(db, newest.id, newest.started_at, newest.started_at, clock.now()));
      if (earlier === null) return;
      this.#addGap(db, lostEnd(db, earlier.record, earlier.started_at, earlier.at, clock.now()));
      this.#addGap(db, powerCut(db, earlier, bootedAt));
    });
    this.#earlier = null;
    if (newest !== null) this.#indexedTo = newest.started_at;
  }

  /** Records that the index had not read yet were lost when the journal's file was replaced or cut off. */
  #noteLoss(db: Database.Database): void {
    const lostAt = this.#deps.usage.lostAt();
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

const MAX_BYTES = 4096;

/** null: there is none, or it is damaged. Then nothing is known, and the log is not doubted. */
function readLogEnd(file: string): LogEnd | null {
  try {
    const text = readOwnFile(file, MAX_BYTES);
    return text === null ? null : parseLogEnd(text);
  } catch {
    return null;
  }
}

function parseLogEnd(text: string): LogEnd | null {
  const end: Partial<Record<keyof LogEnd, unknown>> = JSON.parse(text);
  const { record, started_at, at, clean, synced } = end;
  if (record !== null && typeof record !== "string") return null;
  if (!Number.isSafeInteger(started_at) || !Number.isSafeInteger(at)) return null;
  if (typeof clean !== "boolean" || typeof synced !== "boolean") return null;
  return { record, started_at: Number(started_at), at: Number(at), clean, synced };
}

/** null: the record is still there, or was pruned. @param seenAt when it was known to be the newest. */
function lostEnd(
  db: Database.Database,
  record: string | null,
  startedAt: number,
  seenAt: number,
  now: number,
): LogGap | null {
  if (record === null || startedAt < keptFrom(db)) return null;
  if (queryValue(db, "SELECT 1 FROM usage.records WHERE id = ?", record) !== null) return null;
  // A log that began later, after damage or a deletion, holds every key only since then.
  const held = heldSince(db);
  if (held === null || held >= seenAt) return null;
  // Records after the noted one may be lost too, but none is much later.
  return watchedPart(db, lastStartBefore(db, seenAt), Math.min(now, seenAt + MINUTE_MS));
}

/** kill -9 alone loses nothing: the system keeps what was written, until a power cut or its own crash. */
function powerCut(db: Database.Database, { clean, synced, at }: LogEnd, bootedAt: number): LogGap | null {
  if (clean || synced || bootedAt <= at) return null;
  return watchedPart(db, at - MINUTE_MS, Math.min(bootedAt, at + UNWRITTEN_MS));
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
