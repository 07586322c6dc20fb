import { type JsonObject, numberAt, textAt } from "../../core/json.ts";

/* Times and money, as sub2api and LiteLLM write them. */

const RFC3339 = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,12})?(?:Z|[+-]\d\d:\d\d)$/;

/** Milliseconds UTC; null also for a time without an offset. */
export function timeAt(object: JsonObject | null, name: string): number | null {
  const text = textAt(object, name) ?? "";
  const time = RFC3339.test(text) ? Date.parse(text) : Number.NaN;
  // Go writes the year 1 for "no time".
  return Number.isNaN(time) || time <= 0 ? null : time;
}

/** Dollars to whole micro-dollars; rounds half up. */
export function dollarsToMicrodollars(dollars: number): number | null {
  // A double is exact to 15 digits. The noise beyond them must not decide how a half is rounded.
  const whole = Math.round(Number((dollars * 1_000_000).toPrecision(15)));
  // + 0 turns -0 into 0.
  return Number.isSafeInteger(whole) ? whole + 0 : null;
}

export function moneyAt(object: JsonObject | null, name: string): number | null {
  const dollars = numberAt(object, name);
  return dollars === null ? null : dollarsToMicrodollars(dollars);
}
