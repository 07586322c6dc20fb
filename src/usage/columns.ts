import { NOT_CLOSED, type Opening, type UsageRecord } from "./record.ts";

type Field = keyof UsageRecord;

/** How a field is stored: its SQL type, and what stands for a value that is missing or of the wrong type. */
interface Column {
  readonly name: Field;
  readonly type: "text" | "integer" | "real" | "boolean" | "json";
  /** null: the field may be unknown. */
  readonly fallback: string | number | null;
  /** false: only the limits need it, so `usage export` leaves it out. */
  readonly exported: boolean;
}

function column(name: Field, type: Column["type"], fallback: Column["fallback"] = null): Column {
  return { name, type, fallback, exported: true };
}

function internal(name: Field, type: Column["type"]): Column {
  return { name, type, fallback: null, exported: false };
}

/**
 * The one definition of a record's fields, in the order of an export. The index's table, its statements, reading a row
 * back, and the export are all made from it.
 */
export const COLUMNS: readonly Column[] = [
  column("id", "text", ""),
  column("started_at", "integer", 0),
  column("first_byte_at", "integer"),
  column("ended_at", "integer"),
  column("tool", "text"),
  column("gateway", "text"),
  column("group", "text"),
  column("multiplier", "real", 1),
  column("key", "text"),
  column("protocol", "text", "openai"),
  column("method", "text", ""),
  column("endpoint", "text", ""),
  column("model", "text"),
  column("model_answered", "text"),
  column("stream", "boolean"),
  column("status", "integer"),
  column("end", "text"),
  column("cause", "text"),
  column("cause_detail", "text"),
  column("refusal", "text"),
  column("input_tokens", "integer"),
  column("cache_read_tokens", "integer"),
  column("cache_write_tokens", "integer"),
  column("output_tokens", "integer"),
  column("reasoning_tokens", "integer"),
  column("tokens_from", "text", "none"),
  column("list_microdollars", "integer"),
  column("cost_microdollars", "integer"),
  column("billed_microdollars", "integer"),
  column("bytes_in", "integer", 0),
  column("bytes_out", "integer", 0),
  column("waited_ms", "integer", 0),
  column("process", "text"),
  column("gateway_ids", "json", "{}"),
  internal("held_tokens", "integer"),
  internal("held_microdollars", "integer"),
  internal("admitted_at", "integer"),
  internal("counts", "boolean"),
  internal("counted_tokens", "integer"),
  internal("counted_microdollars", "integer"),
];

/** What an `open` line has. The model may be known only at the end. */
const OPENING_COLUMNS: readonly Column[] = COLUMNS.filter(
  ({ name }) => name === "model" || !(name in NOT_CLOSED || name === "billed_microdollars"),
);

const SQL_TYPES = {
  text: "TEXT",
  integer: "INTEGER",
  real: "REAL",
  boolean: "INTEGER",
  json: "TEXT",
} as const;

/** The columns of `CREATE TABLE records`, without its key. */
export const COLUMN_DEFINITIONS: string = COLUMNS.map(
  ({ name, type, fallback }) => `"${name}" ${SQL_TYPES[type]}${fallback === null ? "" : " NOT NULL"}`,
).join(", ");

/** For a SELECT or INSERT whose rows recordOfRow() and rowOfRecord() know. */
export const COLUMN_NAMES: string = COLUMNS.map(({ name }) => `"${name}"`).join(", ");

/** The names that `usage export` prints, in its order. */
export const EXPORTED: readonly Field[] = COLUMNS.filter(({ exported }) => exported).map(({ name }) => name);

export type SqlValue = string | number | null;

/** Its fields in the order of COLUMN_NAMES, as SQLite takes them. */
export function rowOfRecord(record: UsageRecord): SqlValue[] {
  return COLUMNS.map(({ name, type }) => {
    const value = record[name];
    if (type === "json") return JSON.stringify(value);
    if (typeof value === "boolean") return Number(value);
    return value as SqlValue;
  });
}

export function recordOfRow(row: unknown): UsageRecord {
  const values = row as readonly unknown[];
  const record: Record<string, unknown> = {};
  for (const [at, { name, type }] of COLUMNS.entries()) {
    const value = values[at] ?? null;
    if (type === "boolean") record[name] = value === null ? null : value === 1;
    else record[name] = type === "json" ? parseTexts(String(value)) : value;
  }
  return record as unknown as UsageRecord;
}

/** An edited row must not keep all the others from being read. */
function parseTexts(json: string): Record<string, string> {
  try {
    return textsOf(JSON.parse(json));
  } catch {
    return {};
  }
}

/**
 * A record from what stood in a line, whatever that was: an edited line must not break the index. Numbers are whole and
 * not negative, texts have no NUL (libsql would cut them there), and what is missing gets its fallback.
 */
export function recordOfFields(fields: Readonly<Record<string, unknown>>): UsageRecord {
  return valuesOf(COLUMNS, fields) as unknown as UsageRecord;
}

/** The same of an opening. */
export function openingOfFields(fields: Readonly<Record<string, unknown>>): Opening {
  return valuesOf(OPENING_COLUMNS, fields) as unknown as Opening;
}

function valuesOf(columns: readonly Column[], fields: Readonly<Record<string, unknown>>): object {
  const values: Record<string, unknown> = {};
  for (const { name, type, fallback } of columns) {
    const value = fields[name];
    if (type === "text") values[name] = typeof value === "string" ? withoutNul(value) : fallback;
    else if (type === "integer") values[name] = wholeNumber(value) ?? fallback;
    else if (type === "real") values[name] = Number.isFinite(value) ? value : fallback;
    else if (type === "boolean") values[name] = typeof value === "boolean" ? value : null;
    else values[name] = textsOf(value);
  }
  return values;
}

/** A million of these still add up exactly. */
const MAX_NUMBER = 2 ** 33 * 1000;

export function wholeNumber(value: unknown): number | null {
  if (typeof value !== "number" || !Number.isFinite(value)) return null;
  return Math.min(Math.max(Math.round(value), 0), MAX_NUMBER);
}

function withoutNul(text: string): string {
  return text.includes("\0") ? text.replaceAll("\0", "\uFFFD") : text;
}

export function textsOf(value: unknown): Record<string, string> {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return {};
  const texts: Record<string, string> = {};
  for (const [name, text] of Object.entries(value)) if (typeof text === "string") texts[name] = text;
  return texts;
}
