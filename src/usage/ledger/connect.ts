import { chmodSync, closeSync, fchmodSync, openSync } from "node:fs";
import Database from "libsql";
import { faultOf, LedgerFault, nextStep, systemFault } from "./fault.ts";
import { refuseForeign, refuseOtherThanFile, sizeOf, statOf } from "./on-disk.ts";
import { answerOf } from "./raw-row.ts";
import { APPLICATION_ID, MIGRATIONS, SCHEMA_VERSION } from "./schema.ts";

/** An open usage log. */
export interface Connection {
  readonly db: Database.Database;
  /** At once, whoever still holds a statement; never throws. The last writer to close also empties the WAL and removes it. */
  close(): void;
}

export type OpenedForReading =
  | { readonly ok: true; readonly connection: Connection }
  | {
      readonly ok: false;
      readonly why: "missing" | "older" | "newer" | "foreign" | "corrupt" | "unreadable";
      readonly words: string;
    };

/** The writer runs on the event loop: rather than wait there for a lock it comes back later. */
const WRITER_PATIENCE_MS = 10;
const READER_PATIENCE_MS = 1000;
/** Pages: about 16 MB of WAL before it is taken over into the file, and as many as SQLite finds its way in by one table. */
const CHECKPOINT_PAGES = 4000;
/** What a WAL that once had to grow (a reader held it up) is cut back to. */
const WAL_KEPT = 20 * 1024 * 1024;

/**
 * Opens the usage log, makes it where there is none, and brings an older one up to date. Throws a LedgerFault; a file
 * that a newer keybearer or another program wrote is not touched.
 *
 * The file's bytes are never read through node:fs: closing any descriptor of a file drops all POSIX locks this process
 * holds on it, SQLite's too.
 */
export function openForWriting(file: string, options: { readonly sync: "normal" | "full" }): Connection {
  makePrivate(file);
  examine(file);
  return attach(file, { mode: "rw", patience: WRITER_PATIENCE_MS }, (db) => {
    // Only counts before the first page is written, and then for ever.
    db.exec("PRAGMA log.auto_vacuum = incremental");
    // Asked first: asking for WAL again would already need the lock.
    if (answerOf(db, "PRAGMA log.journal_mode") !== "wal") set(db, "log.journal_mode", "wal");
    set(db, "log.synchronous", options.sync === "full" ? 2 : 1);
    set(db, "log.journal_size_limit", WAL_KEPT);
    set(db, "wal_autocheckpoint", CHECKPOINT_PAGES);
    set(db, "foreign_keys", 1);
    if (options.sync === "full") {
      // Only macOS knows them: its plain fsync leaves the data in the drive's cache.
      set(db, "fullfsync", 1);
      set(db, "checkpoint_fullfsync", 1);
    }
    migrate(db);
  });
}

/** Never makes, migrates or changes anything. `patience`: how long this thread may stand still for a lock. */
export function openForReading(file: string, patience: number = READER_PATIENCE_MS): OpenedForReading {
  const missing = { ok: false, why: "missing", words: `there is no usage log yet at ${file}` } as const;
  let version = 0;
  try {
    const found = sizeOf(file);
    if (found === null || (found === 0 && !sizeOf(`${file}-wal`))) return missing;
    if (found === 0) throw new LedgerFault("corrupt", "it is empty");
    const connection = attach(file, { mode: "ro", patience }, (db) => {
      set(db, "query_only", 1);
      version = checkOwner(db);
    });
    if (version === SCHEMA_VERSION) return { ok: true, connection };
    connection.close();
  } catch (error) {
    const fault = faultOf(error);
    const { kind } = fault;
    const why = kind === "newer" || kind === "foreign" || kind === "corrupt" ? kind : "unreadable";
    const words = `the usage log ${file} cannot be read: ${fault.message} → ${nextStep(fault, file)}`;
    return { ok: false, why, words };
  }
  const words = `the usage log ${file} is of an older keybearer → keybearer run, which brings it up to date`;
  return version === 0 ? missing : { ok: false, why: "older", words };
}

/** A damaged log: whatever can be read of it. Throws what faultOf can judge. */
export function openForSalvage(file: string): Connection {
  const how = { mode: "ro", patience: WRITER_PATIENCE_MS, damaged: true } as const;
  return attach(file, how, (db) => set(db, "query_only", 1));
}

interface Attaching {
  readonly mode: "rw" | "ro";
  readonly patience: number;
  /** Read without locks, and without leaving -wal and -shm behind. Only where there is no WAL to take into account. */
  readonly immutable?: boolean;
  /** Read what there is of a file that is shorter than it says. SQLite turns it down whole, unless asked by this name. */
  readonly damaged?: boolean;
}

/**
 * The file is attached to a database in memory instead of being opened itself: libsql closes a connection only when
 * its last statement was garbage-collected, and until then keeps descriptors, locks and a WAL that is taken over by
 * nobody. DETACH closes at once.
 */
function attach(file: string, how: Attaching, prepare: (db: Database.Database) => void): Connection {
  refuseOtherThanFile(file);
  const db = new Database(":memory:", { timeout: how.patience });
  if (how.damaged === true) db.exec("PRAGMA writable_schema = ON");
  const connection: Connection = {
    db,
    close() {
      if (!db.open) return;
      try {
        if (db.inTransaction) db.exec("ROLLBACK");
        db.exec("DETACH log");
      } catch {
        // It was never attached, or its disk is gone: there is nothing else to be done about it.
      } finally {
        db.close();
      }
    },
  };
  try {
    db.exec(attachStatement(file, how.immutable === true ? "ro&immutable=1" : how.mode));
    prepare(db);
    return connection;
  } catch (error) {
    connection.close();
    throw error;
  }
}

export function attachStatement(file: string, mode: "rw" | "ro" | "ro&immutable=1"): string {
  const address = `file:${file.replace(/[%?#]/g, encodeURIComponent)}?mode=${mode}`;
  return `ATTACH '${address.replaceAll("'", "''")}' AS log`;
}

/** Looks whose the file is before anything could change it: even a switch to WAL would. */
function examine(file: string): void {
  const wal = sizeOf(`${file}-wal`) ?? 0;
  if (sizeOf(file) === 0) {
    // SQLite would take it for new, and delete the WAL.
    if (wal > 0) throw new LedgerFault("corrupt", "it is empty, but its WAL is not");
    return;
  }
  // A crash in the very first moment leaves a rollback journal, which only a writer can play back.
  if (sizeOf(`${file}-journal`)) return;
  attach(file, { mode: "ro", patience: WRITER_PATIENCE_MS, immutable: wal === 0 }, (db) =>
    checkOwner(db),
  ).close();
}

/** The schema's version; 0 for a database with nothing in it. */
function checkOwner(db: Database.Database): number {
  const version = Number(answerOf(db, "PRAGMA log.user_version"));
  const application = Number(answerOf(db, "PRAGMA log.application_id"));
  if (application !== APPLICATION_ID) {
    const tables = Number(answerOf(db, "SELECT count(*) FROM log.sqlite_schema"));
    if (application === 0 && version === 0 && tables === 0) return 0;
    throw new LedgerFault("foreign", "it is the database of another program, and was left as it is");
  }
  if (version <= SCHEMA_VERSION) return version;
  throw new LedgerFault(
    "newer",
    `a newer keybearer wrote it (its version is ${version}, known here is ${SCHEMA_VERSION}), and it was left as it is`,
  );
}

function migrate(db: Database.Database): void {
  if (Number(answerOf(db, "PRAGMA log.user_version")) === SCHEMA_VERSION) return;
  for (;;) {
    db.exec("BEGIN IMMEDIATE");
    // Read again, now that nobody else can write.
    const version = Number(answerOf(db, "PRAGMA log.user_version"));
    const step = MIGRATIONS[version];
    if (step === undefined) {
      db.exec("ROLLBACK");
      return;
    }
    db.exec(step);
    db.exec(
      `PRAGMA log.application_id = ${APPLICATION_ID}; PRAGMA log.user_version = ${version + 1}; COMMIT`,
    );
  }
}

/** Sets a pragma and looks whether it took: SQLite ignores what it does not know or cannot do. */
function set(db: Database.Database, name: string, value: string | number): void {
  db.exec(`PRAGMA ${name} = ${value}`);
  const now = answerOf(db, `PRAGMA ${name}`);
  if (now !== value) throw new LedgerFault("broken", `${name} is ${String(now)} instead of ${value}`);
}

/** -wal and -shm take their mode from the file, so it must be right before SQLite sees it. */
function makePrivate(file: string): void {
  const found = refuseForeign(file);
  try {
    if (found === null) {
      const fd = openSync(file, "wx", 0o600);
      // Whatever the umask took away.
      fchmodSync(fd, 0o600);
      closeSync(fd);
      return;
    }
    for (const path of [file, `${file}-wal`, `${file}-shm`]) {
      const mode = statOf(path)?.mode;
      if (mode !== undefined && (mode & 0o777) !== 0o600) chmodSync(path, 0o600);
    }
  } catch (error) {
    throw error instanceof LedgerFault ? error : systemFault(error);
  }
}
