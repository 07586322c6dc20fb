import type { JudgedRecord, JudgedRow, RowVerdict } from "../verdict.ts";
import {
  type Context,
  FOREIGN_AFTER_MS,
  type HeldTime,
  MISSING_AFTER_MS,
  type OurRequest,
  type TheirRow,
} from "./context.ts";
import { grouped } from "./grouped.ts";
import { isAlike, mayTake } from "./presumed.ts";
import { beganWith, mayHaveBegun } from "./start.ts";
import { agree, rowTokens } from "./tokens.ts";
import { contradict, isModelOf, type Left, placeOf, type Unit } from "./units.ts";

/** A row that is further ahead of us than this is not young: a clock is wrong, and waiting for it would not end. */
const AHEAD_MS = 86_400_000;
/** A gap in our log may be off by the difference between the clocks. */
const GAP_MARGIN_MS = 5000;
/** So long after a request of ours without an id, other ids prove nothing either. */
const UNNAMED_MS = 10 * 60_000;

interface Finding {
  readonly verdict: RowVerdict;
  readonly reason: string;
}

/** The verdicts on rows that no record of ours was matched with. */
export function judgeLeftRows(
  { units, records }: Left,
  running: readonly OurRequest[],
  presumed: readonly OurRequest[],
  context: Context,
): JudgedRow[] {
  const presumedNear = byKeyAndTime(presumed);
  const runningByKey = grouped(running, ({ key }) => key);
  const ended = byKeyAndTime(records.filter((record) => !record.running));
  return units.flatMap((unit) => {
    const finding = findingOf(unit, runningByKey.get(unit.key) ?? [], context);
    if (finding.verdict !== "foreign") return unit.rows.map((row) => judged(row, unit, finding, false));
    const doubt =
      doubtOf(unit, recordsNear(unit, ended), context) ??
      presumedDoubt(unit, recordsNear(unit, presumedNear), context);
    return unit.rows.map((row) => {
      if (row !== unit.main) return judged(row, unit, COMPANION, false);
      const reason = doubt === null ? finding.reason : `${finding.reason}; ${doubt}`;
      return judged(row, unit, { ...finding, reason }, doubt === null);
    });
  });
}

/** Names of a key and a time, in steps of UNNAMED_MS: a search through all records for each row would take minutes. */
function byKeyAndTime(records: readonly OurRequest[]): Map<string, OurRequest[]> {
  const found = new Map<string, OurRequest[]>();
  for (const record of records) {
    const last = Math.floor(placeOf(record) / UNNAMED_MS);
    for (let step = Math.floor(record.sent_at / UNNAMED_MS); step <= last; step += 1) {
      const name = `${record.key} ${step}`;
      const list = found.get(name);
      if (list === undefined) found.set(name, [record]);
      else list.push(record);
    }
  }
  return found;
}

function recordsNear({ key, main }: Unit, records: ReadonlyMap<string, OurRequest[]>): OurRequest[] {
  const steps = new Set<number>();
  for (const time of [main.at, main.began ?? main.at]) {
    const step = Math.floor(time / UNNAMED_MS);
    for (const near of [step - 1, step, step + 1]) steps.add(near);
  }
  return [...new Set([...steps].flatMap((step) => records.get(`${key} ${step}`) ?? []))];
}

function judged(row: TheirRow, { key }: Unit, finding: Finding, certain: boolean): JudgedRow {
  return { identity: row.identity, how: null, certain, record: null, key, ...finding };
}

const COMPANION: Finding = {
  verdict: "companion",
  reason: "another row of the same request, which is foreign",
};

/** Why a foreign row is only suspected; null: it is certain. */
function doubtOf(unit: Unit, records: readonly OurRequest[], context: Context): string | null {
  const { main } = unit;
  if (!context.hands_out_ids || main.request_id === null) return "without ids this is a suspicion";
  for (const record of records) {
    if (
      mayTake(record, main.kind, context) &&
      isAlike(record, unit) &&
      mayHaveBegun(record, main, context.start)
    )
      return `it may be request ${record.id}, which got no id: they cannot be told apart`;
    if (isUnnamed(record) && Math.abs(placeOf(record) - main.at) <= UNNAMED_MS)
      return `request ${record.id} was answered without an id at that time, so that ids prove nothing`;
    if (isRenamed(record, unit, context))
      return `request ${record.id} began with it and is not listed: the gateway may have handed out another id`;
  }
  return null;
}

/** A record that took another row, and might have taken this one: the choice may have been wrong. */
function presumedDoubt(unit: Unit, presumed: readonly OurRequest[], { start }: Context): string | null {
  const other = presumed.find((record) => isAlike(record, unit) && beganWith(record, unit.main, start));
  if (other === undefined) return null;
  return `it began with request ${other.id}, which got no id and took another row: they may be exchanged`;
}

/** Answered to its end, without an id that the console lists: the gateway, or something before it, hands out none. */
function isUnnamed({ expected, own_id }: OurRequest): boolean {
  return expected && !own_id;
}

/**
 * A request with an id that the console should list and does not, and a row that began with it: some channels of a gateway
 * may hand out the ids of the gateway behind them.
 */
function isRenamed(record: OurRequest, { main }: Unit, { start }: Context): boolean {
  if (!record.expected || record.ids.length === 0 || !isModelOf(record, main.model)) return false;
  const theirs = rowTokens(main);
  const areTokensKnown = record.exact && record.tokens !== null && theirs !== null;
  if (areTokensKnown && !agree(record.tokens, theirs)) return false;
  return beganWith(record, main, start);
}

function findingOf(unit: Unit, running: readonly OurRequest[], context: Context): Finding {
  const { main, key } = unit;
  // A refund uses no key: what it pays back has a row of its own.
  if (main.kind === "refund")
    return { verdict: "companion", reason: "a refund of a request that is not listed" };
  if (key === null) return unwatched("whose key it was billed to cannot be seen here");
  const held = context.held(key);
  if (held === null) return unwatched("its key was never held here");
  const unseen = notWatched(main, held, context);
  if (unseen !== null) return unseen;
  if (main.at > context.now + AHEAD_MS) {
    return unwatched("it is more than a day ahead of this machine's clock: one of the clocks is wrong");
  }
  if (running.some((record) => couldOwn(record, unit, context))) {
    return { verdict: "pending", reason: "a request with this key still runs, and it may be its own" };
  }
  if (context.now - main.at < FOREIGN_AFTER_MS) {
    return { verdict: "pending", reason: "it is too young to be called foreign" };
  }
  return { verdict: "foreign", reason: foreignReason(main, held, context) };
}

function notWatched(row: TheirRow, { since, until, replaced }: HeldTime, context: Context): Finding | null {
  // Ours is recorded when it begins, so it is the beginning that must have been watched.
  const began = row.began ?? row.at - (row.duration_ms ?? 0);
  if (began < since) return { verdict: "before", reason: "it is from before this key was held here" };
  if (until !== null && row.at > until && !replaced) return unwatched("its key is no longer held here");
  if (began < context.kept_from) return unwatched("it is older than what the usage log keeps");
  const isInGap = context.unwatched.some(
    ({ from, to }) => began - GAP_MARGIN_MS <= to && row.at + GAP_MARGIN_MS >= from,
  );
  return isInGap ? unwatched("something of ours may not have been recorded at that time") : null;
}

function unwatched(reason: string): Finding {
  return { verdict: "unwatched", reason };
}

function couldOwn(record: OurRequest, unit: Unit, context: Context): boolean {
  const { main } = unit;
  const isAnswered = context.hands_out_ids && !context.socket_rows_have_ids && main.request_id !== null;
  if (record.upgraded && isAnswered) return false;
  if (!record.billable || contradict(record, unit)) return false;
  if (!mayHaveBegun(record, main, context.start)) return false;
  const unknown = main.model === null || (record.model ?? record.model_answered) === null;
  return unknown || record.upgraded || isModelOf(record, main.model);
}

function foreignReason(
  { request_id, at }: TheirRow,
  { until }: HeldTime,
  { hands_out_ids }: Context,
): string {
  const old = until !== null && at > until ? "the key was replaced here, and still is used: " : "";
  if (hands_out_ids && request_id !== null) return `${old}no request that passed here has this id`;
  return `${old}no request that passed here fits it`;
}

/** The verdicts on records that no row was found for. */
export function judgeLeftRecords(records: readonly OurRequest[], { now }: Context): JudgedRecord[] {
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
