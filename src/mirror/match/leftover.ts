import type { JudgedRecord, JudgedRow, RowVerdict } from "../verdict.ts";
import { grouped } from "./grouped.ts";
import { EARLY_MS, LATE_MS } from "./presumed.ts";
import {
  FOREIGN_AFTER_MS,
  type HeldTime,
  MISSING_AFTER_MS,
  type OurRequest,
  type Scene,
  type TheirRow,
} from "./scene.ts";
import { contradict, isModelOf, type Left, placeOf, type Unit } from "./units.ts";

/** A row that is further ahead of us than this is not young: a clock is wrong, and waiting for it would not end. */
const AHEAD_MS = 86_400_000;

interface Finding {
  readonly verdict: RowVerdict;
  readonly reason: string;
}

/** What is said of rows that no record of ours claims. */
export function judgeLeftRows(
  { units, records }: Left,
  running: readonly OurRequest[],
  scene: Scene,
): JudgedRow[] {
  const runningByKey = grouped(running, ({ key }) => key);
  const unnamedByKey = grouped(
    records.filter((record) => isUnnamed(record, scene)),
    ({ key }) => key,
  );
  return units.flatMap((unit) => {
    const finding = findingOf(unit, runningByKey.get(unit.key) ?? [], scene);
    const doubt = (unnamedByKey.get(unit.key) ?? []).some(
      (record) => Math.abs(placeOf(record) - unit.main.at) <= LATE_MS,
    );
    return unit.rows.map((row): JudgedRow => {
      const main = row === unit.main;
      const foreign = finding.verdict === "foreign";
      const said = main || !foreign ? finding : COMPANION;
      // A refund uses no key: what it pays back has a row of its own.
      const certain =
        main && foreign && scene.hands_out_ids && !doubt && row.request_id !== null && row.kind !== "refund";
      return { identity: row.identity, how: null, certain, record: null, key: unit.key, ...said };
    });
  });
}

/**
 * Answered to its end, and without an id that the console lists: at that time the gateway, or something before it, did not
 * hand them out, or handed out another gateway's. Then an id that nobody here knows proves nothing.
 */
function isUnnamed({ expected, running, ids }: OurRequest, { ids_are_own }: Scene): boolean {
  return expected && !running && (ids.length === 0 || !ids_are_own);
}

const COMPANION: Finding = {
  verdict: "companion",
  reason: "another row of the same request, which is foreign",
};

function findingOf(unit: Unit, running: readonly OurRequest[], scene: Scene): Finding {
  const { main, key } = unit;
  if (key === null) return unwatched("whose key it was billed to cannot be seen here");
  const held = scene.held(key);
  if (held === null) return unwatched("its key was never held here");
  const unseen = notWatched(main, held, scene);
  if (unseen !== null) return unseen;
  if (main.at > scene.now + AHEAD_MS) {
    return unwatched("it is more than a day ahead of this machine's clock: one of the clocks is wrong");
  }
  if (running.some((record) => couldOwn(record, unit, scene))) {
    return { verdict: "pending", reason: "a request with this key still runs, and it may be its own" };
  }
  if (scene.now - main.at < FOREIGN_AFTER_MS) {
    return { verdict: "pending", reason: "it is too young to be called foreign" };
  }
  return { verdict: "foreign", reason: foreignReason(main, held, scene) };
}

function notWatched(row: TheirRow, { since, until, replaced }: HeldTime, scene: Scene): Finding | null {
  // Ours is recorded when it begins, so it is the beginning that must have been watched.
  const began = row.at - (row.duration_ms ?? 0);
  if (began < since) return { verdict: "before", reason: "it is from before this key was held here" };
  if (until !== null && row.at > until && !replaced) return unwatched("its key is no longer held here");
  if (began < scene.kept_from) return unwatched("it is older than what the usage log keeps");
  if (scene.unwatched.some(({ from, to }) => began - EARLY_MS <= to && row.at + EARLY_MS >= from)) {
    return unwatched("something of ours may not have been recorded at that time");
  }
  return null;
}

function unwatched(reason: string): Finding {
  return { verdict: "unwatched", reason };
}

function couldOwn(record: OurRequest, unit: Unit, { ids_are_own, hands_out_ids }: Scene): boolean {
  // A socket holds requests that nobody was told an id of.
  if (record.upgraded && hands_out_ids && ids_are_own && unit.main.request_id !== null) return false;
  if (!record.billable || record.started_at >= unit.main.at + EARLY_MS) return false;
  if (contradict(record, unit, ids_are_own)) return false;
  const unknown = unit.main.model === null || (record.model ?? record.model_answered) === null;
  return unknown || record.upgraded || isModelOf(record, unit.main.model);
}

function foreignReason({ request_id, at }: TheirRow, { until }: HeldTime, { hands_out_ids }: Scene): string {
  const old = until !== null && at > until ? "the key was replaced here, and still is used: " : "";
  if (hands_out_ids && request_id !== null) return `${old}no request that passed here has this id`;
  return `${old}no request that passed here fits it; without ids this is a suspicion`;
}

/** What is said of records that no row was found for. */
export function judgeLeftRecords(records: readonly OurRequest[], { now }: Scene): JudgedRecord[] {
  return records.flatMap((record): JudgedRecord[] => {
    // A WebSocket may hold no billed request at all.
    if (!record.expected || record.running || record.upgraded) return [];
    const young = now - placeOf(record) <= MISSING_AFTER_MS;
    return [
      {
        record: record.id,
        verdict: young ? "pending" : "missing",
        how: null,
        row: null,
        reason: young
          ? "the console does not list it yet"
          : "the console does not list it, and should: a row that was dropped, or logging that is off",
        theirs: null,
      },
    ];
  });
}
