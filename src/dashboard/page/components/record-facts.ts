import type { ComparedRecord, ComparedRow } from "../../../mirror/report/shape.ts";

export type FactName =
  | "id"
  | "request-id"
  | "began"
  | "ended"
  | "took"
  | "tool"
  | "key"
  | "group"
  | "model"
  | "endpoint"
  | "stream"
  | "end"
  | "input"
  | "cache-read"
  | "cache-write"
  | "output"
  | "list-price"
  | "multiplier"
  | "cost"
  | "billed"
  | "user-agent"
  | "from";

export type FactKind = "text" | "time" | "milliseconds" | "tokens" | "money" | "factor" | "yes-no";
export type FactValue = string | number | boolean | null;

/** One fact as our log and the console report it. */
export interface Fact {
  readonly name: FactName;
  readonly kind: FactKind;
  /** null: unknown, or not reported. */
  readonly ours: FactValue;
  readonly theirs: FactValue;
  /** The two do not agree, by the same rule as the verdict. */
  readonly differs: boolean;
}

/** What both sides say of one request, what neither says left out. */
export function factsOf(compared: ComparedRow): Fact[] {
  const { row, record } = compared;
  const marks = differing(compared);
  const fact = (name: FactName, kind: FactKind, ours: FactValue, theirs: FactValue): Fact => ({
    name,
    kind,
    ours,
    theirs,
    differs: marks.has(name),
  });
  const ids = Object.entries(record?.gateway_ids ?? {}).map(([name, id]) => `${name}: ${id}`);
  return [
    fact("id", "text", record?.id ?? null, row?.identity ?? null),
    fact("request-id", "text", ids.join(", ") || null, row?.request_id ?? null),
    fact("began", "time", record?.started_at ?? null, row?.began ?? null),
    fact("ended", "time", record?.ended_at ?? null, row?.at ?? null),
    fact("took", "milliseconds", tookOf(record), row?.duration_ms ?? null),
    fact("tool", "text", record?.tool ?? null, null),
    fact("key", "text", record?.key ?? null, row?.key ?? row?.key_ref ?? null),
    fact("group", "text", null, row?.group ?? null),
    fact("model", "text", record?.model ?? null, row?.model ?? null),
    fact("endpoint", "text", null, row?.endpoint ?? null),
    fact("stream", "yes-no", record?.stream ?? null, row?.stream ?? null),
    fact("end", "text", record?.end ?? null, null),
    fact("input", "tokens", record?.input_tokens ?? null, row?.input_tokens ?? null),
    fact("cache-read", "tokens", record?.cache_read_tokens ?? null, row?.cache_read_tokens ?? null),
    fact("cache-write", "tokens", record?.cache_write_tokens ?? null, row?.cache_write_tokens ?? null),
    fact("output", "tokens", record?.output_tokens ?? null, row?.output_tokens ?? null),
    fact("list-price", "money", record?.list_microdollars ?? null, row?.list_microdollars ?? null),
    fact("multiplier", "factor", null, row?.multiplier ?? null),
    fact("cost", "money", record?.cost_microdollars ?? null, null),
    fact("billed", "money", record?.billed_microdollars ?? null, row?.billed_microdollars ?? null),
    fact("user-agent", "text", record?.user_agent ?? null, row?.user_agent ?? null),
    fact("from", "text", null, row?.ip ?? null),
  ].filter(({ ours, theirs }) => ours !== null || theirs !== null);
}

function tookOf(record: ComparedRecord | null): number | null {
  return record === null || record.ended_at === null ? null : record.ended_at - record.started_at;
}

/** Money that rounding explains, as the mirror has it. */
const SAME_MICRODOLLARS = 2;
const SAME_SHARE = 0.001;

/** The cells that are to blame. A price of the operator's own is no difference, nor is a number that was estimated here. */
export function differing({ row, record }: ComparedRow): ReadonlySet<FactName> {
  const marks = new Set<FactName>();
  if (row === null || row.kind !== "use") return marks;
  const { list_microdollars: list, multiplier, billed_microdollars: billed } = row;
  if (list !== null && multiplier !== null && billed !== null) {
    const due = list * multiplier;
    if (Math.abs(due - billed) > Math.max(SAME_MICRODOLLARS, due * SAME_SHARE)) marks.add("billed");
  }
  if (record === null || record.tokens_from !== "reported") return marks;
  const differ = (ours: number | null, theirs: number | null) =>
    ours !== null && theirs !== null && ours !== theirs;
  if (differ(record.output_tokens, row.output_tokens)) marks.add("output");
  if (row.cache_read_tokens === null || row.cache_write_tokens === null) {
    // This console counts cached tokens as input.
    if (differ(wholeInput(record), wholeInput(row))) marks.add("input");
    return marks;
  }
  if (differ(record.input_tokens, row.input_tokens)) marks.add("input");
  if (differ(record.cache_read_tokens, row.cache_read_tokens)) marks.add("cache-read");
  if (differ(record.cache_write_tokens, row.cache_write_tokens)) marks.add("cache-write");
  return marks;
}

type Input = Pick<ComparedRecord, "input_tokens" | "cache_read_tokens" | "cache_write_tokens">;

function wholeInput({ input_tokens, cache_read_tokens, cache_write_tokens }: Input): number | null {
  return input_tokens === null ? null : input_tokens + (cache_read_tokens ?? 0) + (cache_write_tokens ?? 0);
}
