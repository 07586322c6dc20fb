import { renameSync, rmSync } from "node:fs";
import type Database from "libsql";
import { errorMessage } from "../../core/errors.ts";
import type { Logger } from "../../core/log.ts";
import { createEmptyPrivateFile } from "../../core/private-file.ts";
import {
  attachFile,
  type Connection,
  checkVersion,
  DATABASE_SUFFIXES,
  detach,
  findDamage,
  IndexError,
  openIndexForReading,
  rollBack,
  toIndexError,
  transact,
} from "../../usage/index/database.ts";
import { readStat } from "../../usage/journal/files.ts";
import { ROW_DEFINITIONS } from "../console-row.ts";
import { queryValue } from "./query.ts";

/** The version of the tables below. A file of another version is renamed, and a new one begins. */
const VERSION = 5;
/** "kbmr" in SQLite's header marks the file as ours. */
const APPLICATION_ID = 0x6b626d72;

/**
 * console_rows: what the consoles listed, with the verdict on each row.
 * verdicts: the verdicts on our records. `ours` keeps a record's own numbers where it took the console's. Its money is
 * repeated here, so that a report need not read every record.
 * held_keys: from when to when a tool held a key. console_keys: which key a console means by its own name for it.
 * changed_days: what must be compared again. facts: what is remembered per gateway, see facts.ts.
 * The first two do not depend on when or in what order rows arrived. Reading the same rows again changes nothing.
 */
const SCHEMA = `
  CREATE TABLE mirror.console_rows (
    gateway TEXT NOT NULL,
    ${ROW_DEFINITIONS},
    verdict TEXT,
    how TEXT,
    certain INTEGER NOT NULL DEFAULT 0,
    record TEXT,
    key TEXT,
    reason TEXT,
    acknowledged_at INTEGER,
    PRIMARY KEY (gateway, identity)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX mirror.console_rows_by_time ON console_rows (gateway, created_at);
  CREATE INDEX mirror.console_rows_by_verdict ON console_rows (gateway, verdict, created_at);
  CREATE INDEX mirror.console_rows_by_id ON console_rows (gateway, request_id);
  CREATE INDEX mirror.console_rows_by_ref ON console_rows (gateway, key_ref, created_at);
  CREATE INDEX mirror.console_rows_counted ON console_rows (gateway, verdict, how, certain, key, billed_microdollars);
  CREATE INDEX mirror.console_rows_alarming ON console_rows (gateway, certain, key, created_at)
    WHERE verdict = 'foreign' AND acknowledged_at IS NULL;

  CREATE TABLE mirror.verdicts (
    record TEXT PRIMARY KEY,
    gateway TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    verdict TEXT NOT NULL,
    how TEXT,
    row TEXT,
    reason TEXT NOT NULL,
    ours TEXT,
    theirs TEXT,
    tool TEXT,
    model TEXT,
    "group" TEXT,
    tier TEXT,
    their_multiplier REAL,
    price_factor REAL,
    cost_microdollars INTEGER,
    their_billed_microdollars INTEGER
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX mirror.verdicts_by_time ON verdicts (gateway, verdict, started_at);
  CREATE INDEX mirror.verdicts_counted ON verdicts (gateway, verdict, tool, model, "group", tier, their_multiplier,
    price_factor, cost_microdollars, their_billed_microdollars);

  CREATE TABLE mirror.held_keys (
    gateway TEXT NOT NULL,
    key TEXT NOT NULL,
    tool TEXT NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER,
    PRIMARY KEY (gateway, key, tool)
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE mirror.console_keys (
    gateway TEXT NOT NULL,
    ref TEXT NOT NULL,
    key TEXT,
    learnt TEXT NOT NULL,
    PRIMARY KEY (gateway, ref)
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE mirror.changed_days (
    gateway TEXT NOT NULL,
    day INTEGER NOT NULL,
    mark INTEGER NOT NULL,
    PRIMARY KEY (gateway, day)
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE mirror.facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
  PRAGMA mirror.application_id = ${APPLICATION_ID};
  PRAGMA mirror.user_version = ${VERSION};
`;

/**
 * A new mirror.db takes from the journal which keys were held. (For acknowledgements see rows.ts.) A key that was held for
 * no time at all belongs to a console that was forgotten.
 */
const SEED = `
  INSERT INTO mirror.held_keys (gateway, key, tool, since, until)
    SELECT gateway, key, tool, since, until FROM usage.held_keys WHERE until IS NULL OR until > since;
`;

/** The number of tables in the mirror's schema, and in that of the usage index. */
const MIRROR_TABLES = 6;
const INDEX_TABLES = 6;

export interface MirrorFiles {
  /** mirror.db */
  readonly file: string;
  /** index.db, which is only read. */
  readonly index: string;
}

/** How long this thread, and so every request, may wait for a lock. Only another program can hold one. */
const LOCK_WAIT_MS = 20;

/** The mirror's own database, attached as `mirror`, beside the index of the usage log, attached as `usage`. */
export class MirrorDatabase {
  readonly files: MirrorFiles;
  readonly #log: Logger;
  #connection: Connection | null = null;
  /** Identifies the two files that are open. */
  #identity: string | null = null;
  /** The last failure that was logged, so that it is logged once. */
  #loggedProblem: string | null = null;
  #closed = false;

  constructor({ file, index, log }: MirrorFiles & { readonly log: Logger }) {
    this.files = { file, index };
    this.#log = log;
  }

  /**
   * Asks on this thread, without waiting. null: not possible now, because a file is locked or damaged, the disk fails, or the
   * index is not complete. Throws what is a bug: wrong SQL, or a value that a table refuses.
   */
  ask<T>(question: (db: Database.Database) => T): T | null {
    if (this.#closed) return null;
    try {
      const answer = question(this.#open());
      this.#loggedProblem = null;
      return answer;
    } catch (error) {
      this.#recover(error);
      return null;
    }
  }

  /** Another thread could not read one of the files. */
  noteDamage(): void {
    if (!this.#closed) this.#recover(new IndexError("corrupt", "it is damaged"));
  }

  close(): void {
    this.#closed = true;
    this.#disconnect();
  }

  #open(): Database.Database {
    // Either file may have been deleted or replaced since.
    if (this.#connection !== null && this.#identity === identityOf(this.files)) return this.#connection.db;
    this.#disconnect();
    this.#connection = openCompleteIndex(this.files.index, LOCK_WAIT_MS);
    const { db } = this.#connection;
    try {
      attachMirror(db, this.files.file);
    } catch (error) {
      const indexError = toIndexError(error);
      if (
        !(indexError instanceof IndexError) ||
        (indexError.kind !== "corrupt" && indexError.kind !== "outdated")
      )
        throw indexError;
      this.#quarantine(indexError.message);
      attachMirror(db, this.files.file);
    }
    this.#identity = identityOf(this.files);
    return db;
  }

  #disconnect(): void {
    this.#connection?.close();
    this.#connection = null;
  }

  /** Throws what is a bug. After anything else, the next question reopens the files or finds them usable. */
  #recover(error: unknown): void {
    const indexError = toIndexError(error);
    if (!(indexError instanceof IndexError) || this.#isBug(error)) throw error;
    if (indexError.kind === "busy") return;
    const damage = indexError.kind === "corrupt" ? this.#findDamage() : null;
    if (damage !== null) this.#quarantine(damage);
    else if (indexError.kind === "corrupt")
      this.#logProblem(`the mirror cannot read the usage index: ${indexError.message}`);
    else if (indexError.kind === "disk")
      this.#logProblem(`mirror.db cannot be used now: ${indexError.message}`);
    this.#disconnect();
  }

  /** Wrong SQL, or a value that a table refuses. A table is also unknown if one of the files was overwritten: that is no bug. */
  #isBug(error: unknown): boolean {
    const code = primaryCode(error);
    if (code === null) return false;
    if (code !== SQL_ERROR) return MISUSE.includes(code);
    try {
      return this.#connection !== null && hasAllTables(this.#connection.db);
    } catch {
      // The tables cannot be read, so a file is damaged.
      return false;
    }
  }

  /** What is wrong with mirror.db itself. null: nothing, so the index is damaged; its writer rebuilds it. */
  #findDamage(): string | null {
    const db = this.#connection?.db;
    if (db === undefined) return null;
    try {
      rollBack(db);
      const damage = findDamage(db, "mirror", this.files.file);
      if (damage !== null) return damage;
      const tables = queryValue(db, "SELECT count(*) FROM mirror.sqlite_schema WHERE type = 'table'");
      return tables === MIRROR_TABLES ? null : "a table is missing";
    } catch (error) {
      const indexError = toIndexError(error);
      return indexError instanceof IndexError && indexError.kind === "corrupt" ? indexError.message : null;
    }
  }

  /** Keeps the file under another name, for a person to examine. The next one begins empty. */
  #quarantine(problem: string): void {
    const { file } = this.files;
    if (this.#connection !== null) detach(this.#connection.db, "mirror");
    const kept = `${file}.damaged-${new Date().toISOString().replace(/[-:]|\.\d+/g, "")}`;
    try {
      for (const suffix of DATABASE_SUFFIXES) {
        if (readStat(file + suffix) !== null) renameSync(file + suffix, kept + suffix);
      }
    } catch (error) {
      this.#logProblem(`mirror.db cannot be renamed: ${errorMessage(error)}`);
      return;
    }
    this.#log.error(
      { kept },
      `mirror.db cannot be used (${problem}): starting a new one and reading console rows again`,
    );
  }

  #logProblem(problem: string): void {
    if (this.#loggedProblem === problem) return;
    this.#loggedProblem = problem;
    this.#log.warn({ file: this.files.file }, problem);
  }
}

/** A connection for another thread or program. Throws an IndexError. */
export function openMirrorForReading({ file, index }: MirrorFiles, lockWaitMs = LOCK_WAIT_MS): Connection {
  const connection = openCompleteIndex(index, lockWaitMs);
  try {
    attachFile(connection.db, file, "ro", "mirror");
    checkVersion(connection.db, "mirror", APPLICATION_ID, VERSION);
    return connection;
  } catch (error) {
    connection.close();
    throw toIndexError(error);
  }
}

function openCompleteIndex(index: string, lockWaitMs: number): Connection {
  const connection = openIndexForReading(index, lockWaitMs);
  const { db } = connection;
  try {
    // With half an index, the rows of all requests that are not in it yet would be foreign.
    if (queryValue(db, "SELECT value FROM usage.meta WHERE name = 'complete'") === null)
      throw new IndexError("busy", "it is being rebuilt");
    // A new mirror.db copies these. Read them now, so that damage in the index is not taken for damage in mirror.db.
    db.prepare("SELECT * FROM usage.held_keys").raw().all();
    return connection;
  } catch (error) {
    connection.close();
    throw toIndexError(error);
  }
}

/** Creates the file if there is none. */
function attachMirror(db: Database.Database, file: string): void {
  if (readStat(file) === null) {
    createEmptyPrivateFile(file);
    for (const suffix of DATABASE_SUFFIXES.slice(1)) rmSync(file + suffix, { force: true });
  }
  attachFile(db, file, "rw", "mirror");
  // Also empty if a crash came between creating the file and its tables.
  const isEmpty = queryValue(db, "SELECT count(*) FROM mirror.sqlite_schema") === 0;
  if (!isEmpty) checkVersion(db, "mirror", APPLICATION_ID, VERSION);
  db.exec("PRAGMA mirror.journal_mode = wal");
  db.exec("PRAGMA mirror.synchronous = normal; PRAGMA mirror.journal_size_limit = 20000000");
  if (isEmpty) transact(db, () => db.exec(SCHEMA + SEED));
}

function identityOf({ file, index }: MirrorFiles): string {
  return `${readStat(file)?.identity} ${readStat(index)?.identity}`;
}

/** SQLite's primary result code for wrong SQL, such as an unknown table. */
const SQL_ERROR = 1;
/** Those for a value that a table refuses, and for a misuse of SQLite's interface. */
const MISUSE = [18, 19, 20, 21, 25];

function primaryCode(error: unknown): number | null {
  const { rawCode } = error as { rawCode?: unknown };
  return typeof rawCode === "number" ? rawCode & 0xff : null;
}

function hasAllTables(db: Database.Database): boolean {
  const count = "SELECT count(*) FROM";
  return (
    queryValue(db, `${count} mirror.sqlite_schema WHERE type = 'table'`) === MIRROR_TABLES &&
    queryValue(db, `${count} usage.sqlite_schema WHERE type = 'table'`) === INDEX_TABLES
  );
}
