import type { RecordEnd } from "../record.ts";
import type { Series } from "../rollups.ts";
import type { Period } from "./period.ts";

export type SeriesName = keyof Series;

/** Which records a command is about. */
export interface Filter {
  readonly period: Period;
  /** `*` stands for anything, every other character for itself. No names: any. */
  readonly tools: readonly string[];
  readonly models: readonly string[];
}

/** Which records the dashboard asks for. */
export interface Selection {
  readonly period: Period;
  /** Exact names; an empty one means records without one. No names: any. */
  readonly names: Readonly<Record<SelectedName, readonly string[]>>;
  /** How they ended; none: in any way. */
  readonly ends: readonly RecordEnd[];
}

export const SELECTED_NAMES = ["tool", "model", "group", "key"] as const satisfies readonly SeriesName[];
export type SelectedName = (typeof SELECTED_NAMES)[number];

/** Conditions that may follow others in a WHERE clause, and their values. */
export interface Conditions {
  readonly sql: string;
  readonly values: readonly string[];
}

/** Rollups do not know how a record ended, so `ends` counts only for records. */
export function conditionsOf(filter: Filter | Selection, table: "records" | "rollups"): Conditions {
  const conditions: string[] = [];
  const values: string[] = [];
  const add = (expression: string, operator: "=" | "GLOB", names: readonly string[]) => {
    if (names.length === 0) return;
    conditions.push(` AND (${names.map(() => `${expression} ${operator} ?`).join(" OR ")})`);
    values.push(...names);
  };
  const column = (name: SeriesName) => (table === "records" ? RECORD_SERIES[name] : `"${name}"`);
  if ("names" in filter) {
    for (const name of SELECTED_NAMES) add(column(name), "=", filter.names[name]);
    if (table === "records") add('"end"', "=", filter.ends);
  } else {
    add(column("tool"), "GLOB", filter.tools.map(sqliteGlob));
    add(column("model"), "GLOB", filter.models.map(sqliteGlob));
  }
  return { sql: conditions.join(""), values };
}

/** In SQLite's patterns `?` and `[` are special, too. */
function sqliteGlob(pattern: string): string {
  return pattern.replace(/[?[]/g, "[$&]");
}

/** The series a record belongs to, as rollupOf() has it. */
export const RECORD_SERIES: Readonly<Record<SeriesName, string>> = {
  tool: "coalesce(tool, '')",
  gateway: "coalesce(gateway, '')",
  group: `coalesce("group", '')`,
  key: "coalesce(key, '')",
  model: "coalesce(model, model_answered, '')",
};

/** The ids of all records that began in a period: from the first to before the second. */
export function idsOf({ since, until }: Period): [from: string, before: string] {
  // "~" is greater than every id.
  return [since === null ? "" : firstIdAt(since), until === null ? "~" : firstIdAt(until)];
}

const CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const MAX_ID_TIME = 2 ** 48 - 1;

/** How an id of this time begins: no id of this time or later is smaller. Ids are ULIDs of when a record began. */
export function firstIdAt(time: number): string {
  let rest = Math.min(MAX_ID_TIME, Math.max(0, Math.ceil(time)));
  let text = "";
  for (let digit = 0; digit < 10; digit += 1) {
    text = CROCKFORD.charAt(rest % 32) + text;
    rest = Math.floor(rest / 32);
  }
  return text;
}
