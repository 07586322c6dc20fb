import type Database from "libsql";
import { transact } from "../../usage/index/database.ts";
import type { AmendLine } from "../../usage/journal/lines.ts";
import { FOREIGN_AFTER_MS } from "../reconcile/context.ts";
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

/** What is stored in one transaction, on the thread that serves requests: about 5 ms. */
export type Step =
  | { readonly kind: "records"; readonly records: DayChanges["records"] }
  | { readonly kind: "rows"; readonly rows: DayChanges["rows"] };

const RECORDS_PER_STEP = 20;
const ROWS_PER_STEP = 60;

export function* stepsOf({ records, rows }: Pick<DayChanges, "records" | "rows">): Generator<Step> {
  for (let at = 0; at < records.length; at += RECORDS_PER_STEP)
    yield { kind: "records", records: records.slice(at, at + RECORDS_PER_STEP) };
  for (let at = 0; at < rows.length; at += ROWS_PER_STEP)
    yield { kind: "rows", rows: rows.slice(at, at + ROWS_PER_STEP) };
}

/** What a day's comparison says beside its verdicts. */
export type DaySummary = Pick<DayChanges, "learned" | "elsewhere" | "start">;

export function applySummary(
  db: Database.Database,
  { learned, elsewhere, start }: DaySummary,
  { gateway, skew }: Pick<ApplyOptions, "gateway" | "skew">,
): void {
  transact(db, () => {
    if (learned !== null) {
      writeLearned(db, gateway, learned);
      return;
    }
    if (start !== null) writeFact(db, gateway, "start_fit", JSON.stringify(start));
    markRows(
      db,
      gateway,
      elsewhere.map((at) => at + skew),
    );
  });
}

/**
 * Stores a step, and appends to the journal just before that is committed. A program that ends in between compares the day
 * again: what is in the journal by then is not amended a second time, once the index has it. Returns how many records
 * were amended.
 */
export function applyStep(
  db: Database.Database,
  step: Step,
  { gateway, priceOf, amend }: ApplyOptions,
): number {
  return transact(db, () => {
    if (step.kind === "rows") {
      writeRowVerdicts(db, gateway, step.rows);
      return 0;
    }
    const lines = writeRecordVerdicts(db, gateway, step.records, priceOf);
    if (lines.length > 0) amend(lines);
    return lines.length;
  });
}

/** When time alone decides on the next pending row; null: none waits for that. Records wait for the next sync. */
export function nextDue(db: Database.Database, gateway: string, now: number, skew: number): number | null {
  const pending = db
    .prepare(
      "SELECT min(created_at) FROM mirror.console_rows WHERE gateway = ? AND verdict = 'pending' AND created_at > ?",
    )
    .raw();
  const at = numberIn(pending.get(gateway, now - FOREIGN_AFTER_MS + skew));
  return at === null ? null : at - skew + FOREIGN_AFTER_MS + 1;
}
