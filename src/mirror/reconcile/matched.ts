import { exact } from "../../usage/reports/format.ts";
import type { JudgedRecord, JudgedRow, RowVerdict, Theirs } from "../verdict.ts";
import type { Judgement, Match, OurRequest, RowGroup, TheirRow } from "./context.ts";
import { hasModel, tokensOfRow, wholeInput } from "./fit.ts";

/** The verdicts on what belongs together: matched, or differs in tokens or money. */
export function judgeMatches(matches: readonly Match[]): Judgement {
  const rows: JudgedRow[] = [];
  const records: JudgedRecord[] = [];
  for (const match of matches) {
    const finding = findingOf(match);
    for (const row of match.group.rows) rows.push(judgeRow(row, match, finding));
    if (!match.record.running) records.push(judgeRecord(match, finding));
  }
  return { rows, records };
}

interface Finding {
  readonly verdict: "matched" | "differs";
  readonly reason: string;
}

function findingOf({ record, group: { main }, how, reason }: Match): Finding {
  // Which row belongs to which record is not known, so that one of them cannot be compared with another.
  if (how === "sum") return { verdict: "matched", reason };
  const differences = [...tokenDifferences(record, main), ...moneyDifferences(main)];
  return {
    verdict: differences.length === 0 ? "matched" : "differs",
    reason: [reason, ...otherModel(record, main), ...differences].join("; "),
  };
}

function judgeRow(row: TheirRow, { record, group, how }: Match, finding: Finding): JudgedRow {
  const judged = (verdict: RowVerdict, reason: string): JudgedRow => ({
    identity: row.identity,
    verdict,
    how: verdict === "pending" ? null : how,
    certain: false,
    record: how === "sum" ? null : record.id,
    key: record.key ?? group.key,
    reason,
  });
  if (record.running) return judged("pending", "the request with its id still runs");
  if (row === group.main) return judged(finding.verdict, finding.reason);
  if (row.kind === "use" && !record.upgraded && isSameUse(row, group.main)) {
    return judged("duplicate", "the same request was listed twice");
  }
  return judged("companion", "another row of the same request");
}

function judgeRecord({ record, group, how }: Match, { verdict, reason }: Finding): JudgedRecord {
  const isKnown = how !== "sum";
  return {
    record: record.id,
    verdict,
    how,
    row: isKnown ? group.main.identity : null,
    reason,
    theirs: isKnown ? theirsOf(record, group) : null,
  };
}

function isSameUse(a: TheirRow, b: TheirRow): boolean {
  return (
    a.kind === b.kind &&
    a.input_tokens === b.input_tokens &&
    a.cache_read_tokens === b.cache_read_tokens &&
    a.cache_write_tokens === b.cache_write_tokens &&
    a.output_tokens === b.output_tokens &&
    a.billed_microdollars === b.billed_microdollars
  );
}

/** An operator may map models. That is worth a word, but it is no difference. */
function otherModel(record: OurRequest, { model }: TheirRow): string[] {
  const asked = record.model ?? record.model_answered;
  if (model === null || asked === null || hasModel(record, model)) return [];
  return [`the console lists model ${model}, asked for was ${asked}`];
}

function tokenDifferences({ tokens, exact: isExact, upgraded }: OurRequest, main: TheirRow): string[] {
  if (tokens === null || !isExact || upgraded || main.kind !== "use") return [];
  const theirs = tokensOfRow(main);
  if (theirs === null) return [];
  const differences: string[] = [];
  const compare = (name: string, here: number, there: number) => {
    if (here !== there)
      differences.push(`${name} tokens are ${exact(here)} here and ${exact(there)} in the console`);
  };
  if (theirs.cache === null) {
    compare("input with cache", wholeInput(tokens), theirs.input);
  } else {
    compare("input", tokens.input, theirs.input);
    compare("cache read", tokens.cache_read, theirs.cache.read);
    compare("cache write", tokens.cache_write, theirs.cache.write);
  }
  compare("output", tokens.output, theirs.output);
  return differences;
}

/** Money that rounding explains: sub2api computes in floats, new-api in units of two micro-dollars. */
const SAME_MICRODOLLARS = 2;
const SAME_SHARE = 0.001;

function moneyDifferences(row: TheirRow): string[] {
  const { list_microdollars: list, multiplier, billed_microdollars: billed } = row;
  if (list === null || multiplier === null || billed === null || row.kind !== "use") return [];
  const due = list * multiplier;
  if (Math.abs(due - billed) <= Math.max(SAME_MICRODOLLARS, due * SAME_SHARE)) return [];
  return [`list price ${money(list)} × ${multiplier} is ${money(due)}, and ${money(billed)} was billed`];
}

function money(microdollars: number): string {
  return `$${(microdollars / 1_000_000).toFixed(6)}`;
}

/** The money of all rows. The tokens of the main row, but of a WebSocket those of all rows. */
function theirsOf({ upgraded }: OurRequest, { main, rows }: RowGroup): Theirs {
  const told = upgraded ? rows.filter(({ kind }) => kind === "use") : [main];
  const billed = total(rows, "billed_microdollars");
  return {
    input_tokens: total(told, "input_tokens"),
    cache_read_tokens: total(told, "cache_read_tokens"),
    cache_write_tokens: total(told, "cache_write_tokens"),
    output_tokens: total(told, "output_tokens"),
    list_microdollars: total(rows, "list_microdollars"),
    // A refund may be of more than this request: then it cost nothing, and the rest belongs to others.
    billed_microdollars: billed === null ? null : Math.max(0, billed),
    multiplier: main.multiplier,
  };
}

function total(rows: readonly TheirRow[], name: Exclude<keyof Theirs, "multiplier">): number | null {
  let sum: number | null = null;
  for (const row of rows) {
    const amount = row[name];
    if (amount === null) continue;
    // Some consoles write a refund with a minus sign, others without.
    sum = (sum ?? 0) + (row.kind === "refund" ? -Math.abs(amount) : amount);
  }
  return sum;
}
