import type Database from "libsql";
import { answerOf, numberIn } from "../../usage/ledger/raw-row.ts";
import { transact } from "../../usage/ledger/rows.ts";
import { KEPT_FROM } from "../../usage/ledger/upkeep/prune.ts";
import { judge } from "../match/judge.ts";
import { FARTHEST_MS, FOREIGN_AFTER_MS, MISSING_AFTER_MS, type Scene } from "../match/scene.ts";
import type { JudgedRecord, JudgedRow } from "../verdict.ts";
import { type Gap, handsOutIds, judgeRowsAgain, readTime, writeFact } from "./facts.ts";
import { loadFarApart } from "./far-apart.ts";
import { heldTimes } from "./held.ts";
import { keyLinks, learnKeys } from "./keys.ts";
import { loadOurs, loadTheirs, type Ours, type Their, withoutStrangeIds } from "./loading.ts";
import { missingIsKnown } from "./missing.ts";
import { judgedValues } from "./stored-row.ts";
import type { PriceOf } from "./take.ts";
import {
  type Correction,
  type NewVerdict,
  theirsText,
  writeRecordVerdicts,
  writeRowVerdicts,
} from "./verdicts.ts";
import { type Window, windowFrom } from "./window.ts";

export interface JudgingMeans {
  readonly now: number;
  /** How far the console's clock is ahead. */
  readonly skew: number;
  /** See ConsoleAdapter. */
  readonly idNames: readonly string[];
  readonly idsAreOwn: boolean;
  readonly priceOf: PriceOf;
  /** Times, by our clock, in which something of ours may not have been recorded. */
  readonly unwatched?: readonly Gap[];
  /** About so many records and rows at a time. */
  readonly most?: number;
}

export type { Correction };

export interface JudgedStep {
  /** false: there is more, call again. */
  readonly done: boolean;
  /** What records take more, or less, from their tools' limits, for having taken the console's numbers. */
  readonly corrections: readonly Correction[];
  /** When something that is pending is due; null: nothing is that time alone decides. */
  readonly again: number | null;
}

const MOST = 600;

/**
 * Judges one slice of what may have changed, the oldest first, and remembers where to go on: all in one transaction, so
 * that a program that ends in between judges the same slice again. Both sides are looked at beyond the slice, so that where
 * it begins and ends makes no difference.
 */
export function judgeStep(db: Database.Database, gateway: string, means: JudgingMeans): JudgedStep {
  return transact(db, () => {
    const { now, skew, most = MOST } = means;
    const from = beginning(db, gateway, skew);
    writeFact(db, gateway, "rows_from", null);
    const window = from === null ? null : windowFrom(db, gateway, from, { now, skew, most });
    if (window === null) {
      if (from !== null) writeFact(db, gateway, "judge_from", String(Math.min(from, now - FARTHEST_MS)));
      return { done: true, corrections: [], again: null };
    }
    const corrections = judgeWindow(db, gateway, window, means);
    const pending = pendingIn(db, gateway, means);
    const next = window.last ? Math.min(now, pending.earliest) - FARTHEST_MS : window.to;
    writeFact(db, gateway, "judge_from", String(next));
    // Something that was learnt on the way makes earlier rows worth another look.
    const learnt = readTime(db, gateway, "rows_from") !== null;
    return { done: window.last && !learnt, corrections, again: window.last ? pending.due : null };
  });
}

/** Whatever changed can change what lies around it. null: there is nothing of theirs, and nothing of ours. */
function beginning(db: Database.Database, gateway: string, skew: number): number | null {
  const rowsFrom = readTime(db, gateway, "rows_from");
  const changed = rowsFrom === null ? null : rowsFrom - skew - FARTHEST_MS;
  const judged = readTime(db, gateway, "judge_from");
  if (judged !== null) return Math.min(judged, changed ?? judged);
  const covered = readTime(db, gateway, "covered_from");
  const record = db
    .prepare("SELECT min(started_at) FROM log.records WHERE gateway = ? AND started_at >= ?")
    .raw();
  const first = numberIn(record.get(gateway, covered ?? 0));
  if (changed === null) return first;
  return first === null ? changed : Math.min(first, changed);
}

function judgeWindow(
  db: Database.Database,
  gateway: string,
  window: Window,
  means: JudgingMeans,
): readonly Correction[] {
  const links = keyLinks(db, gateway);
  const near = {
    ours: loadOurs(db, gateway, window, means.idNames),
    theirs: loadTheirs(db, gateway, window, means.skew, links),
  };
  const far = loadFarApart(db, gateway, near, { ...means, links });
  const ours = [...near.ours, ...far.ours];
  const theirs = [...near.theirs, ...far.theirs];
  learnIds(db, gateway, ours, means.idNames);
  const scene = sceneOf(db, gateway, means);
  const judgement = judge(
    withoutStrangeIds(ours, theirs),
    theirs.map(({ row }) => row),
    scene,
  );
  const isInside = (time: number) => time >= window.from && time < window.to;
  const records = new Map(judgement.records.map((record) => [record.record, record]));
  const insideTheirs = near.theirs.filter(({ row }) => isInside(row.at));
  const insideRows = new Set(insideTheirs.map(({ row }) => row.identity));
  // One that is outside can have its row inside by its id: then it is decided here.
  const isDecided = ({ own, request }: Ours) => {
    const { how = null, row = null } = records.get(request.id) ?? {};
    return !request.running && (isInside(own) || (how === "id" && row !== null && insideRows.has(row)));
  };
  const inside = { theirs: insideTheirs, ours: ours.filter(isDecided) };
  const rows = new Map(judgement.rows.map((row) => [row.identity, row]));
  learnFromRows(db, gateway, inside.theirs, rows, ours);
  const known = missingIsKnown(db, gateway, means.skew);
  const kinds = new Map(theirs.map(({ row }) => [row.identity, row.kind]));

  writeRowVerdicts(
    db,
    gateway,
    inside.theirs.flatMap(({ row, judged }) => {
      const next = rows.get(row.identity);
      return next !== undefined && isOtherRow(judged, next) ? [next] : [];
    }),
  );
  const news = inside.ours.flatMap((one): NewVerdict[] => {
    const judged = known(one, records.get(one.request.id) ?? null);
    if (!isOtherRecord(one.verdict, judged)) return [];
    const hasTokens = judged?.row != null && kinds.get(judged.row) === "use";
    return [{ id: one.request.id, judged, hasTokens }];
  });
  return writeRecordVerdicts(db, gateway, news, means.priceOf);
}

function isOtherRow(before: Their["judged"], after: JudgedRow): boolean {
  const values = judgedValues(before);
  return judgedValues(after).some((value, at) => value !== values[at]);
}

function isOtherRecord(before: Ours["verdict"], after: JudgedRecord | null): boolean {
  if (before === null || after === null) return (before === null) !== (after === null);
  const values = [after.verdict, after.how, after.row, after.reason, theirsText(after)];
  return values.some((value, at) => value !== (before[at] ?? null));
}

function sceneOf(db: Database.Database, gateway: string, means: JudgingMeans): Scene {
  const held = heldTimes(db, gateway);
  const kept = answerOf(db, `SELECT value FROM log.facts WHERE name = '${KEPT_FROM}'`);
  return {
    now: means.now,
    held: (key) => held.get(key) ?? null,
    kept_from: Number(kept ?? 0),
    unwatched: means.unwatched ?? [],
    hands_out_ids: handsOutIds(db, gateway) !== null,
    ids_are_own: means.idsAreOwn,
  };
}

/** An id in an error text, or one that any server in between can set, does not show that every answer carries the row's. */
const NO_PROOF = ["error", "x-request-id"];

function learnIds(
  db: Database.Database,
  gateway: string,
  ours: readonly Ours[],
  idNames: readonly string[],
): void {
  if (handsOutIds(db, gateway) !== null) return;
  const names = idNames.filter((name) => !NO_PROOF.includes(name));
  const name = names.find((one) => ours.some(({ gateway_ids }) => gateway_ids[one] !== undefined));
  if (name === undefined) return;
  writeFact(db, gateway, "hands_out_ids", name);
  const first = db
    .prepare("SELECT min(created_at) FROM log.console_rows WHERE gateway = ? AND verdict = 'foreign'")
    .raw();
  const from = numberIn(first.get(gateway));
  // What was only suspected is certain now.
  if (from !== null) judgeRowsAgain(db, gateway, from);
}

function learnFromRows(
  db: Database.Database,
  gateway: string,
  theirs: readonly Their[],
  judged: ReadonlyMap<string, JudgedRow>,
  ours: readonly Ours[],
): void {
  const keys = new Map(ours.map(({ request }) => [request.id, request.key]));
  const learnt = new Map<string, Set<string>>();
  for (const { row } of theirs) {
    const { how, record } = judged.get(row.identity) ?? { how: null, record: null };
    const key = how === "id" && record !== null ? (keys.get(record) ?? null) : null;
    if (key === null || row.key_ref === null || row.key === key) continue;
    learnt.set(row.key_ref, (learnt.get(row.key_ref) ?? new Set()).add(key));
  }
  if (learnt.size > 0) learnKeys(db, gateway, learnt);
}

/** The earliest of what is not decided yet, and when the next of it is due. */
function pendingIn(
  db: Database.Database,
  gateway: string,
  { now, skew }: JudgingMeans,
): { readonly earliest: number; readonly due: number | null } {
  const row = db
    .prepare(
      "SELECT min(created_at) FROM log.console_rows WHERE gateway = ? AND verdict = 'pending' AND created_at > ?",
    )
    .raw();
  const record = db
    .prepare(
      `SELECT min(coalesce(r.ended_at, r.started_at)) FROM log.verdicts v JOIN log.records r ON r.id = v.record
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
