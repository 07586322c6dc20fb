import type Database from "libsql";
import { DAY_MS, HOUR_MS, MINUTE_MS } from "../../core/units.ts";
import { FARTHEST_MS } from "../reconcile/context.ts";
import type { Sibling } from "../reconcile/siblings.ts";
import { readFact, readJsonFact, readTime, writeFact } from "./facts.ts";
import { execute, queryColumn, queryNumber, queryValue, type Value } from "./query.ts";

/*
 * Which days must be compared again. Every change gets a number (the column `mark`), so that a change during a comparison
 * does not count as compared when it ends.
 */

/** Rows at these times, by the console's clock, are new or changed. Their requests may be on the next or previous day. */
export function touchRows(db: Database.Database, gateway: string, times: Iterable<number>): void {
  const days = new Set<number>();
  for (const at of times) {
    days.add(dayOf(at - FARTHEST_MS));
    days.add(dayOf(at + FARTHEST_MS));
  }
  if (days.size === 0) return;
  const change = nextChange(db, gateway);
  const put = db.prepare("INSERT OR REPLACE INTO mirror.changed_days (gateway, day, mark) VALUES (?, ?, ?)");
  for (const day of days) put.run(gateway, day, change);
}

/** Everything from this time on, by either clock, may get another verdict. */
export function touchFrom(db: Database.Database, gateway: string, from: number): void {
  const before = readTime(db, gateway, "changed_from") ?? Infinity;
  writeFact(db, gateway, "changed_from", String(Math.min(before, from)));
  writeFact(db, gateway, "changed_from_number", String(nextChange(db, gateway)));
}

function nextChange(db: Database.Database, gateway: string): number {
  const change = lastChange(db, gateway) + 1;
  writeFact(db, gateway, "change_count", String(change));
  return change;
}

function lastChange(db: Database.Database, gateway: string): number {
  return readTime(db, gateway, "change_count") ?? 0;
}

export function hasChangedDays(db: Database.Database, gateway: string): boolean {
  if (readFact(db, gateway, "changed_from") !== null) return true;
  return queryValue(db, "SELECT 1 FROM mirror.changed_days WHERE gateway = ? LIMIT 1", gateway) !== null;
}

interface Plan {
  /** The UTC days to compare, by our clock, as days since 1970; the oldest first. */
  readonly days: readonly number[];
  /** The last change that the plan includes. */
  readonly change: number;
  /** Since when the oldest request in flight runs; null: there is none. */
  readonly runningSince: number | null;
  readonly siblings: readonly Sibling[];
}

interface PlanOptions {
  readonly now: number;
  readonly skew: number;
  readonly siblings: readonly Sibling[];
}

/** Every day with a changed row, a new record, a pending verdict, or news of a sibling. Only reads. */
export function planDays(db: Database.Database, gateway: string, { now, skew, siblings }: PlanOptions): Plan {
  const days = new Set<number>();
  const addAround = (from: number, to: number) => {
    for (let day = dayOf(from - FARTHEST_MS); day <= dayOf(to + FARTHEST_MS); day += 1) days.add(day);
  };
  for (const day of numbers(db, "SELECT day FROM mirror.changed_days WHERE gateway = ?", gateway)) {
    // A day of the console can be part of two of ours.
    days.add(dayOf(day * DAY_MS - skew));
    days.add(dayOf((day + 1) * DAY_MS - 1 - skew));
  }
  for (const day of daysSinceChange(db, gateway, skew)) addAround(day * DAY_MS, (day + 1) * DAY_MS - 1);
  for (const at of newRecords(db, gateway, now)) addAround(at, at);
  for (const change of siblingChanges(db, gateway, siblings, now)) {
    for (const at of siblingRecords(db, gateway, change)) addAround(at, at);
    for (const at of doubtfulRows(db, gateway, change.from + skew)) addAround(at - skew, at - skew);
  }
  const pendingRows = "SELECT created_at FROM mirror.console_rows WHERE gateway = ? AND verdict = 'pending'";
  for (const at of numbers(db, pendingRows, gateway)) days.add(dayOf(at - skew));
  const pendingRecords = `SELECT coalesce(r.ended_at, r.started_at) FROM mirror.verdicts v
    JOIN usage.records r ON r.id = v.record WHERE v.gateway = ? AND v.verdict = 'pending'`;
  for (const at of numbers(db, pendingRecords, gateway)) days.add(dayOf(at));
  return {
    days: [...days].sort((a, b) => a - b),
    change: lastChange(db, gateway),
    // The plus keeps SQLite on the index of requests in flight.
    runningSince: queryNumber(
      db,
      "SELECT min(started_at) FROM usage.records WHERE end IS NULL AND +gateway = ?",
      gateway,
    ),
    siblings,
  };
}

/** The plan was carried out. @param startedAt when its comparison began, by our clock. */
export function finishPlan(db: Database.Database, gateway: string, plan: Plan, startedAt: number): void {
  const { change, runningSince, siblings } = plan;
  // The console was forgotten meanwhile, so changes are counted from 1 again.
  if (change > lastChange(db, gateway)) return;
  execute(db, "DELETE FROM mirror.changed_days WHERE gateway = ? AND mark <= ?", gateway, change);
  if ((readTime(db, gateway, "changed_from_number") ?? 0) <= change) {
    writeFact(db, gateway, "changed_from", null);
    writeFact(db, gateway, "changed_from_number", null);
  }
  writeFact(db, gateway, "compared_at", String(startedAt));
  writeFact(db, gateway, "running_since", String(runningSince ?? startedAt));
  writeFact(db, gateway, "siblings", siblings.length === 0 ? null : JSON.stringify(siblings));
}

/** The days with rows or records since the time that touchFrom stored. */
function daysSinceChange(db: Database.Database, gateway: string, skew: number): number[] {
  const changedFrom = readTime(db, gateway, "changed_from");
  if (changedFrom === null) return [];
  const from = changedFrom - Math.abs(skew);
  const rows = `SELECT DISTINCT (created_at - CAST(? AS INTEGER)) / ${DAY_MS} FROM mirror.console_rows
    WHERE gateway = ? AND created_at >= ?`;
  const records = `SELECT DISTINCT started_at / ${DAY_MS} FROM usage.records
    WHERE end IS NOT NULL AND gateway = ? AND started_at >= ?`;
  const covered = Math.max(from, readTime(db, gateway, "covered_from") ?? 0);
  return [...numbers(db, rows, skew, gateway, from), ...numbers(db, records, gateway, covered)];
}

/** The index may be this much behind the clock. */
const INDEX_DELAY_MS = MINUTE_MS;

/** The hours in which records ended since the last comparison. */
function newRecords(db: Database.Database, gateway: string, now: number): number[] {
  const last = readTime(db, gateway, "compared_at");
  let endedSince = readTime(db, gateway, "covered_from") ?? 0;
  let startedSince = endedSince;
  // A comparison in the future was written before the clock was set back.
  if (last !== null && last <= now) {
    endedSince = last - INDEX_DELAY_MS;
    startedSince = Math.min(endedSince, readTime(db, gateway, "running_since") ?? endedSince);
  }
  return numbers(
    db,
    `SELECT DISTINCT coalesce(ended_at, started_at) / ${HOUR_MS} * ${HOUR_MS} FROM usage.records
     WHERE end IS NOT NULL AND gateway = ? AND started_at >= ? AND (ended_at IS NULL OR ended_at >= ?)`,
    gateway,
    startedSince,
    endedSince,
  );
}

/** The siblings as the last comparison knew them. */
export function readSiblings(db: Database.Database, gateway: string): readonly Sibling[] {
  return readJsonFact(db, gateway, "siblings", []);
}

/** More of a sibling's records have come, or it holds other keys, or it is new or gone. */
interface SiblingChange {
  readonly name: string;
  /** Its records and rows from before this time are as they were. */
  readonly from: number;
}

/** The clocks of the machines and of the console may have been set or compared again since. */
const CLOCK_CHANGE_MS = 10 * MINUTE_MS;

/**
 * A machine that begins to sign publishes this much again (KEEP_DAYS in shared/records.ts). What is older stays unsigned, and
 * its rows keep their verdicts.
 */
const SIGNED_AGAIN_MS = 31 * DAY_MS;

/** A sibling that stays behind is no change: however long it is away, it costs nothing. */
function siblingChanges(
  db: Database.Database,
  gateway: string,
  siblings: readonly Sibling[],
  now: number,
): SiblingChange[] {
  const before = readSiblings(db, gateway);
  const changes: SiblingChange[] = [];
  for (const name of new Set([...before, ...siblings].map((one) => one.name))) {
    // Two machines can have the same name.
    const known = before.filter((one) => one.name === name);
    const next = siblings.filter((one) => one.name === name);
    if (JSON.stringify(known) === JSON.stringify(next)) continue;
    // Any record of a machine that is new, or signs since then, may have come since the last comparison.
    const isNew = next.length > known.length || countVerified(next) > countVerified(known);
    const seenUntil = isNew ? 0 : Math.min(...[...known, ...next].map((one) => one.seenUntil));
    const oldest = countVerified(next) > 0 ? now - SIGNED_AGAIN_MS : 0;
    changes.push({ name, from: Math.max(seenUntil, oldest) - CLOCK_CHANGE_MS });
  }
  return changes;
}

function countVerified(siblings: readonly Sibling[]): number {
  return siblings.filter(({ isVerified }) => isVerified).length;
}

/** The hours in which a sibling's records ended that may have come since the last comparison. They can be days old. */
function siblingRecords(db: Database.Database, gateway: string, { name, from }: SiblingChange): number[] {
  return numbers(
    db,
    `SELECT DISTINCT coalesce(ended_at, started_at) / ${HOUR_MS} * ${HOUR_MS} FROM usage.records
     WHERE end IS NOT NULL AND gateway = ? AND started_at >= ? AND machine = ?`,
    gateway,
    Math.max(from, readTime(db, gateway, "covered_from") ?? 0),
    name,
  );
}

/** The hours of rows from this time on, by the console's clock, that no record explains. */
function doubtfulRows(db: Database.Database, gateway: string, from: number): number[] {
  return numbers(
    db,
    `SELECT DISTINCT created_at / ${HOUR_MS} * ${HOUR_MS} FROM mirror.console_rows
     WHERE gateway = ? AND verdict IN ('unwatched', 'foreign') AND created_at >= ?`,
    gateway,
    from,
  );
}

function numbers(db: Database.Database, sql: string, ...values: Value[]): number[] {
  return queryColumn(db, sql, ...values).map((value) => Math.floor(Number(value)));
}

function dayOf(time: number): number {
  return Math.floor(time / DAY_MS);
}
