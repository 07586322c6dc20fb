import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { packageFolder } from "../package-folder.ts";
import { namesInList } from "./model-names.ts";
import {
  type Amount,
  ofDay,
  type PricedModel,
  type PricesThen,
  type PriceTable,
  type TokenPrices,
  tableOf,
} from "./price-table.ts";
import type { Tokens } from "./usage.ts";

/** The built-in list: what the makers of the models ask for them. It is part of the program and asks nobody. */
export interface PriceList {
  /** What a maker asks, in picodollars, a million to the micro-dollar; null: not known. */
  picodollars(model: string, tokens: Tokens, at: number): number | null;
}

/** How many names that were asked for are remembered. */
const MOST_NAMES = 1000;

/** Read at once, since the package may be replaced later; taken apart when the first price is asked for. */
export function loadPriceList(): PriceList {
  const text = readBuilt();
  // Not built: the list itself, which takes some tens of milliseconds and megabytes. Not by import(), which nobody could
  // wait for in the middle of a request.
  const table = text === null ? tableOf(createRequire(import.meta.url)("@pydantic/genai-prices")) : null;
  let models: ReadonlyMap<string, PricedModel> | null = null;
  const found = new Map<string, PricedModel | null>();
  const find = (model: string): PricedModel | null => {
    const known = found.get(model);
    if (known !== undefined) return known;
    models ??= byName(table ?? JSON.parse(text ?? ""));
    const all = models;
    const name = namesInList(model).find((candidate) => all.has(candidate));
    const priced = (name === undefined ? undefined : all.get(name)) ?? null;
    if (found.size >= MOST_NAMES) found.clear();
    found.set(model, priced);
    return priced;
  };
  return {
    picodollars(model, tokens, at) {
      const prices = find(model)?.prices;
      return prices === undefined ? null : priceOf(pricesAt(prices, at), tokens);
    },
  };
}

/** What the build made of the list; null: this is not built. */
function readBuilt(): string | null {
  if (import.meta.url.endsWith(".ts")) return null;
  try {
    return readFileSync(new URL("dist/prices.json", packageFolder()), "utf8");
  } catch {
    return null;
  }
}

function byName({ models }: PriceTable): ReadonlyMap<string, PricedModel> {
  const named = new Map<string, PricedModel>();
  for (const model of models) for (const name of model.names) if (!named.has(name)) named.set(name, model);
  return named;
}

function pricesAt(prices: readonly PricesThen[], at: number): TokenPrices | null {
  return (prices.findLast((then) => holds(then, at)) ?? prices[0])?.prices ?? null;
}

function holds({ since, between }: PricesThen, at: number): boolean {
  if (since !== undefined) return at >= since;
  if (between === undefined) return true;
  const [time, [from, to]] = [ofDay(at), between];
  return to < from ? time >= from || time < to : time >= from && time < to;
}

/** A kind of token without a price of its own costs what the kind costs that it is a part of. */
function priceOf(prices: TokenPrices | null, tokens: Tokens): number | null {
  if (prices === null) return null;
  const { input, cacheRead, cacheWrite, cacheWriteHour: hour = 0, output, reasoning } = tokens;
  const { input_mtok, output_mtok } = prices;
  if (output_mtok === undefined && output > 0) return null;
  const total = input + cacheRead + cacheWrite;
  const cost = (count: number, price: Amount | undefined) => count * pico(price, total);
  const thought = prices.output_reasoning_mtok === undefined ? 0 : Math.min(reasoning, output);
  return (
    cost(input, input_mtok) +
    cost(cacheRead, prices.cache_read_mtok ?? input_mtok) +
    cost(cacheWrite - hour, prices.cache_write_mtok ?? input_mtok) +
    cost(hour, prices.cache_write_1h_mtok ?? prices.cache_write_mtok ?? input_mtok) +
    cost(output - thought, output_mtok) +
    cost(thought, prices.output_reasoning_mtok) +
    // By the thousand, where the others are by the million.
    cost(1000, prices.requests_kcount)
  );
}

/** Dollars a million tokens are micro-dollars a token. No price has more than six decimals, so that this is exact. */
function pico(price: Amount | undefined, totalInput: number): number {
  if (price === undefined) return 0;
  let dollars = typeof price === "number" ? price : price.base;
  // Beyond a tier's start the whole request costs its price.
  if (typeof price !== "number")
    for (const tier of price.tiers) if (totalInput > tier.start) dollars = tier.price;
  return Math.round(dollars * 1_000_000);
}
