import { readFileSync } from "node:fs";
import type { Named, Price } from "../config/schema.ts";
import { packageFolder } from "../core/version.ts";
import { namesInList } from "./model-names.ts";
import {
  type Amount,
  type DatedPrices,
  type PricedModel,
  type PriceTable,
  type TokenPrices,
  timeOfDay,
} from "./price-table.ts";
import { STANDARD_TIER } from "./service-tiers.ts";
import type { Tokens } from "./usage.ts";

interface ModelNames {
  readonly asked: string | null;
  readonly answered: string | null;
}

/**
 * A price in whole micro-dollars, a half rounded up. Prices are kept in picodollars (a million of them are a micro-dollar)
 * so that they are exact, and rounded only once: here, with a group's multiplier or without.
 */
export function toMicrodollars(picodollars: number, multiplier = 1): number {
  // In whole numbers: as a float, 1.1 × 0.45 is slightly too small, and its half would be rounded down.
  const price = Math.round(picodollars);
  const factor = Math.round(multiplier * 1_000_000);
  // The whole micro-dollars of the price and its rest, each times the factor. Up to 9,000 dollars, doubles hold that exactly.
  const rest = price % 1_000_000;
  const product =
    ((price - rest) / 1_000_000) * factor + Math.floor((rest * factor + 500_000_000_000) / 1_000_000);
  if (product <= Number.MAX_SAFE_INTEGER) return (product - (product % 1_000_000)) / 1_000_000;
  // This takes 2 µs.
  return Number((BigInt(price) * BigInt(factor) + 500_000_000_000n) / 1_000_000_000_000n);
}

/** Finding a name takes 3 to 15 µs, and a request needs up to five prices. So this many names are remembered. */
const MAX_REMEMBERED = 1000;

/** What requests cost: the prices of config.yaml, then the list prices of the makers of the models. */
export class Prices {
  readonly #listed = new Map<string, PricedModel>();
  /** By the name in the request or in the answer. null: the list does not have it. */
  readonly #remembered = new Map<string, PricedModel | null>();

  constructor({ models }: PriceTable) {
    for (const model of models) {
      for (const name of model.names) {
        if (!this.#listed.has(name)) this.#listed.set(name, model);
      }
    }
  }

  /**
   * The list price of a request in picodollars; null: not known, which is not zero. Never throws. Gateways bill by the model
   * that was asked for. If its price is unknown (it may be the gateway's own name), the model that answered counts.
   * @param own the prices of config.yaml, by exact name. They hold for every tier.
   * @param tier the service tier that the answer names, else the request; null: neither names one.
   */
  findPrice(
    names: ModelNames,
    tokens: Tokens,
    at: number,
    own: Named<Price>,
    tier: string | null = null,
  ): number | null {
    for (const model of [names.asked, names.answered]) {
      if (model === null) continue;
      const ownPrice = Object.hasOwn(own, model) ? own[model] : undefined;
      if (ownPrice !== undefined) return finiteOrNull(costAt(ownPrice, tokens));
      const listed = this.#find(model);
      if (listed !== null) return finiteOrNull(listCost(listed, tokens, at, tier));
    }
    return null;
  }

  /** Whether both names mean the same model of the list. */
  isSameModel(one: string, other: string): boolean {
    const found = this.#find(one);
    return found !== null && found === this.#find(other);
  }

  #find(model: string): PricedModel | null {
    const remembered = this.#remembered.get(model);
    if (remembered !== undefined) return remembered;
    const name = namesInList(model).find((candidate) => this.#listed.has(candidate));
    const found = (name === undefined ? undefined : this.#listed.get(name)) ?? null;
    if (this.#remembered.size >= MAX_REMEMBERED) this.#remembered.clear();
    this.#remembered.set(model, found);
    return found;
  }
}

/** Reads what the build wrote. Called once, at the start: the package's files may be replaced later. */
export function readPriceTable(): PriceTable {
  return JSON.parse(readFileSync(new URL("dist/prices.json", packageFolder()), "utf8"));
}

/** A gateway may report counts so large that their sum is infinite. */
function finiteOrNull(price: number | null): number | null {
  return Number.isFinite(price) ? price : null;
}

/** In picodollars: they are to a token what micro-dollars are to a million tokens. */
function costAt(price: Price, { input, cacheRead, cacheWrite, output }: Tokens): number {
  return (
    input * price.input + cacheRead * price.cacheRead + cacheWrite * price.cacheWrite + output * price.output
  );
}

/** null: no price of this tier was published. */
function tierFactor({ tiers }: PricedModel, tier: string | null): number | null {
  if (tier === null || tier === STANDARD_TIER) return 1;
  return Object.hasOwn(tiers, tier) ? (tiers[tier] ?? null) : null;
}

function isValidAt({ since, between }: DatedPrices, at: number): boolean {
  if (since !== undefined) return at >= since;
  if (between === undefined) return true;
  const [from, to] = between;
  const time = timeOfDay(at);
  return to < from ? time >= from || time < to : time >= from && time < to;
}

/** In picodollars; null: not known. */
function listCost(listed: PricedModel, tokens: Tokens, at: number, tier: string | null): number | null {
  const dated = listed.prices.findLast((prices) => isValidAt(prices, at)) ?? listed.prices[0];
  const prices = dated?.prices ?? null;
  const factor = tierFactor(listed, tier);
  if (prices === null || factor === null) return null;
  const cost = computeCost(prices, tokens);
  return cost === null ? null : Math.round(cost * factor);
}

/** In picodollars; null: not known. A kind of token without its own price costs as much as the kind it is part of. */
function computeCost(prices: TokenPrices, tokens: Tokens): number | null {
  const { input, cacheRead, cacheWrite, cacheWriteHour, output, reasoning } = tokens;
  const { input_mtok, output_mtok } = prices;
  if (output_mtok === undefined && output > 0) return null;
  const totalInput = input + cacheRead + cacheWrite;
  const cost = (count: number, price: Amount | undefined) => count * picodollarsPer(price, totalInput);
  const cacheWritePrice = prices.cache_write_mtok ?? input_mtok;
  const separateReasoning = prices.output_reasoning_mtok === undefined ? 0 : Math.min(reasoning, output);
  return (
    cost(input, input_mtok) +
    cost(cacheRead, prices.cache_read_mtok ?? input_mtok) +
    cost(cacheWrite - cacheWriteHour, cacheWritePrice) +
    cost(cacheWriteHour, prices.cache_write_1h_mtok ?? cacheWritePrice) +
    cost(output - separateReasoning, output_mtok) +
    cost(separateReasoning, prices.output_reasoning_mtok) +
    // This price is per thousand requests, the others are per million tokens.
    cost(1000, prices.requests_kcount)
  );
}

/** The list is in dollars per million tokens, with at most six decimals, so picodollars per token are exact. */
function picodollarsPer(price: Amount | undefined, totalInput: number): number {
  if (price === undefined) return 0;
  if (typeof price === "number") return Math.round(price * 1_000_000);
  let dollars = price.base;
  // Beyond the start of a tier the whole request costs its price.
  for (const tier of price.tiers) if (totalInput > tier.start) dollars = tier.price;
  return Math.round(dollars * 1_000_000);
}
