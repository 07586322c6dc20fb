import { dayName, offsetName } from "../../usage/reports/calendar.ts";
import { dollars, duration, exact, percent, short } from "../../usage/reports/format.ts";
import { type Dimension, isTime, type Report } from "../../usage/reports/report.ts";
import { cacheShare, tokensOf, type UsageRow, unknownCost } from "../../usage/reports/sums.ts";
import { emptySums, type Sums } from "../../usage/rollups.ts";
import { bar, sparkline } from "../ui/chart.ts";
import { type Column, maxOf, renderTable } from "../ui/table.ts";
import type { Screen } from "../ui/terminal.ts";

const BAR_CELLS = 12;
const QUARTERS_PER_HOUR = 4;
const LONGEST_DAY = 25 * QUARTERS_PER_HOUR;
const DAY_NAME = "2026-11-01".length;
const CLOCK_NAME = "2026-11-01T02:00".length;
const NOBODY: Readonly<Record<Dimension, string>> = {
  tool: "(nobody known)",
  model: "(no model)",
  day: "earlier",
  hour: "earlier",
  key: "(no key)",
  group: "(no group)",
  gateway: "(no gateway)",
};

/** The report as a table, its last line the sum where there is more than one. */
export function reportTable(report: Report, screen: Screen, now: number): string {
  const sum = report.rows.length > 1;
  const lines = sum ? [...report.rows, report.total] : report.rows;
  const columns = [
    ...nameColumns(report, sum),
    ...amountColumns(report, lines),
    ...outcomeColumns(lines),
    ...todayColumn(report, lines, now),
    shapeColumn(report, lines, screen),
  ];
  return renderTable(columns, screen.width, { sum });
}

function nameColumns(report: Report, sum: boolean): Column[] {
  return report.question.by.map((dimension, at) => {
    const twice = dimension === "hour" ? hoursThereTwice(report.rows, at) : new Set<string>();
    const names = report.rows.map(({ names }) => nameOf(dimension, names[at] ?? null, twice));
    return { head: dimension, cells: sum ? [...names, at === 0 ? "sum" : ""] : names, dropOrder: 0 };
  });
}

function nameOf(dimension: Dimension, name: string | null, twice: ReadonlySet<string>): string {
  if (name === null) return NOBODY[dimension];
  if (dimension !== "hour") return name;
  const time = clockOf(name);
  return twice.has(time) ? `${time.replace("T", " ")} ${name.slice(time.length)}` : time.replace("T", " ");
}

/** Where the clocks went back, the same hour is there twice. */
function hoursThereTwice(rows: readonly UsageRow[], at: number): ReadonlySet<string> {
  const seen = new Map<string, string>();
  const twice = new Set<string>();
  for (const { names } of rows) {
    const name = names[at] ?? null;
    if (name === null) continue;
    const time = clockOf(name);
    const other = seen.get(time);
    if (other === undefined) seen.set(time, name);
    else if (other !== name) twice.add(time);
  }
  return twice;
}

/** 2026-11-01T02:00, as clocks on the wall showed it, without how far from UTC they were. */
function clockOf(hour: string): string {
  return hour.slice(0, CLOCK_NAME);
}

function amountColumns(report: Report, lines: readonly UsageRow[]): Column[] {
  const { sums: all } = report.total;
  const unknown = unknownCost(all) > 0;
  const amount = (head: string, dropOrder: number, text: (row: UsageRow) => string): Column => ({
    head,
    dropOrder,
    right: true,
    cells: lines.map(text),
  });
  return [
    amount("requests", 2, ({ sums }) => exact(sums.requests)),
    amount("input", 4, ({ sums }) => short(sums.input_tokens)),
    amount("cached", 8, ({ sums }) => short(sums.cache_read_tokens)),
    amount("cache", 6, ({ sums }) => shareOf(cacheShare(sums))),
    ...(all.cache_write_tokens > 0
      ? [amount("written", writtenGoes(all), ({ sums }) => short(sums.cache_write_tokens))]
      : []),
    amount("output", 3, ({ sums }) => short(sums.output_tokens)),
    ...(all.reasoning_tokens > 0
      ? [amount("reasoning", 16, ({ sums }) => short(sums.reasoning_tokens))]
      : []),
    ...(all.list_microdollars !== all.cost_microdollars
      ? [amount("list", 17, ({ sums }) => dollars(sums.list_microdollars))]
      : []),
    amount("cost", 1, ({ sums }) => costOf(sums, unknown)),
    ...(unknown ? [amount("unknown", 5, ({ sums }) => exact(unknownCost(sums)))] : []),
    ...(all.billed_requests > 0
      ? [
          amount("billed", 2, ({ sums }) =>
            sums.billed_requests > 0 ? dollars(sums.billed_microdollars) : "-",
          ),
        ]
      : []),
    amount("first byte", 9, ({ firstByte }) => timeOf(firstByte.p50)),
    amount("p95", 10, ({ firstByte }) => timeOf(firstByte.p95)),
  ];
}

/** They cost more than input does: where they are many, they stay as long as that. */
function writtenGoes({ input_tokens: input, cache_write_tokens: written }: UsageRow["sums"]): number {
  return written * 10 >= input ? 4 : 15;
}

/** Never a sum that looks complete and is not. `some`: other lines have a sign behind, which this one makes room for. */
function costOf(sums: UsageRow["sums"], some: boolean): string {
  const known = dollars(sums.cost_microdollars);
  if (unknownCost(sums) === 0) return some ? `${known} ` : known;
  return sums.cost_microdollars === 0 ? "$? " : `${known}+`;
}

/** What did not end well, where there is any. */
function outcomeColumns(lines: readonly UsageRow[]): Column[] {
  const outcomes = [
    ["refused", "refused", 11],
    ["failed", "failed", 12],
    ["left", "client_left", 13],
    ["interrupted", "interrupted", 14],
  ] as const;
  return outcomes
    .filter(([, name]) => lines.some(({ sums }) => sums[name] > 0))
    .map(([head, name, dropOrder]) => ({
      head,
      dropOrder,
      right: true,
      cells: lines.map(({ sums }) => exact(sums[name])),
    }));
}

/** How it went over time: a line for each row, or where the rows are the time, a bar in each. */
function shapeColumn(report: Report, lines: readonly UsageRow[], screen: Screen): Column {
  const size = measureOf(report);
  if (report.question.by.some(isTime)) {
    const most = maxOf(report.rows.map(({ sums }) => size(sums)));
    const cells = lines.map((row) =>
      row === report.total ? "" : bar(size(row.sums), most, BAR_CELLS, screen.utf8),
    );
    return { head: "", cells, dropOrder: 7 };
  }
  const cells = lines.map((row) => sparkline(trendOf(report, row).map(size), screen.utf8));
  return { head: trendName(report), cells, dropOrder: 7 };
}

/** The sums of each interval of the trend. */
function trendOf({ trend }: Report, { parts }: UsageRow): Sums[] {
  return trend.map((_, interval) => parts.get(interval) ?? emptySums());
}

/** What one character of a trend stands for. */
function trendName({ trend }: Report): string {
  const longest = Math.max(...trend.map(({ from, to }) => to - from));
  if (longest <= QUARTERS_PER_HOUR) return "by hour";
  return trend.some(({ name }) => name.length > DAY_NAME) || longest > LONGEST_DAY ? "trend" : "by day";
}

/** Money where it is known, else tokens, else requests. */
function measureOf({ total }: Report): (sums: UsageRow["sums"]) => number {
  if (total.sums.cost_microdollars > 0) return (sums) => sums.cost_microdollars;
  return tokensOf(total.sums) > 0 ? tokensOf : (sums) => sums.requests;
}

/** Beside a week's sum, what today took of it. */
function todayColumn({ trend }: Report, lines: readonly UsageRow[], now: number): Column[] {
  const today = trend.findIndex(({ name }) => name === dayName(now));
  const last = trend[today];
  // A stretch of several days that begins today is none: it would reach into the future.
  if (last === undefined || trend.length < 2 || today !== trend.length - 1) return [];
  const shares = lines.map(({ parts }) => parts.get(today) ?? emptySums());
  const unknown = shares.some((sums) => unknownCost(sums) > 0);
  const cells = shares.map((sums) => costOf(sums, unknown));
  return [{ head: "today", cells, dropOrder: 7, right: true }];
}

function shareOf(share: number | null): string {
  return share === null ? "-" : percent(share);
}

function timeOf(ms: number | null): string {
  return ms === null ? "-" : duration(ms);
}

/** Mon 2026-11-09 00:00 */
export function timeInWords(at: number): string {
  const date = new Date(at);
  const day = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"][date.getDay()];
  const clock = [date.getHours(), date.getMinutes()].map((part) => String(part).padStart(2, "0")).join(":");
  const seconds = at % 60_000 === 0 ? "" : `:${String(date.getSeconds()).padStart(2, "0")}`;
  return `${day} ${dayName(at)} ${clock}${seconds}`;
}

export function zoneInWords(at: number): string {
  const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
  return timeZone ?? offsetName(at);
}
