import { closeSync, fchmodSync, openSync, renameSync, rmSync } from "node:fs";
import Database from "libsql";
import type { Logger } from "../../logger.ts";
import { reason } from "../../reason.ts";
import {
  attachFile,
  type Connection,
  checkVersion as checkIndexVersion,
  INDEX_SUFFIXES,
  IndexFault,
  indexFault,
  rollBack,
  transact,
} from "../../usage/index/database.ts";
import { statOf } from "../../usage/journal/files.ts";
import { answerOf, numberIn } from "./query.ts";

/** Of the tables below. A file of another version is renamed, and a new one begun. */
const VERSION = 2;
/** "kbmr" in SQLite's header: tells the file from another program's database. */
const APPLICATION_ID = 0x6b626d72;

/**
 * console_rows: what the consoles listed, with the verdict on each row.
 * verdicts: what was found about our records. A record's own numbers are in `ours` where it took the console's. Its money
 * is repeated here, so that a report does not have to read every record.
 * held_keys: from when to when a tool held a key. console_keys: which key a console means by a name of its own.
 * changed_days: what is to be compared again. facts: what is remembered per gateway, see facts.ts.
 * The first two do not depend on when or in what order rows arrived: the same rows, read again, leave the same content.
 */
const SCHEMA = `
  CREATE TABLE mirror.console_rows (
    gateway TEXT NOT NULL,
    identity TEXT NOT NULL,
    kind TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    began_at INTEGER,
    key_ref TEXT,
    request_id TEXT,
    upstream_id TEXT,
    model TEXT,
    "group" TEXT,
    multiplier REAL,
    stream INTEGER,
    endpoint TEXT,
    input_tokens INTEGER,
    cache_read_tokens INTEGER,
    cache_write_tokens INTEGER,
    output_tokens INTEGER,
    list_microdollars INTEGER,
    billed_microdollars INTEGER,
    duration_ms INTEGER,
    ip TEXT,
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
    multiplier REAL,
    list_microdollars INTEGER,
    cost_microdollars INTEGER,
    their_multiplier REAL,
    their_list_microdollars INTEGER,
    their_billed_microdollars INTEGER
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX mirror.verdicts_by_time ON verdicts (gateway, verdict, started_at);
  CREATE INDEX mirror.verdicts_counted ON verdicts (gateway, verdict, tool, model, multiplier, their_multiplier,
    list_microdollars, cost_microdollars, their_list_microdollars, their_billed_microdollars);

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
 * The journal still knows what a lost mirror.db knew of keys (acknowledgements: see rows.ts). A key that was held for no
 * time at all belongs to a console that was forgotten.
 */
const SEED = `
  INSERT INTO mirror.held_keys (gateway, key, tool, since, until)
    SELECT gateway, key, tool, since, until FROM usage.held_keys WHERE until IS NULL OR until > since;
`;

const TABLES = ["console_rows", "verdicts", "held_keys", "console_keys", "changed_days", "facts"];
/** What the mirror reads of the index. */
const INDEX_TABLES = ["records", "acks", "held_keys", "meta"];

export interface MirrorFiles {
  /** mirror.db */
  readonly file: string;
  /** index.db, which is only read. */
  readonly index: string;
}

export interface MirrorDatabaseOptions extends MirrorFiles {
  readonly log: Logger;
}

/** How long this thread, and with it every request, may wait for a lock. Only another program could hold one. */
const PATIENCE_MS = 20;

/**
 * The mirror's own database, attached as `mirror`, beside the index of the usage log, attached as `usage`. Both are
 * attached to a database in memory, for the reason given in usage/index/database.ts.
 */
export class MirrorDatabase {
  readonly #options: MirrorDatabaseOptions;
  #connection: Connection | null = null;
  /** Which files are open. */
  #identity: string | null = null;
  /** The last failure that was logged, so that it is logged once. */
  #failure: string | null = null;
  #closed = false;

  constructor(options: MirrorDatabaseOptions) {
    this.#options = options;
  }

  get files(): MirrorFiles {
    return { file: this.#options.file, index: this.#options.index };
  }

  /**
   * Asks at once, on this thread. null: it is not possible now, because a file is locked, the disk fails, or there is no
   * complete index. An error that is a mistake of ours is thrown.
   */
  ask<T>(question: (db: Database.Database) => T): T | null {
    if (this.#closed) return null;
    try {
      const { db } = this.#open();
      const answer = question(db);
      this.#failure = null;
      return answer;
    } catch (error) {
      this.#handle(error);
      return null;
    }
  }

  close(): void {
    this.#closed = true;
    this.#disconnect();
  }

  #open(): Connection {
    // The index may have been rebuilt, and either file deleted or replaced.
    if (this.#connection !== null && this.#identity === identityOf(this.#options)) return this.#connection;
    this.#disconnect();
    const connection = connect(this.#options.index, PATIENCE_MS);
    this.#connection = connection;
    try {
      attachMirror(connection.db, this.#options.file);
    } catch (error) {
      const fault = faultOf(error);
      if (!(fault instanceof IndexFault) || (fault.kind !== "corrupt" && fault.kind !== "outdated"))
        throw fault;
      this.#quarantine(fault.message);
      attachMirror(connection.db, this.#options.file);
    }
    this.#identity = identityOf(this.#options);
    return connection;
  }

  #disconnect(): void {
    this.#connection?.close();
    this.#connection = null;
    this.#identity = null;
  }

  /** Throws what is a mistake of ours. */
  #handle(error: unknown): void {
    const fault = faultOf(error);
    const isDamage = fault instanceof IndexFault ? fault.kind === "corrupt" : isMistake(error);
    const damage = isDamage ? damageOf(this.#connection?.db) : null;
    if (damage !== null) {
      this.#quarantine(damage);
      this.#disconnect();
      return;
    }
    if (!(fault instanceof IndexFault)) {
      if (isMistake(error) && !hasIndexTables(this.#connection?.db)) {
        this.#disconnect();
        return;
      }
      throw fault;
    }
    if (fault.kind === "busy") return;
    this.#disconnect();
    // What is wrong with the index, the service that writes it notices and logs.
    if (fault.kind === "disk") this.#report(fault.message);
  }

  /** Keeps the file under another name, for a person to look at. The next one begins empty. */
  #quarantine(why: string): void {
    const { file, log } = this.#options;
    if (this.#connection !== null) detach(this.#connection.db, "mirror");
    const kept = `${file}.damaged-${new Date().toISOString().replace(/[-:]|\.\d+/g, "")}`;
    try {
      for (const suffix of INDEX_SUFFIXES) {
        if (statOf(file + suffix) !== null) renameSync(file + suffix, kept + suffix);
      }
    } catch (error) {
      this.#report(reason(error));
      return;
    }
    log.error({ kept }, `mirror.db cannot be used (${why}): a new one begins, console rows are read again`);
  }

  #report(message: string): void {
    if (this.#failure === message) return;
    this.#failure = message;
    this.#options.log.warn({ file: this.#options.file }, `mirror.db cannot be used now: ${message}`);
  }
}

/** For a reader with a connection of its own. Throws an IndexFault. */
export function openMirrorForReading({ file, index }: MirrorFiles, patience = PATIENCE_MS): Connection {
  const connection = connect(index, patience);
  try {
    attachFile(connection.db, file, "ro", "mirror");
    connection.db.exec("PRAGMA query_only = on");
    checkVersion(connection.db);
    return connection;
  } catch (error) {
    connection.close();
    throw faultOf(error);
  }
}

/** Only with the index so far. Throws an IndexFault. */
function connect(index: string, patience: number): Connection {
  const db = new Database(":memory:", { timeout: patience });
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
    attachFile(db, index, "ro", "usage");
    checkIndexVersion(db);
    // Compared with half an index, every request of ours that is not in it yet would be foreign.
    if (answerOf(db, "SELECT value FROM usage.meta WHERE name = 'complete'") === undefined)
      throw new IndexFault("busy", "it is being rebuilt");
    // A new mirror.db begins with these. Damage here must not be taken for damage there.
    db.prepare("SELECT * FROM usage.held_keys").raw().all();
    return connection;
  } catch (error) {
    connection.close();
    throw indexFault(error);
  }
}

function detach(db: Database.Database, name: "usage" | "mirror"): void {
  try {
    db.exec(`DETACH ${name}`);
  } catch {
    // It was never attached, or its disk is gone.
  }
}

/** Creates it where there is none. */
function attachMirror(db: Database.Database, file: string): void {
  if (statOf(file) === null) {
    // The WAL takes its mode from the file, so the file's must be right before SQLite opens it.
    const descriptor = openSync(file, "wx", 0o600);
    fchmodSync(descriptor, 0o600);
    closeSync(descriptor);
    for (const suffix of INDEX_SUFFIXES.slice(1)) rmSync(file + suffix, { force: true });
  }
  attachFile(db, file, "rw", "mirror");
  // Empty also where a crash came between creating the file and its tables.
  const isEmpty = answerOf(db, "SELECT count(*) FROM mirror.sqlite_schema") === 0;
  if (!isEmpty) checkVersion(db);
  db.exec("PRAGMA mirror.journal_mode = wal");
  db.exec("PRAGMA mirror.synchronous = normal; PRAGMA mirror.journal_size_limit = 20000000");
  if (isEmpty) transact(db, () => db.exec(SCHEMA + SEED));
}

function checkVersion(db: Database.Database): void {
  const application = answerOf(db, "PRAGMA mirror.application_id");
  const version = answerOf(db, "PRAGMA mirror.user_version");
  if (application !== APPLICATION_ID || version !== VERSION)
    throw new IndexFault("outdated", "it is from another version of keybearer");
}

/** What is wrong with mirror.db itself; null: nothing, or it is not open. */
function damageOf(db: Database.Database | undefined): string | null {
  if (db === undefined) return null;
  try {
    rollBack(db);
    const found = String(answerOf(db, "PRAGMA mirror.quick_check(1)"));
    if (found !== "ok") return found.split("\n", 1)[0] ?? found;
    const names = TABLES.map((name) => `'${name}'`).join(", ");
    const count = db.prepare(`SELECT count(*) FROM mirror.sqlite_schema WHERE name IN (${names})`).raw();
    return numberIn(count.get()) === TABLES.length ? null : "a table is missing";
  } catch (error) {
    const fault = faultOf(error);
    return fault instanceof IndexFault && fault.kind === "corrupt" ? fault.message : null;
  }
}

/** An index that is overwritten while it is open may look like one without tables. */
function hasIndexTables(db: Database.Database | undefined): boolean {
  if (db === undefined) return true;
  try {
    const names = INDEX_TABLES.map((name) => `'${name}'`).join(", ");
    const count = db.prepare(`SELECT count(*) FROM usage.sqlite_schema WHERE name IN (${names})`).raw();
    return numberIn(count.get()) === INDEX_TABLES.length;
  } catch {
    return false;
  }
}

/** Of both files: another one in the place of either has another identity. */
function identityOf({ file, index }: MirrorFiles): string {
  return `${statOf(file)?.identity} ${statOf(index)?.identity}`;
}

/** SQLite's primary result codes for a statement that is wrong, or a value that the table refuses. */
const MISTAKES = [1, 2, 18, 19, 20, 21, 25];

function isMistake(error: unknown): boolean {
  const { rawCode } = error as { rawCode?: unknown };
  return typeof rawCode === "number" && MISTAKES.includes(rawCode & 0xff);
}

/** An IndexFault for what is wrong with the files or the disk. Anything else is a mistake of ours and stays as it is. */
function faultOf(error: unknown): unknown {
  // From node:fs.
  if (typeof (error as { syscall?: unknown }).syscall === "string")
    return new IndexFault("disk", reason(error));
  return isMistake(error) ? error : indexFault(error);
}
