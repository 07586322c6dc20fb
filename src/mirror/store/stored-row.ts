import { type ConsoleRow, ROW_FIELDS } from "../console-row.ts";
import type { JudgedRow } from "../verdict.ts";
import { byName } from "./many.ts";
import { columnsOf } from "./raw-row.ts";

export type Value = string | number | null;

export const ROW_COLUMNS: string = ROW_FIELDS.map((name) => `"${name}"`).join(", ");

/** What is stored of its verdict. */
export const JUDGED = ["verdict", "how", "certain", "record", "key", "reason"] as const;
/** The columns of storedRowOf's rows. */
export const STORED: readonly string[] = [...ROW_FIELDS, ...JUDGED].map((name) => `"${name}"`);

/** verdict null: nobody has judged it yet. */
export type StoredVerdict = Omit<JudgedRow, "identity" | "verdict" | "reason"> & {
  readonly verdict: JudgedRow["verdict"] | null;
  readonly reason: string | null;
};

export interface StoredRow {
  readonly row: ConsoleRow;
  readonly judged: StoredVerdict;
}

export function storedRowOf(raw: unknown): StoredRow {
  const values = columnsOf(raw);
  const row = byName(ROW_FIELDS, values);
  row.stream = flagOf(row.stream);
  const at = ROW_FIELDS.length;
  const [verdict, how, certain] = [values[at], values[at + 1], values[at + 2] === 1];
  const [record, key, reason] = [values[at + 3], values[at + 4], values[at + 5]];
  const judged = { verdict, how, certain, record, key, reason };
  return { row, judged } as unknown as StoredRow;
}

export function flagOf(value: unknown): boolean | null {
  return value === null ? null : value === 1;
}

export function judgedValues({ verdict, how, certain, record, key, reason }: StoredVerdict): Value[] {
  return [verdict, how, certain ? 1 : 0, record, key, reason];
}

/**
 * As it is written, in the order of ROW_FIELDS. Numbers come from gateways: the log takes whole ones only (but for
 * factors), and would refuse a whole page for one that is not. libsql reads a text up to its first NUL.
 */
export function valuesOf(row: ConsoleRow): Value[] {
  return ROW_FIELDS.map((name) => {
    const value = row[name];
    if (typeof value === "boolean") return value ? 1 : 0;
    if (typeof value === "string") return value.includes("\0") ? value.replaceAll("\0", "\uFFFD") : value;
    if (typeof value !== "number" || !Number.isFinite(value)) return null;
    return name === "multiplier" ? value : Math.min(Math.max(Math.round(value), -MOST), MOST);
  });
}

/** A sum of a million of these is still exact. */
const MOST = 2 ** 33 * 1000;
