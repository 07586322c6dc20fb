import type Database from "libsql";
import { NO_TOKENS, type Tokens } from "../../metering/usage.ts";
import { COLUMN_NAMES, recordOfRow } from "../../usage/columns.ts";
import { transact } from "../../usage/index/database.ts";
import { AMENDED, type AmendedFields, type AmendLine, type Counted } from "../../usage/journal/lines.ts";
import { type Closing, NOT_CLOSED, type UsageRecord } from "../../usage/record.ts";
import { FOREIGN_AFTER_MS } from "../reconcile/context.ts";
import type { JudgedRecord, JudgedRow, Theirs } from "../verdict.ts";
import { touchFrom, touchRows } from "./changed-days.ts";
import type { DayChanges, Learned } from "./compare-day.ts";
import { writeFact } from "./facts.ts";
import { learnKeys } from "./keys.ts";
import { AMONG, numberIn, readMany } from "./query.ts";
import { JUDGED, judgedValues, type StoredVerdict, type Value } from "./rows.ts";

/** What a record can take from the console, besides its bill: stored as `ours` before it does. */
export const TAKEN = AMENDED.filter((name) => name !== "billed_microdollars");

export type OwnNumbers = Pick<UsageRecord, (typeof TAKEN)[number]>;

export type PriceOf = (
  record: UsageRecord,
  tokens: Tokens,
) => { readonly list: number; readonly cost: number } | null;

/** A record as it was before it took anything. */
export function withoutTheirs(record: UsageRecord, ours: OwnNumbers | null): UsageRecord {
  if (ours !== null) return { ...record, ...ours, billed_microdollars: null };
  return { ...record, ...(record.tokens_from === "console" ? UNKNOWN : {}), billed_microdollars: null };
}

/** Its own numbers were lost together with mirror.db. */
const UNKNOWN: OwnNumbers = ownNumbers(NOT_CLOSED);

/**
 * The record with the console's money, and with its tokens where its own are not known whole. `hasTokens`: the row is of a
 * use, and not of a failed attempt, whose zeroes say nothing.
 */
export function withTheirs(
  own: UsageRecord,
  theirs: Theirs,
  hasTokens: boolean,
  priceOf: PriceOf,
): UsageRecord {
  const { input_tokens, cache_read_tokens, cache_write_tokens, output_tokens } = theirs;
  const billed = { ...own, billed_microdollars: theirs.billed_microdollars };
  if (!hasTokens || isWhole(own) || input_tokens === null || output_tokens === null) return billed;
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

/** What was reported of an answer that broke off is what there was up to then: the gateway may have gone on. */
function isWhole({ tokens_from, input_tokens, output_tokens, end }: UsageRecord): boolean {
  if (tokens_from !== "reported" || end !== "complete") return false;
  return input_tokens !== null && output_tokens !== null;
}

export function ownNumbers(record: Closing): OwnNumbers {
  return Object.fromEntries(TAKEN.map((name) => [name, record[name]])) as unknown as OwnNumbers;
}

export function isAmended(before: UsageRecord, after: UsageRecord): boolean {
  return (
    before.billed_microdollars !== after.billed_microdollars ||
    TAKEN.some((name) => before[name] !== after[name])
  );
}

/** How much more a record takes from its tool's limits than it did; negative where it is less. */
export interface Correction {
  readonly tool: string;
  /** When it was let in under them. */
  readonly at: number;
  readonly tokens: number;
  /** Micro-dollars. */
  readonly spend: number;
}

/** A record that gets another verdict. */
export interface NewVerdict {
  readonly id: string;
  /** null: it has none any more. */
  readonly judged: JudgedRecord | null;
  /** See withTheirs. */
  readonly hasTokens: boolean;
}

/** Runs, like what follows, in the caller's transaction. */
export function writeRowVerdicts(
  db: Database.Database,
  gateway: string,
  rows: readonly (StoredVerdict & Pick<JudgedRow, "identity">)[],
): void {
  const sets = JUDGED.map((name) => `${name} = ?`).join(", ");
  const write = db.prepare(`UPDATE mirror.console_rows SET ${sets} WHERE gateway = ? AND identity = ?`);
  // Acknowledging a suspicion does not acknowledge a certain alarm. A row without a verdict is new in a mirror.db that was
  // lost: the journal says that it was acknowledged.
  const raise = db.prepare(
    `UPDATE mirror.console_rows SET acknowledged_at = NULL
     WHERE gateway = ? AND identity = ? AND certain = 0 AND verdict IS NOT NULL`,
  );
  for (const row of rows) {
    if (row.certain) raise.run(gateway, row.identity);
    write.run(...judgedValues(row), gateway, row.identity);
  }
}

/**
 * Writes what is said of records. Their numbers are in the journal, so what that means for them is returned: corrections
 * for the journal.
 */
export function writeRecordVerdicts(
  db: Database.Database,
  gateway: string,
  verdicts: readonly NewVerdict[],
  priceOf: PriceOf,
): AmendLine[] {
  if (verdicts.length === 0) return [];
  const ids = JSON.stringify(verdicts.map(({ id }) => id));
  const records = new Map(
    readMany(db, [COLUMN_NAMES], `FROM usage.records WHERE id IN ${AMONG}`, ids)
      .map(recordOfRow)
      .map((record) => [record.id, record]),
  );
  const stored = readStored(db, ids);
  const amendments: AmendLine[] = [];
  const put = db.prepare(
    `INSERT OR REPLACE INTO mirror.verdicts (${COLUMNS.join(", ")}) VALUES (${COLUMNS.map(() => "?").join(", ")})`,
  );
  const drop = db.prepare("DELETE FROM mirror.verdicts WHERE record = ?");
  for (const { id, judged, hasTokens } of verdicts) {
    const before = records.get(id);
    if (before === undefined) continue;
    const last = stored.get(id);
    const own = withoutTheirs(before, last?.ours ?? null);
    const theirs = judged?.theirs ?? null;
    let after = before;
    if (theirs !== null) after = withTheirs(own, theirs, hasTokens, priceOf);
    else if (last?.tookTheirs === true) after = own;
    // Else it took nothing, or did so before mirror.db was lost: a console that has forgotten it since changes nothing.
    if (isAmended(before, after)) amendments.push(amendLine(before, after));
    if (judged === null) drop.run(id);
    else put.run(...verdictValues(gateway, judged, own, after));
  }
  return amendments;
}

interface Stored {
  /** Its own numbers, where it took the console's tokens. */
  readonly ours: OwnNumbers | null;
  /** It took the console's money, or tokens. */
  readonly tookTheirs: boolean;
}

/** By record: what was said of it so far. */
function readStored(db: Database.Database, ids: string): Map<unknown, Stored> {
  const columns = ["record", "ours", "theirs IS NOT NULL"];
  const rows = readMany(db, columns, `FROM mirror.verdicts WHERE record IN ${AMONG}`, ids);
  return new Map(
    rows.map(([id, ours, tookTheirs]) => [
      id,
      { ours: ours === null ? null : JSON.parse(String(ours)), tookTheirs: tookTheirs === 1 },
    ]),
  );
}

function amendLine(before: UsageRecord, after: UsageRecord): AmendLine {
  const { id, tool, counts, admitted_at, started_at } = after;
  const fields = Object.fromEntries(AMENDED.map((name) => [name, after[name]])) as unknown as AmendedFields;
  const limits =
    tool === null || counts === false
      ? null
      : { tool, admitted_at: admitted_at ?? started_at, before: countedOf(before), after: countedOf(after) };
  return { kind: "amend", id, ...fields, limits };
}

/** What a record takes from its tool's limits: what the console says, else what we counted, else what was reserved. */
function countedOf(record: UsageRecord): Counted {
  const { billed_microdollars, counted_microdollars, held_microdollars } = record;
  return {
    tokens: record.counted_tokens ?? record.held_tokens ?? 0,
    spend: billed_microdollars ?? counted_microdollars ?? held_microdollars ?? 0,
  };
}

/** null: nothing changes for the limits. */
export function correctionOf({ limits }: AmendLine): Correction | null {
  if (limits === null) return null;
  const { tool, admitted_at, before, after } = limits;
  const tokens = after.tokens - before.tokens;
  const spend = after.spend - before.spend;
  return tokens === 0 && spend === 0 ? null : { tool, at: admitted_at, tokens, spend };
}

const COLUMNS = [
  "record",
  "gateway",
  "started_at",
  "verdict",
  "how",
  "row",
  "reason",
  "ours",
  "theirs",
  "tool",
  "model",
  "multiplier",
  "list_microdollars",
  "cost_microdollars",
  "their_multiplier",
  "their_list_microdollars",
  "their_billed_microdollars",
];

function verdictValues(gateway: string, judged: JudgedRecord, own: UsageRecord, after: UsageRecord): Value[] {
  const { theirs } = judged;
  return [
    judged.record,
    gateway,
    after.started_at,
    judged.verdict,
    judged.how,
    judged.row,
    judged.reason,
    after.tokens_from === "console" ? JSON.stringify(ownNumbers(own)) : null,
    theirsText(judged),
    after.tool,
    after.model ?? after.model_answered,
    after.multiplier,
    after.list_microdollars,
    after.cost_microdollars,
    theirs?.multiplier ?? null,
    theirs === null ? null : listOf(theirs),
    theirs?.billed_microdollars ?? null,
  ];
}

/** In one order of the fields, so that the same is the same text. */
export function theirsText({ theirs }: JudgedRecord): string | null {
  if (theirs === null) return null;
  const { input_tokens, cache_read_tokens, cache_write_tokens, output_tokens } = theirs;
  const { list_microdollars, billed_microdollars, multiplier } = theirs;
  return JSON.stringify({
    input_tokens,
    cache_read_tokens,
    cache_write_tokens,
    output_tokens,
    list_microdollars,
    billed_microdollars,
    multiplier,
  });
}

/** Their price before the group's factor; not every console tells it. */
function listOf({ list_microdollars, billed_microdollars, multiplier }: NonNullable<JudgedRecord["theirs"]>) {
  if (list_microdollars !== null) return list_microdollars;
  if (billed_microdollars === null || multiplier === null || multiplier <= 0) return null;
  return Math.round(billed_microdollars / multiplier);
}

export interface ApplyOptions {
  readonly gateway: string;
  readonly skew: number;
  readonly priceOf: PriceOf;
  /** Appends to the journal what changes in records. Throws where it cannot: then nothing of the step is kept. */
  readonly amend: (lines: readonly AmendLine[]) => void;
}

/** What is stored in one transaction, on the thread that serves requests: about 5 ms. */
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

/** What a day's comparison says beside its verdicts. */
export type DaySummary = Pick<DayChanges, "learned" | "elsewhere" | "start">;

export function applySummary(
  db: Database.Database,
  { learned, elsewhere, start }: DaySummary,
  { gateway, skew }: Pick<ApplyOptions, "gateway" | "skew">,
): void {
  transact(db, () => {
    if (learned !== null) {
      writeLearned(db, gateway, learned);
      return;
    }
    if (start !== null) writeFact(db, gateway, "start_fit", JSON.stringify(start));
    touchRows(
      db,
      gateway,
      elsewhere.map((at) => at + skew),
    );
  });
}

/**
 * Stores a step, and appends to the journal just before that is committed. A program that ends in between compares the day
 * again: what is in the journal by then is not amended a second time, once the index has it. Returns how many records
 * were amended.
 */
export function applyStep(
  db: Database.Database,
  step: Step,
  { gateway, priceOf, amend }: ApplyOptions,
): number {
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

/** When time alone decides on the next pending row; null: none waits for that. Records wait for the next sync. */
export function nextDue(db: Database.Database, gateway: string, now: number, skew: number): number | null {
  const pending = db
    .prepare(
      "SELECT min(created_at) FROM mirror.console_rows WHERE gateway = ? AND verdict = 'pending' AND created_at > ?",
    )
    .raw();
  const at = numberIn(pending.get(gateway, now - FOREIGN_AFTER_MS + skew));
  return at === null ? null : at - skew + FOREIGN_AFTER_MS + 1;
}

export function writeLearned(db: Database.Database, gateway: string, { own, ownFrom, keys }: Learned): void {
  if (keys.size > 0) learnKeys(db, gateway, keys);
  if (ownFrom === null) return;
  writeFact(db, gateway, "own_ids", JSON.stringify(own));
  // What was paired or only suspected from then on may be something else now.
  touchFrom(db, gateway, ownFrom);
}
