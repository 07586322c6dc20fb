import type { Context, Judgement, Match, OurRequest, RowGroup, TheirRow, Unmatched } from "./context.ts";
import { groupedBy, placeOf, without } from "./fit.ts";
import { judgeLeftRecords, judgeLeftRows, judgeMatches } from "./judge.ts";
import { matchPairs, matchSums } from "./pairs.ts";
import { findUnlisted, matchPresumed, matchSockets } from "./presumed.ts";

/** Each sees only what those before it left. */
const STEPS = [
  matchIds, // the gateway's id stands in both logs
  matchPairs, // no other row and record have the same key, model, tokens and time
  matchSums, // as many rows as records in an hour, with the same tokens in all
  matchPresumed, // the record never got an id, and the row began when it did
  matchSockets, // a WebSocket holds any number of requests
];

/**
 * Compares our log with a console's: every row gets a verdict, and every record that has a row or should have one. The
 * same two lists give the same verdicts, in whatever order they come.
 */
export function reconcile(
  ours: readonly OurRequest[],
  theirs: readonly TheirRow[],
  context: Context,
): Judgement {
  let unmatched = inOrder(ours, theirs);
  const matches: Match[] = [];
  for (const step of STEPS) {
    const found = step(unmatched, context);
    for (const match of found) matches.push(match);
    unmatched = without(unmatched, found);
  }
  const matched = judgeMatches(matches);
  const running = ours.filter((record) => record.running);
  const presumed = matches
    .filter(({ how, record }) => how === "presumed" && !record.upgraded)
    .map(({ record }) => record);
  return {
    rows: [...matched.rows, ...judgeLeftRows(unmatched, running, presumed, context)],
    records: [...matched.records, ...judgeLeftRecords(unmatched.records, context)],
  };
}

/** See findUnlisted. Rows that belong to a record by their id are none of those. */
export function unlistedIn(
  ours: readonly OurRequest[],
  theirs: readonly TheirRow[],
  context: Pick<Context, "start" | "bills_failures">,
): Set<string> {
  const all = inOrder(ours, theirs);
  return findUnlisted(without(all, matchIds(all)), context);
}

function inOrder(ours: readonly OurRequest[], theirs: readonly TheirRow[]): Unmatched {
  const records = ours.toSorted((a, b) => placeOf(a) - placeOf(b) || (a.id < b.id ? -1 : 1));
  const withId = theirs.filter(({ request_id }) => request_id !== null);
  const groups = [...groupedBy(withId, ({ request_id }) => request_id).values()].map(groupOf);
  for (const row of theirs) if (row.request_id === null) groups.push(groupOf([row]));
  groups.sort((a, b) => a.main.at - b.main.at || (a.main.identity < b.main.identity ? -1 : 1));
  return { records, groups };
}

function groupOf(rows: readonly TheirRow[]): RowGroup {
  const sorted = rows.length === 1 ? rows : rows.toSorted(mainFirst);
  const [main] = sorted;
  if (main === undefined) throw new Error("a request without rows");
  return { main, rows: sorted, key: sorted.find(({ key }) => key !== null)?.key ?? null };
}

const KIND_ORDER = { use: 0, error: 1, refund: 2 } as const;

/** A use, then errors, then refunds; of uses the one with most money, of the others the first. */
function mainFirst(a: TheirRow, b: TheirRow): number {
  return (
    KIND_ORDER[a.kind] - KIND_ORDER[b.kind] ||
    (a.kind === "use" ? (b.billed_microdollars ?? 0) - (a.billed_microdollars ?? 0) : a.at - b.at) ||
    (a.identity < b.identity ? -1 : 1)
  );
}

/**
 * Step 1: the id that the gateway handed out stands in both logs, however far apart in time. Some versions of new-api hand out
 * the id of the gateway behind them, which the row has too.
 */
function matchIds({ records, groups }: Unmatched): Match[] {
  const processLookup = new Map<string, OurRequest>();
  // No two requests have one id. Where they seem to, it belongs to the one that ended first.
  const ended = records.filter(({ ended_at }) => ended_at !== null);
  const others = records.filter(({ ended_at }) => ended_at === null);
  for (const record of [...ended, ...others].toReversed()) {
    for (const id of record.ids) processLookup.set(id, record);
  }
  const found = new Map<OurRequest, { readonly own: TheirRow[]; readonly behind: TheirRow[] }>();
  for (const { main, rows } of groups) {
    const owner = processLookup.get(main.request_id ?? "");
    const upstream = rows.find(({ upstream_id }) => upstream_id !== null && processLookup.has(upstream_id));
    const record = owner ?? processLookup.get(upstream?.upstream_id ?? "");
    if (record === undefined) continue;
    const parts = found.get(record) ?? { own: [], behind: [] };
    found.set(record, parts);
    for (const row of rows) parts[owner === undefined ? "behind" : "own"].push(row);
  }
  return [...found].map(([record, { own, behind }]): Match => {
    if (own.length === 0)
      return { record, group: groupOf(behind), how: "id", reason: "the same id, of the gateway behind" };
    const group = groupOf(own);
    // What has the record's own id tells its tokens.
    const rows = [...group.rows, ...behind];
    return { record, group: { ...group, rows }, how: "id", reason: "the same request id" };
  });
}
