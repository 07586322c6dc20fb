import type Database from "libsql";
import { FARTHEST_MS } from "../reconcile/context.ts";
import { readFact, readTime, writeFact } from "./facts.ts";
import { columnsOf, numberIn } from "./query.ts";

export const DAY_MS = 86_400_000;

/** What is to be compared again, as it was when the comparison began: what is marked meanwhile stays marked. */
export interface Plan {
  /** UTC days by our clock, as whole days since 1970, the oldest first. */
  readonly days: readonly number[];
  /** The newest mark that it includes. */
  readonly mark: number;
  /** When the oldest request had begun that runs; null: none does. */
  readonly runningSince: number | null;
}

/** A row was added, or changed: `at` is by the console's clock. Its counterpart may be in the next or the previous day. */
export function touchRows(db: Database.Database, gateway: string, times: Iterable<number>): void {
  const days = new Set<number>();
  for (const at of times) {
    days.add(dayOf(at - FARTHEST_MS));
    days.add(dayOf(at + FARTHEST_MS));
  }
  if (days.size === 0) return;
  const mark = nextMark(db, gateway);
  const put = db.prepare("INSERT OR REPLACE INTO mirror.changed_days (gateway, day, mark) VALUES (?, ?, ?)");
  for (const day of days) put.run(gateway, day, mark);
}

/** Everything from then on may get another verdict, by whichever clock. */
export function touchFrom(db: Database.Database, gateway: string, from: number): void {
  const before = readTime(db, gateway, "changed_from") ?? Number.POSITIVE_INFINITY;
  writeFact(db, gateway, "changed_from", String(Math.min(before, from)));
  writeFact(db, gateway, "changed_from_mark", String(nextMark(db, gateway)));
}

export interface PlanOptions {
  readonly now: number;
  /** How far the console's clock is ahead. */
  readonly skew: number;
}

/** Every day with a changed row or record, or with something undecided. Reads only. */
export function planDays(db: Database.Database, gateway: string, { now, skew }: PlanOptions): Plan {
  const days = new Set<number>();
  const addAround = (from: number, to = from) => {
    for (let day = dayOf(from - FARTHEST_MS); day <= dayOf(to + FARTHEST_MS); day += 1) days.add(day);
  };
  for (const day of numbers(db, "SELECT day FROM mirror.changed_days WHERE gateway = ?", gateway)) {
    for (const end of [day * DAY_MS, (day + 1) * DAY_MS - 1]) days.add(dayOf(end - skew));
  }
  const changed = readTime(db, gateway, "changed_from");
  if (changed !== null)
    for (const day of allDays(db, gateway, changed - Math.abs(skew), skew))
      addAround(day * DAY_MS, (day + 1) * DAY_MS - 1);
  for (const at of recordsSince(db, gateway, now)) addAround(at);
  const pendingRows = "SELECT created_at FROM mirror.console_rows WHERE gateway = ? AND verdict = 'pending'";
  for (const at of numbers(db, pendingRows, gateway)) days.add(dayOf(at - skew));
  const pendingRecords = `SELECT coalesce(r.ended_at, r.started_at) FROM mirror.verdicts v
    JOIN usage.records r ON r.id = v.record WHERE v.gateway = ? AND v.verdict = 'pending'`;
  for (const at of numbers(db, pendingRecords, gateway)) days.add(dayOf(at));
  // Records that run now end later, whenever they began.
  const running = db.prepare("SELECT min(started_at) FROM usage.records WHERE end IS NULL AND +gateway = ?");
  return {
    days: [...days].sort((a, b) => a - b),
    mark: readTime(db, gateway, "mark_count") ?? 0,
    runningSince: numberIn(running.raw().get(gateway)),
  };
}

/** The plan was carried out. @param startedAt when its comparison began, by our clock. */
export function finishPlan(db: Database.Database, gateway: string, plan: Plan, startedAt: number): void {
  const { mark, runningSince } = plan;
  // The console was forgotten meanwhile: its marks are counted from the beginning.
  if (mark > (readTime(db, gateway, "mark_count") ?? 0)) return;
  db.prepare("DELETE FROM mirror.changed_days WHERE gateway = ? AND mark <= ?").run(gateway, mark);
  if ((readTime(db, gateway, "changed_from_mark") ?? 0) <= mark) {
    writeFact(db, gateway, "changed_from", null);
    writeFact(db, gateway, "changed_from_mark", null);
  }
  writeFact(db, gateway, "compared_at", String(startedAt));
  writeFact(db, gateway, "running_since", String(runningSince ?? startedAt));
}

/** Something was marked that the last plan did not include. */
export function hasChangedDays(db: Database.Database, gateway: string): boolean {
  if (readFact(db, gateway, "changed_from") !== null) return true;
  const marked = db.prepare("SELECT 1 FROM mirror.changed_days WHERE gateway = ? LIMIT 1").raw();
  return numberIn(marked.get(gateway)) !== null;
}

function nextMark(db: Database.Database, gateway: string): number {
  const mark = (readTime(db, gateway, "mark_count") ?? 0) + 1;
  writeFact(db, gateway, "mark_count", String(mark));
  return mark;
}

/** When the records ended that were not compared at their end yet. The index is a moment behind the clock. */
const BEHIND_MS = 60_000;

function recordsSince(db: Database.Database, gateway: string, now: number): number[] {
  const last = readTime(db, gateway, "compared_at");
  // A time that is still to come was written before the clock was set back.
  const compared = last !== null && last <= now ? last : null;
  const covered = readTime(db, gateway, "covered_from") ?? 0;
  const since = compared === null ? covered : compared - BEHIND_MS;
  const first =
    compared === null ? covered : Math.min(since, readTime(db, gateway, "running_since") ?? since);
  return numbers(
    db,
    `SELECT DISTINCT coalesce(ended_at, started_at) / 3600000 * 3600000 FROM usage.records
     WHERE end IS NOT NULL AND gateway = ? AND started_at >= ? AND (ended_at IS NULL OR ended_at >= ?)`,
    gateway,
    first,
    since,
  );
}

function allDays(db: Database.Database, gateway: string, from: number, skew: number): Set<number> {
  const rows = `SELECT DISTINCT (created_at - CAST(? AS INTEGER)) / ${DAY_MS} FROM mirror.console_rows WHERE gateway = ? AND created_at >= ?`;
  const records = `SELECT DISTINCT started_at / ${DAY_MS} FROM usage.records WHERE end IS NOT NULL AND gateway = ? AND started_at >= ?`;
  const first = Math.max(from, readTime(db, gateway, "covered_from") ?? 0);
  return new Set([...numbers(db, rows, skew, gateway, from), ...numbers(db, records, gateway, first)]);
}

function numbers(db: Database.Database, sql: string, ...values: (string | number)[]): number[] {
  return db
    .prepare(sql)
    .raw()
    .all(...values)
    .map((row) => Math.floor(Number(columnsOf(row)[0])));
}

export function dayOf(time: number): number {
  return Math.floor(time / DAY_MS);
}
