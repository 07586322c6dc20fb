import { costInWords, dayName, dollars, duration, exact } from "../../core/units.ts";
import { percent, short } from "../../usage/reports/format.ts";
import { type Dimension, isTime, type Report } from "../../usage/reports/report.ts";
import { cacheShare, sumTokens, type UsageRow, unknownCost } from "../../usage/reports/sums.ts";
import { emptySums, type Sums } from "../../usage/rollups.ts";
import { bar, sparkline } from "../ui/chart.ts";
import { shortIds } from "../ui/short-ids.ts";
import { type Column, columnsFor, maxOf, renderTable } from "../ui/table.ts";
import type { Screen } from "../ui/terminal.ts";

const BAR_WIDTH = 12;
const QUARTERS_PER_HOUR = 4;
/** A day is 25 hours long when the clocks go back. */
const MAX_DAY_QUARTERS = 25 * QUARTERS_PER_HOUR;
const DAY_NAME_LENGTH = "2026-11-01".length;
const HOUR_NAME_LENGTH = "2026-11-01T02:00".length;

const NO_NAME: Readonly<Record<Dimension, string>> = {
  tool: "(unknown tool)",
  model: "(no model)",
  day: "earlier",
  hour: "earlier",
  key: "(no key)",
  group: "(no group)",
  gateway: "(no gateway)",
  machine: "this machine",
  project: "(no project)",
  branch: "(no branch)",
  session: "(no session)",
  token: "(no token)",
};

/** The last row is the sum if there is more than one. */
export function reportTable(report: Report, screen: Screen, now: number): string {
  const sum = report.rows.length > 1;
  const rows = sum ? [...report.rows, report.total] : report.rows;
  const columns = [
    ...nameColumns(report, sum),
    ...amountColumns(report, rows),
    ...endColumns(rows),
    ...todayColumn(report, rows, now),
    trendColumn(report, rows, screen),
  ];
  return renderTable(columns, screen.width, { sum });
}

function nameColumns(report: Report, sum: boolean): Column[] {
  return report.question.by.map((dimension, at) => {
    const repeated = dimension === "hour" ? repeatedHours(report.rows, at) : new Set<string>();
    const found = report.rows.map(({ names }) => names[at] ?? null);
    const shown = dimension === "session" ? shortIds(found) : found;
    const names = shown.map((name) => formatName(dimension, name, repeated));
    return { head: dimension, cells: sum ? [...names, at === 0 ? "sum" : ""] : names, dropOrder: 0 };
  });
}

function formatName(dimension: Dimension, name: string | null, repeated: ReadonlySet<string>): string {
  if (name === null) return NO_NAME[dimension];
  if (dimension !== "hour") return name;
  const time = localHour(name);
  return repeated.has(time) ? `${time.replace("T", " ")} ${name.slice(time.length)}` : time.replace("T", " ");
}

/** When the clocks go back, one hour occurs repeated. */
function repeatedHours(rows: readonly UsageRow[], at: number): ReadonlySet<string> {
  const seen = new Map<string, string>();
  const repeated = new Set<string>();
  for (const { names } of rows) {
    const name = names[at] ?? null;
    if (name === null) continue;
    const time = localHour(name);
    const other = seen.get(time);
    if (other === undefined) seen.set(time, name);
    else if (other !== name) repeated.add(time);
  }
  return repeated;
}

/** 2026-11-01T02:00, without its offset from UTC. */
function localHour(hour: string): string {
  return hour.slice(0, HOUR_NAME_LENGTH);
}

function amountColumns(report: Report, rows: readonly UsageRow[]): Column[] {
  const { sums: all } = report.total;
  const unknown = unknownCost(all) > 0;
  const { number } = columnsFor(rows);
  return [
    number("requests", 2, ({ sums }) => exact(sums.requests)),
    number("input", 4, ({ sums }) => short(sums.input_tokens)),
    number("cached", 8, ({ sums }) => short(sums.cache_read_tokens)),
    number("cache", 6, ({ sums }) => formatShare(cacheShare(sums))),
    ...(all.cache_write_tokens > 0
      ? [number("written", writtenDropOrder(all), ({ sums }) => short(sums.cache_write_tokens))]
      : []),
    number("output", 3, ({ sums }) => short(sums.output_tokens)),
    ...(all.reasoning_tokens > 0
      ? [number("reasoning", 16, ({ sums }) => short(sums.reasoning_tokens))]
      : []),
    ...(all.list_microdollars !== all.cost_microdollars
      ? [number("list", 17, ({ sums }) => formatCost(sums, unknown, sums.list_microdollars))]
      : []),
    number("cost", 1, ({ sums }) => formatCost(sums, unknown)),
    ...(unknown ? [number("unknown", 5, ({ sums }) => exact(unknownCost(sums)))] : []),
    ...(all.billed_requests > 0
      ? [
          number("billed", 2, ({ sums }) =>
            sums.billed_requests > 0 ? dollars(sums.billed_microdollars) : "-",
          ),
        ]
      : []),
    number("first byte", 9, ({ firstByte }) => formatDuration(firstByte.p50)),
    number("p95", 10, ({ firstByte }) => formatDuration(firstByte.p95)),
  ];
}

/** Cache writes cost more than input, so if there are many they stay in the table as long as the input does. */
function writtenDropOrder({ input_tokens: input, cache_write_tokens: written }: UsageRow["sums"]): number {
  return written * 10 >= input ? 4 : 15;
}

const UNKNOWN_PART = " + ?";

/** `isAligned`: other rows end in "+ ?", so this one ends in spaces. */
function formatCost(sums: UsageRow["sums"], isAligned: boolean, cost = sums.cost_microdollars): string {
  const text = costInWords(cost, unknownCost(sums));
  return isAligned && !text.endsWith(UNKNOWN_PART) ? text + " ".repeat(UNKNOWN_PART.length) : text;
}

/** How requests ended that did not complete, if there are any. */
function endColumns(rows: readonly UsageRow[]): Column[] {
  const ends = [
    ["refused", "refused", 11],
    ["failed", "failed", 12],
    ["canceled", "client_left", 13],
    ["interrupted", "interrupted", 14],
  ] as const;
  const { number } = columnsFor(rows);
  return ends
    .filter(([, name]) => rows.some(({ sums }) => sums[name] > 0))
    .map(([head, name, dropOrder]) => number(head, dropOrder, ({ sums }) => exact(sums[name])));
}

/** How each row developed over time. If the rows themselves are days or hours, a bar in each. */
function trendColumn(report: Report, rows: readonly UsageRow[], screen: Screen): Column {
  const size = chooseMeasure(report);
  if (report.question.by.some(isTime)) {
    const max = maxOf(report.rows.map(({ sums }) => size(sums)));
    const cells = rows.map((row) =>
      row === report.total ? "" : bar(size(row.sums), max, BAR_WIDTH, screen.utf8),
    );
    return { head: "", cells, dropOrder: 7 };
  }
  const cells = rows.map((row) => sparkline(listTrend(report, row).map(size), screen.utf8));
  return { head: trendName(report), cells, dropOrder: 7 };
}

/** The sums of each interval of the trend. */
function listTrend({ trend }: Report, { parts }: UsageRow): Sums[] {
  return trend.map((_, interval) => parts.get(interval) ?? emptySums());
}

/** What one character of a trend means. */
function trendName({ trend }: Report): string {
  const longest = Math.max(...trend.map(({ from, to }) => to - from));
  if (longest <= QUARTERS_PER_HOUR) return "by hour";
  return trend.some(({ name }) => name.length > DAY_NAME_LENGTH) || longest > MAX_DAY_QUARTERS
    ? "trend"
    : "by day";
}

/** Money if it is known, otherwise tokens, otherwise requests. */
function chooseMeasure({ total }: Report): (sums: UsageRow["sums"]) => number {
  if (total.sums.cost_microdollars > 0) return (sums) => sums.cost_microdollars;
  return sumTokens(total.sums) > 0 ? sumTokens : (sums) => sums.requests;
}

/** Today's part of the sum. */
function todayColumn({ trend }: Report, rows: readonly UsageRow[], now: number): Column[] {
  const today = trend.findIndex(({ name }) => name === dayName(now));
  const last = trend[today];
  // The last interval may combine several days; only one that begins today and ends the trend is today.
  if (last === undefined || trend.length < 2 || today !== trend.length - 1) return [];
  const shares = rows.map(({ parts }) => parts.get(today) ?? emptySums());
  const unknown = shares.some((sums) => unknownCost(sums) > 0);
  const cells = shares.map((sums) => formatCost(sums, unknown));
  return [{ head: "today", cells, dropOrder: 7, right: true }];
}

function formatShare(share: number | null): string {
  return share === null ? "-" : percent(share);
}

function formatDuration(ms: number | null): string {
  return ms === null ? "-" : duration(ms);
}
