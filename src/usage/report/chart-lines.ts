import { emptySums, type Sums } from "../ledger/cells.ts";
import { createGatherer, type FirstByte, type FirstByteGatherer } from "./first-byte.ts";
import { addSums, tokensOf } from "./sums.ts";

export interface ChartLine {
  /** Empty: unknown. */
  readonly name: string;
  readonly sums: Sums;
  readonly firstByte: FirstByte;
  /** By the number of the bin; those that are not there are empty. */
  readonly bins: ReadonlyMap<number, Sums>;
}

/** Adds up what belongs to one name. Sparse: most names are idle most of the time, and there may be thousands. */
export interface ChartLines {
  /** Counts it; without a bin, only for the name as a whole. Says where its first bytes belong. */
  add(name: string, bin: number | null, sums: Readonly<Sums>): FirstByteGatherer;
  /** Where they belong, without counting anything. */
  firstBytes(name: string): FirstByteGatherer;
  /** What cost most comes first. */
  lines(): ChartLine[];
  total(): ChartLine;
}

interface Line {
  readonly name: string;
  readonly sums: Sums;
  readonly gatherer: FirstByteGatherer;
  readonly bins: Map<number, Sums>;
}

export function createChartLines(): ChartLines {
  const lines = new Map<string, Line>();

  function lineOf(name: string): Line {
    let line = lines.get(name);
    if (line === undefined) {
      line = newLine(name);
      lines.set(name, line);
    }
    return line;
  }

  return {
    add(name, bin, sums) {
      const line = lineOf(name);
      addSums(line.sums, sums);
      if (bin !== null) addToBin(line, bin, sums);
      return line.gatherer;
    },
    firstBytes: (name) => lineOf(name).gatherer,
    lines: () => [...lines.values()].map(shown).sort(inOrder),
    total() {
      const whole = newLine("");
      for (const { sums, gatherer, bins } of lines.values()) {
        addSums(whole.sums, sums);
        gatherer.addTo(whole.gatherer);
        for (const [bin, part] of bins) addToBin(whole, bin, part);
      }
      return shown(whole);
    },
  };
}

/** Several lines as one, as far as their bins go. */
export function binsTogether(lines: readonly ChartLine[]): ReadonlyMap<number, Sums> {
  const whole = newLine("");
  for (const { bins } of lines) for (const [bin, part] of bins) addToBin(whole, bin, part);
  return whole.bins;
}

function newLine(name: string): Line {
  return { name, sums: emptySums(), gatherer: createGatherer(), bins: new Map() };
}

function addToBin({ bins }: Line, bin: number, sums: Readonly<Sums>): void {
  const there = bins.get(bin);
  if (there === undefined) bins.set(bin, { ...sums });
  else addSums(there, sums);
}

function shown({ name, sums, gatherer, bins }: Line): ChartLine {
  return { name, sums, bins, firstByte: gatherer.result() };
}

function inOrder(a: ChartLine, b: ChartLine): number {
  return (
    b.sums.cost_microdollars - a.sums.cost_microdollars ||
    tokensOf(b.sums) - tokensOf(a.sums) ||
    b.sums.requests - a.sums.requests ||
    (a.name < b.name ? -1 : 1)
  );
}
