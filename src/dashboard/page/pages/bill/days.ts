import type { MirrorDay } from "../../../api.ts";
import type { Line } from "../../components/chart-layers.ts";

/** The series color of each verdict, from the bottom of a bar to its top: what is wrong is on top, where it is seen. */
const COLORS = {
  matched: 2,
  other: 8,
  pending: 7,
  missing: 4,
  differs: 1,
  foreign_suspected: 3,
  foreign_certain: 6,
} as const satisfies Partial<Record<keyof MirrorDay, number>>;

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
  const verdicts = Object.entries(COLORS) as [keyof typeof COLORS, number][];
  return verdicts.map(([name, color]) => ({
    name,
    paint: `--series-${color}`,
    values: bins.map((bin) => days.reduce((sum, day) => sum + (day.day === bin ? day[name] : 0), 0)),
  }));
}
