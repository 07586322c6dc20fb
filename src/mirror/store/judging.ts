import type Database from "libsql";
import { transact } from "../../usage/index/database.ts";
import type { AmendLine } from "../../usage/journal/lines.ts";
import { type Context, FARTHEST_MS, FOREIGN_AFTER_MS, MISSING_AFTER_MS } from "../reconcile/context.ts";
import { reconcile } from "../reconcile/reconcile.ts";
import { settleIds } from "./by-id.ts";
import { writeChanges } from "./changes.ts";
import { type Gap, readTime, writeFact } from "./facts.ts";
import { idsOfRows, missingWith, withKin } from "./far-apart.ts";
import { heldTimes } from "./held.ts";
import { keyLinks } from "./keys.ts";
import { hasOwnId, learnFromRows, readOwnIds, readStartFit } from "./learning.ts";
import { type Loaded, loadOurs, loadTheirs } from "./loading.ts";
import { missingIsKnown } from "./missing.ts";
import { numberIn } from "./raw-row.ts";
import type { PriceOf } from "./take.ts";
import { keptFrom } from "./unwatched.ts";
import { END_OF_TIME, idWindowFrom, type Window, windowFrom } from "./window.ts";

export interface JudgingMeans {
  readonly now: number;
  /** How far the console's clock is ahead. */
  readonly skew: number;
  /** See ConsoleAdapter. */
  readonly idNames: readonly string[];
  readonly billsFailures: boolean;
  readonly socketRowsHaveIds: boolean;
  readonly priceOf: PriceOf;
  /**
   * Appends to the journal what changes in records. Throws where it cannot: then nothing of the step is kept. Before the
   * next step the index must have caught up, so that nothing is amended twice.
   */
  readonly amend: (lines: readonly AmendLine[]) => void;
  /** Times, by our clock, in which something of ours may not have been recorded. */
  readonly unwatched?: readonly Gap[];
  /** About so many records and rows at a time. */
  readonly most?: number;
}

export interface JudgedStep {
  /** false: there is more, call again. */
  readonly done: boolean;
  /** Records that took the console's numbers, or gave them back. */
  readonly amendments: readonly AmendLine[];
  /** When something that is pending is due; null: nothing is that time alone decides. */
  readonly again: number | null;
}

/** Writing takes longest where ids are the same: nearly all of them get a verdict. */
const MOST_BY_ID = 160;
/** Of the rest, what is looked at around them is more than they are themselves. */
const MOST = 600;

/**
 * Judges one slice of what may have changed, the oldest first, and remembers where to go on: all in one transaction, so
 * that a program that ends in between judges the same slice again. The journal is appended to just before that is
 * committed: a program that ends between the two finds its amendments in the index, and makes them no second time. First, for everything, what has an id in common: that
 * is settled, and is by far the most. Then the rest, without the settled; both sides are looked at beyond the slice, so
 * that where it begins and ends makes no difference.
 */
export function judgeStep(db: Database.Database, gateway: string, means: JudgingMeans): JudgedStep {
  return transact(db, () => {
    const step = judgeSlice(db, gateway, means);
    if (step.amendments.length > 0) means.amend(step.amendments);
    return step;
  });
}

function judgeSlice(db: Database.Database, gateway: string, means: JudgingMeans): JudgedStep {
  const { now, skew, most = MOST } = means;
  const { from, idsFrom } = beginning(db, gateway, skew);
  writeFact(db, gateway, "rows_from", null);
  if (from === null) return NOTHING;
  if (idsFrom < END_OF_TIME) return idStep(db, gateway, from, idsFrom, means);
  const window = windowFrom(db, gateway, from, { now, skew, most });
  if (window === null) {
    writeFact(db, gateway, "judge_from", String(Math.min(from, now - FARTHEST_MS)));
    writeFact(db, gateway, "ids_from", null);
    return NOTHING;
  }
  const amendments = judgeWindow(db, gateway, window, means);
  if (!window.last) {
    writeFact(db, gateway, "judge_from", String(window.to));
    return { done: false, amendments, again: null };
  }
  const pending = pendingIn(db, gateway, means);
  writeFact(db, gateway, "judge_from", String(Math.min(now, pending.earliest) - FARTHEST_MS));
  writeFact(db, gateway, "ids_from", null);
  // Something that was learnt on the way makes earlier rows worth another look.
  const learnt = readTime(db, gateway, "rows_from") !== null;
  return { done: !learnt, amendments, again: pending.due };
}

const NOTHING: JudgedStep = { done: true, amendments: [], again: null };

function idStep(
  db: Database.Database,
  gateway: string,
  from: number,
  idsFrom: number,
  means: JudgingMeans,
): JudgedStep {
  const { skew, most = MOST_BY_ID } = means;
  const anewFrom = readTime(db, gateway, "anew");
  const anew = anewFrom !== null && idsFrom >= anewFrom;
  const window = idWindowFrom(db, gateway, idsFrom, { skew, most, anew });
  const { amendments, lostAt } = settleIds(db, gateway, window, means, anew);
  writeFact(db, gateway, "judge_from", String(Math.min(from, lostAt - FARTHEST_MS)));
  writeFact(db, gateway, "ids_from", String(window.to));
  if (window.last) writeFact(db, gateway, "anew", null);
  return { done: false, amendments, again: null };
}

/** Whatever changed can change what lies around it. null: there is nothing of theirs, and nothing of ours. */
function beginning(
  db: Database.Database,
  gateway: string,
  skew: number,
): { readonly from: number | null; readonly idsFrom: number } {
  const rowsFrom = readTime(db, gateway, "rows_from");
  const changed = rowsFrom === null ? Number.POSITIVE_INFINITY : rowsFrom - skew - FARTHEST_MS;
  const judged = readTime(db, gateway, "judge_from") ?? firstRecord(db, gateway);
  const from = Math.min(judged, changed);
  if (from === Number.POSITIVE_INFINITY) return { from: null, idsFrom: from };
  return { from, idsFrom: Math.min(readTime(db, gateway, "ids_from") ?? from, changed) };
}

function firstRecord(db: Database.Database, gateway: string): number {
  const covered = readTime(db, gateway, "covered_from");
  const first = (where: string) =>
    numberIn(
      db
        .prepare(`SELECT min(started_at) FROM usage.records WHERE ${where}`)
        .raw()
        .get(gateway, covered ?? 0),
    ) ?? Number.POSITIVE_INFINITY;
  return Math.min(
    first("end IS NOT NULL AND gateway = ? AND started_at >= ?"),
    first("end IS NULL AND +gateway = ? AND +started_at >= ?"),
  );
}

function judgeWindow(
  db: Database.Database,
  gateway: string,
  window: Window,
  means: JudgingMeans,
): readonly AmendLine[] {
  const all = loadWindow(db, gateway, window, means);
  const own = readOwnIds(db, gateway);
  const judgement = reconcile(
    all.ours.map((one) => ({ ...one.request, own_id: hasOwnId(one, own) })),
    all.theirs.map(({ row }) => row),
    sceneOf(db, gateway, means),
  );
  const rows = new Map(judgement.rows.map((row) => [row.identity, row]));
  const records = new Map(judgement.records.map((record) => [record.record, record]));
  const isInside = (time: number) => time >= window.from && time < window.to;
  // What is outside can have its counterpart inside by its id: then it is decided here.
  const theirs = all.theirs.flatMap((their) => {
    const next = rows.get(their.row.identity);
    return next !== undefined && (isInside(their.row.at) || next.how === "id") ? [{ their, next }] : [];
  });
  learnFromRows(db, gateway, { ours: all.ours, theirs: theirs.map(({ their }) => their) }, rows);
  const known = missingIsKnown(db, gateway, means.skew);
  const ours = all.ours.flatMap((our) => {
    const next = records.get(our.request.id) ?? null;
    const isDecided = !our.request.running && (isInside(our.own) || next?.how === "id");
    return isDecided ? [{ our, next: known(our, next) }] : [];
  });
  return writeChanges(db, gateway, { theirs, ours }, all, means.priceOf);
}

/** What is not settled in and around the window, and what belongs to it by its id. */
function loadWindow(db: Database.Database, gateway: string, window: Window, means: JudgingMeans): Loaded {
  const reading = { skew: means.skew, links: keyLinks(db, gateway) };
  const near = {
    ours: loadOurs(db, gateway, window, means.idNames),
    theirs: loadTheirs(db, gateway, window, reading),
  };
  const ids = idsOfRows(near.theirs);
  for (const { request } of near.ours) for (const id of request.ids) ids.delete(id);
  const missing = missingWith(db, gateway, ids);
  return withKin(db, gateway, near, { ...means, ...reading, window, ids }, missing);
}

function sceneOf(db: Database.Database, gateway: string, means: JudgingMeans): Context {
  const held = heldTimes(db, gateway);
  return {
    now: means.now,
    held: (key) => held.get(key) ?? null,
    kept_from: keptFrom(db),
    unwatched: means.unwatched ?? [],
    hands_out_ids: Object.keys(readOwnIds(db, gateway)).length > 0,
    bills_failures: means.billsFailures,
    socket_rows_have_ids: means.socketRowsHaveIds,
    start: readStartFit(db, gateway, means.skew),
  };
}

/** The earliest of what is not decided yet, and when the next of it is due. */
function pendingIn(
  db: Database.Database,
  gateway: string,
  { now, skew }: JudgingMeans,
): { readonly earliest: number; readonly due: number | null } {
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
  const earliestOf = (rowsAfter: number, recordsAfter: number) =>
    [
      (numberIn(row.get(gateway, rowsAfter + skew)) ?? Number.POSITIVE_INFINITY) - skew,
      numberIn(record.get(gateway, recordsAfter)) ?? Number.POSITIVE_INFINITY,
    ] as const;
  // Time alone decides only on those that are younger; the others wait for a request to end, or for the next sync.
  const [rowAt, recordAt] = earliestOf(now - FOREIGN_AFTER_MS, now - MISSING_AFTER_MS);
  const due = Math.min(rowAt + FOREIGN_AFTER_MS, recordAt + MISSING_AFTER_MS) + 1;
  return {
    earliest: Math.min(...earliestOf(-MAX, -MAX)),
    due: Number.isFinite(due) ? due : null,
  };
}

const MAX = Number.MAX_SAFE_INTEGER / 2;
