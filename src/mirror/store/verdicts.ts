import type Database from "libsql";
import { pick } from "../../core/pick.ts";
import { transact } from "../../usage/index/database.ts";
import { COLUMN_NAMES, recordOfRow, type UsageRecord } from "../../usage/record.ts";
import { FOREIGN_AFTER_MS, type StartFit } from "../reconcile/context.ts";
import type { How, JudgedRecord, JudgedRow, RecordVerdict, ShownVerdict, Theirs } from "../verdict.ts";
import { type AbortedBill, noteAbortedBills, noteUnanswered, type UnansweredBill } from "./aborted-bills.ts";
import {
  type Amendment,
  buildAmendment,
  type FindPrice,
  TAKEN,
  withoutTheirs,
  withTheirs,
} from "./amendments.ts";
import { touchFrom, touchRows } from "./changed-days.ts";
import { writeFact } from "./facts.ts";
import { learnKeys } from "./keys.ts";
import { execute, IN_LIST, queryAll, queryNumber, queryRows, type Value } from "./query.ts";
import { ROW_VERDICT_FIELDS } from "./rows.ts";

/* Stores what the comparison of a day found, and gives records the console's numbers. */

export type VerdictTally = Readonly<Partial<Record<ShownVerdict, number>>>;

/** What the comparison of one day found that is not stored yet. */
export interface DayChanges {
  /** If not null, this must be stored first, and the day compared again. */
  readonly learned: Learned | null;
  readonly rows: readonly JudgedRow[];
  readonly records: readonly NewVerdict[];
  /** How many of the rows get another verdict than they had. */
  readonly judged: VerdictTally;
  /** Times on other days, by our clock, that must be compared again. */
  readonly elsewhere: readonly number[];
  /** null: nothing new was learned about it. */
  readonly start: StartFit | null;
  /** What the day's rows show about streams that the client ended, and about requests that got no answer. */
  readonly aborted: readonly AbortedBill[];
  readonly unanswered: readonly UnansweredBill[];
  /** Whether the console lists the user agents that our clients sent; null: nothing new was learned about it. */
  readonly userAgents: boolean | null;
}

/**
 * Which ids are the gateway's own: since when, by the id's name and the kind of response. It depends on the gateway's
 * version: new-api v0.13.2 sends its own ids with streams and errors, and those of the gateway behind it with plain responses.
 * LiteLLM takes the ids that requests bring.
 */
export type OwnIds = Readonly<Record<string, number>>;

/** How the names of ids that requests bring end in OwnIds. */
export const FROM_HERE = " from here";

/** What matches by id show. */
export interface Learned {
  readonly ownIds: OwnIds;
  /** Since when an id is newly known to be own; null: no id is. */
  readonly ownFrom: number | null;
  /** Which keys a console's name for a key stands for. */
  readonly keys: ReadonlyMap<string, ReadonlySet<string>>;
}

/** A record that gets another verdict. */
export interface NewVerdict {
  readonly id: string;
  /** null: it no longer has one. */
  readonly judged: JudgedRecord | null;
}

/** What is stored in one transaction. It takes about 3 ms on the thread that serves requests. */
export type Step = Pick<DayChanges, "records" | "rows">;

const RECORDS_PER_STEP = 15;
const ROWS_PER_STEP = 40;

export function* stepsOf({ records, rows }: Step): Generator<Step> {
  for (let at = 0; at < records.length; at += RECORDS_PER_STEP)
    yield { records: records.slice(at, at + RECORDS_PER_STEP), rows: [] };
  for (let at = 0; at < rows.length; at += ROWS_PER_STEP)
    yield { records: [], rows: rows.slice(at, at + ROWS_PER_STEP) };
}

interface ApplyOptions {
  readonly gateway: string;
  readonly skew: number;
  readonly findPrice: FindPrice;
  /** Appends amendments of records to the journal. If it throws, nothing of the step is stored. */
  readonly amend: (lines: readonly Amendment[]) => void;
}

/** What the comparison of a day found beside verdicts. */
export type DaySummary = Omit<DayChanges, "rows" | "records">;

export function applySummary(
  db: Database.Database,
  { learned, elsewhere, start, aborted, unanswered, userAgents }: DaySummary,
  { gateway, skew }: Pick<ApplyOptions, "gateway" | "skew">,
): void {
  transact(db, () => {
    if (learned !== null) {
      learnKeys(db, gateway, learned.keys);
      if (learned.ownFrom === null) return;
      writeFact(db, gateway, "own_ids", JSON.stringify(learned.ownIds));
      // Matches without ids, and suspicions, may get another verdict now.
      touchFrom(db, gateway, learned.ownFrom);
      return;
    }
    if (start !== null) writeFact(db, gateway, "start_fit", JSON.stringify(start));
    if (userAgents !== null) writeFact(db, gateway, "user_agents", String(userAgents));
    noteAbortedBills(db, gateway, aborted);
    const listedFrom = noteUnanswered(db, gateway, unanswered);
    if (listedFrom !== null) touchFrom(db, gateway, listedFrom);
    const times = elsewhere.map((at) => at + skew);
    touchRows(db, gateway, times);
  });
}

/**
 * Stores a step. Amendments go to the journal just before the commit. If the program ends in between, the day is compared
 * again, and finds the amendments in the index. Returns how many records were amended.
 */
export function applyStep(db: Database.Database, step: Step, options: ApplyOptions): number {
  const { gateway, findPrice, amend } = options;
  return transact(db, () => {
    writeRowVerdicts(db, gateway, step.rows);
    const lines = writeRecordVerdicts(db, gateway, step.records, findPrice);
    if (lines.length > 0) amend(lines);
    return lines.length;
  });
}

/** When time alone decides the next pending row; null: never. Pending records wait for a sync. */
export function nextDue(db: Database.Database, gateway: string, now: number, skew: number): number | null {
  const oldest = queryNumber(
    db,
    "SELECT min(created_at) FROM mirror.console_rows WHERE gateway = ? AND verdict = 'pending' AND created_at > ?",
    gateway,
    now - FOREIGN_AFTER_MS + skew,
  );
  return oldest === null ? null : oldest - skew + FOREIGN_AFTER_MS + 1;
}

function writeRowVerdicts(db: Database.Database, gateway: string, rows: readonly JudgedRow[]): void {
  const sets = ROW_VERDICT_FIELDS.map((name) => `${name} = ?`).join(", ");
  const write = db.prepare(`UPDATE mirror.console_rows SET ${sets} WHERE gateway = ? AND identity = ?`);
  // Acknowledging a suspicion does not acknowledge a certain alarm, also if mirror.db was lost in between.
  const raise = db.prepare(
    `UPDATE mirror.console_rows SET acknowledged_at = NULL
     WHERE gateway = ? AND identity = ? AND (certain = 0 OR verdict IS NULL) AND NOT EXISTS (
       SELECT 1 FROM usage.acks WHERE acks.gateway = console_rows.gateway AND row = identity AND acks.certain = 1)`,
  );
  for (const row of rows) {
    if (row.certain) raise.run(gateway, row.identity);
    const values = ROW_VERDICT_FIELDS.map((name) => (name === "certain" ? Number(row.certain) : row[name]));
    write.run(...values, gateway, row.identity);
  }
}

/** A record with its verdict. The fields of the verdict are null where it has none. */
export interface StoredRecord {
  readonly record: UsageRecord;
  /** The record without anything that it took from the console. */
  readonly own: UsageRecord;
  readonly verdict: RecordVerdict | null;
  readonly how: How | null;
  readonly reason: string | null;
  /** The identity of the console row it was matched with. */
  readonly row: string | null;
  /** JSON, see theirsText. Not null: it took the console's money, and perhaps its tokens. */
  readonly theirs: string | null;
}

interface VerdictColumns extends Pick<StoredRecord, "verdict" | "how" | "reason" | "row" | "theirs"> {
  readonly record: string;
  /** JSON of the record's own numbers, if it took the console's tokens. */
  readonly ours: string | null;
}

/** By id. Records that are no longer in the log are left out. */
export function readRecords(db: Database.Database, ids: readonly string[]): Map<string, StoredRecord> {
  const list = JSON.stringify(ids);
  const verdictSql = `SELECT record, verdict, how, reason, row, ours, theirs FROM mirror.verdicts WHERE record IN ${IN_LIST}`;
  const verdicts = queryAll<VerdictColumns>(db, verdictSql, list);
  const verdictOf = new Map(verdicts.map((one) => [one.record, one]));
  const recordSql = `SELECT ${COLUMN_NAMES} FROM usage.records WHERE id IN ${IN_LIST}`;
  const found = new Map<string, StoredRecord>();
  for (const record of queryRows(db, recordSql, list).map(recordOfRow)) {
    const stored = verdictOf.get(record.id);
    const own = withoutTheirs(record, stored?.ours == null ? null : JSON.parse(stored.ours));
    const { verdict = null, how = null, reason = null, row = null, theirs = null } = stored ?? {};
    found.set(record.id, { record, own, verdict, how, reason, row, theirs });
  }
  return found;
}

/** Returns what changes in the records themselves, for the journal. */
function writeRecordVerdicts(
  db: Database.Database,
  gateway: string,
  verdicts: readonly NewVerdict[],
  findPrice: FindPrice,
): Amendment[] {
  const stored = readRecords(
    db,
    verdicts.map(({ id }) => id),
  );
  const amendments: Amendment[] = [];
  for (const { id, judged } of verdicts) {
    const before = stored.get(id);
    if (before === undefined) continue;
    const { record, own } = before;
    const theirs = judged?.theirs ?? null;
    // A record that took numbers before mirror.db was lost keeps them, although the console no longer lists it.
    let after = before.theirs === null ? record : own;
    if (theirs !== null) after = withTheirs(own, theirs, findPrice);
    const amendment = buildAmendment(record, after);
    if (amendment !== null) amendments.push(amendment);
    if (judged === null) execute(db, "DELETE FROM mirror.verdicts WHERE record = ?", id);
    else writeRecordVerdict(db, gateway, judged, own, after);
  }
  return amendments;
}

function writeRecordVerdict(
  db: Database.Database,
  gateway: string,
  judged: JudgedRecord,
  own: UsageRecord,
  after: UsageRecord,
): void {
  const { theirs } = judged;
  const columns: Record<string, Value> = {
    record: judged.record,
    gateway,
    started_at: after.started_at,
    verdict: judged.verdict,
    how: judged.how,
    row: judged.row,
    reason: judged.reason,
    ours: after.tokens_from === "console" ? JSON.stringify(pick(own, TAKEN)) : null,
    theirs: theirsText(judged),
    tool: after.tool,
    model: after.model ?? after.model_answered,
    '"group"': after.group,
    tier: theirs === null ? null : findTier(after, theirs),
    their_multiplier: theirs?.multiplier ?? null,
    price_factor: theirs === null ? null : priceFactor(after.list_microdollars, theirs),
    cost_microdollars: after.cost_microdollars,
    their_billed_microdollars: theirs?.billed_microdollars ?? null,
  };
  const names = Object.keys(columns);
  execute(
    db,
    `INSERT OR REPLACE INTO mirror.verdicts (${names.join(", ")}) VALUES (${names.map(() => "?").join(", ")})`,
    ...Object.values(columns),
  );
}

/** Equal numbers are equal texts: reconcile always lists them in the same order. */
export function theirsText({ theirs }: JudgedRecord): string | null {
  return theirs === null ? null : JSON.stringify(theirs);
}

/** Makers charge more for larger prompts: Anthropic and Google beyond 200,000 tokens, OpenAI beyond 272,000. */
const LONG_CONTEXT_TOKENS = 200_000;

/** What a request's price depends on besides its model; null: the standard price. */
function findTier(record: UsageRecord, { service_tier }: Theirs): string | null {
  const { input_tokens, cache_read_tokens, cache_write_tokens } = record;
  const input = (input_tokens ?? 0) + (cache_read_tokens ?? 0) + (cache_write_tokens ?? 0);
  if (input <= LONG_CONTEXT_TOKENS) return service_tier;
  return service_tier === null ? LONG_CONTEXT : `${service_tier}, ${LONG_CONTEXT}`;
}

const LONG_CONTEXT = "long context";

/** Undoes findTier. */
export function tierParts(tier: string | null): {
  readonly service: string | null;
  readonly isLongContext: boolean;
} {
  const isLongContext = tier?.endsWith(LONG_CONTEXT) ?? false;
  if (tier === null || !isLongContext) return { service: tier, isLongContext };
  const service = tier.slice(0, -LONG_CONTEXT.length).replace(/, $/, "");
  return { service: service === "" ? null : service, isLongContext };
}

/**
 * new-api and one-api list no price and bill in units of two micro-dollars. All other amounts are in micro-dollars. From
 * MIN_UNITS on, an amount is exact to a quarter of a percent; a smaller one shows nothing about a price.
 */
export const BILLING_UNIT = 2;
const MIN_UNITS = 200;

/** Their price before the multiplier, as a multiple of ours; null: unknown, or the amount is too small. */
function priceFactor(ours: number | null, theirs: Theirs): number | null {
  if (ours === null || ours < MIN_UNITS) return null;
  const { list_microdollars: list, billed_microdollars: billed, multiplier } = theirs;
  if (list !== null) return list < MIN_UNITS ? null : rounded(list / ours);
  if (billed === null || multiplier === null || multiplier <= 0) return null;
  return billed < MIN_UNITS * BILLING_UNIT ? null : rounded(billed / multiplier / ours);
}

/** To three digits, so that rows with the same price are counted together. */
export function rounded(factor: number): number {
  return Number(factor.toPrecision(3));
}
