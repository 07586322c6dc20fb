import type { MirrorDay } from "../../../api.ts";
import type { Line } from "../../components/chart-layers.ts";

/** From the bottom of a bar to its top. What is wrong is on top, where it is seen. */
export const DAY_VERDICTS = [
  "matched",
  "other",
  "pending",
  "missing",
  "differs",
  "foreign_suspected",
  "foreign_certain",
] as const satisfies readonly (keyof MirrorDay)[];

export type DayVerdict = (typeof DAY_VERDICTS)[number];

const DAYS = 30;

/** The last 30 days, and earlier ones if the daemon's time zone needs them. */
export function daysOf(days: readonly MirrorDay[], now: number): number[] {
  const today = new Date(now);
  const last = Array.from({ length: DAYS }, (_, at) =>
    new Date(today.getFullYear(), today.getMonth(), today.getDate() - (DAYS - 1 - at)).getTime(),
  );
  return [...new Set([...last, ...days.map(({ day }) => day)])].sort((a, b) => a - b);
}

/** A line for each verdict. */
export function linesOfDays(days: readonly MirrorDay[], bins: readonly number[]): Line[] {
  return DAY_VERDICTS.map((name) => ({
    name,
    values: bins.map((bin) => days.reduce((sum, day) => sum + (day.day === bin ? day[name] : 0), 0)),
  }));
}
