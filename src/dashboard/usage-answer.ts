import type { Chart, ChartQuestion } from "../usage/reports/chart.ts";
import { cacheShare, combinedParts, type UsageRow as Row, tokensOf } from "../usage/reports/sums.ts";
import { QUARTER_MS, type Sums } from "../usage/rollups.ts";
import type { By, UsageChart, UsageRow, UsageSeries, UsageSums } from "./api.ts";

const MOST_SERIES = 60;
const MOST_NAMES = 1000;

/** The chart as it crosses the port: lists of numbers, and an empty name for what it is: unknown. */
export function usageAnswer({ selection, unit, by }: ChartQuestion, chart: Chart, zone: string): UsageChart {
  const { intervals, rows } = chart;
  const last = intervals.at(-1);
  const others = rows.slice(MOST_SERIES);
  return {
    since: selection.period.since,
    until: selection.period.until,
    bin: unit,
    by,
    zone,
    bins: intervals.map(({ from }) => from * QUARTER_MS),
    bins_end: last === undefined ? null : last.to * QUARTER_MS,
    series: rows.slice(0, MOST_SERIES).map((row) => seriesOf(nameOf(row), row.parts, intervals.length)),
    others: others.length === 0 ? null : seriesOf(null, combinedParts(others), intervals.length),
    total: sumsOf(chart.total),
    rows: rows.slice(0, MOST_NAMES).map((row): UsageRow => ({ name: nameOf(row), ...sumsOf(row) })),
    unpriced: chart.unpriced.slice(0, MOST_NAMES),
    first_byte_exact: chart.firstByteExact,
    names: namesOf(chart),
  };
}

function namesOf({ names }: Chart): UsageChart["names"] {
  const of = (name: By) => names[name].slice(0, MOST_NAMES).map(known);
  return { tool: of("tool"), model: of("model"), group: of("group"), key: of("key") };
}

function seriesOf(name: string | null, parts: ReadonlyMap<number, Sums>, count: number): UsageSeries {
  const list = (value: (sums: Sums) => number) =>
    Array.from({ length: count }, (_, at) => {
      const sums = parts.get(at);
      return sums === undefined ? 0 : value(sums);
    });
  return {
    name,
    requests: list((sums) => sums.requests),
    tokens: list(tokensOf),
    input_tokens: list((sums) => sums.input_tokens),
    cache_read_tokens: list((sums) => sums.cache_read_tokens),
    cache_write_tokens: list((sums) => sums.cache_write_tokens),
    output_tokens: list((sums) => sums.output_tokens),
    cost_microdollars: list((sums) => sums.cost_microdollars),
  };
}

function sumsOf({ sums, firstByte }: Row): UsageSums {
  return {
    ...sums,
    tokens: tokensOf(sums),
    // Nobody compared yet: then no console has said a number, which is not the same as zero.
    billed_microdollars: sums.billed_requests === 0 ? null : sums.billed_microdollars,
    cache_share: cacheShare(sums),
    first_byte_p50_ms: firstByte.p50,
    first_byte_p95_ms: firstByte.p95,
  };
}

function nameOf({ names }: Row): string | null {
  return names[0] ?? null;
}

function known(name: string): string | null {
  return name === "" ? null : name;
}
