import type { RecordVerdict } from "../verdict.ts";
import type { ModelFactor } from "./shape.ts";

/* The console's prices and multipliers against ours. What a few rows say, or rows that disagree, is no advice. */

/** Records with one verdict, of one tool, model, group and tier, at the same prices. */
export interface RecordSum {
  readonly verdict: RecordVerdict;
  readonly tool: string | null;
  readonly model: string | null;
  readonly group: string | null;
  readonly tier: string | null;
  readonly their_multiplier: number | null;
  /** Their price against ours; null: not known, or too small to tell. */
  readonly price_factor: number | null;
  readonly requests: number;
  /** Our cost and their bill; null: known of none. */
  readonly ours: number | null;
  readonly theirs: number | null;
}

/** At least this many rows, and this share of all that tell something. */
const MIN_ROWS = 5;
const MIN_SHARE = 0.75;
/** Both sides round their prices: factors this close are the same. Multipliers are exact. */
const SAME_PRICE = 0.01;
const SAME_MULTIPLIER = 1e-9;

/** The multiplier of a group in config.yaml, 1 without a group; null: config.yaml no longer has this group. */
export type MultiplierOf = (group: string | null) => number | null;

/** A line for each model, group and tier. @param compared records that were matched with rows */
export function pricesByModel(compared: readonly RecordSum[], multiplierOf: MultiplierOf): ModelFactor[] {
  const lines = new Map<string, RecordSum[]>();
  for (const sum of compared) {
    // Records matched by sum have no bill of their own, so they have no price to compare.
    if (sum.model === null || sum.theirs === null) continue;
    const name = JSON.stringify([sum.model, sum.group, sum.tier]);
    const line = lines.get(name);
    if (line === undefined) lines.set(name, [sum]);
    else line.push(sum);
  }
  return [...lines.entries()]
    .toSorted(([one], [other]) => (one < other ? -1 : 1))
    .map(([, sums]) => priceOfLine(sums, multiplierOf));
}

function priceOfLine(sums: readonly RecordSum[], multiplierOf: MultiplierOf): ModelFactor {
  const { model, group = null, tier = null } = sums[0] ?? {};
  const price = agreement(sums, ({ price_factor }) => price_factor, SAME_PRICE);
  const multiplier = agreement(sums, ({ their_multiplier }) => their_multiplier, SAME_MULTIPLIER);
  const here = multiplierOf(group);
  const differs =
    multiplier.value !== null && here !== null && !isSame(multiplier.value, here, SAME_MULTIPLIER);
  return {
    model: model ?? "",
    group,
    tier,
    requests: sums.reduce((total, { requests }) => total + requests, 0),
    factor: price.value,
    factor_rows: price.rows,
    multiplier: multiplier.value,
    multiplier_rows: multiplier.rows,
    multiplier_here: differs ? here : null,
  };
}

interface Agreement {
  /** null: too few rows tell, or too few of them the same. */
  readonly value: number | null;
  /** How many say this. */
  readonly rows: number;
}

function agreement(
  sums: readonly RecordSum[],
  read: (sum: RecordSum) => number | null,
  tolerance: number,
): Agreement {
  const values = sums
    .flatMap((sum) => {
      const value = read(sum);
      return value === null ? [] : [{ value, rows: sum.requests }];
    })
    .toSorted((a, b) => a.value - b.value);
  const all = values.reduce((total, { rows }) => total + rows, 0);
  let before = 0;
  const median = values.find(({ rows }) => {
    before += rows;
    return before * 2 >= all;
  });
  if (median === undefined) return { value: null, rows: 0 };
  const agreeing = values.filter(({ value }) => isSame(value, median.value, tolerance));
  const rows = agreeing.reduce((total, one) => total + one.rows, 0);
  const isEnough = rows >= MIN_ROWS && rows >= all * MIN_SHARE;
  return { value: isEnough ? median.value : null, rows };
}

function isSame(one: number, other: number, tolerance: number): boolean {
  return Math.abs(one - other) <= tolerance * Math.max(Math.abs(one), Math.abs(other));
}
