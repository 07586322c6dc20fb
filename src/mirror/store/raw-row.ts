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
