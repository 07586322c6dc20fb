import type { LimitStatus } from "../../control/tool-status.ts";
import { amountInWords, durationInWords } from "../../limits/format.ts";
import { type Calendar, systemCalendar } from "../../limits/windows.ts";
import { type Column, layoutTable } from "../ui/table.ts";
import type { Screen } from "../ui/terminal.ts";
import { printable, truncate } from "../ui/text.ts";

const INDENT = "    ";
const GAUGE_WIDTH = 8;
/** Longer than this, a time of day says more than a number of minutes. */
const BY_DURATION_MS = 2 * 3_600_000;

/** One line a limit, in columns. What there is no room for goes, the least important first. */
export function limitLines(
  limits: readonly LimitStatus[],
  now: number,
  { width, utf8 }: Screen,
  calendar: Calendar = systemCalendar,
): string[] {
  if (limits.length === 0) return [];
  const column = (dropOrder: number, cell: (limit: LimitStatus) => string, right = false): Column => ({
    head: "",
    cells: limits.map(cell),
    right,
    dropOrder,
  });
  const columns = [
    column(0, nameOf),
    column(2, ({ used, held, most }) => (used === null ? "" : gauge(used, held ?? 0, most, utf8))),
    column(0, usedOfMost, true),
    column(1, ({ resets_at }) =>
      resets_at === null ? "" : `resets ${whenInWords(resets_at, now, calendar)}`,
    ),
    // What machines hold is more than what is in flight.
    column(3, ({ limit, held, machines = [] }) =>
      held && machines.length > 0 ? `${short(limit, held)} held` : "",
    ),
  ].filter(({ cells }) => cells.some((cell) => cell !== ""));
  const { lines } = layoutTable(columns, width - INDENT.length);
  return lines.slice(1).map((line) => `${INDENT}${line}`);
}

/** laptop 12, desktop 8 and 4 held: each machine's part of a shared limit. null: only this machine counts. */
export function machinesLine({ limit, machines = [] }: LimitStatus, width: number): string | null {
  if (machines.length === 0) return null;
  const parts = machines.map(({ name, used, granted }) => {
    const held = granted > used ? ` and ${short(limit, granted - used)} held` : "";
    return `${name} ${short(limit, used)}${held}`;
  });
  return `${INDENT}  ${truncate(printable(parts.join(", ")), width - INDENT.length - 2)}`;
}

/** $0.48 in flight, $1.44 estimated: what may still become less or more. null: nothing of it may. */
export function unsureLine({ limit, held, estimated, machines = [] }: LimitStatus): string | null {
  const parts: string[] = [];
  if (held && machines.length === 0) parts.push(`${short(limit, held)} in flight`);
  // A daemon that was started before an update does not report it.
  if (estimated) parts.push(`${short(limit, estimated)} estimated`);
  return parts.length === 0 ? null : `${INDENT}  ${parts.join(", ")}`;
}

/** requests/minute, concurrent, quota: as in config.yaml. */
export function nameOf({ limit, per }: Pick<LimitStatus, "limit" | "per">): string {
  return per === null ? limit : `${limit}/${per}`;
}

/** 60 requests, 400,000 tokens, $5.00; calls at once have no unit. */
export function amountOf(limit: LimitStatus["limit"], amount: number, unit = true): string {
  switch (limit) {
    case "quota":
      return amountInWords("spend", amount);
    case "concurrent":
      return String(amount);
    case "requests":
    case "tokens":
    case "spend":
      return amountInWords(limit, amount, unit);
  }
}

/** $4.10/$5.00, and with an extra allowance $4.10/$5.00+$2.00. */
function usedOfMost({ limit, used, most, extra }: LimitStatus): string {
  const more = extra > 0 ? `+${short(limit, extra)}` : "";
  return `${used === null ? "-" : short(limit, used)}/${short(limit, most - extra)}${more}`;
}

/** Many tokens in thousands or millions, rounded down: what is almost used up must not read as used up. */
function short(limit: LimitStatus["limit"], amount: number): string {
  if (limit !== "tokens" || amount < 10_000) return amountOf(limit, amount, false);
  const [unit, sign] = amount < 1_000_000 ? [1000, "k"] : [1_000_000, "M"];
  return `${Math.floor((amount / unit) * 10) / 10}${sign}`;
}

/**
 * How full it is, and behind that what is held for calls under way. Something is never drawn as nothing, and full is
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

/** in 12 min, today 23:00, tomorrow 00:00, 2026-12-01; local time, and the hour where it is not the day's first. */
export function whenInWords(time: number, now: number, calendar: Calendar = systemCalendar): string {
  if (time <= now) return "now";
  if (time - now <= BY_DURATION_MS) return `in ${durationInWords(time - now)}`;
  const then = calendar.at(time);
  const today = calendar.at(now);
  const two = (n: number) => String(n).padStart(2, "0");
  const clock = `${two(then.hour)}:${two(then.minute)}`;
  const days = [0, 1].map((step) =>
    calendar.at(calendar.dayStart(today.year, today.month, today.day + step)),
  );
  const near = days.findIndex(
    ({ year, month, day }) => year === then.year && month === then.month && day === then.day,
  );
  if (near !== -1) return `${near === 0 ? "today" : "tomorrow"} ${clock}`;
  const date = `${then.year}-${two(then.month)}-${two(then.day)}`;
  return clock === "00:00" ? date : `${date} ${clock}`;
}
