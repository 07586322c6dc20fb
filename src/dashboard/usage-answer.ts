import type { Sums } from "../usage/ledger/cells.ts";
import { SLOT_MS } from "../usage/ledger/cells.ts";
import type { Chart } from "../usage/report/chart.ts";
import { binsTogether, type ChartLine } from "../usage/report/chart-lines.ts";
import { cacheShare, tokensOf } from "../usage/report/sums.ts";
import type { By, UsageChart, UsageRow, UsageSeries, UsageSums } from "./api.ts";
import type { ChartQuery } from "./query.ts";

const MOST_SERIES = 60;
const MOST_NAMES = 1000;

/** The chart as it crosses the port: lists of numbers, and an empty name for what it is: unknown. */
export function usageAnswer({ selection, bin, by }: ChartQuery, chart: Chart, zone: string): UsageChart {
  const { bins, lines } = chart;
  const last = bins.at(-1);
  const others = lines.slice(MOST_SERIES);
  return {
    since: selection.period.since,
    until: selection.period.until,
    ...{ bin, by, zone },
    bins: bins.map(({ from }) => from * SLOT_MS),
    bins_end: last === undefined ? null : last.to * SLOT_MS,
    series: lines.slice(0, MOST_SERIES).map((line) => seriesOf(known(line.name), line.bins, bins.length)),
    others: others.length === 0 ? null : seriesOf(null, binsTogether(others), bins.length),
    total: sumsOf(chart.total),
    rows: lines.slice(0, MOST_NAMES).map((line): UsageRow => ({ name: known(line.name), ...sumsOf(line) })),
    unpriced: chart.unpriced.slice(0, MOST_NAMES),
    pruned_before: chart.prunedBefore,
    first_byte_exact: chart.exact,
    names: namesOf(chart),
  };
}

function namesOf({ names }: Chart): UsageChart["names"] {
  const of = (name: By) => names[name].slice(0, MOST_NAMES).map(known);
  return { tool: of("tool"), model: of("model"), group: of("group"), key: of("key") };
}

function seriesOf(name: string | null, bins: ReadonlyMap<number, Sums>, count: number): UsageSeries {
  const list = (value: (sums: Sums) => number) =>
    Array.from({ length: count }, (_, at) => {
      const sums = bins.get(at);
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

function sumsOf({ sums, firstByte }: ChartLine): UsageSums {
  const { counted_microdollars: _, ...shown } = sums;
  return {
    ...shown,
    tokens: tokensOf(sums),
    // Nobody compared yet: then no console has said a number, which is not the same as zero.
    billed_microdollars: sums.billed_requests === 0 ? null : sums.billed_microdollars,
    cache_share: cacheShare(sums),
    first_byte_p50_ms: firstByte.p50,
    first_byte_p95_ms: firstByte.p95,
  };
}

function known(name: string): string | null {
  return name === "" ? null : name;
}
