import type Database from "libsql";
import { COLUMN_NAMES, recordOfRow } from "../../usage/columns.ts";
import { AMENDED, type AmendedFields, type AmendLine, type Counted } from "../../usage/journal/lines.ts";
import type { UsageRecord } from "../../usage/record.ts";
import type { JudgedRecord, JudgedRow } from "../verdict.ts";
import { AMONG, readMany } from "./many.ts";
import { JUDGED, judgedValues, type StoredVerdict, type Value } from "./stored-row.ts";
import { isAmended, type OwnNumbers, ownNumbers, type PriceOf, withoutTheirs, withTheirs } from "./take.ts";

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
