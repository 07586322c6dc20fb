import type Database from "libsql";
import type { Counted } from "../../limits/replay.ts";
import { NO_TOKENS, type Tokens } from "../../metering/usage.ts";
import { transact } from "../../usage/index/database.ts";
import { AMENDED, type AmendedFields, type AmendLine } from "../../usage/journal/lines.ts";
import { COLUMN_NAMES, NOT_CLOSED, recordOfRow, type UsageRecord } from "../../usage/record.ts";
import { FOREIGN_AFTER_MS } from "../reconcile/context.ts";
import type { JudgedRecord, JudgedRow, Theirs } from "../verdict.ts";
import { touchFrom, touchRows } from "./changed-days.ts";
import type { DayChanges } from "./compare-day.ts";
import { writeFact } from "./facts.ts";
import { learnKeys } from "./keys.ts";
import { execute, IN_LIST, queryAll, queryNumber, queryRows, type Value } from "./query.ts";
import { VERDICT_FIELDS, verdictValues } from "./rows.ts";

/* Stores what the comparison of a day found, and gives records the console's numbers. */

/** A record that gets another verdict. */
export interface NewVerdict {
  readonly id: string;
  /** null: it has none any more. */
  readonly judged: JudgedRecord | null;
  /** See withTheirs. */
  readonly hasTokens: boolean;
}

/** What is stored in one transaction. It takes about 5 ms on the thread that serves requests. */
export type Step =
  | { readonly kind: "records"; readonly records: DayChanges["records"] }
  | { readonly kind: "rows"; readonly rows: DayChanges["rows"] };

const RECORDS_PER_STEP = 20;
const ROWS_PER_STEP = 60;

export function* stepsOf({ records, rows }: Pick<DayChanges, "records" | "rows">): Generator<Step> {
  for (let at = 0; at < records.length; at += RECORDS_PER_STEP)
    yield { kind: "records", records: records.slice(at, at + RECORDS_PER_STEP) };
  for (let at = 0; at < rows.length; at += ROWS_PER_STEP)
    yield { kind: "rows", rows: rows.slice(at, at + ROWS_PER_STEP) };
}

export interface ApplyOptions {
  readonly gateway: string;
  readonly skew: number;
  readonly priceOf: PriceOf;
  /** Appends amendments of records to the journal. If it throws, nothing of the step is stored. */
  readonly amend: (lines: readonly AmendLine[]) => void;
}

/** What the comparison of a day found beside verdicts. */
export type DaySummary = Pick<DayChanges, "learned" | "elsewhere" | "start">;

export function applySummary(
  db: Database.Database,
  { learned, elsewhere, start }: DaySummary,
  { gateway, skew }: Pick<ApplyOptions, "gateway" | "skew">,
): void {
  transact(db, () => {
    if (learned !== null) {
      learnKeys(db, gateway, learned.keys);
      if (learned.ownFrom === null) return;
      writeFact(db, gateway, "own_ids", JSON.stringify(learned.ownIds));
      // What was matched without ids, or only suspected, may be something else now.
      touchFrom(db, gateway, learned.ownFrom);
      return;
    }
    if (start !== null) writeFact(db, gateway, "start_fit", JSON.stringify(start));
    const times = elsewhere.map((at) => at + skew);
    touchRows(db, gateway, times);
  });
}

/**
 * Stores a step. Amendments go to the journal just before the commit. If the program ends in between, the day is compared
 * again, and finds the amendments in the index. Returns how many records were amended.
 */
export function applyStep(db: Database.Database, step: Step, options: ApplyOptions): number {
  const { gateway, priceOf, amend } = options;
  return transact(db, () => {
    if (step.kind === "rows") {
      writeRowVerdicts(db, gateway, step.rows);
      return 0;
    }
    const lines = writeRecordVerdicts(db, gateway, step.records, priceOf);
    if (lines.length > 0) amend(lines);
    return lines.length;
  });
}

/** When time alone decides on the next pending row; null: no row waits for that. Pending records wait for a sync. */
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
  const sets = VERDICT_FIELDS.map((name) => `${name} = ?`).join(", ");
  const write = db.prepare(`UPDATE mirror.console_rows SET ${sets} WHERE gateway = ? AND identity = ?`);
  // Acknowledging a suspicion does not acknowledge a certain alarm, also if mirror.db was lost in between.
  const raise = db.prepare(
    `UPDATE mirror.console_rows SET acknowledged_at = NULL
     WHERE gateway = ? AND identity = ? AND (certain = 0 OR verdict IS NULL) AND NOT EXISTS (
       SELECT 1 FROM usage.acks WHERE acks.gateway = console_rows.gateway AND row = identity AND acks.certain = 1)`,
  );
  for (const row of rows) {
    if (row.certain) raise.run(gateway, row.identity);
    write.run(...verdictValues(row), gateway, row.identity);
  }
}

interface StoredNumbers {
  readonly record: string;
  /** JSON of the record's own numbers, if it took the console's tokens. */
  readonly ours: string | null;
  /** Not null: it took the console's money, and perhaps its tokens. */
  readonly theirs: string | null;
}

/** Returns what changes in the records themselves, for the journal. */
function writeRecordVerdicts(
  db: Database.Database,
  gateway: string,
  verdicts: readonly NewVerdict[],
  priceOf: PriceOf,
): AmendLine[] {
  const ids = JSON.stringify(verdicts.map(({ id }) => id));
  const records = new Map<string, UsageRecord>();
  for (const columns of queryRows(
    db,
    `SELECT ${COLUMN_NAMES} FROM usage.records WHERE id IN ${IN_LIST}`,
    ids,
  )) {
    const record = recordOfRow(columns);
    records.set(record.id, record);
  }
  const stored = new Map<string, StoredNumbers>();
  const storedSql = `SELECT record, ours, theirs FROM mirror.verdicts WHERE record IN ${IN_LIST}`;
  for (const one of queryAll<StoredNumbers>(db, storedSql, ids)) stored.set(one.record, one);
  const amendments: AmendLine[] = [];
  for (const { id, judged, hasTokens } of verdicts) {
    const before = records.get(id);
    if (before === undefined) continue;
    const { ours = null, theirs: taken = null } = stored.get(id) ?? {};
    const own = withoutTheirs(before, ours === null ? null : JSON.parse(ours));
    const theirs = judged?.theirs ?? null;
    // A record that took something before mirror.db was lost keeps it, although the console no longer lists it.
    let after = taken === null ? before : own;
    if (theirs !== null) after = withTheirs(own, theirs, hasTokens, priceOf);
    if (AMENDED.some((name) => before[name] !== after[name])) amendments.push(amendLine(before, after));
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
    tier: theirs === null ? null : tierOf(after, theirs),
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

const THEIRS_FIELDS: (keyof Theirs)[] = [
  "input_tokens",
  "cache_read_tokens",
  "cache_write_tokens",
  "output_tokens",
  "list_microdollars",
  "billed_microdollars",
  "multiplier",
  "service_tier",
];

/** Always in the same order, so that equal numbers are equal texts. */
export function theirsText({ theirs }: JudgedRecord): string | null {
  return theirs === null ? null : JSON.stringify(theirs, THEIRS_FIELDS);
}

/** Makers charge more for larger prompts: Anthropic and Google beyond 200,000 tokens, OpenAI beyond 272,000. */
const LONG_CONTEXT_TOKENS = 200_000;

/** What a request is priced by besides its model; null: the standard price. */
function tierOf(record: UsageRecord, { service_tier }: Theirs): string | null {
  const { input_tokens, cache_read_tokens, cache_write_tokens } = record;
  const input = (input_tokens ?? 0) + (cache_read_tokens ?? 0) + (cache_write_tokens ?? 0);
  if (input <= LONG_CONTEXT_TOKENS) return service_tier;
  return service_tier === null ? "long context" : `${service_tier}, long context`;
}

/**
 * Without a list price, a console bills in whole units of two micro-dollars (new-api, one-api). All other amounts are in whole
 * micro-dollars. An amount of so many units is exact to a quarter of a percent; a smaller one says nothing about a price.
 */
const BILLING_UNIT = 2;
const MIN_UNITS = 200;

/** Their price before the multiplier, as a multiple of ours; null: not known, or too small to tell. */
function priceFactor(ours: number | null, theirs: Theirs): number | null {
  if (ours === null || ours < MIN_UNITS) return null;
  const { list_microdollars: list, billed_microdollars: billed, multiplier } = theirs;
  if (list !== null) return list < MIN_UNITS ? null : rounded(list / ours);
  if (billed === null || multiplier === null || multiplier <= 0) return null;
  return billed < MIN_UNITS * BILLING_UNIT ? null : rounded(billed / multiplier / ours);
}

/** To three digits, so that rows with the same price are counted together. */
function rounded(factor: number): number {
  return Number(factor.toPrecision(3));
}

/** The numbers that a record can take from the console besides its bill. Its own are kept in `ours`. */
const TAKEN = AMENDED.filter((name) => name !== "billed_microdollars");

export type OwnNumbers = Omit<AmendedFields, "billed_microdollars">;

/** A record whose own numbers were lost with mirror.db has none. */
const UNKNOWN = pick({ ...NOT_CLOSED, billed_microdollars: null }, TAKEN);

export type PriceOf = (
  record: UsageRecord,
  tokens: Tokens,
) => { readonly list: number; readonly cost: number } | null;

/** The record as it was before it took anything from the console. */
export function withoutTheirs(record: UsageRecord, ours: OwnNumbers | null): UsageRecord {
  const own = ours ?? (record.tokens_from === "console" ? UNKNOWN : {});
  return { ...record, ...own, billed_microdollars: null };
}

/**
 * The record with the console's money, and with its tokens if its own are not complete.
 * @param hasTokens the row is of a use; the zeroes in the row of a failed attempt say nothing.
 */
function withTheirs(own: UsageRecord, theirs: Theirs, hasTokens: boolean, priceOf: PriceOf): UsageRecord {
  const { input_tokens, cache_read_tokens, cache_write_tokens, output_tokens } = theirs;
  const billed = { ...own, billed_microdollars: theirs.billed_microdollars };
  if (!hasTokens || isComplete(own) || input_tokens === null || output_tokens === null) return billed;
  const tokens: Tokens = {
    ...NO_TOKENS,
    input: input_tokens,
    cacheRead: cache_read_tokens ?? 0,
    cacheWrite: cache_write_tokens ?? 0,
    output: output_tokens,
  };
  const price = priceOf(own, tokens);
  return {
    ...billed,
    input_tokens,
    cache_read_tokens,
    cache_write_tokens,
    output_tokens,
    reasoning_tokens: null,
    tokens_from: "console",
    list_microdollars: price?.list ?? null,
    cost_microdollars: price?.cost ?? null,
    counted_tokens: tokens.input + tokens.cacheRead + tokens.cacheWrite + tokens.output,
    counted_microdollars: price?.cost ?? own.counted_microdollars,
  };
}

/** What was reported of an answer that broke off is not complete: the gateway may have gone on. */
function isComplete({ tokens_from, input_tokens, output_tokens, end }: UsageRecord): boolean {
  return tokens_from === "reported" && end === "complete" && input_tokens !== null && output_tokens !== null;
}

function pick<Name extends keyof AmendedFields>(
  record: AmendedFields,
  names: readonly Name[],
): Pick<AmendedFields, Name> {
  const picked = names.map((name) => [name, record[name]]);
  return Object.fromEntries(picked);
}

function amendLine(before: UsageRecord, after: UsageRecord): AmendLine {
  const { id, tool, counts, admitted_at, started_at } = after;
  const limits =
    tool === null || counts === false
      ? null
      : { tool, admitted_at: admitted_at ?? started_at, before: countedOf(before), after: countedOf(after) };
  return { kind: "amend", id, ...pick(after, AMENDED), limits };
}

/** What a record takes from its tool's limits: what the console says, else what we counted, else what was reserved. */
function countedOf(record: UsageRecord): Counted {
  const { billed_microdollars, counted_microdollars, held_microdollars } = record;
  return {
    tokens: record.counted_tokens ?? record.held_tokens ?? 0,
    spend: billed_microdollars ?? counted_microdollars ?? held_microdollars ?? 0,
  };
}

/** How much more a record takes from its tool's limits than before; negative if it is less. */
export interface Correction {
  readonly tool: string;
  /** When it was admitted under them. */
  readonly at: number;
  readonly tokens: number;
  /** Micro-dollars. */
  readonly spend: number;
}

/** null: nothing changes for the limits. */
export function correctionOf({ limits }: AmendLine): Correction | null {
  if (limits === null) return null;
  const { tool, admitted_at, before, after } = limits;
  const tokens = after.tokens - before.tokens;
  const spend = after.spend - before.spend;
  return tokens === 0 && spend === 0 ? null : { tool, at: admitted_at, tokens, spend };
}
