/** Of the file. A program that knows less than the file leaves it alone. */
export const SCHEMA_VERSION = 4;

/** "kbus" in SQLite's header: tells the file from another program's. */
export const APPLICATION_ID = 0x6b627573;

/**
 * Each step takes the file from one version to the next, in one transaction. Steps are only ever added.
 * The file is attached as `log` (see connect); what is made without that name would be made in memory.
 *
 * records: one row a request, in the order they began; the columns are the fields of UsageRecord.
 * cells: the same, summed up by quarter of an hour (every time zone is a multiple of that away from UTC), so that a
 * report does not read every record. A record is counted in its cell in the transaction that completes it.
 * lifts: every extra allowance that an owner gave; those that are over are kept as history.
 * console_rows, verdicts, held_keys, console_keys: the mirror's (mirror/store). Nothing in the first two depends on when or
 * in what order it arrived: the same rows, read again, leave the same content. A record's own numbers stand in `ours` where
 * it took the console's; its money stands there a second time, so that a report need not look at every record.
 * The cell of slot 0 holds what was there before the oldest record kept. The slot comes last in the key: reports and
 * pruning take one lane (tool, gateway, group, key, model) after the other, each a range of slots that needs no sorting.
 * A request waits until its record is opened, and each index is another page to write then: those of finished records
 * only are written when it is completed, when nobody waits. A query uses one only where it says `end IS NOT NULL`.
 */
export const MIGRATIONS: readonly string[] = [
  `
  CREATE TABLE log.records (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    started_at INTEGER NOT NULL,
    first_byte_at INTEGER,
    ended_at INTEGER,
    tool TEXT,
    gateway TEXT,
    "group" TEXT,
    multiplier REAL NOT NULL,
    key TEXT,
    protocol TEXT NOT NULL,
    method TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    model TEXT,
    model_answered TEXT,
    stream INTEGER,
    status INTEGER,
    end TEXT,
    cause TEXT,
    refusal TEXT,
    input_tokens INTEGER,
    cache_read_tokens INTEGER,
    cache_write_tokens INTEGER,
    output_tokens INTEGER,
    reasoning_tokens INTEGER,
    tokens_from TEXT NOT NULL DEFAULT 'none',
    list_microdollars INTEGER,
    cost_microdollars INTEGER,
    billed_microdollars INTEGER,
    bytes_in INTEGER NOT NULL DEFAULT 0,
    bytes_out INTEGER NOT NULL DEFAULT 0,
    waited_ms INTEGER NOT NULL DEFAULT 0,
    process TEXT,
    gateway_ids TEXT NOT NULL DEFAULT '{}'
  ) STRICT;
  CREATE INDEX log.records_running ON records (id) WHERE end IS NULL;
  CREATE INDEX log.records_by_tool ON records (tool, started_at);

  CREATE TABLE log.cells (
    slot INTEGER NOT NULL,
    tool TEXT NOT NULL,
    gateway TEXT NOT NULL,
    "group" TEXT NOT NULL,
    key TEXT NOT NULL,
    model TEXT NOT NULL,
    requests INTEGER NOT NULL,
    refused INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    client_left INTEGER NOT NULL,
    interrupted INTEGER NOT NULL,
    unmetered INTEGER NOT NULL,
    unpriced INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    cache_read_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    list_microdollars INTEGER NOT NULL,
    cost_microdollars INTEGER NOT NULL,
    billed_microdollars INTEGER NOT NULL,
    billed_requests INTEGER NOT NULL,
    first_bytes TEXT NOT NULL,
    PRIMARY KEY (tool, gateway, "group", key, model, slot)
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE log.facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
  `,
  `
  ALTER TABLE log.records ADD COLUMN held_tokens INTEGER;
  ALTER TABLE log.records ADD COLUMN held_microdollars INTEGER;
  ALTER TABLE log.records ADD COLUMN admitted_at INTEGER;
  ALTER TABLE log.records ADD COLUMN counts INTEGER;
  ALTER TABLE log.records ADD COLUMN counted_tokens INTEGER;
  ALTER TABLE log.records ADD COLUMN counted_microdollars INTEGER;
  UPDATE log.records SET admitted_at = started_at, counts = (end <> 'refused'),
    counted_tokens = input_tokens + cache_read_tokens + cache_write_tokens + output_tokens,
    counted_microdollars = cost_microdollars WHERE end IS NOT NULL;
  CREATE INDEX log.records_admitted ON records (tool, admitted_at);
  ALTER TABLE log.cells ADD COLUMN counted_microdollars INTEGER NOT NULL DEFAULT 0;
  UPDATE log.cells SET counted_microdollars = cost_microdollars;

  CREATE TABLE log.lifts (
    seq INTEGER PRIMARY KEY,
    tool TEXT NOT NULL,
    kind TEXT NOT NULL,
    amount INTEGER NOT NULL,
    given_at INTEGER NOT NULL,
    until INTEGER,
    given_by TEXT NOT NULL
  ) STRICT;
  CREATE INDEX log.lifts_by_tool ON lifts (tool, given_at);
  `,
  `
  CREATE TABLE log.console_rows (
    gateway TEXT NOT NULL,
    identity TEXT NOT NULL,
    kind TEXT NOT NULL,
    created_at INTEGER NOT NULL,
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
  CREATE INDEX log.console_rows_by_time ON console_rows (gateway, created_at);
  CREATE INDEX log.console_rows_by_verdict ON console_rows (gateway, verdict, created_at);
  CREATE INDEX log.console_rows_by_id ON console_rows (gateway, request_id);
  CREATE INDEX log.console_rows_by_ref ON console_rows (gateway, key_ref, created_at);
  CREATE INDEX log.console_rows_counted ON console_rows (gateway, verdict, how, certain, key, billed_microdollars);
  CREATE INDEX log.console_rows_alarming ON console_rows (gateway, key, created_at)
    WHERE verdict = 'foreign' AND certain = 1 AND acknowledged_at IS NULL;

  CREATE TABLE log.verdicts (
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
  CREATE INDEX log.verdicts_by_time ON verdicts (gateway, verdict, started_at);
  CREATE INDEX log.verdicts_counted ON verdicts (gateway, verdict, tool, model, multiplier, their_multiplier,
    list_microdollars, cost_microdollars, their_list_microdollars, their_billed_microdollars);

  CREATE TABLE log.held_keys (
    gateway TEXT NOT NULL,
    key TEXT NOT NULL,
    tool TEXT NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER,
    PRIMARY KEY (gateway, key, tool)
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE log.console_keys (
    gateway TEXT NOT NULL,
    ref TEXT NOT NULL,
    key TEXT,
    learnt TEXT NOT NULL,
    PRIMARY KEY (gateway, ref)
  ) STRICT, WITHOUT ROWID;

  CREATE INDEX log.records_by_gateway ON records (gateway, started_at, ended_at);
  `,
  `
  DROP INDEX IF EXISTS log.records_by_tool;
  DROP INDEX IF EXISTS log.records_admitted;
  DROP INDEX IF EXISTS log.records_by_gateway;
  CREATE INDEX log.records_admitted ON records (tool, admitted_at) WHERE end IS NOT NULL;
  CREATE INDEX log.records_by_gateway ON records (gateway, started_at, ended_at, end) WHERE end IS NOT NULL;
  `,
];
