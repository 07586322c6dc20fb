import { emptySums, type Lane, type Sums } from "../ledger/cells.ts";
import type { Bin } from "./calendar.ts";
import { Counts, createGatherer, type FirstByte, type FirstByteGatherer } from "./first-byte.ts";
import type { Period } from "./period.ts";
import { addSums, emptyTotal, tokensOf } from "./sums.ts";

export const DIMENSIONS = ["tool", "model", "day", "hour", "key", "group", "gateway"] as const;
export type Dimension = (typeof DIMENSIONS)[number];

export interface Question {
  /** What each line of the report stands for. */
  readonly by: readonly Dimension[];
  readonly period: Period;
  /** Names, with `*` for anything; none: all. */
  readonly tools: readonly string[];
  readonly models: readonly string[];
}

export interface Report {
  readonly question: Question;
  readonly rows: readonly ReportRow[];
  readonly total: ReportRow;
  /** What the trends of the rows go by; none where the rows themselves are days or hours. */
  readonly bins: readonly Bin[];
  /** Requests of the question that are under way, or were when keybearer was cut off. They are in no row. */
  readonly running: number;
  readonly unpriced: readonly { readonly model: string; readonly requests: number }[];
  /** exact: from each record. within 5 %: from sums. */
  readonly firstByte: "exact" | "within 5 %";
  /** When the last record of all began, for a report that found nothing; null: there is none. */
  readonly lastRecord: number | null;
  /** Where in the period, at its beginning, only a sum is left, because records are kept for so long only. */
  readonly prunedBefore: number | null;
}

export interface ReportRow {
  /** One name for each dimension; null: unknown, or for a day or hour: before what is kept. */
  readonly names: readonly (string | null)[];
  readonly sums: Sums;
  readonly firstByte: FirstByte;
  /** One for each bin. */
  readonly trend: readonly Sums[];
  /** The slot its day or hour begins with; 0 where it stands for none. */
  readonly from: number;
}

/** Where nothing was recorded yet. */
export function emptyReport(question: Question): Report {
  const total = createGathering(question.by, []).total();
  return {
    question,
    rows: [],
    total,
    bins: [],
    running: 0,
    unpriced: [],
    firstByte: "exact",
    lastRecord: null,
    prunedBefore: null,
  };
}

/** Adds up what belongs to one line. */
export interface Gathering {
  /** Counts it, and says where the first bytes of it belong. */
  add(lane: Lane, bin: Bin, sums: Readonly<Sums>): FirstByteGatherer;
  /** Where they belong, without counting anything. */
  firstBytes(lane: Lane, bin: Bin): FirstByteGatherer;
  rows(): ReportRow[];
  total(): ReportRow;
}

interface Line {
  readonly names: readonly (string | null)[];
  readonly sums: Sums;
  readonly gatherer: FirstByteGatherer;
  readonly trend: Sums[];
  readonly from: number;
}

/** `bins` are what trends go by: none where lines are days or hours themselves. */
export function createGathering(by: readonly Dimension[], bins: readonly Bin[]): Gathering {
  const lines = new Map<string, Line>();
  const timed = by.some(isTime);
  const places = new Map(bins.map(({ name }, at) => [name, at]));
  const scratch = new Counts();

  function lineOf(lane: Lane, bin: Bin): Line {
    const names = by.map((dimension) => nameOf(dimension, lane, bin));
    const key = names.length === 1 ? (names[0] ?? "") : JSON.stringify(names);
    let line = lines.get(key);
    if (line === undefined) {
      line = newLine(names, bins, timed ? bin.from : 0, scratch);
      lines.set(key, line);
    }
    return line;
  }

  return {
    add(lane, bin, sums) {
      const line = lineOf(lane, bin);
      addSums(line.sums, sums);
      const stretch = line.trend[places.get(bin.name) ?? -1];
      if (stretch !== undefined) addSums(stretch, sums);
      return line.gatherer;
    },
    firstBytes: (lane, bin) => lineOf(lane, bin).gatherer,
    rows: () => [...lines.values()].map(rowOf).sort(inOrder),
    total() {
      const whole = { ...newLine([], bins, 0, scratch), sums: emptyTotal() };
      for (const { sums, gatherer, trend } of lines.values()) {
        addSums(whole.sums, sums);
        gatherer.addTo(whole.gatherer);
        for (const [at, stretch] of whole.trend.entries()) addSums(stretch, trend[at] ?? emptySums());
      }
      return rowOf(whole);
    },
  };
}

function newLine(
  names: readonly (string | null)[],
  bins: readonly Bin[],
  from: number,
  scratch: Counts,
): Line {
  return {
    names,
    sums: emptySums(),
    gatherer: createGatherer(scratch),
    trend: bins.map(() => emptySums()),
    from,
  };
}

function rowOf({ names, sums, gatherer, trend, from }: Line): ReportRow {
  return { names, sums, trend, from, firstByte: gatherer.result() };
}

export function isTime(dimension: Dimension): boolean {
  return dimension === "day" || dimension === "hour";
}

function nameOf(dimension: Dimension, lane: Lane, bin: Bin): string | null {
  if (dimension === "day" || dimension === "hour") return bin.from === 0 ? null : bin.name;
  return lane[dimension] === "" ? null : lane[dimension];
}

/** Time goes forward; of the rest, what cost most comes first. */
function inOrder(a: ReportRow, b: ReportRow): number {
  return (
    a.from - b.from ||
    b.sums.cost_microdollars - a.sums.cost_microdollars ||
    tokensOf(b.sums) - tokensOf(a.sums) ||
    b.sums.requests - a.sums.requests ||
    compare(JSON.stringify(a.names), JSON.stringify(b.names))
  );
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
