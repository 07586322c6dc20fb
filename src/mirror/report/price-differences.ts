import type Database from "libsql";
import { NO_TOKENS, type Tokens } from "../../metering/usage.ts";
import { queryColumn } from "../store/query.ts";
import { BILLING_UNIT, readRecords, rounded, type StoredRecord } from "../store/verdicts.ts";
import type { Theirs } from "../verdict.ts";
import {
  type KindFactors,
  type ModelFactor,
  type PriceExplanation,
  ROWS_PER_FACTOR,
  TOKEN_KINDS,
  type TokenKind,
} from "./shape.ts";

/*
 * Why the rows of a model cost another amount than our list price: the operator's own may be a multiple of it, for all tokens
 * or for some kinds of them. A cause is named only if it explains nearly all rows to rounding.
 */

/** Our list price of one token of each kind, in micro-dollars. */
export type TokenPrices = Readonly<Record<TokenKind, number>>;

/** A line of the report whose money differs. */
interface DifferingLine extends Pick<ModelFactor, "model" | "group" | "tier" | "difference_microdollars"> {
  /** null: not known. */
  readonly prices: TokenPrices | null;
}

/** Prices are measured with this many tokens, because one token may cost a fraction. */
const SAMPLE = 1000;
/** More than any maker's limit for a longer context. */
const LONG_SAMPLE = 300_000;

const PICODOLLARS_PER_MICRODOLLAR = 1_000_000;

/** @param findPrice in picodollars; null: not known */
export function tokenPrices(
  findPrice: (tokens: Tokens) => number | null,
  isLongContext: boolean,
): TokenPrices | null {
  const base = { ...NO_TOKENS, input: isLongContext ? LONG_SAMPLE : SAMPLE };
  const least = findPrice(base);
  if (least === null) return null;
  const perToken = (more: Partial<Tokens>) =>
    ((findPrice({ ...base, ...more }) ?? least) - least) / SAMPLE / PICODOLLARS_PER_MICRODOLLAR;
  return {
    input: perToken({ input: base.input + SAMPLE }),
    cache_read: perToken({ cacheRead: SAMPLE }),
    cache_write: perToken({ cacheWrite: SAMPLE }),
    output: perToken({ output: SAMPLE }),
  };
}

/** Whether a difference over this many rows is more than rounding explains. */
export function isMoreThanRounding(microdollars: number, rows: number): boolean {
  return Math.abs(microdollars) > BILLING_UNIT * rows;
}

/** For each line what explains its difference; null: the prices are the same. */
export function explainLines(
  db: Database.Database,
  gateway: string,
  lines: readonly DifferingLine[],
  tools: readonly string[],
): (PriceExplanation | null)[] {
  return lines.map((line) => {
    const rows = readPricedRows(db, gateway, line, tools);
    if (rows.length > 0) return explainPrices(rows);
    const unexplained_microdollars = line.difference_microdollars;
    return { rows: 0, explained: 0, factors: null, unexplained_microdollars, example: null };
  });
}

/** A matched request, as both sides price it. In micro-dollars, before the multiplier. */
export interface PricedRow {
  /** Our record. */
  readonly record: string;
  readonly tokens: Readonly<Record<TokenKind, number>>;
  /** Our price of each kind of its tokens; null: it had another price than `ours` has now. */
  readonly parts: Readonly<Record<TokenKind, number>> | null;
  readonly ours: number;
  readonly theirs: number;
  /** A difference up to this is rounding. */
  readonly rounding: number;
  /** The console's. */
  readonly multiplier: number;
}

/** The latest rows of a line are examined, up to this many. */
const MAX_ROWS = 500;

function readPricedRows(
  db: Database.Database,
  gateway: string,
  { model, group, tier, prices }: DifferingLine,
  tools: readonly string[],
): PricedRow[] {
  const sql = `SELECT record FROM mirror.verdicts INDEXED BY verdicts_counted
    WHERE gateway = ? AND verdict = 'matched' AND tool = ? AND model = ? AND "group" IS ? AND tier IS ?
    ORDER BY record DESC LIMIT ${MAX_ROWS}`;
  const ids = tools.flatMap((tool) => queryColumn(db, sql, gateway, tool, model, group, tier).map(String));
  const latest = ids.toSorted().slice(-MAX_ROWS);
  return [...readRecords(db, latest).values()].flatMap((stored) => pricedRow(stored, prices) ?? []);
}

/** Consoles compute in floats. */
const SAME_SHARE = 0.001;

/** null: one side has no price. */
function pricedRow({ record, theirs }: StoredRecord, prices: TokenPrices | null): PricedRow | null {
  const ours = record.list_microdollars;
  const their = theirs === null ? null : theirPrice(JSON.parse(theirs));
  if (ours === null || their === null) return null;
  const tokens = byKind((kind) => record[`${kind}_tokens`] ?? 0);
  const parts = prices && byKind((kind) => prices[kind] * tokens[kind]);
  const isCurrent = parts !== null && Math.abs(sumKinds(parts) - ours) <= 1 + SAME_SHARE * ours;
  return { record: record.id, tokens, parts: isCurrent ? parts : null, ours, ...their };
}

function theirPrice(theirs: Theirs): Pick<PricedRow, "theirs" | "rounding" | "multiplier"> | null {
  const { list_microdollars: list, billed_microdollars: billed, multiplier } = theirs;
  if (list !== null) return { theirs: list, rounding: 1 + SAME_SHARE * list, multiplier: multiplier ?? 1 };
  if (billed === null || multiplier === null || multiplier <= 0) return null;
  const price = billed / multiplier;
  return { theirs: price, rounding: BILLING_UNIT / multiplier + SAME_SHARE * price, multiplier };
}

/** null: both sides have the same prices. */
export function explainPrices(all: readonly PricedRow[]): PriceExplanation | null {
  // After `prices:` was changed, rows with the earlier price explain nothing about the present one.
  const current = all.filter(({ parts }) => parts !== null);
  const rows = current.length >= ROWS_PER_FACTOR ? current : all;
  const used = TOKEN_KINDS.filter((kind) => rows.some(({ tokens }) => tokens[kind] > 0));
  const factors = findFactors(rows, used);
  const isExplained = (row: PricedRow) => explains(factors ?? LIST_PRICE, row);
  const others = rows.filter((row) => !isExplained(row));
  const left = others.reduce(
    (sum, row) => sum + (row.theirs - priceWith(factors ?? LIST_PRICE, row)) * row.multiplier,
    0,
  );
  const unexplained = isMoreThanRounding(left, rows.length) ? Math.round(left) : 0;
  if (factors === LIST_PRICE && unexplained === 0) return null;
  const isNamed = factors !== null && factors !== LIST_PRICE;
  return {
    rows: rows.length,
    explained: rows.length - others.length,
    factors: factors && Object.fromEntries(used.map((kind) => [kind, rounded(factors[kind])])),
    unexplained_microdollars: unexplained,
    example: exampleIn(isNamed ? rows.filter(isExplained) : others),
  };
}

/** The row that shows the difference best. */
function exampleIn(rows: readonly PricedRow[]): PriceExplanation["example"] {
  const differenceOf = ({ theirs, ours }: PricedRow) => Math.abs(theirs - ours);
  const [row] = rows.toSorted((a, b) => differenceOf(b) - differenceOf(a));
  if (row === undefined) return null;
  const { record, tokens, ours, theirs } = row;
  return { record, tokens, ours_microdollars: ours, theirs_microdollars: Math.round(theirs) };
}

/** At least this share of the rows must be explained. */
const NEARLY_ALL = 0.95;
const LIST_PRICE: KindFactors = byKind(() => 1);

/** What has a factor of its own. */
type Priced = "all" | TokenKind;

/** The simplest factors that explain nearly all rows; null: there are none, or others explain as much. */
function findFactors(rows: readonly PricedRow[], kinds: readonly TokenKind[]): KindFactors | null {
  const isEnough = (factors: KindFactors) =>
    rows.filter((row) => explains(factors, row)).length >= NEARLY_ALL * rows.length;
  if (isEnough(LIST_PRICE)) return LIST_PRICE;
  for (const candidates of candidatesFor(kinds)) {
    const found = candidates
      .filter((priced) => rows.length >= ROWS_PER_FACTOR * priced.length)
      .map((priced) => fitFactors(rows, priced))
      .filter((factors) => factors !== null && isEnough(factors));
    if (found.length > 0) return found.length === 1 ? (found[0] ?? null) : null;
  }
  return null;
}

/** First one factor for all tokens, then factors for each one kind, for two kinds, and so on. */
function* candidatesFor(kinds: readonly TokenKind[]): Generator<readonly Priced[][]> {
  yield [["all"]];
  let sets: TokenKind[][] = [[]];
  for (const kind of kinds) sets = [...sets, ...sets.map((set) => [...set, kind])];
  for (let size = 1; size <= kinds.length; size += 1) yield sets.filter((set) => set.length === size);
}

function explains(factors: KindFactors, row: PricedRow): boolean {
  return Math.abs(row.theirs - priceWith(factors, row)) <= row.rounding;
}

function priceWith(factors: KindFactors, { parts, ours }: PricedRow): number {
  if (parts !== null) return sumKinds(byKind((kind) => factors[kind] * parts[kind]));
  const isSame = TOKEN_KINDS.every((kind) => factors[kind] === factors.input);
  return isSame ? factors.input * ours : ours;
}

/** A few rows with a surcharge or a refund must not decide: the fit is repeated without those that fit worst. */
const ROUNDS = 5;

/** null: the rows do not determine the factors. */
function fitFactors(rows: readonly PricedRow[], priced: readonly Priced[]): KindFactors | null {
  let used = rows;
  let factors: KindFactors | null = null;
  for (let round = 0; round < ROUNDS; round += 1) {
    const fitted = leastSquares(used, priced);
    if (fitted === null) return null;
    factors = fitted;
    const errors = new Map(rows.map((row) => [row, Math.abs(row.theirs - priceWith(fitted, row))]));
    const best = rows.toSorted((a, b) => (errors.get(a) ?? 0) - (errors.get(b) ?? 0));
    used = best.slice(0, Math.ceil(NEARLY_ALL * rows.length));
  }
  return factors;
}

/** null: the rows do not determine the factors, or one would be negative. */
function leastSquares(rows: readonly PricedRow[], priced: readonly Priced[]): KindFactors | null {
  // The normal equations. Each ends with its right side.
  const equations = priced.map(() => [...priced, "right side"].map(() => 0));
  for (const { parts, ours, theirs } of rows) {
    const amounts = priced.map((name) => (name === "all" ? ours : (parts?.[name] ?? 0)));
    const listed = ours - amounts.reduce((sum, one) => sum + one, 0);
    const values = [...amounts, theirs - listed];
    for (const [at, equation] of equations.entries())
      for (const [column, value] of values.entries())
        equation[column] = (equation[column] ?? 0) + (amounts[at] ?? 0) * value;
  }
  const solution = solve(equations);
  if (solution === null || solution.some((one) => one < 0)) return null;
  return byKind((kind) => solution[priced.findIndex((name) => name === "all" || name === kind)] ?? 1);
}

/** What is left of an equation's own number after elimination, at least. With less, the rows are multiples of each other. */
const MIN_PIVOT = 1e-6;

/** Gauss-Jordan elimination, of symmetric equations. null: there is more than one solution. */
function solve(equations: number[][]): number[] | null {
  const diagonal = equations.map((equation, at) => equation[at] ?? 0);
  for (const [at, equation] of equations.entries()) {
    const pivot = equation[at] ?? 0;
    if (!(pivot > MIN_PIVOT * (diagonal[at] ?? 0))) return null;
    for (const other of equations) {
      if (other === equation) continue;
      const share = (other[at] ?? 0) / pivot;
      for (const [column, value] of equation.entries()) other[column] = (other[column] ?? 0) - share * value;
    }
  }
  return equations.map((equation, at) => (equation.at(-1) ?? 0) / (equation[at] ?? 1));
}

function byKind(read: (kind: TokenKind) => number): Record<TokenKind, number> {
  return {
    input: read("input"),
    cache_read: read("cache_read"),
    cache_write: read("cache_write"),
    output: read("output"),
  };
}

function sumKinds(amounts: Readonly<Record<TokenKind, number>>): number {
  return TOKEN_KINDS.reduce((sum, kind) => sum + amounts[kind], 0);
}
