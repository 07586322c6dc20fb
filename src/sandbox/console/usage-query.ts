import type { UsageRow } from "../usage-log.ts";
import { createZone, dayAfter, type Zone } from "../zone.ts";

/** Which rows are wanted, and in what order. */
export interface UsageQuery {
  matches(row: UsageRow): boolean;
  compare(a: UsageRow, b: UsageRow): number;
  /** The key that was asked for, so that a stranger's can be refused. */
  readonly keyId: number | null;
}

/** Reads the query of GET /api/v1/usage, or says what is wrong with it. */
export function readUsageQuery(query: URLSearchParams, serverZone: Zone): UsageQuery | string {
  const keyId = wholeNumber(query, "api_key_id");
  if (keyId === "invalid") return "Invalid api_key_id";
  const groupId = wholeNumber(query, "group_id");
  if (groupId === "invalid") return "Invalid group_id";
  const billingType = wholeNumber(query, "billing_type");
  if (billingType === "invalid") return "Invalid billing_type";
  const stream = streamOf(query);
  if (stream === "invalid") return "Invalid stream or request_type";
  // A place that does not exist is passed over, as sub2api does.
  const zone = createZone(query.get("timezone") ?? serverZone.name) ?? serverZone;
  const from = boundary(query.get("start_date"), (day) => zone.startOf(day));
  if (Number.isNaN(from)) return "Invalid start_date format, use YYYY-MM-DD";
  const to = boundary(query.get("end_date"), (day) =>
    zone.startOf(day) === null ? null : zone.startOf(dayAfter(day)),
  );
  if (Number.isNaN(to)) return "Invalid end_date format, use YYYY-MM-DD";
  const model = query.get("model") || null;
  return {
    keyId,
    matches: (row) =>
      (keyId === null || row.keyId === keyId) &&
      (groupId === null || row.groupId === groupId) &&
      (billingType === null || billingType === 0) &&
      (model === null || row.model === model) &&
      (stream === null || row.stream === stream) &&
      (from === null || row.createdAt >= from) &&
      (to === null || row.createdAt < to),
    compare: comparison(query),
  };
}

function comparison(query: URLSearchParams): (a: UsageRow, b: UsageRow) => number {
  const sortBy = query.get("sort_by") || "created_at";
  const up = query.get("sort_order")?.toLowerCase() === "asc";
  const by = (a: UsageRow, b: UsageRow): number => {
    if (sortBy === "created_at") return a.createdAt - b.createdAt;
    if (sortBy === "model") return a.model < b.model ? -1 : a.model > b.model ? 1 : 0;
    return 0;
  };
  return (a, b) => (by(a, b) || a.id - b.id) * (up ? 1 : -1);
}

function wholeNumber(query: URLSearchParams, name: string): number | null | "invalid" {
  const text = query.get(name);
  if (text === null || text === "") return null;
  return /^\d{1,15}$/.test(text) ? Number(text) : "invalid";
}

/** The types that sub2api knows; the sandbox has no rows but of the first two. */
const REQUEST_TYPES = ["sync", "stream", "unknown", "ws_v2", "cyber", "live"];

/** `request_type` wins over `stream`. */
function streamOf(query: URLSearchParams): boolean | null | "none" | "invalid" {
  const type = query.get("request_type") || null;
  if (type === "stream" || type === "sync") return type === "stream";
  if (type !== null) return REQUEST_TYPES.includes(type) ? "none" : "invalid";
  const text = query.get("stream") || null;
  if (text === null) return null;
  return text === "true" ? true : text === "false" ? false : "invalid";
}

/** Null without a day, NaN for a day that is none. */
function boundary(day: string | null, moment: (day: string) => number | null): number | null {
  if (day === null || day === "") return null;
  return moment(day) ?? Number.NaN;
}
