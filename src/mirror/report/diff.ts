import type Database from "libsql";
import { columnsOf } from "../store/raw-row.ts";
import { STORED, storedRowOf } from "../store/stored-row.ts";
import { besideRecord, besideRow, createFinder, type FoundRow } from "./compared.ts";
import type { ComparedRow } from "./shape.ts";

export interface DiffMeans {
  readonly most: number;
  /** How far the console's clock is ahead. */
  readonly skew: number;
  /** Keys whose use elsewhere is on purpose: their foreign rows are no news. */
  readonly quiet: (key: string) => boolean;
}

/**
 * What is foreign, the certain before the suspected, and then what differs or is missing; each the newest first. However
 * many others there are, they never push a foreign row out.
 */
export function readDiff(db: Database.Database, gateway: string, means: DiffMeans): ComparedRow[] {
  const steps = stepDiff(db, gateway, means);
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

const STEP_ROWS = 25;

/** The same for whoever does other things between two steps. */
export function* stepDiff(
  db: Database.Database,
  gateway: string,
  means: DiffMeans,
): Generator<undefined, ComparedRow[]> {
  const { most, skew } = means;
  const finder = createFinder(db);
  const foreign = foreignRows(db, gateway, means);
  yield;
  const theirs = rowsWith(db, gateway, "verdict = 'differs'", most - foreign.length);
  const missing = db
    .prepare(
      `SELECT record, started_at FROM mirror.verdicts WHERE gateway = ? AND verdict = 'missing'
       ORDER BY started_at DESC LIMIT ?`,
    )
    .raw()
    .all(gateway, most - foreign.length)
    .map(columnsOf);
  const others = [
    ...theirs.map((one) => ({
      at: one.row.created_at - skew,
      shown: () => [besideRow(finder, one, skew)],
    })),
    ...missing.map(([id, at]) => ({
      at: Number(at),
      shown: () => [besideRecord(finder, String(id), () => skew) ?? []].flat(),
    })),
  ];
  yield;
  const newest = others.toSorted((a, b) => b.at - a.at).slice(0, most - foreign.length);
  // Our side is looked up only of those that are shown.
  const shown = [
    ...foreign.map((one) => () => [besideRow(finder, one, skew)]),
    ...newest.map((one) => one.shown),
  ];
  const rows: ComparedRow[] = [];
  for (const [at, find] of shown.entries()) {
    rows.push(...find());
    if (at % STEP_ROWS === 0) yield;
  }
  return rows;
}

/** How readDiff orders its rows, for whoever puts those of several gateways together. */
export function inDiffOrder(a: ComparedRow, b: ComparedRow): number {
  return weightOf(b) - weightOf(a) || timeOf(b) - timeOf(a);
}

function weightOf({ verdict, row }: ComparedRow): number {
  return verdict !== "foreign" ? 0 : row?.certain === true ? 2 : 1;
}

function timeOf({ row, record }: ComparedRow): number {
  return row?.at ?? record?.started_at ?? 0;
}

/** Quiet ones are left out by the statement: there may be more of them than are ever listed. */
function foreignRows(db: Database.Database, gateway: string, { most, quiet }: DiffMeans): FoundRow[] {
  const groups = db
    .prepare(
      `SELECT certain, key FROM mirror.console_rows INDEXED BY console_rows_counted
       WHERE gateway = ? AND verdict = 'foreign' GROUP BY how, certain, key`,
    )
    .raw()
    .all(gateway)
    .map(columnsOf);
  const loud = groups.filter(([, key]) => key === null || !quiet(String(key)));
  const found: FoundRow[] = [];
  for (const certain of [1, 0]) {
    const keys = loud.flatMap(([sure, key]) => (sure === certain ? [key === null ? "" : String(key)] : []));
    // Looking for what is not there would read every other foreign row.
    if (keys.length === 0 || found.length >= most) continue;
    const which = `verdict = 'foreign' AND certain = ${certain} AND coalesce(key, '') IN (SELECT value FROM json_each(?))`;
    found.push(...rowsWith(db, gateway, which, most - found.length, JSON.stringify(keys)));
  }
  return found;
}

/** The newest of a verdict. */
function rowsWith(
  db: Database.Database,
  gateway: string,
  which: string,
  most: number,
  ...values: readonly string[]
): FoundRow[] {
  return db
    .prepare(
      `SELECT ${STORED.join(", ")} FROM mirror.console_rows INDEXED BY console_rows_by_verdict
       WHERE gateway = ? AND ${which} ORDER BY created_at DESC LIMIT ?`,
    )
    .raw()
    .all(gateway, ...values, most)
    .map((row) => ({ gateway, ...storedRowOf(row) }));
}
