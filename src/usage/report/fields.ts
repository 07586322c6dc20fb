import type { UsageRecord } from "../record.ts";

/** Every field of a record, in the order in which it is exported. */
export const FIELDS = [
  "id",
  "started_at",
  "first_byte_at",
  "ended_at",
  "tool",
  "gateway",
  "group",
  "multiplier",
  "key",
  "protocol",
  "method",
  "endpoint",
  "model",
  "model_answered",
  "stream",
  "status",
  "end",
  "cause",
  "refusal",
  "input_tokens",
  "cache_read_tokens",
  "cache_write_tokens",
  "output_tokens",
  "reasoning_tokens",
  "tokens_from",
  "list_microdollars",
  "cost_microdollars",
  "billed_microdollars",
  "bytes_in",
  "bytes_out",
  "waited_ms",
  "process",
  "gateway_ids",
] as const satisfies readonly (keyof UsageRecord)[];

/** For a SELECT whose raw rows recordOf() takes. */
export const COLUMNS = FIELDS.map((name) => `"${name}"`).join(", ");

export function recordOf(row: readonly unknown[]): UsageRecord {
  const record: Record<string, unknown> = {};
  for (const [at, name] of FIELDS.entries()) record[name] = fieldValue(name, row[at]);
  return record as unknown as UsageRecord;
}

/** The same record with its fields in the order of FIELDS. */
export function inOrder(record: UsageRecord): UsageRecord {
  return Object.fromEntries(FIELDS.map((name) => [name, record[name]])) as unknown as UsageRecord;
}

function fieldValue(name: (typeof FIELDS)[number], value: unknown): unknown {
  if (name === "stream") return value === null ? null : value === 1;
  return name === "gateway_ids" ? idsOf(value) : (value ?? null);
}

/** One row that somebody wrote by hand must not keep all the others from being read. */
function idsOf(value: unknown): Record<string, string> {
  try {
    const ids: unknown = JSON.parse(String(value));
    return ids instanceof Object && !Array.isArray(ids) ? (ids as Record<string, string>) : {};
  } catch {
    return {};
  }
}
