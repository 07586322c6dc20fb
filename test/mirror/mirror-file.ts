import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type Database from "libsql";
import type { Test } from "tap";
import type { ConsoleRow } from "../../src/mirror/console-row.ts";
import { writeSynced } from "../../src/mirror/store/facts.ts";
import { holdKeys } from "../../src/mirror/store/held.ts";
import { type JudgingMeans, judgeStep } from "../../src/mirror/store/judging.ts";
import { linkKeys } from "../../src/mirror/store/keys.ts";
import { writePage } from "../../src/mirror/store/rows.ts";
import type { Correction } from "../../src/mirror/store/verdicts.ts";
import { openForWriting } from "../../src/usage/ledger/connect.ts";
import type { UsageRecord } from "../../src/usage/record.ts";
import { consoleRow } from "../doubles/console-row.ts";
import { UNKNOWN_TOKENS } from "../doubles/mirror-day.ts";
import { record, writeRecords } from "../doubles/records.ts";

/** A usage log with the mirror's part in it, and what tests ask of it. */

export const AT = 1_763_164_800_123;
export const MINUTE = 60_000;
export const HOUR = 3_600_000;

export interface MirrorFile {
  readonly file: string;
  readonly db: Database.Database;
}

/** The key …a1b2 is the console's id:1, and held by codex for a day before everything else happens. */
export function mirrorFile(t: Test, records: readonly UsageRecord[] = []): MirrorFile {
  const folder = mkdtempSync(join(tmpdir(), "kb-mirror-"));
  const file = join(folder, "usage.db");
  writeRecords(file, records);
  const { db, close } = openForWriting(file, { sync: "normal" });
  t.teardown(() => {
    close();
    rmSync(folder, { recursive: true, force: true });
  });
  holdKeys(db, [{ gateway: "main", key: "…a1b2", tool: "codex" }], AT - 24 * HOUR);
  linkKeys(db, "main", [{ ref: "id:1", key: "…a1b2" }]);
  return { file, db };
}

/** The row that belongs to the record of this number, as it would be written when that one ended. */
export function row(number: number, given: Partial<ConsoleRow> = {}): ConsoleRow {
  return consoleRow({
    identity: `row-${number}`,
    created_at: AT + 2333,
    request_id: `id-${number}`,
    duration_ms: 2333,
    ...given,
  });
}

export function page(db: Database.Database, rows: readonly ConsoleRow[], mark = "m") {
  return writePage(db, "main", { rows, mark, gap: null });
}

/** Judges until nothing is left to be judged. The console was read completely just now. */
export function judgeAll(
  db: Database.Database,
  given: Partial<JudgingMeans> & { readonly synced?: number } = {},
): { readonly steps: number; readonly corrections: Correction[]; readonly again: number | null } {
  const now = given.now ?? AT + HOUR;
  writeSynced(db, "main", given.synced ?? now);
  const corrections: Correction[] = [];
  for (let steps = 1; steps < 1000; steps += 1) {
    const step = judgeStep(db, "main", { ...MEANS, ...given, now });
    corrections.push(...step.corrections);
    if (step.done) return { steps, corrections, again: step.again };
  }
  throw new Error("judging does not end");
}

/** One step of it; true: it was the last. */
export function judgeOnce(db: Database.Database, given: Partial<JudgingMeans> & { now: number }): boolean {
  writeSynced(db, "main", given.now);
  return judgeStep(db, "main", { ...MEANS, ...given }).done;
}

const MEANS = {
  skew: 0,
  idNames: ["x-client-request-id"],
  idsAreOwn: true,
  priceOf: (_, { input, output }) => ({ list: input + output, cost: 2 * (input + output) }),
} as const satisfies Partial<JudgingMeans>;

export function all(db: Database.Database, sql: string): unknown[][] {
  return db.prepare(sql).raw().all() as unknown[][];
}

export const verdicts = (db: Database.Database) =>
  all(db, "SELECT identity, verdict, how, certain, key FROM log.console_rows ORDER BY identity");

const TABLES = {
  console_rows: "gateway, identity",
  verdicts: "record",
  held_keys: "gateway, key, tool",
  console_keys: "gateway, ref",
  records: "id",
  cells: 'tool, gateway, "group", key, model, slot',
};

/** Everything that must not depend on when, how often and in what order something arrived. */
export function content(db: Database.Database): Record<string, unknown[][]> {
  return Object.fromEntries(
    Object.entries(TABLES).map(([table, order]) => [
      table,
      all(db, `SELECT * FROM log.${table} ORDER BY ${order}`),
    ]),
  );
}

/** One whose tokens nobody reported. */
export function unmetered(number: number, given: Partial<UsageRecord> = {}): UsageRecord {
  return record(number, {
    ...UNKNOWN_TOKENS,
    held_tokens: 5000,
    held_microdollars: 70_000,
    ...given,
  });
}
