import { exact } from "../../usage/reports/format.ts";
import type { Theirs } from "../verdict.ts";
import type { OurRequest, TheirRow } from "./context.ts";
import { rowTokens, wholeInput } from "./tokens.ts";
import { isModelOf, type Unit } from "./units.ts";

/** Money that rounding explains: consoles reckon in floats, or in units of two micro-dollars. */
const SAME_MICRODOLLARS = 2;
const SAME_SHARE = 0.001;

/** What the two sides do not agree on, each in words; none: they agree as far as both know. */
export function differencesOf(record: OurRequest, { main }: Unit): string[] {
  return [...tokenDifferences(record, main), ...moneyDifferences(main)];
}

function tokenDifferences({ tokens, exact: isExact, upgraded }: OurRequest, main: TheirRow): string[] {
  if (tokens === null || !isExact || upgraded || main.kind !== "use") return [];
  const theirs = rowTokens(main);
  if (theirs === null) return [];
  const numbers: [string, number, number][] =
    theirs.cache === null
      ? [["input with cache", wholeInput(tokens), theirs.input]]
      : [
          ["input", tokens.input, theirs.input],
          ["cache read", tokens.cache_read, theirs.cache.read],
          ["cache write", tokens.cache_write, theirs.cache.write],
        ];
  return [...numbers, ["output", tokens.output, theirs.output] as const]
    .filter(([, here, there]) => here !== there)
    .map(
      ([name, here, there]) => `${name} tokens are ${exact(here)} here and ${exact(there)} in the console`,
    );
}

function moneyDifferences(row: TheirRow): string[] {
  const { list_microdollars: list, multiplier, billed_microdollars: billed } = row;
  if (list === null || multiplier === null || billed === null || row.kind !== "use") return [];
  const due = list * multiplier;
  if (Math.abs(due - billed) <= Math.max(SAME_MICRODOLLARS, due * SAME_SHARE)) return [];
  return [`list price ${money(list)} × ${multiplier} is ${money(due)}, and ${money(billed)} was billed`];
}

/** To the last micro-dollar: what differs must be seen to. */
function money(microdollars: number): string {
  return `$${(microdollars / 1_000_000).toFixed(6)}`;
}

/** An operator may map models; that is worth a word, and no difference. */
export function otherModel(record: OurRequest, { main }: Unit): string | null {
  const asked = record.model ?? record.model_answered;
  if (main.model === null || asked === null || isModelOf(record, main.model)) return null;
  return `the console lists model ${main.model}, asked for was ${asked}`;
}

/** The money of all rows; the tokens of the one that tells them, but of a WebSocket all of them. */
export function theirsOf({ upgraded }: OurRequest, { main, rows }: Unit): Theirs {
  const told = upgraded ? rows.filter(({ kind }) => kind === "use") : [main];
  return {
    input_tokens: total(told, "input_tokens"),
    cache_read_tokens: total(told, "cache_read_tokens"),
    cache_write_tokens: total(told, "cache_write_tokens"),
    output_tokens: total(told, "output_tokens"),
    list_microdollars: total(rows, "list_microdollars"),
    billed_microdollars: atLeastNothing(total(rows, "billed_microdollars")),
    multiplier: main.multiplier,
  };
}

/** A refund may be of more than this request: then it cost nothing, and the rest belongs to others. */
function atLeastNothing(money: number | null): number | null {
  return money === null ? null : Math.max(0, money);
}

function total(rows: readonly TheirRow[], name: Exclude<keyof Theirs, "multiplier">): number | null {
  let sum: number | null = null;
  for (const row of rows) {
    const amount = row[name];
    if (amount === null) continue;
    // Whichever sign a console writes: what came back is not paid.
    sum = (sum ?? 0) + (row.kind === "refund" ? -Math.abs(amount) : amount);
  }
  return sum;
}

/** The same request once more, as far as a row tells. */
export function saysTheSame(a: TheirRow, b: TheirRow): boolean {
  return (
    a.kind === b.kind &&
    a.input_tokens === b.input_tokens &&
    a.cache_read_tokens === b.cache_read_tokens &&
    a.cache_write_tokens === b.cache_write_tokens &&
    a.output_tokens === b.output_tokens &&
    a.billed_microdollars === b.billed_microdollars
  );
}
