import { createRequire } from "node:module";
import type { MatchLogic, ModelInfo, ModelPrice, Provider } from "@pydantic/genai-prices";
import { ANY_PREVIEW, namesInList, oneSpelling } from "./model-names.ts";
import type { Tokens } from "./record.ts";

/** The built-in list: what the makers of the models ask for them. It is part of the program and asks nobody. */
export interface PriceList {
  /** What a maker asks, in picodollars, a million to the micro-dollar; null: not known. */
  picodollars(model: string, tokens: Tokens, at: number): number | null;
}

type Library = typeof import("@pydantic/genai-prices");
type Amount = ModelPrice[string];
/** Prices at a time. */
type PricedModel = (at: number) => ModelPrice;

/** Who makes models: resellers ask other prices. Z.ai's list in dollars goes before its list in yuan. */
const MAKERS = [
  "anthropic",
  "openai",
  "google",
  "x-ai",
  "deepseek",
  "moonshotai",
  "mistral",
  "cohere",
  "perplexity",
  "zai",
  "zhipuai",
  "minimax",
  "voyageai",
];

/** Sound and speech cost several times what text does, and a count of tokens does not tell which they were. */
const MIXED = /audio|realtime|live|transcribe/;
const MIXED_OUTPUT = /^output_(?:audio|image|video)_mtok$/;

/** How many names that were asked for are remembered. */
const MOST_NAMES = 1000;

/**
 * Loading takes some tens of milliseconds and some megabytes, so that it happens when the first price is asked for, or
 * before. Not by import(), which nobody could wait for in the middle of a request.
 */
export function loadPriceList(): PriceList {
  const library: Library = createRequire(import.meta.url)("@pydantic/genai-prices");
  const models = new Map<string, PricedModel>();
  for (const [name, model] of MAKERS.flatMap((id) => modelsOf(library, id))) {
    // The first to claim a name has it.
    if (!models.has(name)) models.set(name, model);
  }
  const found = new Map<string, PricedModel | null>();
  const find = (model: string): PricedModel | null => {
    const known = found.get(model);
    if (known !== undefined) return known;
    const name = namesInList(model).find((candidate) => models.has(candidate));
    const priced = (name === undefined ? undefined : models.get(name)) ?? null;
    if (found.size >= MOST_NAMES) found.clear();
    found.set(model, priced);
    return priced;
  };
  return {
    picodollars(model, tokens, at) {
      const priced = find(model);
      return priced === null ? null : priceOf(priced(at), tokens);
    },
  };
}

function modelsOf(library: Library, maker: string): [string, PricedModel][] {
  const provider = library.findProvider({ providerId: maker });
  if (provider === undefined) return [];
  const own = provider.models.filter(({ id }) => !MIXED.test(id) && !isResold(maker, id));
  return own.flatMap((model) => {
    const priced = pricedModel(library, provider, model);
    return namesOf(model).map((name): [string, PricedModel] => [name, priced]);
  });
}

function isResold(maker: string, id: string): boolean {
  return maker === "google" && !/^gem(?:ini|ma)-/.test(id);
}

/** Most prices are the same at all times. For the others the list's own reading of the clock is asked. */
function pricedModel(library: Library, provider: Provider, model: ModelInfo): PricedModel {
  const { prices } = model;
  if (!Array.isArray(prices)) return () => prices;
  const alone = { ...provider, models: [{ ...model, match: { equals: "it" } }] };
  return (at) => library.calcPrice({}, "it", { provider: alone, timestamp: new Date(at) })?.model_price ?? {};
}

/**
 * The names that the list gives a model. It matches more than these by how they begin or what they contain, but that
 * would find a price for every new model that is named after an old one.
 */
function namesOf({ id, match }: ModelInfo): string[] {
  const names = [id, ...literals(match)].filter((name) => !name.startsWith("ft:"));
  return names.map((name) => oneSpelling(name.replace(/[-@]$/, "")));
}

function literals(match: MatchLogic): string[] {
  if ("or" in match) return match.or.flatMap(literals);
  if ("and" in match) return match.and.flatMap(literals);
  if ("regex" in match) return [];
  // Which of a model's previews are the same as the model, only the list knows.
  if ("starts_with" in match) return [match.starts_with, `${match.starts_with}${ANY_PREVIEW}`];
  return Object.values(match);
}

/**
 * A kind of token without a price of its own costs what the kind costs that it is a part of. null: this is not paid for
 * by tokens, or by more than tokens tell.
 */
function priceOf(prices: ModelPrice, tokens: Tokens): number | null {
  const { input, cacheRead, cacheWrite, cacheWriteHour: hour = 0, output, reasoning } = tokens;
  if (Object.keys(prices).some((key) => MIXED_OUTPUT.test(key))) return null;
  const { input_mtok, output_mtok } = prices;
  if (input_mtok === undefined || (output_mtok === undefined && output > 0)) return null;
  const total = input + cacheRead + cacheWrite;
  const cost = (count: number, price: Amount) => count * pico(price, total);
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
function pico(price: Amount, totalInput: number): number {
  if (price === undefined) return 0;
  let dollars = typeof price === "number" ? price : price.base;
  // Beyond a tier's start the whole request costs its price.
  if (typeof price !== "number")
    for (const tier of price.tiers) if (totalInput > tier.start) dollars = tier.price;
  return Math.round(dollars * 1_000_000);
}
