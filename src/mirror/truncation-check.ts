import type Database from "libsql";
import { background } from "../background.ts";
import { type Beat, createBeat } from "../beat.ts";
import type { Clock } from "../clock.ts";
import { codeOf, writePrivate } from "../keys/pins.ts";
import type { Logger } from "../logger.ts";
import { type LogStamp, readStamp, stampText } from "./log-stamp.ts";
import { addLogGap, type CoverageGap, keptFrom, readLogGaps } from "./store/coverage-gaps.ts";
import type { MirrorDatabase } from "./store/database.ts";
import { numberIn } from "./store/query.ts";
import type { LastRecord, MirrorUsage } from "./usage.ts";

export interface TruncationCheckDeps {
  /** Where the stamp lies. */
  readonly file: string;
  readonly clock: Clock;
  /** Default one of its own. */
  readonly beat?: Beat;
  readonly log: Logger;
  readonly database: Pick<MirrorDatabase, "ask">;
  readonly usage: Pick<MirrorUsage, "catchUp" | "last" | "lostAt">;
  readonly sync: "normal" | "full";
  /** When the machine was started, wall time. */
  readonly bootedAt: number;
}

const MINUTE_MS = 60_000;
const LOOK_BEATS = 2;
const WRITE_MS = 30_000;
const FIRST_CHECK_MS = 5000;
/** The system itself writes within half a minute what it was given; a slow disk may need longer. */
const UNWRITTEN_MS = 10 * MINUTE_MS;

/**
 * Notices that the usage log lost its end: an older copy was put back, or a power cut took what was not on the disk yet.
 * Requests of ours from that time are in the console's log only, and must not be taken for somebody else's.
 */
export class TruncationCheck {
  readonly #means: TruncationCheckDeps;
  readonly #endLooks: () => void;
  /** Of an earlier run, until it is compared with the index. Its file is not overwritten before that. */
  #earlier: LogStamp | null;
  #stamp: LogStamp;
  /** The record whose loss was noted already. */
  #lost: string | null = null;
  /** The loss while the journal was open that was noted already, see MirrorUsage.lostAt. */
  #notedLoss: number | null = null;
  /** The index has every record that began before this. */
  #indexedTo: number;
  #checking: Promise<void> | null = null;
  #unsaved = true;
  #triedAt = Number.NEGATIVE_INFINITY;
  #saving: Promise<void> = Promise.resolve();
  #failed = false;

  constructor(means: TruncationCheckDeps) {
    this.#means = means;
    this.#earlier = readStamp(means.file);
    this.#stamp = this.#stampOf(means.usage.last());
    this.#indexedTo = means.clock.now();
    // The check of an earlier run needs the index, for which a start does not wait.
    if (this.#earlier !== null) this.#triedAt = means.clock.elapsed() - WRITE_MS + FIRST_CHECK_MS;
    this.#tryWhenDue();
    const { beat = createBeat() } = means;
    this.#endLooks = beat.every(LOOK_BEATS, () => this.#look());
  }

  /**
   * Times, by our clock, in which something of ours may not have been recorded. Checks first whether there are new ones, so
   * the index must have caught up. `newest`: the newest record from before it did, see catchUp.
   */
  gaps(db: Database.Database, newest: LastRecord | null): readonly CoverageGap[] {
    this.#noteLoss(db);
    this.#check(db, newest);
    this.#look();
    return readLogGaps(db);
  }

  /** Looks for the last time. What it returns is to be called once the journal is closed. */
  stop(): () => Promise<void> {
    this.#endLooks();
    this.#look();
    return async () => {
      await this.#checking;
      if (this.#earlier === null) this.#save({ ...this.#stamp, clean: true });
      await this.#saving;
    };
  }

  #look(): void {
    const last = this.#means.usage.last();
    if ((last?.id ?? null) !== this.#stamp.record) {
      this.#stamp = this.#stampOf(last);
      this.#unsaved = true;
    }
    const { usage, database } = this.#means;
    if (usage.lostAt() !== this.#notedLoss) database.ask((db) => this.#noteLoss(db));
    this.#tryWhenDue();
  }

  #stampOf(last: LastRecord | null): LogStamp {
    const { clock, sync } = this.#means;
    return {
      record: last?.id ?? null,
      started_at: last?.started_at ?? 0,
      at: clock.now(),
      clean: false,
      synced: sync === "full",
    };
  }

  #check(db: Database.Database, newest: LastRecord | null): void {
    const lost = this.#newGap(db, newest);
    const gaps = lost === null ? this.#earlierGaps(db) : [...this.#earlierGaps(db), lost];
    for (const gap of gaps) this.#note(db, gap);
    this.#earlier = null;
    if (newest !== null) this.#indexedTo = newest.started_at;
    // Until there is a newer record, the journal goes on naming this one.
    if (lost !== null && newest !== null) this.#lost = newest.id;
  }

  /** What the index had not read yet of a file that was deleted, replaced or cut off. */
  #noteLoss(db: Database.Database): void {
    const lostAt = this.#means.usage.lostAt();
    if (lostAt === null || lostAt === this.#notedLoss) return;
    const gap = watchedPart(db, { from: lastBefore(db, this.#indexedTo), to: lostAt });
    if (gap !== null) this.#note(db, gap);
    this.#notedLoss = lostAt;
  }

  #note(db: Database.Database, gap: CoverageGap): void {
    addLogGap(db, gap);
    const fields = { from: new Date(gap.from).toISOString(), to: new Date(gap.to).toISOString() };
    this.#means.log.warn(
      fields,
      "the usage log lost its end: requests of that time cannot be compared with the console's",
    );
  }

  #earlierGaps(db: Database.Database): CoverageGap[] {
    const earlier = this.#earlier;
    if (earlier === null) return [];
    const { clock, bootedAt } = this.#means;
    // Records later than the last that was seen may be lost with it, but none is much later.
    const lost = lostEnd(db, earlier, Math.min(clock.now(), earlier.at + MINUTE_MS));
    const cut = powerCut(earlier, bootedAt);
    return [lost, cut === null ? null : watchedPart(db, cut)].filter((gap) => gap !== null);
  }

  /** The journal was replaced while this process runs. */
  #newGap(db: Database.Database, newest: LastRecord | null): CoverageGap | null {
    if (newest === null || newest.id === this.#lost) return null;
    const known = { record: newest.id, started_at: newest.started_at, at: newest.started_at };
    return lostEnd(db, known, this.#means.clock.now());
  }

  #tryWhenDue(): void {
    const { clock, log } = this.#means;
    const isDue = clock.elapsed() - this.#triedAt >= WRITE_MS;
    if (!isDue) return;
    if (this.#earlier !== null) {
      this.#triedAt = clock.elapsed();
      this.#checking ??= this.#checkEarlier().finally(() => {
        this.#checking = null;
      });
      background(this.#checking, log, "checking the end of the usage log");
    } else if (this.#unsaved) {
      this.#triedAt = clock.elapsed();
      this.#unsaved = false;
      this.#save(this.#stamp);
    }
  }

  /** Also where no console is ever read: the stamp of this run takes the place of the earlier one. */
  async #checkEarlier(): Promise<void> {
    const { database, usage } = this.#means;
    const newest = usage.last();
    try {
      await usage.catchUp();
    } catch {
      // Tried again when it is due.
      return;
    }
    database.ask((db) => this.#check(db, newest));
    if (this.#earlier === null) this.#triedAt = Number.NEGATIVE_INFINITY;
    this.#tryWhenDue();
  }

  #save(stamp: LogStamp): void {
    const { file, log } = this.#means;
    this.#saving = this.#saving
      .then(() => writePrivate(file, stampText(stamp)))
      .then(
        () => {
          this.#failed = false;
        },
        (error: unknown) => {
          this.#unsaved = true;
          if (!this.#failed) log.warn({ file, code: codeOf(error) }, "where the usage log ends was not kept");
          this.#failed = true;
        },
      );
  }
}

/** null: what was last in the log is still there, or was pruned. */
function lostEnd(
  db: Database.Database,
  known: Pick<LogStamp, "record" | "started_at" | "at">,
  until: number,
): CoverageGap | null {
  if (known.record === null || known.started_at < keptFrom(db)) return null;
  const there = db.prepare("SELECT 1 FROM usage.records WHERE id = ?").raw().get(known.record);
  if (there !== undefined) return null;
  // A log that was begun later, after a damage or a deletion, holds every key only since then.
  const held = heldSince(db);
  if (held === null || held >= known.at) return null;
  return watchedPart(db, { from: lastBefore(db, known.at), to: until });
}

/** A kill alone loses nothing: what was written is with the system, which only a power cut or a crash of its own ends. */
function powerCut({ clean, synced, at }: LogStamp, bootedAt: number): CoverageGap | null {
  if (clean || synced || bootedAt <= at) return null;
  return { from: at - MINUTE_MS, to: Math.min(bootedAt, at + UNWRITTEN_MS) };
}

/** Without what is before a key was held, or pruned, and so is no alarm anyway. */
function watchedPart(db: Database.Database, { from, to }: CoverageGap): CoverageGap | null {
  const begin = Math.max(from, keptFrom(db), heldSince(db) ?? to);
  return begin < to ? { from: begin, to } : null;
}

function heldSince(db: Database.Database): number | null {
  return numberIn(db.prepare("SELECT min(since) FROM mirror.held_keys").raw().get());
}

/**
 * When the last one began that is still there. Not one that runs, nor one that was cut off: the process that runs it may have
 * appended it to the older copy, so it says nothing about those before it.
 */
function lastBefore(db: Database.Database, time: number): number {
  const last = db
    .prepare(
      // By id, from the end: with the + no index draws SQLite into sorting the whole log.
      "SELECT started_at FROM usage.records WHERE +started_at <= ? AND +end <> 'interrupted' ORDER BY id DESC LIMIT 1",
    )
    .raw();
  return numberIn(last.get(time)) ?? 0;
}
