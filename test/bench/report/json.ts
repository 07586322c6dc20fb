import { RATIO_NAMES, type Ratios, TARGETS } from "./ratios.ts";
import type { Measured, Setting } from "./result.ts";

/** For programs. `ratios` keeps its names and order; what else is there may grow. */
export function inJson(setting: Setting, measured: Measured, ratios: Ratios): string {
  const numbers = Object.fromEntries(
    RATIO_NAMES.map((name) => [name, rounded(ratios[name]?.median ?? null)]),
  );
  const spreads = Object.fromEntries(
    RATIO_NAMES.map((name) => {
      const value = ratios[name];
      return [name, value === null ? null : { least: rounded(value.least), most: rounded(value.most) }];
    }),
  );
  return JSON.stringify({ ratios: numbers, spread: spreads, targets: TARGETS, setting, measured }, null, 2);
}

function rounded(value: number | null): number | null {
  return value === null ? null : Number(value.toPrecision(4));
}
