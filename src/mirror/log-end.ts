import type Database from "libsql";
import { type Beat, createBeat } from "../beat.ts";
import type { Clock } from "../clock.ts";
import { codeOf, writePrivate } from "../keys/pins.ts";
import type { Logger } from "../logger.ts";
import type { Ledger } from "../usage/ledger/ledger.ts";
import { columnsOf, firstOf, numberIn } from "../usage/ledger/raw-row.ts";
import { type LogStamp, readStamp, stampText } from "./log-stamp.ts";
import type { Gap } from "./store/facts.ts";
import { addUnwatched, keptFrom, readUnwatched } from "./store/unwatched.ts";

/**
 * Notices that the usage log lost its end: an older copy was put back, or a power cut took what was not on the disk yet.
 * Requests of ours from that time are in the console's log only, and must not be taken for somebody else's.
 */
export interface LogEnd {
  /** Times, by our clock, in which something of ours may not have been recorded. Looks first whether there are new ones. */
  unwatched(db: Database.Database): readonly Gap[];
  /** Looks for the last time. What it answers is to be called once the log is closed. */
  stop(): () => Promise<void>;
}

export interface LogEndMeans {
  /** Where the stamp lies. */
  readonly file: string;
  readonly clock: Clock;
  /** Default one of its own. */
  readonly beat?: Beat;
  readonly log: Logger;
  readonly ledger: Pick<Ledger, "ask">;
  readonly sync: "normal" | "full";
  /** When the machine was started, wall time. */
  readonly bootedAt: number;
}

const MINUTE_MS = 60_000;
const LOOK_BEATS = 2;
const WRITE_MS = 30_000;
/** The system itself writes within half a minute what it was given; a slow disk may need longer. */
const UNWRITTEN_MS = 10 * MINUTE_MS;

/** Reads the stamp and looks at once, so that nothing new is in the log by then. */
export function createLogEnd(means: LogEndMeans): LogEnd {
  return new StampedLogEnd(means);
}

class StampedLogEnd implements LogEnd {
  readonly #means: LogEndMeans;
  readonly #endLooks: () => void;
  #known: LogStamp | null;
  /** What is known is from an earlier run. */
  #first = true;
  #unsaved = false;
  #savedAt = Number.NEGATIVE_INFINITY;
  #saving: Promise<void> = Promise.resolve();
  #failed = false;

  constructor(means: LogEndMeans) {
    this.#means = means;
    this.#known = readStamp(means.file);
    this.#look();
    const { beat = createBeat() } = means;
    this.#endLooks = beat.every(LOOK_BEATS, () => this.#look());
  }

  unwatched(db: Database.Database): readonly Gap[] {
    this.#lookAt(db);
    return readUnwatched(db);
  }

  stop(): () => Promise<void> {
    this.#endLooks();
    const looked = this.#look();
    return async () => {
      // What was not looked at may have an end that nobody knows.
      if (looked && this.#known !== null) this.#save({ ...this.#known, clean: true });
      await this.#saving;
    };
  }

  #look(): boolean {
    return this.#means.ledger.ask((db) => this.#lookAt(db)) ?? false;
  }

  #lookAt(db: Database.Database): true {
    const { clock, log, sync } = this.#means;
    const now = clock.now();
    for (const gap of this.#newGaps(db, now)) {
      addUnwatched(db, gap);
      const fields = { from: new Date(gap.from).toISOString(), to: new Date(gap.to).toISOString() };
      log.warn(
        fields,
        "the usage log lost its end: requests of that time cannot be compared with the console's",
      );
    }
    const end = endOf(db);
    const before = this.#known;
    if (this.#first || before?.newest !== end.newest || before.record !== end.record) {
      this.#known = { ...end, at: now, clean: false, synced: sync === "full" };
      this.#unsaved = true;
    }
    this.#first = false;
    this.#saveWhenDue();
    return true;
  }

  #newGaps(db: Database.Database, now: number): Gap[] {
    const known = this.#known;
    if (known === null) return [];
    // Later ones than the last that was seen may be lost with it: none of an earlier run is much later.
    const until = this.#first ? Math.min(now, known.at + MINUTE_MS) : now;
    const cut = this.#first ? powerCut(known, this.#means.bootedAt) : null;
    const gaps = [lostEnd(db, known, until), cut === null ? null : watchedPart(db, cut)];
    return gaps.filter((gap) => gap !== null);
  }

  #saveWhenDue(): void {
    const { clock } = this.#means;
    if (!this.#unsaved || this.#known === null || clock.elapsed() - this.#savedAt < WRITE_MS) return;
    this.#savedAt = clock.elapsed();
    this.#unsaved = false;
    this.#save(this.#known);
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
function lostEnd(db: Database.Database, known: LogStamp, until: number): Gap | null {
  if (known.record === null || known.started_at < keptFrom(db)) return null;
  const there = db.prepare("SELECT id FROM log.records WHERE seq = ?").raw().get(known.newest);
  if (firstOf(there) === known.record) return null;
  // A log that was begun later, after a damage or a deletion, holds every key only since then.
  const held = heldSince(db);
  if (held === null || held >= known.at) return null;
  return watchedPart(db, { from: lastBefore(db, known.at), to: until });
}

/** A kill alone loses nothing: what was written is with the system, which only a power cut or a crash of its own ends. */
function powerCut({ clean, synced, at }: LogStamp, bootedAt: number): Gap | null {
  if (clean || synced || bootedAt <= at) return null;
  return { from: at - MINUTE_MS, to: Math.min(bootedAt, at + UNWRITTEN_MS) };
}

/** Without what is before a key was held, or pruned, and so is no alarm anyway. */
function watchedPart(db: Database.Database, { from, to }: Gap): Gap | null {
  const begin = Math.max(from, keptFrom(db), heldSince(db) ?? to);
  return begin < to ? { from: begin, to } : null;
}

function heldSince(db: Database.Database): number | null {
  return numberIn(db.prepare("SELECT min(since) FROM log.held_keys").raw().get());
}

/**
 * When the last one began that is still there. Not one that runs, nor one that was cut off: put into the copy by the process
 * that runs it, or out of what an earlier one noted beside the log, it says nothing about those before it.
 */
function lastBefore(db: Database.Database, time: number): number {
  const last = db
    .prepare(
      // By seq, from its end: with the + no index draws SQLite into sorting the whole log.
      "SELECT started_at FROM log.records WHERE +started_at <= ? AND +end <> 'interrupted' ORDER BY seq DESC LIMIT 1",
    )
    .raw();
  return numberIn(last.get(time)) ?? 0;
}

function endOf(db: Database.Database): Pick<LogStamp, "newest" | "record" | "started_at"> {
  const [newest, record, startedAt] = columnsOf(
    db.prepare("SELECT seq, id, started_at FROM log.records ORDER BY seq DESC LIMIT 1").raw().get(),
  );
  return {
    newest: Number(newest ?? 0),
    record: typeof record === "string" ? record : null,
    started_at: Number(startedAt ?? 0),
  };
}
