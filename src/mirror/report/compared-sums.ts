import type { RecordVerdict } from "../verdict.ts";
import type { ModelFactor, ToolMoney } from "./shape.ts";

/** Records with one verdict, of one tool and model, under the same factors. */
export interface ComparedSums {
  readonly verdict: RecordVerdict;
  readonly tool: string | null;
  readonly model: string | null;
  readonly multiplier: number | null;
  readonly theirMultiplier: number | null;
  readonly requests: number;
  /** What we reckon, and what they took; null: not known of any. */
  readonly ours: number | null;
  readonly theirs: number | null;
  /** List prices of both sides, over those of which both are known. */
  readonly list: number;
  readonly theirList: number;
}

export function recordsOf(sums: readonly ComparedSums[]): Record<RecordVerdict, number> {
  const counts = { matched: 0, differs: 0, pending: 0, missing: 0 };
  for (const { verdict, requests } of sums) counts[verdict] += requests;
  return counts;
}

export function toolsOf(
  sums: readonly ComparedSums[],
  foreign: ReadonlyMap<string, { readonly count: number; readonly billed: number }>,
): ToolMoney[] {
  const compared = comparedOf(sums);
  const names = [...compared.flatMap(({ tool }) => tool ?? []), ...foreign.keys()];
  return [...new Set(names)].toSorted().map((tool) => {
    const mine = compared.filter((one) => one.tool === tool);
    return {
      tool,
      requests: totalOf(mine.map(({ requests }) => requests)) ?? 0,
      ours_microdollars: totalOf(mine.map(({ ours }) => ours)),
      theirs_microdollars: totalOf(mine.map(({ theirs }) => theirs)),
      foreign: foreign.get(tool)?.count ?? 0,
      foreign_microdollars: foreign.get(tool)?.billed ?? 0,
    };
  });
}

export function modelsOf(sums: readonly ComparedSums[]): ModelFactor[] {
  // In a sum nobody can say which is which, and so not what one of them cost.
  const compared = comparedOf(sums).filter(({ theirs }) => theirs !== null);
  const names = new Set(compared.flatMap(({ model }) => model ?? []));
  return [...names].toSorted().map((model) => {
    const mine = compared.filter((one) => one.model === model);
    const list = totalOf(mine.map((one) => one.list)) ?? 0;
    const theirList = totalOf(mine.map((one) => one.theirList)) ?? 0;
    const theirs = onlyOf(mine.map(({ theirMultiplier }) => theirMultiplier));
    const here = onlyOf(mine.map(({ multiplier }) => multiplier));
    return {
      model,
      requests: totalOf(mine.map(({ requests }) => requests)) ?? 0,
      factor: list > 0 ? theirList / list : null,
      multiplier: theirs,
      multiplier_here: theirs !== null && here !== null && here !== theirs ? here : null,
    };
  });
}

function comparedOf(sums: readonly ComparedSums[]): ComparedSums[] {
  return sums.filter(({ verdict }) => verdict === "matched" || verdict === "differs");
}

/** null: none of them is known. */
function totalOf(numbers: readonly (number | null)[]): number | null {
  const known = numbers.filter((one) => one !== null);
  return known.length === 0 ? null : known.reduce((sum, one) => sum + one, 0);
}

/** null: they are not all the same. */
function onlyOf(numbers: readonly (number | null)[]): number | null {
  const [first, ...more] = new Set(numbers);
  return more.length > 0 ? null : (first ?? null);
}
