import { closeSync, lstatSync, openSync } from "node:fs";
import Database from "libsql";
import { errorCode, hasCode } from "../core/errors.ts";
import { ForeignFile, foreignProblem } from "../core/own-file.ts";

const BUSY_TIMEOUT_MS = 250;

/**
 * One daemon per state folder. Node has no flock, so the lock is an exclusive SQLite transaction that stays open for the
 * daemon's life. The system releases it when the process dies, however it dies.
 *
 * Nothing else may open lock.db: closing any descriptor of the file would drop the lock (POSIX).
 */
export class StateLock {
  readonly #db: Database.Database;

  /** null: another daemon holds it. Throws when the file cannot be created or locked. */
  static take(file: string): StateLock | null {
    createPrivate(file);
    const problem = foreignProblem(lstatSync(file));
    if (problem !== null) throw new ForeignFile(file, problem);
    // Two starts at the same moment may block each other. After some attempts, one of them wins.
    const db = new Database(file, { timeout: BUSY_TIMEOUT_MS });
    try {
      // Without a journal file, so that the lock can be taken on a full disk.
      db.exec("PRAGMA journal_mode = MEMORY");
      db.exec("BEGIN EXCLUSIVE");
      return new StateLock(db);
    } catch (error) {
      db.close();
      if (isBusy(error)) return null;
      throw error;
    }
  }

  private constructor(db: Database.Database) {
    this.#db = db;
  }

  release(): void {
    if (!this.#db.open) return;
    // libsql may close the file only after a garbage collection; the rollback ends the lock now.
    this.#db.exec("ROLLBACK");
    this.#db.close();
  }
}

function createPrivate(file: string): void {
  try {
    closeSync(openSync(file, "wx", 0o600));
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error;
  }
}

function isBusy(error: unknown): boolean {
  return errorCode(error).startsWith("SQLITE_BUSY");
}
