import { lstatSync } from "node:fs";
import Database from "libsql";
import { errorCode, hasCode } from "../core/errors.ts";
import { ForeignFile, foreignProblem } from "../core/own-file.ts";
import { createEmptyPrivateFile } from "../core/private-file.ts";
import { identityOf } from "../usage/journal/files.ts";

const BUSY_TIMEOUT_MS = 250;

/**
 * One daemon per state folder. Node has no flock, so the lock is an exclusive SQLite transaction that stays open for the
 * daemon's life. The system releases it when the process ends, also after a crash.
 *
 * Nothing else may open lock.db: closing any descriptor of the file would drop the lock (POSIX).
 */
export class StateLock {
  readonly #file: string;
  readonly #db: Database.Database;
  readonly #identity: string;

  /** null: another daemon holds it. Throws when the file cannot be created or locked. */
  static take(file: string): StateLock | null {
    createEmptyPrivateFile(file);
    const found = lstatSync(file);
    const problem = foreignProblem(found);
    if (problem !== null) throw new ForeignFile(file, problem);
    // Two starts at the same moment may block each other. After some attempts, one of them wins.
    const db = new Database(file, { timeout: BUSY_TIMEOUT_MS });
    try {
      // Without a journal file, so that the lock can be taken on a full disk.
      db.exec("PRAGMA journal_mode = MEMORY");
      db.exec("BEGIN EXCLUSIVE");
      return new StateLock(file, db, identityOf(found));
    } catch (error) {
      db.close();
      if (isBusy(error)) return null;
      throw error;
    }
  }

  private constructor(file: string, db: Database.Database, identity: string) {
    this.#file = file;
    this.#db = db;
    this.#identity = identity;
  }

  /** Why another daemon could take the lock although this one has it; null: none can. A file that cannot be examined may be fine. */
  problem(): string | null {
    try {
      const found = lstatSync(this.#file, { throwIfNoEntry: false });
      if (found === undefined) return `${this.#file} was deleted`;
      return identityOf(found) === this.#identity ? null : `${this.#file} was replaced`;
    } catch (error) {
      return hasCode(error, "ENOTDIR") ? `the folder of ${this.#file} was replaced` : null;
    }
  }

  release(): void {
    if (!this.#db.open) return;
    // libsql may close the file only after a garbage collection; the rollback ends the lock now.
    this.#db.exec("ROLLBACK");
    this.#db.close();
  }
}

function isBusy(error: unknown): boolean {
  return errorCode(error).startsWith("SQLITE_BUSY");
}
