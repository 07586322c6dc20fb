import type { JudgedRecord, JudgedRow, RowVerdict } from "../verdict.ts";
import { differencesOf, otherModel, saysTheSame, theirsOf } from "./compare.ts";
import type { Context, Judgement, OurRequest, TheirRow } from "./context.ts";
import { matchIds } from "./ids.ts";
import { judgeLeftRecords, judgeLeftRows } from "./leftover.ts";
import { matchPairs } from "./pairs.ts";
import { findUnlisted, matchPresumed } from "./presumed.ts";
import { matchSums } from "./sums.ts";
import { earlierRecord, type Left, type Match, unitsOf } from "./units.ts";
import { matchUpgraded } from "./upgraded.ts";

/**
 * Compares our log with a console's: every row gets a verdict, and every record that has a row or should have one. The
 * same two lists give the same verdicts, in whatever order they come. Each tier sees only what the one before it left.
 */
export function reconcile(
  ours: readonly OurRequest[],
  theirs: readonly TheirRow[],
  context: Context,
): Judgement {
  const all: Left = { records: [...ours].sort(earlierRecord), units: unitsOf(theirs) };
  const byId = matchIds(all);
  const byPair = matchPairs(byId.left, context);
  const bySum = matchSums(byPair.left);
  const presumed = matchPresumed(bySum.left, context);
  const upgraded = matchUpgraded(presumed.left, context);
  const matches = [byId, byPair, bySum, presumed, upgraded].flatMap((tier) => tier.matches);
  const running = ours.filter((record) => record.running);
  const presumedRecords = presumed.matches.map(({ record }) => record);
  const found = judgeMatches(matches);
  return {
    rows: found.rows.concat(judgeLeftRows(upgraded.left, running, presumedRecords, context)),
    records: found.records.concat(judgeLeftRecords(upgraded.left.records, context)),
  };
}

/** See findUnlisted. Rows that belong to a record by their id are none of those. */
export function unlistedIn(
  ours: readonly OurRequest[],
  theirs: readonly TheirRow[],
  context: Pick<Context, "start" | "bills_failures">,
): Set<string> {
  const { left } = matchIds({ records: [...ours].sort(earlierRecord), units: unitsOf(theirs) });
  return findUnlisted(left.records, left.units, context);
}

function judgeMatches(matches: readonly Match[]): { rows: JudgedRow[]; records: JudgedRecord[] } {
  const rows: JudgedRow[] = [];
  const records: JudgedRecord[] = [];
  for (const match of matches) {
    const said = sayingOf(match);
    for (const row of match.unit.rows) rows.push(judgeRow(row, match, said));
    if (!match.record.running) records.push(judgeRecord(match, said));
  }
  return { rows, records };
}

interface Saying {
  readonly verdict: "matched" | "differs";
  readonly reason: string;
}

function judgeRow(row: TheirRow, { record, unit, how }: Match, said: Saying): JudgedRow {
  const judged = (verdict: RowVerdict, reason: string): JudgedRow => ({
    identity: row.identity,
    verdict,
    how: verdict === "pending" ? null : how,
    certain: false,
    record: how === "sum" ? null : record.id,
    key: record.key ?? unit.key,
    reason,
  });
  if (record.running) return judged("pending", "the request with its id still runs");
  if (row === unit.main) return judged(said.verdict, said.reason);
  if (row.kind === "use" && !record.upgraded && saysTheSame(row, unit.main)) {
    return judged("duplicate", "the same request was listed twice");
  }
  return judged("companion", "another row of the same request");
}

function judgeRecord({ record, unit, how }: Match, { verdict, reason }: Saying): JudgedRecord {
  const known = how !== "sum";
  return {
    record: record.id,
    verdict,
    how,
    row: known ? unit.main.identity : null,
    reason,
    theirs: known ? theirsOf(record, unit) : null,
  };
}

function sayingOf({ record, unit, how, reason }: Match): Saying {
  // Which of them is which is not known, so nothing can be said of one of them.
  if (how === "sum") return { verdict: "matched", reason };
  const model = otherModel(record, unit);
  const found = model === null ? reason : `${reason}; ${model}`;
  const differences = differencesOf(record, unit);
  if (differences.length === 0) return { verdict: "matched", reason: found };
  return { verdict: "differs", reason: `${found}; ${differences.join("; ")}` };
}
