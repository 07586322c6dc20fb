import type { LimitStatus } from "../../control/tool-status.ts";
import { HOUR_MS } from "../../core/units.ts";
import {
  countInWords,
  durationInWords,
  limitName,
  momentInWords,
  statusFigures,
} from "../../limits/format.ts";
import { type Calendar, systemCalendar } from "../../limits/windows.ts";
import { columnsFor, layoutTable } from "../ui/table.ts";
import type { Screen } from "../ui/terminal.ts";
import { printable, truncate } from "../ui/text.ts";

const INDENT = "    ";
const GAUGE_WIDTH = 8;
/** Longer than this, a time of day says more than a number of minutes. */
const BY_DURATION_MS = 2 * HOUR_MS;

/**
 * One line a limit, in columns, and below it what is estimated and reserved. What there is no room for goes, the least
 * important first.
 */
export function limitLines(
  limits: readonly LimitStatus[],
  now: number,
  { width, utf8 }: Screen,
  calendar: Calendar = systemCalendar,
): string[][] {
  if (limits.length === 0) return [];
  const { text, number } = columnsFor(limits);
  const columns = [
    text("", 0, limitName),
    text("", 2, ({ used, held, most }) => (used === null ? "" : gauge(used, held ?? 0, most, utf8))),
    number("", 0, usedOfMost),
    text("", 1, ({ resets_at }) =>
      resets_at === null ? "" : `resets ${whenInWords(resets_at, now, calendar)}`,
    ),
  ].filter(({ cells }) => cells.some((cell) => cell !== ""));
  const { lines } = layoutTable(columns, width - INDENT.length);
  return limits.map((limit, at) => [`${INDENT}${lines[at + 1] ?? ""}`, ...formatDetails(limit, width)]);
}

/**
 * incl. $0.10 estimated, $0.48 reserved for requests in flight. Of a shared limit each machine's part: laptop 12, desktop 8
 * and 4 reserved. None: there is nothing to add.
 */
function formatDetails(status: LimitStatus, width: number): string[] {
  // A daemon from before an update sends no machines.
  const { limit, machines = [] } = status;
  const { estimated, held } = statusFigures(status);
  const parts = machines.map(({ name, used, granted }) => {
    const more = granted > used ? ` and ${countInWords(limit, granted - used)} reserved` : "";
    return `${name} ${countInWords(limit, used)}${more}`;
  });
  if (estimated !== null) parts.unshift(`incl. ${estimated} estimated`);
  if (held !== null && machines.length === 0) parts.push(`${held} reserved for requests in flight`);
  if (parts.length === 0) return [];
  return [`${INDENT}  ${truncate(printable(parts.join(", ")), width - INDENT.length - 2)}`];
}

/** $4.10/$5.00, and with an extra allowance $4.10/$5.00+$2.00. */
function usedOfMost(status: LimitStatus): string {
  const { used, max } = statusFigures(status);
  return `${used ?? "-"}/${max}`;
}

/**
 * How full it is, and behind that what is held for calls in flight. Something is never drawn as nothing, and full is
 * drawn only when it is.
 */
export function gauge(used: number, held: number, most: number, utf8: boolean): string {
  const [full, kept, free, left, right] = utf8 ? ["█", "▒", "░", "▕", "▏"] : ["#", "=", ".", "[", "]"];
  const cells = (amount: number) => {
    if (amount <= 0) return 0;
    if (amount >= most) return GAUGE_WIDTH;
    return Math.min(GAUGE_WIDTH - 1, Math.max(1, Math.round((amount / most) * GAUGE_WIDTH)));
  };
  const solid = cells(used);
  const taken = Math.max(solid, cells(used + held));
  return `${left}${full.repeat(solid)}${kept.repeat(taken - solid)}${free.repeat(GAUGE_WIDTH - taken)}${right}`;
}

/** in 12 min, at 23:00, tomorrow at 00:00, on 2026-12-01. */
export function whenInWords(time: number, now: number, calendar: Calendar = systemCalendar): string {
  if (time <= now) return "now";
  if (time - now <= BY_DURATION_MS) return `in ${durationInWords(time - now)}`;
  return momentInWords(time, now, calendar);
}
