import { dollars, duration, exact, localTime } from "../../../core/units.ts";
import { otherwiseDue } from "../../../mirror/reconcile/reconcile.ts";
import type { ComparedRecord, ComparedRow } from "../../../mirror/report/shape.ts";
import { findMessage, type MessageId, type Translate } from "../messages/messages.ts";

/* One request as our log and as the console have it. */

type NameOf<Id> = Id extends `mirror.fact.${infer Name}` ? Name : never;

/** What can be said of a request. */
export type FactName = NameOf<MessageId>;

export interface Fact {
  readonly name: FactName;
  /** null: not reported. */
  readonly ours: string | null;
  readonly theirs: string | null;
}

/** What both sides say of one request. What neither says is left out. */
export function factsOf({ row, record }: ComparedRow, t: Translate): Fact[] {
  const ids = Object.entries(record?.gateway_ids ?? {}).map(([name, id]) => `${name}: ${id}`);
  const time = (at: number | null | undefined) => (at == null ? null : localTime(at));
  const money = (amount: number | null | undefined) => (amount == null ? null : dollars(amount));
  const yesNo = (value: boolean | null | undefined) =>
    value == null ? null : t(value ? "record.yes" : "record.no");
  // Unknown is not zero. undefined: this side does not know the request.
  const tokens = (count: number | null | undefined) =>
    count === undefined ? null : count === null ? "?" : exact(count);
  const took = record == null || record.ended_at === null ? null : record.ended_at - record.started_at;
  const theirTook = row?.duration_ms ?? null;
  const facts: readonly (readonly [FactName, string | null, string | null])[] = [
    ["id", record?.id ?? null, row?.identity ?? null],
    ["request-id", ids.join(", ") || null, row?.request_id ?? null],
    ["began", time(record?.started_at), time(row?.began)],
    ["ended", time(record?.ended_at), time(row?.at)],
    ["took", took === null ? null : duration(took), theirTook === null ? null : duration(theirTook)],
    ["tool", record?.tool ?? null, null],
    ["key", record?.key ?? null, row?.key ?? row?.key_ref ?? null],
    ["group", null, row?.group ?? null],
    ["model", record?.model ?? null, row?.model ?? null],
    ["endpoint", null, row?.endpoint ?? null],
    ["stream", yesNo(record?.stream), yesNo(row?.stream)],
    ["end", record?.end ?? null, null],
    ["input", tokens(record?.input_tokens), tokens(row?.input_tokens)],
    ["cache-read", tokens(record?.cache_read_tokens), tokens(row?.cache_read_tokens)],
    ["cache-write", tokens(record?.cache_write_tokens), tokens(row?.cache_write_tokens)],
    ["output", tokens(record?.output_tokens), tokens(row?.output_tokens)],
    ["list-price", money(record?.list_microdollars), money(row?.list_microdollars)],
    ["multiplier", null, row?.multiplier == null ? null : factorInWords(row.multiplier)],
    ["cost", money(record?.cost_microdollars), null],
    ["billed", money(record?.billed_microdollars), money(row?.billed_microdollars)],
    ["user-agent", record?.user_agent ?? null, row?.user_agent ?? null],
    ["from", null, row?.ip ?? null],
  ];
  const isKnown = (text: string | null) => text !== null && text !== "?";
  return facts
    .filter(([, ours, theirs]) => isKnown(ours) || isKnown(theirs))
    .map(([name, ours, theirs]) => ({ name, ours, theirs }));
}

/** ×1.5; what a float cannot hold exactly is not shown. */
export function factorInWords(value: number): string {
  return `×${Number(value.toPrecision(4))}`;
}

/** The cells that differ. A price of the operator's own is no difference, nor is a number that was estimated here. */
export function differing({ row, record }: ComparedRow): ReadonlySet<FactName> {
  const marks = new Set<FactName>();
  if (row === null || row.kind !== "use") return marks;
  if (otherwiseDue(row) !== null) marks.add("billed");
  if (record === null || record.tokens_from !== "reported") return marks;
  const compare = (name: FactName, ours: number | null, theirs: number | null) => {
    if (ours !== null && theirs !== null && ours !== theirs) marks.add(name);
  };
  compare("output", record.output_tokens, row.output_tokens);
  if (row.cache_read_tokens === null || row.cache_write_tokens === null) {
    // This console counts cached tokens as input.
    compare("input", wholeInput(record), wholeInput(row));
    return marks;
  }
  compare("input", record.input_tokens, row.input_tokens);
  compare("cache-read", record.cache_read_tokens, row.cache_read_tokens);
  compare("cache-write", record.cache_write_tokens, row.cache_write_tokens);
  return marks;
}

type Input = Pick<ComparedRecord, "input_tokens" | "cache_read_tokens" | "cache_write_tokens">;

/** With what a cache had of it, or was given. */
export function wholeInput({ input_tokens, cache_read_tokens, cache_write_tokens }: Input): number | null {
  return input_tokens === null ? null : input_tokens + (cache_read_tokens ?? 0) + (cache_write_tokens ?? 0);
}

/** matched, by id; foreign, certain */
export function verdictInWords({ verdict, row }: ComparedRow, t: Translate): string {
  const name = t(findMessage(`mirror.verdict.${verdict}`) ?? "mirror.verdict.none");
  const how = howInWords(row, t);
  return how === null ? name : `${name}${t("frame.comma")}${how}`;
}

function howInWords(row: ComparedRow["row"], t: Translate): string | null {
  if (row === null) return null;
  if (row.verdict === "foreign") return t(row.certain ? "mirror.how.certain" : "mirror.how.suspected");
  return row.how === null ? null : t(`mirror.how.${row.how}`);
}
