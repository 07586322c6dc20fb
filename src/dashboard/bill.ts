import type { Controls } from "../control/routes.ts";
import { HttpError } from "../core/errors.ts";
import { parseSince, parseUntil } from "../usage/reports/calendar.ts";
import type { By } from "./api.ts";
import type { DashboardDeps } from "./deps.ts";
import type { UsageQuestions } from "./usage-api.ts";

/* What the page of the bill shows: our log beside the consoles' own. */

const MAX_MIRROR_ROWS = 500;

export type MirrorAnswer = Awaited<ReturnType<typeof readMirror>>;
export type MonthBill = Awaited<ReturnType<typeof readBill>>;

/** One report for each gateway with a console. */
export async function readMirror(mirror: Controls["mirror"]) {
  const reports = await mirror.report();
  // Without a console there may be no mirror.db.
  if (reports.length === 0) return { reports, diff: [], keys: [], keys_problems: [] };
  const [{ keys, problems }, diff] = await Promise.all([mirror.keys(), mirror.diff()]);
  return {
    reports,
    /** Rows that need attention, foreign ones first, then the newest. */
    diff: diff.slice(0, MAX_MIRROR_ROWS),
    keys,
    /** Consoles whose keys could not be listed. */
    keys_problems: problems,
  };
}

/** @param month 2026-10, by this machine's calendar. Throws an HttpError. */
export async function readBill(
  month: string,
  { controls, clock }: DashboardDeps,
  usage: UsageQuestions,
  signal: AbortSignal,
) {
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
    // Of each gateway that lists rows of this month.
    controls().mirror.days([{ from: since, to: until }]),
  ]);
  return { month, since, until, total: tools.total, tools: tools.rows, models: models.rows, consoles };
}
