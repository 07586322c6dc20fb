import { costInWords, exact } from "../../../core/units.ts";
import { short } from "../../../usage/reports/format.ts";
import type { By, UsageChart, UsageSeries } from "../../api.ts";
import type { Translate } from "../messages/messages.ts";

/** One name's values, one for each bar. */
export interface Line {
  /** null: it has none, such as the requests of unknown callers. */
  readonly name: string | null;
  readonly values: readonly number[];
  readonly total: number;
  /** How many requests each value lacks, because their cost is unknown. */
  readonly unknown: readonly number[];
  /** How many names were added up in it. Without it, it is about one. */
  readonly folded?: number;
}

/** What the bars are as high as. */
export const MEASURES = ["money", "tokens", "requests"] as const;
export type Measure = (typeof MEASURES)[number];

export function nameInWords(name: string | null, by: By, t: Translate): string {
  return name === null || name === "" ? t(`usage.nameless.${by}`) : name;
}

/** The second number is how many requests the value lacks, because their cost is unknown. */
export function amountIn(measure: Measure): (value: number, unknown?: number) => string {
  return measure === "money" ? costInWords : measure === "tokens" ? short : exact;
}

const VALUES = { money: "cost_microdollars", tokens: "tokens", requests: "requests" } as const;

/** What a chart draws: a line for each name. */
export function linesOf({ series, others }: UsageChart, measure: Measure): Line[] {
  const lineOf = (one: UsageSeries): Line => {
    const values = one[VALUES[measure]];
    const unknown = measure === "money" ? one.unknown_cost : [];
    return { name: one.name, values, total: sum(values), unknown };
  };
  const lines = series.map(lineOf);
  return others === null ? lines : [...lines, { ...lineOf(others), folded: others.names }];
}

/** One color of the bars. */
export interface Layer extends Line {
  /** The CSS variable of its color. */
  readonly paint: string;
}

/** People cannot distinguish more colors than this. */
export const MAX_COLORS = 8;
/** The gray of what was folded together. */
const OTHER = `--series-${MAX_COLORS}`;

/** The largest is first, at the bottom of the bars. What does not fit is added up in one layer. */
export function layersOf(lines: readonly Line[]): Layer[] {
  const sized = lines.filter(({ total }) => total > 0);
  const named = sized.filter(({ folded }) => folded === undefined).sort((a, b) => b.total - a.total);
  const shown = sized.length <= MAX_COLORS ? named : named.slice(0, MAX_COLORS - 1);
  const rest = sized.filter((line) => !shown.includes(line));
  const paints = paintsFor(shown.map(({ name }) => name));
  const layers = shown.map((line, at): Layer => ({ ...line, paint: paints[at] ?? OTHER }));
  const folded = sum(rest.map((line) => line.folded ?? 1));
  return folded === 0 ? layers : [...layers, { ...added(rest), paint: OTHER, folded }];
}

/** Chosen by the name itself, so that it keeps its color while filters change, unless a larger one has taken it. */
function paintsFor(names: readonly (string | null)[]): string[] {
  const taken = new Set<number>();
  for (const name of names) {
    let color = hash(name ?? "") % MAX_COLORS;
    while (taken.has(color)) color = (color + 1) % MAX_COLORS;
    taken.add(color);
  }
  return [...taken].map((color) => `--series-${color}`);
}

function hash(text: string): number {
  let value = 7;
  for (const character of text) value = (value * 31 + (character.codePointAt(0) ?? 0)) >>> 0;
  return value;
}

/** All lines as one without a name. */
export function added(lines: readonly Line[]): Line {
  const length = Math.max(0, ...lines.map(({ values }) => values.length));
  const each = (pick: (line: Line, bar: number) => number | undefined) =>
    Array.from({ length }, (_, bar) => sum(lines.map((line) => pick(line, bar) ?? 0)));
  const values = each((line, bar) => line.values[bar]);
  return { name: null, values, unknown: each((line, bar) => line.unknown[bar]), total: sum(values) };
}

/** For each layer the height of its top, with all layers below it; null: it has nothing in that bar. */
export function topsOf(layers: readonly Line[]): (number | null)[][] {
  const below: number[] = [];
  return layers.map(({ values }) =>
    values.map((value, bar) => {
      if (value <= 0) return null;
      const top = (below[bar] ?? 0) + value;
      below[bar] = top;
      return top;
    }),
  );
}

export function sum(values: readonly number[]): number {
  return values.reduce((all, value) => all + value, 0);
}

/** What a bar is called: below the axis, and where there is room to say it all. */
export interface BarNames {
  readonly tick: (bar: number) => string;
  readonly title: (bar: number) => string;
}

/** @param zone the daemon's, in which its days and hours begin. A browser that does not know it uses its own. */
export function barNames(bins: readonly number[], bin: "hour" | "day" | "month", zone: string): BarNames {
  const format = formatIn(zone);
  const moments = bins.map((at) => format.format(at));
  const isOneDay = moments[0]?.slice(0, 10) === moments.at(-1)?.slice(0, 10);
  const lengths = { month: "2026-11".length, day: "2026-11-03".length, hour: "2026-11-03 14:00".length };
  return {
    tick(bar) {
      const moment = moments[bar] ?? "";
      if (bin === "month") return moment.slice(0, lengths.month);
      const clock = moment.slice(11);
      return bin === "hour" && (isOneDay || clock !== "00:00") ? clock : moment.slice(5, lengths.day);
    },
    title: (bar) => (moments[bar] ?? "").slice(0, lengths[bin]),
  };
}

/** The one date format of the page, which Sweden has too. */
function formatIn(timeZone: string): Intl.DateTimeFormat {
  const options = { dateStyle: "short", timeStyle: "short" } as const;
  try {
    return new Intl.DateTimeFormat("sv-SE", { ...options, timeZone });
  } catch {
    // Where TZ is empty, a daemon is in Etc/Unknown.
    return new Intl.DateTimeFormat("sv-SE", options);
  }
}
