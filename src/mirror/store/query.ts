import type Database from "libsql";

/** The columns of a row of a raw statement; none where there was no row. */
export function columnsOf(row: unknown): readonly unknown[] {
  return Array.isArray(row) ? row : [];
}

/** The first column of a row; undefined where there was no row. */
export function firstOf(row: unknown): unknown {
  return columnsOf(row)[0];
}

/** The first column as a number; null where it is not one. */
export function numberIn(row: unknown): number | null {
  const value = firstOf(row);
  return typeof value === "number" ? value : null;
}

/** The first column of a statement's only row. */
export function answerOf(db: Database.Database, sql: string): unknown {
  return firstOf(db.prepare(sql).raw().get());
}

/** What follows IN: the values of a list that is handed over as JSON. */
export const AMONG = "(SELECT value FROM json_each(?))";

/**
 * The rows of a question, each with its columns in their order, as one text of JSON: libsql hands over every single value
 * by itself, which for thousands of rows takes longer than finding them, and the requests wait meanwhile. `from` begins
 * with FROM.
 */
export function readMany(
  db: Database.Database,
  columns: readonly string[],
  from: string,
  ...values: (string | number)[]
): unknown[][] {
  const text = db.prepare(`SELECT json_group_array(json_array(${columns.join(", ")})) ${from}`).raw();
  return JSON.parse(String(firstOf(text.get(...values))));
}

/** Values by their names. Thousands at a time: building a list of pairs for each would take five times as long. */
export function byName(names: readonly string[], values: readonly unknown[]): Record<string, unknown> {
  const named: Record<string, unknown> = {};
  for (let at = 0; at < names.length; at += 1) named[names[at] ?? ""] = values[at] ?? null;
  return named;
}
