import type Database from "libsql";
import { cellOf, createTally } from "../../usage/ledger/cells.ts";
import { createRows, RECORD_COLUMNS, recordOf } from "../../usage/ledger/rows.ts";
import type { UsageRecord } from "../../usage/record.ts";
import type { JudgedRecord, JudgedRow } from "../verdict.ts";
import { AMONG, readMany } from "./many.ts";
import { JUDGED, judgedValues, type StoredVerdict, type Value } from "./stored-row.ts";
import {
  isAmended,
  type OwnNumbers,
  ownNumbers,
  type PriceOf,
  TAKEN,
  withoutTheirs,
  withTheirs,
} from "./take.ts";

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
  const write = db.prepare(`UPDATE log.console_rows SET ${sets} WHERE gateway = ? AND identity = ?`);
  for (const row of rows) write.run(...judgedValues(row), gateway, row.identity);
}

/** Writes what is said of records, and what that means for their numbers and for the cells. */
export function writeRecordVerdicts(
  db: Database.Database,
  gateway: string,
  verdicts: readonly NewVerdict[],
  priceOf: PriceOf,
): Correction[] {
  if (verdicts.length === 0) return [];
  const ids = JSON.stringify(verdicts.map(({ id }) => id));
  const records = new Map(
    readMany(db, [RECORD_COLUMNS], `FROM log.records WHERE id IN ${AMONG}`, ids)
      .map(recordOf)
      .map((record) => [record.id, record]),
  );
  const ours = new Map(
    readMany(
      db,
      ["record", "ours"],
      `FROM log.verdicts WHERE record IN ${AMONG} AND ours IS NOT NULL`,
      ids,
    ).map(([id, text]): [unknown, OwnNumbers] => [id, JSON.parse(String(text))]),
  );
  const amended: (readonly [before: UsageRecord, after: UsageRecord])[] = [];
  const put = db.prepare(
    `INSERT OR REPLACE INTO log.verdicts (${COLUMNS.join(", ")}) VALUES (${COLUMNS.map(() => "?").join(", ")})`,
  );
  const drop = db.prepare("DELETE FROM log.verdicts WHERE record = ?");
  for (const { id, judged, hasTokens } of verdicts) {
    const before = records.get(id);
    if (before === undefined) continue;
    const own = withoutTheirs(before, ours.get(id) ?? null);
    const theirs = judged?.theirs ?? null;
    const after = theirs === null ? own : withTheirs(own, theirs, hasTokens, priceOf);
    if (isAmended(before, after)) amended.push([before, after]);
    if (judged === null) drop.run(id);
    else put.run(...verdictValues(gateway, judged, own, after));
  }
  amend(db, amended);
  return amended.flatMap(([before, after]) => correctionOf(before, after));
}

function amend(
  db: Database.Database,
  amended: readonly (readonly [before: UsageRecord, after: UsageRecord])[],
): void {
  const names = [...TAKEN, "billed_microdollars"] as const;
  const sets = names.map((name) => `${name} = ?`).join(", ");
  const write = db.prepare(`UPDATE log.records SET ${sets} WHERE id = ?`);
  for (const [, after] of amended) write.run(...names.map((name) => after[name]), after.id);
  // In the same transaction, so that the cells stay the sums of their records.
  const tally = createTally();
  for (const [before, after] of amended) tally.change(before, after);
  createRows(db).count(tally);
}

function correctionOf(before: UsageRecord, after: UsageRecord): Correction[] {
  const { tool, counts, admitted_at, started_at } = after;
  const tokens = tokensCounted(after) - tokensCounted(before);
  const spend = cellOf(after).sums.counted_microdollars - cellOf(before).sums.counted_microdollars;
  if (tool === null || counts === false || (tokens === 0 && spend === 0)) return [];
  return [{ tool, at: admitted_at ?? started_at, tokens, spend }];
}

function tokensCounted({ counted_tokens, held_tokens }: UsageRecord): number {
  return counted_tokens ?? held_tokens ?? 0;
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
