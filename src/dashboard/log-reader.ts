import type { Database } from "libsql";
import type { Clock } from "../core/clock.ts";
import { type Connection, IndexFault, indexFault } from "../usage/index/database.ts";
import type { UsageLog } from "../usage/usage-log.ts";
import { No } from "./answer.ts";

/** Work on the usage log that gives way after each step. */
export type Steps<T> = (db: Database) => Generator<unknown, T>;

/**
 * Reads the usage log over connections of its own, as `keybearer usage` does, but on the daemon's thread: in steps, and
 * between some of them everybody else has their turn. One reading at a time, so that many pages cost no more than one.
 */
export interface LogReader {
  /** All from one state of the log. Ends early where nobody wants it any more. */
  read<T>(steps: Steps<T>, signal?: AbortSignal): Promise<T | No>;
  /** Hands on what each step yields, and goes on once that is taken. The log is not held still meanwhile. Few at once. */
  stream<T>(
    steps: (db: Database) => Generator<T, unknown>,
    take: (part: T) => Promise<void>,
  ): Promise<No | null>;
}

/** So long may others have to wait for their turn, besides the one step that begins just before. */
const SLICE_MS = 8;
/** This is the thread that serves requests: it must not wait for a lock. */
const LOCK_PATIENCE_MS = 10;
const MOST_WAITING = 32;
/** Each takes its turn after every piece, and so everybody else waits for as many pieces. */
const MOST_STREAMS = 2;

/**
 * @param open opens a connection that waits for a lock no longer than it is told to.
 * @param usage brings the index up to date before it is read.
 */
export function createLogReader(
  open: (patienceMs: number) => Connection,
  usage: Pick<UsageLog, "catchUp">,
  clock: Clock,
): LogReader {
  let turn: Promise<unknown> = Promise.resolve();
  let waiting = 0;
  let streams = 0;

  async function inTurn<T>(work: () => Promise<T>): Promise<T | No> {
    if (waiting >= MOST_WAITING) return new No(503, "too many questions at once. try again in a moment");
    waiting += 1;
    const mine = turn.then(work, work);
    turn = mine.catch(() => {});
    try {
      return await mine;
    } finally {
      waiting -= 1;
    }
  }

  return {
    read: (steps, signal) =>
      inTurn(() =>
        withIndex(open, usage, async (db) => {
          if (signal?.aborted) return gone();
          db.exec("BEGIN");
          // What is still open when the connection closes is rolled back there.
          const work = steps(db);
          for (;;) {
            const until = clock.elapsed() + SLICE_MS;
            do {
              const step = work.next();
              if (step.done === true) return step.value;
            } while (clock.elapsed() < until);
            await othersTurn();
            if (signal?.aborted) return gone();
          }
        }),
      ),
    async stream(steps, take) {
      if (streams >= MOST_STREAMS)
        return new No(503, `${MOST_STREAMS} downloads are under way. try again when one of them is done`);
      streams += 1;
      try {
        return await withIndex(open, usage, async (db) => {
          for (const part of steps(db)) {
            await take(part);
            await othersTurn();
          }
          return null;
        });
      } finally {
        streams -= 1;
      }
    },
  };
}

async function withIndex<T>(
  open: (patienceMs: number) => Connection,
  usage: Pick<UsageLog, "catchUp">,
  work: (db: Database) => Promise<T>,
): Promise<T | No> {
  await usage.catchUp();
  let connection: Connection | null = null;
  try {
    connection = open(LOCK_PATIENCE_MS);
    return await work(connection.db);
  } catch (error) {
    const fault = indexFault(error);
    // Anything else is a bug and must not hide.
    if (!(fault instanceof IndexFault)) throw error;
    return new No(503, `the usage index cannot be read: ${fault.message} → keybearer status`);
  } finally {
    connection?.close();
  }
}

function gone(): No {
  return new No(503, "nobody waits for this any more");
}

function othersTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
