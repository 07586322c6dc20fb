import { DAY_MS, exact, exactDollars, MINUTE_MS } from "../../core/units.ts";
import {
  type JudgedRecord,
  type JudgedRow,
  REASONS,
  type RowVerdict,
  reasonWith,
  type Theirs,
} from "../verdict.ts";
import { groupedBy, Timeline, without } from "./candidates.ts";
import {
  type Context,
  FOREIGN_AFTER_MS,
  type HeldTime,
  type Judgement,
  type Match,
  MISSING_AFTER_MS,
  type OurRequest,
  type RepeatedId,
  type RowGroup,
  type StartFit,
  type TheirRow,
  type Unmatched,
} from "./context.ts";
import {
  beganInFlight,
  beganWith,
  endOf,
  hasModel,
  hasOtherKey,
  hasOtherUserAgent,
  idsContradict,
  isSameCall,
  mayBeOfSocket,
  mayHaveBegun,
  timeOfRow,
  tokensOfRow,
  wasAnswered,
  wholeInput,
} from "./fit.ts";
import { matchIds, matchPairs, matchSums, sortByTime } from "./match.ts";
import {
  type FitContext,
  findUnanswered,
  findWithRow,
  hasOtherAddress,
  matchPresumed,
  matchSockets,
  mayTake,
  type Unanswered,
} from "./presumed.ts";
import { blindSiblings, cannotSee, mayHaveSent } from "./siblings.ts";

/** Each step sees only what the steps before it left. */
const STEPS = [
  matchIds, // both logs have the gateway's id
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
  const all = sortByTime(ours, theirs);
  // Nobody's here, whatever else they have in common with a request.
  const repeated = all.groups.filter(({ repeats }) => repeats !== null);
  let unmatched: Unmatched = { ...all, groups: all.groups.filter(({ repeats }) => repeats === null) };
  const matches: Match[] = [];
  const presumed: OurRequest[] = [];
  for (const step of STEPS) {
    const found = step(unmatched, context);
    for (const match of found) {
      matches.push(match);
      if (step === matchPresumed) presumed.push(match.record);
    }
    unmatched = without(unmatched, found);
  }
  unmatched = { ...unmatched, groups: [...unmatched.groups, ...repeated] };
  const matched = judgeMatches(matches);
  const running = ours.filter((record) => record.running);
  return {
    rows: [...matched.rows, ...judgeLeftRows(unmatched, running, presumed, context)],
    records: [...matched.records, ...judgeLeftRecords(unmatched.records, theirs, context)],
  };
}

/** See findUnanswered. Rows that match a record by id are left out. */
export function unansweredIn(
  ours: readonly OurRequest[],
  theirs: readonly TheirRow[],
  context: FitContext,
): Unanswered[] {
  const all = sortByTime(ours, theirs);
  return findUnanswered(without(all, matchIds(all)), context);
}

interface Finding<Verdict> {
  readonly verdict: Verdict;
  readonly reason: string;
}

/** The verdicts on what belongs together: matched, or differs in tokens or money. */
function judgeMatches(matches: readonly Match[]): Judgement {
  const rows: JudgedRow[] = [];
  const records: JudgedRecord[] = [];
  for (const match of matches) {
    const finding = matchFinding(match);
    for (const row of match.group.rows) rows.push(judgeRow(row, match, finding));
    if (!match.record.running) records.push(judgeRecord(match, finding));
  }
  return { rows, records };
}

function matchFinding({ record, group: { main }, how, reason }: Match): Finding<"matched" | "differs"> {
  // Which row belongs to which record is unknown.
  if (how === "sum") return { verdict: "matched", reason };
  const differences = [...tokenDifferences(record, main), ...moneyDifferences(main)];
  return {
    verdict: differences.length === 0 ? "matched" : "differs",
    reason: [reason, ...otherModel(record, main), ...differences].join("; "),
  };
}

function judgeRow(row: TheirRow, { record, group, how }: Match, finding: Finding<RowVerdict>): JudgedRow {
  const judged = (verdict: RowVerdict, reason: string): JudgedRow => ({
    identity: row.identity,
    verdict,
    how: verdict === "pending" ? null : how,
    certain: false,
    record: how === "sum" ? null : record.id,
    key: record.key ?? group.key,
    reason,
  });
  if (record.running) return judged("pending", REASONS["still-runs"]);
  if (row === group.main) return judged(finding.verdict, finding.reason);
  if (row.kind === "use" && !record.upgraded && isSameUse(row, group.main)) {
    return judged("duplicate", REASONS["listed-twice"]);
  }
  return judged("companion", REASONS["same-request"]);
}

function judgeRecord(
  { record, group, how }: Match,
  { verdict, reason }: Finding<"matched" | "differs">,
): JudgedRecord {
  const isKnown = how !== "sum";
  return {
    record: record.id,
    verdict,
    how,
    row: isKnown ? group.main.identity : null,
    reason,
    theirs: isKnown ? sumTheirs(record, group) : null,
  };
}

function isSameUse(a: TheirRow, b: TheirRow): boolean {
  return (
    a.input_tokens === b.input_tokens &&
    a.cache_read_tokens === b.cache_read_tokens &&
    a.cache_write_tokens === b.cache_write_tokens &&
    a.output_tokens === b.output_tokens &&
    a.billed_microdollars === b.billed_microdollars
  );
}

/** An operator may map models. The reason mentions it, but it is no difference. */
function otherModel(record: OurRequest, { model }: TheirRow): string[] {
  const asked = record.model ?? record.model_answered;
  if (model === null || asked === null || hasModel(record, model)) return [];
  return [reasonWith("other-model", { model, asked })];
}

function tokenDifferences({ tokens, exact: isExact, upgraded }: OurRequest, main: TheirRow): string[] {
  if (tokens === null || !isExact || upgraded || main.kind !== "use") return [];
  const theirs = tokensOfRow(main);
  if (theirs === null) return [];
  const differences: string[] = [];
  const compare = (name: keyof typeof REASONS, here: number, there: number) => {
    if (here !== there) differences.push(reasonWith(name, { here: exact(here), there: exact(there) }));
  };
  if (theirs.cache === null) {
    compare("tokens.input-with-cache", wholeInput(tokens), theirs.input);
  } else {
    compare("tokens.input", tokens.input, theirs.input);
    compare("tokens.cache-read", tokens.cache_read, theirs.cache.read);
    compare("tokens.cache-write", tokens.cache_write, theirs.cache.write);
  }
  compare("tokens.output", tokens.output, theirs.output);
  return differences;
}

/** Differences this small are rounding: consoles compute in floats, or in units of two micro-dollars. */
const SAME_MICRODOLLARS = 2;
const SAME_SHARE = 0.001;

/** What its own list price and multiplier come to, where something else was billed; null: it fits, or is not known. */
export function otherwiseDue(row: Price): number | null {
  const { list_microdollars: list, multiplier, billed_microdollars: billed } = row;
  if (list === null || multiplier === null || billed === null || row.kind !== "use") return null;
  const due = list * multiplier;
  return Math.abs(due - billed) <= Math.max(SAME_MICRODOLLARS, due * SAME_SHARE) ? null : due;
}

type Price = Pick<TheirRow, "kind" | "list_microdollars" | "multiplier" | "billed_microdollars">;

function moneyDifferences(row: TheirRow): string[] {
  const { list_microdollars: list, multiplier, billed_microdollars: billed } = row;
  const due = otherwiseDue(row);
  if (due === null) return [];
  const values = { list: exactDollars(list ?? 0), due: exactDollars(due), billed: exactDollars(billed ?? 0) };
  return [reasonWith("billed", { ...values, multiplier: String(multiplier) })];
}

/** The money of all rows. The tokens of the main row, but of a WebSocket those of all rows. Always in the same order. */
function sumTheirs({ upgraded }: OurRequest, { main, rows }: RowGroup): Theirs {
  // The zeroes in the row of a failed attempt mean nothing.
  const uses = main.kind === "use" ? rows.filter(({ kind }) => kind === "use") : [];
  const counted = upgraded ? uses : uses.slice(0, 1);
  const billed = total(rows, "billed_microdollars");
  return {
    input_tokens: total(counted, "input_tokens"),
    cache_read_tokens: total(counted, "cache_read_tokens"),
    cache_write_tokens: total(counted, "cache_write_tokens"),
    output_tokens: total(counted, "output_tokens"),
    list_microdollars: total(rows, "list_microdollars"),
    // A refund can cover more than this request. Then the request cost nothing.
    billed_microdollars: billed === null ? null : Math.max(0, billed),
    multiplier: main.multiplier,
    service_tier: main.service_tier,
  };
}

function total(
  rows: readonly TheirRow[],
  name: Exclude<keyof Theirs, "multiplier" | "service_tier">,
): number | null {
  let sum: number | null = null;
  for (const row of rows) {
    const amount = row[name];
    if (amount === null) continue;
    // Some consoles write a refund with a minus sign, others without.
    sum = (sum ?? 0) + (row.kind === "refund" ? -Math.abs(amount) : amount);
  }
  return sum;
}

/** A row further in the future than this is not young: a clock is wrong, and waiting for it would not end. */
const AHEAD_MS = DAY_MS;
/** A gap in our log may be off by the clock skew. */
const GAP_MARGIN_MS = 5000;
/** This close to a response of ours without an id, other ids prove nothing. */
const UNNAMED_MS = 10 * MINUTE_MS;

/** The verdicts on rows that no record of ours was matched with. */
function judgeLeftRows(
  { records, groups }: Unmatched,
  running: readonly OurRequest[],
  presumed: readonly OurRequest[],
  context: Context,
): JudgedRow[] {
  const runningByKey = groupedBy(running, ({ key }) => key);
  const ended = records.filter((record) => !record.running);
  const withoutOwnId = ended.filter(({ own_id, refusable }) => !own_id || refusable);
  const nearby: NearbyRecords = {
    withoutOwnId: byKeyAndTime(withoutOwnId),
    withRow: findWithRow({ records: withoutOwnId, groups }, context),
    unlisted: byStart(ended.filter(({ own_id, expected, ids }) => own_id && expected && ids.length > 0)),
    presumed: byStart(presumed),
    unsigned: byKeyAndTime(context.unsigned),
    unsignedIds: new Map(context.unsigned.flatMap((record) => record.ids.map((id) => [id, record]))),
  };
  return groups.flatMap((group) => {
    const { verdict, reason } = rowFinding(group, runningByKey.get(group.key) ?? [], context);
    const judged = { how: null, certain: false, record: null, key: group.key };
    if (verdict !== "foreign")
      return group.rows.map((row) => ({ ...judged, identity: row.identity, verdict, reason }));
    const doubt = findDoubt(group, nearby, context);
    return group.rows.map((row): JudgedRow => {
      const { identity } = row;
      if (row !== group.main)
        return { ...judged, identity, verdict: "companion", reason: REASONS["same-foreign-request"] };
      if (doubt !== null) return { ...judged, identity, verdict, reason: `${reason}; ${doubt}` };
      return { ...judged, identity, verdict, reason, certain: true };
    });
  });
}

/** The records that make a foreign row doubtful. */
interface NearbyRecords {
  /** Those that the gateway may list under an id that they do not have. */
  readonly withoutOwnId: RecordsByTime;
  /** Those of them with a row that began with them. */
  readonly withRow: ReadonlySet<OurRequest>;
  /** Those that should be listed and are not. */
  readonly unlisted: RecordsByStart;
  /** Those that took a row without an id. */
  readonly presumed: RecordsByStart;
  /** Those of other machines that are not signed, by time and by the gateway's ids. */
  readonly unsigned: RecordsByTime;
  readonly unsignedIds: ReadonlyMap<string, OurRequest>;
}

type RecordsByStart = ReadonlyMap<string | null, Timeline<OurRequest>>;

function byStart(records: readonly OurRequest[]): RecordsByStart {
  const found = new Map<string | null, Timeline<OurRequest>>();
  for (const [key, list] of groupedBy(records, (record) => record.key))
    found.set(key, new Timeline(list, ({ sent_at }) => sent_at));
  return found;
}

/** A record of the same call that was sent when the row began. */
function findSentWith(group: RowGroup, records: RecordsByStart, { start }: Context): OurRequest | null {
  const timeline = records.get(group.key);
  if (timeline === undefined || group.main.began === null) return null;
  const sent = timeOfRow(group.main, start);
  const range = timeline.between(sent - start.within, sent + start.within);
  const isOwner = (record: OurRequest) => beganWith(record, group.main, start) && isSameCall(record, group);
  return timeline.nearest(range, sent, isOwner)?.item ?? null;
}

type RecordsByTime = ReadonlyMap<string, readonly OurRequest[]>;

/** Records by key and time, in steps of UNNAMED_MS. Checking all of them for each row would take minutes. */
function byKeyAndTime(records: readonly OurRequest[]): RecordsByTime {
  const found = new Map<string, OurRequest[]>();
  for (const record of records) {
    const first = Math.floor(record.sent_at / UNNAMED_MS);
    const last = Math.floor((record.ended_at ?? record.sent_at) / UNNAMED_MS);
    for (let step = first; step <= last; step += 1) {
      const name = `${record.key} ${step}`;
      const list = found.get(name);
      if (list === undefined) found.set(name, [record]);
      else list.push(record);
    }
  }
  return found;
}

/** Yields some records twice. */
function* recordsNear({ key, main }: RowGroup, records: RecordsByTime): Generator<OurRequest> {
  const steps = new Set<number>();
  for (const time of [main.at, main.began ?? main.at]) {
    const step = Math.floor(time / UNNAMED_MS);
    for (const near of [step - 1, step, step + 1]) steps.add(near);
  }
  for (const step of steps) yield* records.get(`${key} ${step}`) ?? [];
}

function rowFinding(group: RowGroup, running: readonly OurRequest[], context: Context): Finding<RowVerdict> {
  const { main, key } = group;
  // A refund uses no key: what it pays back has a row of its own.
  if (main.kind === "refund") return { verdict: "companion", reason: REASONS.refund };
  if (key === null) return coverageGap(REASONS["key-unknown"]);
  const held = context.held(key);
  if (held === null) return coverageGap(REASONS["never-held"]);
  const uncovered = findUncovered(main, held, context);
  if (uncovered !== null) return uncovered;
  if (main.at > context.now + AHEAD_MS) return coverageGap(REASONS.ahead);
  if (running.some((record) => couldOwn(record, group, context)))
    return { verdict: "pending", reason: REASONS["may-run"] };
  if (context.now - main.at < FOREIGN_AFTER_MS) return { verdict: "pending", reason: REASONS["too-recent"] };
  const blind = blindSiblings(key, startOf(main), context.siblings);
  if (blind.length > 0) return coverageGap(cannotSee(blind));
  const old = held.until !== null && main.at > held.until ? `${REASONS.rotated}: ` : "";
  if (group.repeats !== null)
    return { verdict: "foreign", reason: `${old}${repeatedId(group.repeats, main)}` };
  const isOtherId = context.hands_out_ids && main.request_id !== null;
  return {
    verdict: "foreign",
    reason: `${old}${isOtherId ? REASONS["no-such-id"] : REASONS["none-fits"]}`,
  };
}

function repeatedId({ record }: RepeatedId, row: TheirRow): string {
  if (hasOtherKey(record, row)) return reasonWith("other-key", { request: record.id });
  return reasonWith("other-time", { request: record.id });
}

/** Why a row that repeats an id is only suspected; null: it is certain. */
function findDoubtOfRepeat({ record, isListed }: RepeatedId, row: TheirRow): string | null {
  if (hasOtherKey(record, row)) return null;
  if (!isListed) return REASONS["own-row-missing"];
  if (beganInFlight(record, row)) return REASONS["began-soon"];
  if (!wasAnswered(record)) return REASONS["no-whole-answer"];
  return null;
}

function findUncovered(
  row: TheirRow,
  { since, until, replaced }: HeldTime,
  context: Context,
): Finding<RowVerdict> | null {
  // Our requests are recorded when they begin, so the row's start must be covered.
  const began = startOf(row);
  if (began < since) return { verdict: "before", reason: REASONS["before-held"] };
  if (until !== null && row.at > until && !replaced) return coverageGap(REASONS["not-held"]);
  if (began < context.kept_from) return coverageGap(REASONS["before-log"]);
  const isInGap = context.log_gaps.some(
    ({ from, to }) => began - GAP_MARGIN_MS <= to && row.at + GAP_MARGIN_MS >= from,
  );
  return isInGap ? coverageGap(REASONS["log-gap"]) : null;
}

/** When a row's request began. Where the console does not say it: when it ended, which is later. */
function startOf({ began, at, duration_ms }: TheirRow): number {
  return began ?? at - (duration_ms ?? 0);
}

function coverageGap(reason: string): Finding<RowVerdict> {
  return { verdict: "unwatched", reason };
}

function couldOwn(record: OurRequest, group: RowGroup, context: Context): boolean {
  if (!record.billable || !mayHaveBegun(record, group.main, context.start)) return false;
  if (record.upgraded) return mayBeOfSocket(group, context);
  return isSameCall(record, group) && !idsContradict(record, group);
}

/** A record that would explain the row, if it were signed. */
function findUnsigned(
  group: RowGroup,
  { unsigned, unsignedIds }: NearbyRecords,
  context: Context,
): OurRequest | null {
  for (const { request_id, upstream_id } of group.rows) {
    const record = unsignedIds.get(request_id ?? "") ?? unsignedIds.get(upstream_id ?? "");
    if (record !== undefined) return record;
  }
  for (const record of recordsNear(group, unsigned)) if (couldOwn(record, group, context)) return record;
  return null;
}

/** Why a foreign row is only suspected; null: it is certain. */
function findDoubt(group: RowGroup, nearby: NearbyRecords, context: Context): string | null {
  const { main } = group;
  const { start } = context;
  if (group.repeats !== null) return findDoubtOfRepeat(group.repeats, main);
  const unsigned = findUnsigned(group, nearby, context);
  if (unsigned !== null) return `${REASONS.unsigned}: ${reasonWith("of-machine", { request: unsigned.id })}`;
  const senders = mayHaveSent(group.key, startOf(main), context.siblings);
  const sender = senders.find(({ isVerified }) => !isVerified);
  if (sender !== undefined)
    return `${REASONS.unsigned}: ${reasonWith("machine-has-key", { machine: sender.name })}`;
  if (!context.hands_out_ids || main.request_id === null) return REASONS["no-ids"];
  const [stopped] = senders;
  if (stopped !== undefined) return reasonWith("machine-stopped", { machine: stopped.name });
  const address = hasOtherAddress(main, context)
    ? ` (${reasonWith("other-address", { address: main.ip ?? "" })})`
    : "";
  for (const record of recordsNear(group, nearby.withoutOwnId)) {
    if (hasOtherUserAgent(record, main)) continue;
    // The cheap tests come first: thousands of records can be near a row.
    const mayOwn = mayTake(record, main.kind, context) && mayHaveBegunAtAll(record, main, start);
    // Where a row began with the record, one that began later than any is another request's.
    const latest = record.sent_at + record.clock_error + start.latest;
    const isLater = main.began !== null && timeOfRow(main, start) > latest;
    const hasOther = isLater && nearby.withRow.has(record);
    if (mayOwn && !hasOther && isSameCall(record, group))
      return `${reasonWith("may-be", { request: record.id })}${address}`;
    // The gateway, or something in front of it, does not always send ids.
    if (record.expected && Math.abs(endOf(record) - main.at) <= UNNAMED_MS)
      return reasonWith("answered-without-id", { request: record.id });
  }
  // Some channels of new-api v0.13.2 send the id of the gateway behind them.
  const unlisted = findSentWith(group, nearby.unlisted, context);
  if (unlisted !== null) return reasonWith("other-id", { request: unlisted.id });
  // The record took another row. That choice may have been wrong.
  const presumed = findSentWith(group, nearby.presumed, context);
  if (presumed !== null) return reasonWith("exchanged", { request: presumed.id });
  return null;
}

/** What was learned while the gateway was overloaded, or was not, may be wrong for this request. */
function mayHaveBegunAtAll(record: OurRequest, row: TheirRow, start: StartFit): boolean {
  return mayHaveBegun(record, row, start) || mayHaveBegun(record, row, { ...start, later: 0 });
}

/** The verdicts on records that no row was found for. */
function judgeLeftRecords(
  records: readonly OurRequest[],
  theirs: readonly TheirRow[],
  { now }: Context,
): JudgedRecord[] {
  const listed = new Set(theirs.map(({ identity }) => identity));
  // A WebSocket may hold no billed request at all.
  const listable = records.filter(({ expected, running, upgraded }) => expected && !running && !upgraded);
  return listable.map((record): JudgedRecord => {
    const judged = { record: record.id, how: null, row: null, theirs: null };
    if (now - endOf(record) <= MISSING_AFTER_MS)
      return { ...judged, verdict: "pending", reason: REASONS["not-listed-yet"] };
    const reason = record.ids.some((id) => listed.has(id)) ? REASONS["repeated-id"] : REASONS["not-listed"];
    return { ...judged, verdict: "missing", reason };
  });
}
