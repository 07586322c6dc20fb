import type Database from "libsql";
import { transact } from "../../usage/index/database.ts";
import type { AmendLine } from "../../usage/journal/lines.ts";
import { FOREIGN_AFTER_MS, MISSING_AFTER_MS } from "../reconcile/context.ts";
import { markRows } from "./changed-days.ts";
import type { DayChanges } from "./compare-day.ts";
import { writeFact } from "./facts.ts";
import { writeLearned } from "./learning.ts";
import { numberIn } from "./raw-row.ts";
import type { PriceOf } from "./take.ts";
import { writeRecordVerdicts, writeRowVerdicts } from "./verdicts.ts";

export interface ApplyOptions {
  readonly gateway: string;
  readonly skew: number;
  readonly priceOf: PriceOf;
  /** Appends to the journal what changes in records. Throws where it cannot: then nothing of the step is kept. */
  readonly amend: (lines: readonly AmendLine[]) => void;
}

/** So many verdicts are written at a time: requests wait meanwhile. */
const STEP = 150;

/**
 * Stores what a comparison of a day found, in small steps. Each is one transaction, and the journal is appended to just
 * before it is committed. A program that ends in between compares the day again: what is in the journal by then is not
 * amended a second time, once the index has it. Yields how many records were amended.
 */
export function* applyChanges(
  db: Database.Database,
  changes: DayChanges,
  { gateway, skew, priceOf, amend }: ApplyOptions,
): Generator<number, void> {
  const { learned } = changes;
  if (learned !== null) {
    transact(db, () => writeLearned(db, gateway, learned));
    return;
  }
  transact(db, () => {
    writeFact(db, gateway, "start_fit", JSON.stringify(changes.start));
    markRows(
      db,
      gateway,
      changes.elsewhere.map((at) => at + skew),
    );
  });
  for (let at = 0; at < changes.records.length; at += STEP) {
    const amended = transact(db, () => {
      const lines = writeRecordVerdicts(db, gateway, changes.records.slice(at, at + STEP), priceOf);
      if (lines.length > 0) amend(lines);
      return lines.length;
    });
    yield amended;
  }
  for (let at = 0; at < changes.rows.length; at += STEP) {
    transact(db, () => writeRowVerdicts(db, gateway, changes.rows.slice(at, at + STEP)));
    yield 0;
  }
}

/** When time alone decides on the next of what is pending; null: nothing waits for that. */
export function nextDue(db: Database.Database, gateway: string, now: number, skew: number): number | null {
  const row = db
    .prepare(
      "SELECT min(created_at) FROM mirror.console_rows WHERE gateway = ? AND verdict = 'pending' AND created_at > ?",
    )
    .raw();
  const record = db
    .prepare(
      `SELECT min(coalesce(r.ended_at, r.started_at)) FROM mirror.verdicts v JOIN usage.records r ON r.id = v.record
       WHERE v.gateway = ? AND v.verdict = 'pending' AND coalesce(r.ended_at, r.started_at) > ?`,
    )
    .raw();
  const rowAt = numberIn(row.get(gateway, now - FOREIGN_AFTER_MS + skew));
  const recordAt = numberIn(record.get(gateway, now - MISSING_AFTER_MS));
  const due = Math.min(
    rowAt === null ? Number.POSITIVE_INFINITY : rowAt - skew + FOREIGN_AFTER_MS,
    recordAt === null ? Number.POSITIVE_INFINITY : recordAt + MISSING_AFTER_MS,
  );
  return Number.isFinite(due) ? due + 1 : null;
}
