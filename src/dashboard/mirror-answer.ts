import type { Clock } from "../core/clock.ts";
import type { Mirror } from "../mirror/mirror.ts";
import type { MirrorAnswer } from "./api.ts";

export interface MirrorDeps {
  readonly clock: Clock;
  readonly mirror: Pick<Mirror, "report" | "diff" | "keys" | "days" | "compared">;
}

const DAYS = 30;
const MOST_ROWS = 500;

export async function mirrorAnswer({ clock, mirror }: MirrorDeps): Promise<MirrorAnswer> {
  const reports = await mirror.report();
  // Without a console there is nothing to compare, and may be no mirror.db.
  if (reports.length === 0) return { reports, diff: [], keys: [], keys_problems: [], over_time: [] };
  const days = lastDays(clock.now(), DAYS);
  const [{ keys, problems }, diff, over_time] = await Promise.all([
    mirror.keys(),
    mirror.diff(),
    mirror.days(days),
  ]);
  return {
    reports,
    diff: diff.slice(0, MOST_ROWS),
    keys,
    keys_problems: problems,
    over_time: over_time.sort((a, b) => a.day - b.day),
  };
}

/** Of this machine's calendar, the last one up to now. */
function lastDays(now: number, count: number): { from: number; to: number }[] {
  const today = new Date(now);
  const at = (back: number) =>
    new Date(today.getFullYear(), today.getMonth(), today.getDate() - back).getTime();
  return Array.from({ length: count }, (_, index) => ({
    from: at(count - 1 - index),
    to: at(count - 2 - index),
  }));
}
