import type { Database } from "libsql";
import { advice } from "../core/advice.ts";
import type { Clock } from "../core/clock.ts";
import { HttpError } from "../core/errors.ts";
import { type Connection, IndexError, toIndexError } from "../usage/index/database.ts";
import type { UsageLog } from "../usage/usage-log.ts";

/** How long the work may keep the thread before others get a turn. */
const SLICE_MS = 8;
/** The same thread serves requests, so it must not wait for a lock. */
const LOCK_WAIT_MS = 10;
const MAX_WAITING = 32;
const MAX_STREAMS = 2;

/**
 * Reads the usage log through its own connections, on the daemon's thread. The work is a generator: between its steps,
 * requests get their turn. One read runs at a time, so that many pages cost no more than one.
 */
export class LogReader {
  readonly #open: (lockWaitMs: number) => Connection;
  readonly #usage: Pick<UsageLog, "catchUp">;
  readonly #clock: Clock;
  #lastRead: Promise<unknown> = Promise.resolve();
  #waiting = 0;
  #streams = 0;

  /** @param usage brings the index up to date before a read. */
  constructor(open: (lockWaitMs: number) => Connection, usage: Pick<UsageLog, "catchUp">, clock: Clock) {
    this.#open = open;
    this.#usage = usage;
    this.#clock = clock;
  }

  /**
   * Reads from one state of the log. Throws an HttpError if the log cannot be read, if too many reads wait, or when the
   * signal aborts.
   */
  async read<T>(work: (db: Database) => Generator<unknown, T>, signal?: AbortSignal): Promise<T> {
    if (this.#waiting >= MAX_WAITING)
      throw new HttpError(503, "too many requests are waiting. try again in a moment");
    this.#waiting += 1;
    const read = this.#lastRead.then(() => this.#withIndex((db) => this.#readInSlices(work, db, signal)));
    // The next read starts whether or not this one failed; its caller gets the error.
    this.#lastRead = read.catch(() => {});
    try {
      return await read;
    } finally {
      this.#waiting -= 1;
    }
  }

  /** Passes each part on, and continues when it is taken. The log may change meanwhile. Throws an HttpError as read does. */
  async stream<T>(
    work: (db: Database) => Generator<T, unknown>,
    take: (part: T) => Promise<void>,
  ): Promise<void> {
    if (this.#streams >= MAX_STREAMS) {
      throw new HttpError(503, `${MAX_STREAMS} downloads are running. try again when one of them is done`);
    }
    this.#streams += 1;
    try {
      await this.#withIndex(async (db) => {
        for (const part of work(db)) {
          await take(part);
          await othersTurn();
        }
      });
    } finally {
      this.#streams -= 1;
    }
  }

  async #readInSlices<T>(
    work: (db: Database) => Generator<unknown, T>,
    db: Database,
    signal: AbortSignal | undefined,
  ): Promise<T> {
    // Closing the connection rolls back.
    db.exec("BEGIN");
    const steps = work(db);
    for (;;) {
      if (signal?.aborted) throw new HttpError(503, "request canceled");
      const sliceEnd = this.#clock.elapsed() + SLICE_MS;
      do {
        const step = steps.next();
        if (step.done === true) return step.value;
      } while (this.#clock.elapsed() < sliceEnd);
      await othersTurn();
    }
  }

  async #withIndex<T>(work: (db: Database) => Promise<T>): Promise<T> {
    await this.#usage.catchUp();
    let connection: Connection | null = null;
    try {
      connection = this.#open(LOCK_WAIT_MS);
      return await work(connection.db);
    } catch (error) {
      const indexError = toIndexError(error);
      if (!(indexError instanceof IndexError)) throw error;
      throw new HttpError(503, `the usage index cannot be read: ${indexError.message} → ${advice.status()}`);
    } finally {
      connection?.close();
    }
  }
}

function othersTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
