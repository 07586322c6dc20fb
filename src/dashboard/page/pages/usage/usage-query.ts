import type { ShownRecord } from "../../../api.ts";
import type { BinSize, Span } from "./usage-period.ts";
import { DIMENSIONS, type Dimension, type Filters, type View } from "./usage-view.ts";

/** What the chart and its table are made from. */
export function chartQuery({ filters, by }: View, span: Span, bin: BinSize): URLSearchParams {
  const query = filterQuery(filters, span);
  query.set("bin", bin);
  query.set("by", by);
  return query;
}

/** What is listed, and saved as CSV: the same records. */
export function recordsQuery({ filters }: View, span: Span): URLSearchParams {
  const query = filterQuery(filters, span);
  if (filters.end !== undefined) query.set("end", filters.end);
  return query;
}

function filterQuery(filters: Filters, { since, until }: Span): URLSearchParams {
  const query = new URLSearchParams({ since: String(since), until: String(until) });
  for (const name of DIMENSIONS) {
    const value = filters[name];
    if (value !== undefined) query.set(name, value);
  }
  return query;
}

/** Whether a record that just came belongs to what is listed. */
export function belongs(record: ShownRecord, filters: Filters, { since, until }: Span): boolean {
  if (record.started_at < since || record.started_at >= until) return false;
  if (filters.end !== undefined && record.end !== filters.end) return false;
  return DIMENSIONS.every((name) => filters[name] === undefined || filters[name] === nameIn(record, name));
}

/** As the log sums it up: empty where there is none. */
function nameIn(record: ShownRecord, name: Dimension): string {
  if (name === "model") return record.model ?? record.model_answered ?? "";
  return record[name] ?? "";
}
