import { HttpError } from "../core/errors.ts";
import { parseSince, parseUntil } from "../usage/reports/calendar.ts";
import type { By, MirrorAnswer, MonthBill } from "./api.ts";
import type { DashboardDeps } from "./deps.ts";
import type { UsageQuestions } from "./usage-api.ts";

/* What the page of the bill shows: our log beside the consoles' own. */

const MIRROR_DAYS = 30;
const MAX_MIRROR_ROWS = 500;

type BillDeps = Pick<DashboardDeps, "clock" | "mirror">;

export async function readMirror({ mirror, clock }: BillDeps): Promise<MirrorAnswer> {
  const reports = await mirror.report();
  // Without a console there may be no mirror.db.
  if (reports.length === 0) return { reports, diff: [], keys: [], keys_problems: [], over_time: [] };
  const [{ keys, problems }, diff, overTime] = await Promise.all([
    mirror.keys(),
    mirror.diff(),
    mirror.days(lastDays(clock.now())),
  ]);
  return {
    reports,
    diff: diff.slice(0, MAX_MIRROR_ROWS),
    keys,
    keys_problems: problems,
    over_time: overTime.sort((a, b) => a.day - b.day),
  };
}

/** Of this machine's calendar, up to and including today. */
function lastDays(now: number): { from: number; to: number }[] {
  const today = new Date(now);
  const midnight = (daysAgo: number) =>
    new Date(today.getFullYear(), today.getMonth(), today.getDate() - daysAgo).getTime();
  return Array.from({ length: MIRROR_DAYS }, (_, daysAgo) => ({
    from: midnight(daysAgo),
    to: midnight(daysAgo - 1),
  }));
}

/** @param month 2026-10, by this machine's calendar. Throws an HttpError. */
export async function readBill(
  month: string,
  { mirror, clock }: BillDeps,
  usage: UsageQuestions,
  signal: AbortSignal,
): Promise<MonthBill> {
  const first = parseSince(month, clock.now());
  const end = parseUntil(month, clock.now());
  if (!/^20\d\d-\d\d$/.test(month) || !first.ok || !end.ok)
    throw new HttpError(400, "month is a year and a month, such as 2026-10");
  const since = first.at;
  const until = end.at;
  const sums = (by: By) => {
    const query = new URLSearchParams({ since: String(since), until: String(until), bin: "month", by });
    return usage.chart(query, clock.now(), signal);
  };
  const [tools, models, consoles] = await Promise.all([
    sums("tool"),
    sums("model"),
    mirror.days([{ from: since, to: until }]),
  ]);
  return { month, since, until, total: tools.total, tools: tools.rows, models: models.rows, consoles };
}
