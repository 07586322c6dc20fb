import { type JsonObject, numberAt } from "../json.ts";

/** Dollars, as a double, in whole micro-dollars; a half goes up. */
export function microdollars(dollars: number): number | null {
  // A double holds 15 digits for sure; what is beyond them is noise, which must not decide about a half.
  const whole = Math.round(Number((dollars * 1_000_000).toPrecision(15)));
  // Never -0, which is not 0 to whoever compares.
  return Number.isSafeInteger(whole) ? whole + 0 : null;
}

export function moneyAt(object: JsonObject, name: string): number | null {
  const dollars = numberAt(object, name);
  return dollars === null ? null : microdollars(dollars);
}

/** What something cost: no request pays back, so that less than nothing is not known. */
export function priceAt(object: JsonObject, name: string): number | null {
  const money = moneyAt(object, name);
  return money !== null && money >= 0 ? money : null;
}
