import { chmodSync, lstatSync, renameSync, rmSync, statSync } from "node:fs";
import Database from "libsql";
import { errorMessage } from "../../core/errors.ts";
import { foreignProblem } from "../../core/own-file.ts";
import { createEmptyPrivateFile } from "../../core/private-file.ts";
import { COLUMN_DEFINITIONS } from "../record.ts";
import { SERIES, SUMS } from "../rollups.ts";

/** The version of the tables below. An index of another version is rebuilt. */
const VERSION = 12;
/** "kbix" in SQLite's header, which another program's database does not have. */
const APPLICATION_ID = 0x6b626978;

/**
 * records: one row per request, and one for refusals that are counted together. `day` is the journal file of the line that
 * opened or closed it, so that retention removes the rows that a rebuild would not have.
 * rollups: the finished records, added up by quarter hour.
 * early_amends: amend lines that came before their record; `machine_id` is empty for those of this machine.
 * acks, held_keys: what the mirror keeps in the journal.
 * meta: the position in the journal and more; see MetaName in writer.ts.
 */
const SCHEMA = `
  CREATE TABLE usage.records (${COLUMN_DEFINITIONS}, day TEXT NOT NULL, PRIMARY KEY (id)) STRICT, WITHOUT ROWID;
  CREATE INDEX usage.records_in_flight ON records (id) WHERE "end" IS NULL;
  CREATE INDEX usage.records_by_gateway ON records (gateway, started_at, ended_at, "end") WHERE "end" IS NOT NULL;
  CREATE INDEX usage.records_of_many ON records (last_id) WHERE last_id IS NOT NULL;
  CREATE INDEX usage.records_by_session ON records (session) WHERE session IS NOT NULL;
  CREATE TABLE usage.rollups (
    quarter INTEGER NOT NULL,
    ${SERIES.map((name) => `"${name}" TEXT NOT NULL`).join(", ")},
    ${SUMS.map((name) => `${name} INTEGER NOT NULL`).join(", ")},
    first_bytes TEXT NOT NULL,
    PRIMARY KEY (quarter, ${SERIES.map((name) => `"${name}"`).join(", ")})
  ) STRICT, WITHOUT ROWID;
  CREATE TABLE usage.early_amends (
    id TEXT NOT NULL, machine_id TEXT NOT NULL, line TEXT NOT NULL, PRIMARY KEY (id, machine_id)
  ) STRICT, WITHOUT ROWID;
  CREATE TABLE usage.acks (
    gateway TEXT NOT NULL, row TEXT NOT NULL, certain INTEGER NOT NULL, at INTEGER NOT NULL,
    PRIMARY KEY (gateway, row, certain)
  ) STRICT, WITHOUT ROWID;
  CREATE TABLE usage.held_keys (
    gateway TEXT NOT NULL, key TEXT NOT NULL, tool TEXT NOT NULL, since INTEGER NOT NULL, until INTEGER,
    PRIMARY KEY (gateway, key, tool)
  ) STRICT, WITHOUT ROWID;
  CREATE TABLE usage.meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
  PRAGMA usage.application_id = ${APPLICATION_ID};
  PRAGMA usage.user_version = ${VERSION};
`;

/** The index is attached as `usage`, the database of console rows as `mirror`. */
type AttachedName = "usage" | "mirror";

/** A database in memory to which others are attached; see attach(). */
export interface Connection {
  readonly db: Database.Database;
  /** Closes at once and never throws. The last writer to close also removes the WAL. */
  close(): void;
}

/** Why an index cannot be used. missing, outdated, corrupt: rebuild it. busy, disk: try again later. bug: see the log. */
export type IndexErrorKind = "missing" | "outdated" | "corrupt" | "busy" | "disk" | "bug";

export class IndexError extends Error {
  readonly kind: IndexErrorKind;

  constructor(kind: IndexErrorKind, message: string) {
    super(message);
    this.name = "IndexError";
    this.kind = kind;
  }
}

/** Opens the index to write to it. Throws an IndexError. */
export function openIndex(file: string): Connection {
  return attach(file, "rw", 0, (db) => {
    checkVersion(db, "usage", APPLICATION_ID, VERSION);
    db.exec("PRAGMA usage.synchronous = normal; PRAGMA usage.journal_size_limit = 20000000");
  });
}

/** @param timeoutMs how long this thread may wait for a lock. Throws an IndexError. */
export function openIndexForReading(file: string, timeoutMs = 1000): Connection {
  return attach(file, "ro", timeoutMs, (db) => checkVersion(db, "usage", APPLICATION_ID, VERSION));
}

/** Queries the index, and returns an IndexError if it cannot be read now. @param timeoutMs as in openIndexForReading() */
export function queryIndex<T>(
  file: string,
  query: (db: Database.Database) => T,
  timeoutMs?: number,
): T | IndexError {
  let connection: Connection | null = null;
  try {
    connection = openIndexForReading(file, timeoutMs);
    return query(connection.db);
  } catch (error) {
    const indexError = toIndexError(error);
    if (indexError instanceof IndexError) return indexError;
    throw indexError;
  } finally {
    connection?.close();
  }
}

/** Replaces whatever is there by an empty index. It gets its name when it is complete. */
export function createIndex(file: string): Connection {
  const draft = `${file}.new`;
  try {
    for (const name of [draft, file])
      for (const suffix of DATABASE_SUFFIXES) rmSync(name + suffix, { force: true, recursive: true });
    createEmptyPrivateFile(draft);
    const { close } = attach(draft, "rw", 0, (db) => {
      db.exec("PRAGMA usage.journal_mode = wal");
      db.exec(`BEGIN IMMEDIATE; ${SCHEMA} COMMIT`);
    });
    close();
    renameSync(draft, file);
  } catch (error) {
    throw toIndexError(error);
  }
  return openIndex(file);
}

/** The files of one database: itself, and those that SQLite puts beside it. */
export const DATABASE_SUFFIXES = ["", "-wal", "-shm", "-journal"] as const;

/** Reads the whole file. null: it is not damaged. */
export function findDamage(db: Database.Database, name: AttachedName, file: string): string | null {
  const [pageSize] = db.prepare(`PRAGMA ${name}.page_size`).raw().get() as [number];
  // SQLite reads a page that was cut off as if it ended in zeroes.
  if (statSync(file).size % pageSize !== 0) return "a part of a page is missing";
  const [found] = db.prepare(`PRAGMA ${name}.quick_check(1)`).raw().get() as [string];
  return found === "ok" ? null : (found.split("\n", 1)[0] ?? found);
}

/** Commits all of the work or none. (libsql's transaction() hides the first error if the rollback fails, too.) */
export function transact<T>(db: Database.Database, work: () => T): T {
  db.exec("BEGIN IMMEDIATE");
  try {
    const result = work();
    db.exec("COMMIT");
    return result;
  } catch (error) {
    rollBack(db);
    throw error;
  }
}

export function rollBack(db: Database.Database): void {
  try {
    // If the disk is full, SQLite may have rolled back by itself.
    if (db.inTransaction) db.exec("ROLLBACK");
  } catch {
    // The first error says what happened; the caller closes the connection.
  }
}

/**
 * Attaches the file to a database in memory. libsql closes a connection only after its last statement was garbage-collected,
 * and keeps its locks until then; DETACH closes at once. Throws an IndexError, also if `prepare` fails.
 */
function attach(
  file: string,
  mode: "rw" | "ro",
  timeoutMs: number,
  prepare: (db: Database.Database) => void,
): Connection {
  const db = new Database(":memory:", { timeout: timeoutMs });
  const connection = {
    db,
    close() {
      if (!db.open) return;
      rollBack(db);
      detach(db, "mirror");
      detach(db, "usage");
      db.close();
    },
  };
  try {
    attachFile(db, file, mode, "usage");
    prepare(db);
    return connection;
  } catch (error) {
    connection.close();
    throw toIndexError(error);
  }
}

/** Attaches a database that must exist. Throws an IndexError, or SQLite's own error. */
export function attachFile(db: Database.Database, file: string, mode: "rw" | "ro", name: AttachedName): void {
  const found = lstatSync(file, { throwIfNoEntry: false });
  if (found === undefined) throw new IndexError("missing", `there is no ${file}`);
  // SQLite would follow a link, and wait forever on a pipe.
  for (const suffix of DATABASE_SUFFIXES) {
    const entry = lstatSync(file + suffix, { throwIfNoEntry: false });
    const problem = entry === undefined ? null : foreignProblem(entry);
    if (problem !== null) throw new IndexError("corrupt", `${file + suffix} ${problem}`);
  }
  if (mode === "rw" && (found.mode & 0o077) !== 0) chmodSync(file, 0o600);
  const address = `file:${file.replace(/[%?#]/g, encodeURIComponent)}?mode=${mode}`;
  db.exec(`ATTACH '${address.replaceAll("'", "''")}' AS ${name}`);
}

export function detach(db: Database.Database, name: AttachedName): void {
  try {
    db.exec(`DETACH ${name}`);
  } catch {
    // It was not attached, or its disk is gone.
  }
}

/** Throws an IndexError if the attached database was made by another version, or another program. */
export function checkVersion(
  db: Database.Database,
  name: AttachedName,
  applicationId: number,
  version: number,
): void {
  const [foundId] = db.prepare(`PRAGMA ${name}.application_id`).raw().get() as [number];
  const [foundVersion] = db.prepare(`PRAGMA ${name}.user_version`).raw().get() as [number];
  if (foundId !== applicationId || foundVersion !== version)
    throw new IndexError("outdated", "it is from another version of keybearer");
}

/** SQLite's primary result codes. */
const BUSY = [5, 6, 15];
const CORRUPT = [11, 26];
/** A page is missing at the end of the file. SQLite calls that an I/O error. */
const SHORT_READ = 522;

/** Turns an error of SQLite or of the file system into an IndexError. Any other error is a bug and is returned as it is. */
export function toIndexError(error: unknown): unknown {
  if (error instanceof IndexError) return error;
  const { rawCode, code, syscall } = error as { rawCode?: unknown; code?: unknown; syscall?: unknown };
  if (typeof syscall === "string") return new IndexError("disk", errorMessage(error));
  if (typeof rawCode !== "number" || typeof code !== "string" || !code.startsWith("SQLITE")) return error;
  const primary = rawCode & 0xff;
  if (BUSY.includes(primary)) return new IndexError("busy", "another program has locked it");
  if (CORRUPT.includes(primary) || rawCode === SHORT_READ) return new IndexError("corrupt", "it is damaged");
  if (/^no such (?:table|column)/.test(errorMessage(error)))
    return new IndexError("corrupt", "its tables are not ours");
  return new IndexError("disk", errorMessage(error));
}
