// For tests of the store: a mirror.db beside an index, and the steps of a comparison without a thread.
import { appendFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type Database from "libsql";
import pino from "pino";
import type { Test } from "tap";
import type { ConsoleRow } from "../../src/mirror/console-row.ts";
import type { Amendment } from "../../src/mirror/store/amendments.ts";
import { type Correction, computeCorrection, type FindPrice } from "../../src/mirror/store/amendments.ts";
import { finishPlan, hasChangedDays, planDays } from "../../src/mirror/store/changed-days.ts";
import { compareDay } from "../../src/mirror/store/compare-day.ts";
import { MirrorDatabase } from "../../src/mirror/store/database.ts";
import { writeFact } from "../../src/mirror/store/facts.ts";
import { holdKeys, linkKeys } from "../../src/mirror/store/keys.ts";
import type { CompareOptions } from "../../src/mirror/store/load-day.ts";
import { acknowledgeRows, readOpenRows, type SeenAlarms, writePage } from "../../src/mirror/store/rows.ts";
import { applyStep, applySummary, nextDue, stepsOf } from "../../src/mirror/store/verdicts.ts";
import { UsageIndex } from "../../src/usage/index/usage-index.ts";
import { dayOf, journalFiles } from "../../src/usage/journal/files.ts";
import type { AckLine, SiblingLine } from "../../src/usage/journal/lines.ts";
import { COLUMN_NAMES, recordOfRow, type UsageRecord } from "../../src/usage/record.ts";
import { consoleRow } from "../doubles/console-row.ts";
import { makeIndex } from "../doubles/journal.ts";
import { UNKNOWN_TOKENS } from "../doubles/mirror-day.ts";
import { record } from "../doubles/records.ts";

export const AT = 1_763_164_800_123;
export const MINUTE = 60_000;
export const HOUR = 3_600_000;

export interface MirrorFile {
  /** The state folder. */
  readonly state: string;
  readonly db: Database.Database;
  /** Appends lines to the journal. The index does not have them before it catches up. */
  append(lines: readonly (Amendment | SiblingLine)[]): void;
  /** Brings the index up to date. */
  catchUp(): void;
}

/** The key …a1b2 is the console's id:1, and held by codex for a day before everything else happens. */
export function mirrorFile(t: Test, records: readonly UsageRecord[] = []): MirrorFile {
  const state = mkdtempSync(join(tmpdir(), "kb-mirror-"));
  t.teardown(() => rmSync(state, { recursive: true, force: true }));
  const folder = join(state, "usage");
  mkdirSync(folder);
  // The log was kept long before the first record, and what is older was deleted.
  const nothing = { total: 0, windows: [], allowances: [], open: [], last_use: null };
  const carries = [
    { kind: "carry", tools: 1 },
    { kind: "carry", tool: "codex", ...nothing },
  ];
  const text = carries.map((line) => `${JSON.stringify(line)}\n`).join("");
  writeFileSync(join(folder, `${dayOf(AT - 90 * 24 * HOUR)}.jsonl`), text);
  const index = new UsageIndex({ file: makeIndex(state, records), folder }, null);
  const catchUp = () => {
    for (const _ of index.catchUp());
  };
  catchUp();
  const database = openMirror(state);
  const db = dbOf(database);
  t.teardown(() => {
    database.close();
    index.close();
  });
  holdKeys(db, [{ gateway: "main", key: "…a1b2", tool: "codex" }], AT - 24 * HOUR);
  linkKeys(db, "main", [{ ref: "id:1", key: "…a1b2" }]);
  const append = (lines: readonly (Amendment | SiblingLine)[]) => {
    const newest = journalFiles(folder).at(-1)?.path ?? "";
    appendFileSync(newest, lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
  };
  return { state, db, append, catchUp };
}

export function openMirror(state: string): MirrorDatabase {
  const log = pino({ level: "silent" });
  return new MirrorDatabase({ file: join(state, "mirror.db"), index: join(state, "index.db"), log });
}

export function dbOf(database: MirrorDatabase): Database.Database {
  const db = database.ask((one) => one);
  if (db === null) throw new Error("the mirror's database cannot be asked");
  return db;
}

/** The row that belongs to the record of this number, as it would be written when that one ended. */
export function row(number: number, given: Partial<ConsoleRow> = {}): ConsoleRow {
  return consoleRow({
    identity: `row-${number}`,
    created_at: AT + 2333,
    request_id: `id-${number}`,
    began_at: (given.created_at ?? AT + 2333) - (given.duration_ms ?? 2333),
    duration_ms: 2333,
    ...given,
  });
}

export function page(db: Database.Database, rows: readonly ConsoleRow[], cursor = "m") {
  return writePage(db, "main", { rows, cursor, gap: null });
}

/** Acknowledges alarms as `mirror ack` does. */
export function acknowledge(db: Database.Database, seen: SeenAlarms, now: number): AckLine[] {
  return readOpenRows(db, seen).flatMap((rows) => acknowledgeRows(db, rows, now));
}

export interface Compared {
  readonly amendments: readonly Amendment[];
  readonly corrections: readonly Correction[];
  /** When something that is pending is due. */
  readonly again: number | null;
}

export type Given = Partial<Omit<CompareOptions, "gateway">> & {
  /** When the console was last read completely; just now, unless it is given. */
  readonly synced?: number;
  readonly amend?: (lines: readonly Amendment[]) => void;
};

/** Compares everything that has changed, as the daemon and its thread do together. */
export function compareAll(mirror: MirrorFile, given: Given = {}): Compared {
  const { db } = mirror;
  const { synced, amend = mirror.append, ...options } = given;
  const now = options.now ?? AT + HOUR;
  writeFact(db, "main", "last_sync", String(synced ?? now));
  const amendments: Amendment[] = [];
  for (let round = 0; round < 10; round += 1) {
    const { skew = 0, siblings = [] } = options;
    const plan = planDays(db, "main", { now, skew, siblings });
    for (const day of plan.days) amendments.push(...compareOneDay(mirror, day, { ...options, now, amend }));
    finishPlan(db, "main", plan, now);
    if (hasChangedDays(db, "main")) continue;
    const corrections = amendments.map(computeCorrection).filter((one) => one !== null);
    return { amendments, corrections, again: nextDue(db, "main", now, options.skew ?? 0) };
  }
  throw new Error("comparing does not end");
}

function compareOneDay(
  { db, catchUp }: MirrorFile,
  day: number,
  {
    amend,
    ...given
  }: Given & { readonly now: number; readonly amend: (lines: readonly Amendment[]) => void },
): Amendment[] {
  const options: CompareOptions = { ...OPTIONS, ...given };
  const amendments: Amendment[] = [];
  const apply = {
    gateway: "main",
    skew: options.skew,
    findPrice,
    amend: (lines: readonly Amendment[]) => {
      amend(lines);
      amendments.push(...lines);
    },
  };
  for (;;) {
    const changes = compareDay(db, day, options);
    applySummary(db, changes, apply);
    if (changes.learned !== null) continue;
    for (const step of stepsOf(changes)) applyStep(db, step, apply);
    if (amendments.length > 0) catchUp();
    return amendments;
  }
}

const findPrice: FindPrice = (_, { input, output }) => ({ list: input + output, cost: 2 * (input + output) });

const OPTIONS = {
  gateway: "main",
  skew: 0,
  idNames: ["x-client-request-id"],
  billsFailures: false,
  socketRowsHaveIds: false,
  logGaps: [],
  siblings: [],
} as const;

export function all(db: Database.Database, sql: string): unknown[][] {
  return db.prepare(sql).raw().all() as unknown[][];
}

export const verdicts = (db: Database.Database) =>
  all(db, "SELECT identity, verdict, how, certain, key FROM mirror.console_rows ORDER BY identity");

const TABLES = {
  "mirror.console_rows": "gateway, identity",
  "mirror.verdicts": "record",
  "mirror.held_keys": "gateway, key, tool",
  "mirror.console_keys": "gateway, ref",
  "usage.records": "id",
  "usage.rollups": 'quarter, tool, gateway, "group", key, model',
} as const;

/** Everything that must not depend on when, how often and in what order something arrived. */
export function content(db: Database.Database): Record<keyof typeof TABLES, unknown[][]> {
  return Object.fromEntries(
    Object.entries(TABLES).map(([table, order]) => [
      table,
      all(db, `SELECT * FROM ${table} ORDER BY ${order}`),
    ]),
  ) as Record<keyof typeof TABLES, unknown[][]>;
}

export function recordsIn(db: Database.Database): UsageRecord[] {
  return all(db, `SELECT ${COLUMN_NAMES} FROM usage.records ORDER BY id`).map(recordOfRow);
}

/** A record without reported tokens. */
export function unmetered(number: number, given: Partial<UsageRecord> = {}): UsageRecord {
  return record(number, {
    ...UNKNOWN_TOKENS,
    held_tokens: 5000,
    held_microdollars: 70_000,
    ...given,
  });
}
