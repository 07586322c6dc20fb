import type { MirrorDay } from "../../../api.ts";
import { type Layer, sum } from "../../components/chart-stack.ts";

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

/** Every verdict that occurred. Each has its own colour, so even small ones stay separate. */
export function layersOfDays(days: readonly MirrorDay[], bins: readonly number[]): Layer[] {
  const paths = new Map(bins.map((bin, at) => [bin, at]));
  return DAY_VERDICTS.map((name, colour) => {
    const values = bins.map(() => 0);
    for (const day of days) {
      const at = paths.get(day.day) ?? -1;
      if (at >= 0) values[at] = (values[at] ?? 0) + day[name];
    }
    return { name, values, total: sum(values), colour, folded: [] };
  }).filter(({ total }) => total > 0);
}
