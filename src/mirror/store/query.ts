import type Database from "libsql";

export type Value = string | number | null;

/** All rows as objects by column name. The caller vouches for the type. */
export function queryAll<Row>(db: Database.Database, sql: string, ...values: Value[]): Row[] {
  return db.prepare(sql).all(...values) as Row[];
}

/** All rows as arrays in the order of the columns. With thousands of rows libsql takes 2.5 times as long for objects. */
export function queryRows(db: Database.Database, sql: string, ...values: Value[]): unknown[][] {
  return db
    .prepare(sql)
    .raw()
    .all(...values) as unknown[][];
}

/** The first column of every row. */
export function queryColumn(db: Database.Database, sql: string, ...values: Value[]): unknown[] {
  return queryRows(db, sql, ...values).map((row) => row[0]);
}

/** The first column of the first row. null: it is NULL, or there is no row. */
export function queryValue(db: Database.Database, sql: string, ...values: Value[]): Value {
  const row = db
    .prepare(sql)
    .raw()
    .get(...values) as Value[] | undefined;
  return row?.[0] ?? null;
}

/** The same for a column of numbers. */
export function queryNumber(db: Database.Database, sql: string, ...values: Value[]): number | null {
  const value = queryValue(db, sql, ...values);
  return typeof value === "number" ? value : null;
}

/** Returns how many rows it changed. */
export function execute(db: Database.Database, sql: string, ...values: Value[]): number {
  return db.prepare(sql).run(...values).changes;
}

/** Follows IN: the values of a list that is passed as JSON text. */
export const IN_LIST = "(SELECT value FROM json_each(?))";

/**
 * A row of queryRows as an object. The caller vouches for the type. A loop, because Object.fromEntries takes five times as
 * long.
 */
export function namedColumns<Row>(names: readonly string[], values: readonly unknown[]): Row {
  const named: Record<string, unknown> = {};
  for (let at = 0; at < names.length; at += 1) named[names[at] ?? ""] = values[at] ?? null;
  return named as Row;
}
