import type { Lane } from "../ledger/cells.ts";
import type { RecordEnd } from "../record.ts";
import type { Period } from "./period.ts";

/** Which records are meant, by exact names; an empty name means those that have none. No names at all: any. */
export interface Selection {
  readonly period: Period;
  readonly names: Readonly<Record<LaneName, readonly string[]>>;
  /** How they ended; none: however. */
  readonly ends: readonly RecordEnd[];
}

export type LaneName = "tool" | "model" | "group" | "key";

export const LANE_NAMES: readonly LaneName[] = ["tool", "model", "group", "key"];

export function isSelected({ names }: Selection, lane: Pick<Lane, LaneName>): boolean {
  return LANE_NAMES.every((name) => names[name].length === 0 || names[name].includes(lane[name]));
}

/** As a part of a WHERE clause. A record's lane is told as its cell has it: see cells.ts. */
export function selectionSql({ names, ends }: Selection): { sql: string; values: string[] } {
  const among = (expression: string, wanted: readonly string[]) =>
    wanted.length === 0 ? "" : ` AND ${expression} IN (${wanted.map(() => "?").join(", ")})`;
  const parts = LANE_NAMES.map((name) => among(EXPRESSIONS[name], names[name]));
  return {
    sql: `"end" IS NOT NULL${parts.join("")}${among('"end"', ends)}`,
    values: [...LANE_NAMES.flatMap((name) => names[name]), ...ends],
  };
}

const EXPRESSIONS: Readonly<Record<LaneName, string>> = {
  tool: "coalesce(tool, '')",
  model: "coalesce(model, model_answered, '')",
  group: `coalesce("group", '')`,
  key: "coalesce(key, '')",
};
